"""Lecture 9, given: what the parts of the lecture's program share: the base model, real text, and how figures look."""

from __future__ import annotations

import copy
import functools
from typing import NamedTuple

import torch
from torch import Tensor, nn

from exercises.program import Program

B, T = 4, 64  # sequences and positions of the text on which outputs and gradients are compared
ROUNDING = 1e-12  # float64 results that differ by less than this, relative to their size, differ by rounding only


class Base(NamedTuple):
    """The trained base model and text from the validation set."""

    model: nn.Module  # float32
    double: nn.Module  # the same in float64
    val: Tensor  # the validation text, 1-D int64
    idx: Tensor  # its first B × T characters, (B, T)
    targets: Tensor  # the characters after them, (B, T)
    attn_in: Tensor  # what the first block's attention is given for idx, (B, T, d) float64
    mlp_in: Tensor  # what its MLP is given


@functools.cache
def base() -> Base:
    from fm_world import ALPHABET, build_world
    from tiny_gpt import CharTokenizer, load_or_train_base_model

    world = build_world()
    tok = CharTokenizer(ALPHABET)
    model, _ = load_or_train_base_model(world, tok)
    double = copy.deepcopy(model).double()
    val = torch.tensor(tok.encode(world.val_text()))
    idx, targets = val[: B * T].view(B, T), val[1 : B * T + 1].view(B, T)
    block = double.blocks[0]
    with torch.no_grad():
        x = double.tok_emb(idx) + double.pos_emb.weight[:T]
        attn_in = block.ln1(x)
        mlp_in = block.ln2(x + block.attn(attn_in))
    return Base(model, double, val, idx, targets, attn_in, mlp_in)


def largest(x: Tensor) -> float:
    """The largest absolute value in x."""
    return x.abs().max().item()


def sci(x: float) -> str:
    return f"{x:.1e}" if x else "0"


def listed(values) -> str:
    return ", ".join(str(value) for value in sorted(values))


def title(program: Program, en: str, zh: str) -> None:
    from console import print_header

    print()
    print_header(program.say(en, zh))


def table(program: Program, headers: list[tuple[str, str]], rows: list[list]) -> None:
    """A table whose first column is text and whose others are figures. `headers` are pairs (English, Chinese)."""
    from console import print_table

    print_table([program.say(*header) for header in headers], rows, align="<" + ">" * (len(headers) - 1))
    print()
