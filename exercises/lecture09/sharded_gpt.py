"""Lecture 9, given: TinyGPT on one real rank, with f and g at the borders of its sharded regions.

Source: Shoeybi et al. 2019, "Megatron-LM", section 3, figures 3 and 4.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ranks import counted_all_reduces
from tiny_gpt import Block, TinyGPT

_BY_ROWS = (".q_proj.", ".k_proj.", ".v_proj.", ".mlp.0.")  # column-parallel in the paper's words
_BY_COLUMNS = (".out_proj.weight", ".mlp.2.weight")  # row-parallel


def piece(name: str, tensor: Tensor, rank: int, t: int) -> Tensor:
    """What a rank holds of the parameter `name` of TinyGPT, or of its gradient: a slice, or all of it."""
    if any(part in name for part in _BY_ROWS):
        return tensor.chunk(t)[rank]
    if name.endswith(_BY_COLUMNS):
        return tensor.chunk(t, dim=1)[rank]
    return tensor


def forward_backward(rank: int, group, model: TinyGPT, idx: Tensor, targets: Tensor) -> dict[str, dict]:
    """One forward and backward pass with f, and one without it, on this rank's pieces of `model`.

    idx and targets are (B, T) int64. Each pass returns "loss" (cross-entropy, in nats), "grads" by parameter name,
    and the all-reduces of both directions, "forward" and "backward".
    """
    from tp_autograd import f, g

    t = group.size()
    weights = {name: piece(name, weight.detach(), rank, t) for name, weight in model.named_parameters()}
    results = {}
    local_heads = cast(Block, model.blocks[0]).attn.n_heads // t
    for with_f in (True, False):
        leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        enter = (lambda x: f(x, group)) if with_f else (lambda x: x)
        with counted_all_reduces() as forward:
            logits = _logits(leaves, len(model.blocks), local_heads, idx, enter, lambda x: g(x, group))
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        with counted_all_reduces() as backward:
            grads = torch.autograd.grad(loss, list(leaves.values()))
        results["with_f" if with_f else "without_f"] = {
            "loss": loss.item(),
            "grads": dict(zip(leaves, grads)),
            "forward": forward.total,
            "backward": backward.total,
        }
    return results


def _logits(p: dict[str, Tensor], blocks: int, local_heads: int, idx: Tensor, enter, leave) -> Tensor:
    """(B, T) ids to (B, T, V) logits on one rank's parameters `p`, f being `enter` and g being `leave`."""

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"])

    x = p["tok_emb.weight"][idx] + p["pos_emb.weight"][: idx.shape[1]]
    for block in (f"blocks.{i}" for i in range(blocks)):
        inner = enter(norm(x, f"{block}.ln1"))
        q, k, v = (
            linear(inner, f"{block}.attn.{name}").unflatten(-1, (local_heads, -1)).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + leave(F.linear(heads, p[f"{block}.attn.out_proj.weight"])) + p[f"{block}.attn.out_proj.bias"]
        hidden = F.gelu(linear(enter(norm(x, f"{block}.ln2")), f"{block}.mlp.0"))
        x = x + leave(F.linear(hidden, p[f"{block}.mlp.2.weight"])) + p[f"{block}.mlp.2.bias"]
    return F.linear(norm(x, "ln_f"), p["tok_emb.weight"])
