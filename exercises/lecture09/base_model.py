"""Lecture 9, given: what the parts of the lecture's program share: the base model, real text, and how figures look."""

from __future__ import annotations

import copy
import functools
from typing import NamedTuple, cast

import torch
from torch import Tensor

from console import print_header, print_table
from exercises.program import Program
from fm_world import ALPHABET, build_world
from tiny_gpt import Block, CharTokenizer, TinyGPT, load_or_train_base_model

B, T = 4, 64  # sequences and positions of the text on which outputs and gradients are compared
ROUNDING = 1e-12  # float64 results that differ by less than this, relative to their size, differ by rounding only


class Base(NamedTuple):
    """The trained base model and text from the validation set."""

    model: TinyGPT  # float32
    double: TinyGPT  # the same in float64
    block: Block  # its first block
    val: Tensor  # the validation text, 1-D int64
    idx: Tensor  # its first B × T characters, (B, T)
    targets: Tensor  # the characters after them, (B, T)
    attn_in: Tensor  # what the block's attention is given for idx, (B, T, d) float64
    mlp_in: Tensor  # what its MLP is given


@functools.cache
def base() -> Base:
    world = build_world()
    tok = CharTokenizer(ALPHABET)
    model, _ = load_or_train_base_model(world, tok)
    torch.set_num_threads(1)  # on tensors this small, a second thread costs more than it saves
    double = copy.deepcopy(model).double()
    val = torch.tensor(tok.encode(world.val_text()))
    idx, targets = val[: B * T].view(B, T), val[1 : B * T + 1].view(B, T)
    block = cast(Block, double.blocks[0])
    with torch.no_grad():
        x = double.tok_emb(idx) + double.pos_emb.weight[:T]
        attn_in = block.ln1(x)
        mlp_in = block.ln2(x + block.attn(attn_in))
    return Base(model, double, block, val, idx, targets, attn_in, mlp_in)


def largest(x: Tensor) -> float:
    """The largest absolute value in x."""
    return x.abs().max().item()


def sci(x: float) -> str:
    return f"{x:.1e}" if x else "0"


def percent(x: float) -> str:
    """A relative error: in percent, or as a power of ten where that would be 0 %."""
    return f"{x:.0%}" if x >= 0.005 else sci(x)


def listed(values) -> str:
    return ", ".join(str(value) for value in sorted(values))


def title(program: Program, en: str, zh: str) -> None:
    print_header(program.say(en, zh))


def table(program: Program, headers: list[tuple[str, str]], rows: list[list]) -> None:
    """A table whose first column is text and whose others are figures. `headers` are pairs (English, Chinese)."""
    print_table([program.say(*header) for header in headers], rows)
    print()
