"""Lecture 9, exercises 1 to 4: tensor parallelism, with one process playing all t ranks.

Shapes: B sequences, T positions, d width, H heads, hd = d / H, F hidden width of the MLP, V vocabulary, t ranks.
`nn.Linear.weight` is (out, in), so "split the output columns of A" means "split the rows of `weight`".

Source: Shoeybi et al. 2019, "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism",
section 3.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from collectives import all_reduce


def split_mlp(mlp: nn.Sequential, t: int) -> tuple[list[dict[str, Tensor]], Tensor]:
    """Exercise `split_mlp`: cut an MLP for t ranks, the first layer column-parallel, the second row-parallel.

    `mlp` is `nn.Sequential(nn.Linear(d, F), nn.GELU(), nn.Linear(F, d))`.
    Returns `(shards, b2)`. `shards` is a list of t dicts; the r-th holds the r-th of t consecutive pieces:
    `W1` (F/t, d), `b1` (F/t,), `W2` (d, F/t). `b2` (d,) is not split. Gradients must flow back to the parameters of
    `mlp`, so don't detach.
    Raises `ValueError` with both numbers in the message where t < 1 or t does not divide F.
    Source: Megatron-LM, section 3, figure 3a.
    """
    raise NotImplementedError("to do: split_mlp")


def tp_mlp_forward(x: Tensor, shards: list[dict[str, Tensor]], b2: Tensor, counter: dict | None = None) -> Tensor:
    """Exercise `tp_mlp_forward`: the MLP on t ranks, (B, T, d) to (B, T, d).

    Every rank sees all of `x` and only its own shard (keys `W1`, `b1`, `W2`), and arrives at a partial output
    (B, T, d). One `all_reduce` adds the partials. The output bias `b2` counts once, however large t is.
    Pass `counter` on to `all_reduce`.
    Source: Megatron-LM, section 3, figure 3a.
    """
    raise NotImplementedError("to do: tp_mlp_forward")


def tp_attention_forward(attn: nn.Module, x: Tensor, t: int, counter: dict | None = None) -> Tensor:
    """Exercise `tp_attention_forward`: causal self-attention with its heads spread over t ranks, (B, T, d) to (B, T, d).

    `attn` has `q_proj`, `k_proj`, `v_proj`, `out_proj` (each `nn.Linear(d, d)`) and `n_heads` = H. Rank r owns the
    heads r·H/t to (r+1)·H/t − 1 in all four projections: rows of the first three weights, columns of the last.
    Scores are scaled by 1 / sqrt(hd). One `all_reduce` adds the ranks' partial outputs (B, T, d); the output bias
    counts once. `attn` itself stays as it is.
    Raises `ValueError` with both numbers in the message where t < 1 or t does not divide H.
    Source: Megatron-LM, section 3, figure 3b.
    """
    raise NotImplementedError("to do: tp_attention_forward")


def tp_model_forward(model: nn.Module, idx: Tensor, t: int, counter: dict | None = None) -> Tensor:
    """Exercise `tp_model_forward`: the whole TinyGPT on t ranks, ids (B, T) to logits (B, T, V).

    Two all-reduces a block, the attention's before the MLP's. Embeddings, norms and the output head are computed
    once. The result equals `model(idx)`; nothing about `model` changes.
    Raises `ValueError` where the model and the parts would: T above `model.context`, t < 1, t not dividing H or F.
    Source: Megatron-LM, section 3, figure 4.
    """
    raise NotImplementedError("to do: tp_model_forward")


def wrong_mlp_forward(x: Tensor, mlp: nn.Sequential, t: int) -> Tensor:
    """Given, not graded: the MLP cut the wrong way, (B, T, d) to (B, T, d).

    The first layer is split by its input rows, so a rank's product is only one summand of the pre-activation, and
    GELU is applied to it without the all-reduce that would complete the sum. GELU(a) + GELU(b) is not GELU(a + b).
    Raises `ValueError` where t < 1 or t does not divide d.
    """
    first, second = mlp[0], mlp[2]
    d = first.in_features
    if t < 1 or d % t:
        raise ValueError(f"t = {t} ranks can't share the width {d}: t must be at least 1 and divide it")
    partials = [
        F.linear(F.gelu(F.linear(x_r, W1_r, first.bias / t)), second.weight)
        for x_r, W1_r in zip(x.chunk(t, dim=-1), first.weight.chunk(t, dim=1))
    ]
    return all_reduce(partials) + second.bias
