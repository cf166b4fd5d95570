"""`tp_model_forward` put together from a student's own parts, each called through `student.ask`.

Embeddings, norms, residuals and head are the judge's; the gradient goes back through the parts' own gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from grader.student import Student


@dataclass
class Composed:
    """The logits (with their history), and the partials of every all-reduce in order."""

    out: Tensor
    all_reduces: list[list[Tensor]] = field(default_factory=list)
    counter: dict = field(default_factory=dict)


def compose_model(student: Student, model, idx: Tensor, t: int, counter: dict | None = None) -> Composed:
    """The model's forward pass with the student's attention, split and MLP in their places."""
    composed = Composed(torch.empty(0), counter=dict(counter or {}))
    T = idx.shape[1]
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + _attention(student, block.attn, block.ln1(x), t, composed)
        x = x + _mlp(student, block.mlp, block.ln2(x), t, composed)
    composed.out = F.linear(model.ln_f(x), model.tok_emb.weight)
    return composed


def _attention(student: Student, attn, x: Tensor, t: int, composed: Composed) -> Tensor:
    names = [name for name, _ in attn.named_parameters()]

    def ask(upstream, values):
        counter = composed.counter if upstream is None else None
        reply = student.ask("tp_attention_forward", attn, values[0], t, counter, upstream)
        if upstream is not None:
            return [reply["grads"][name] for name in ("x", *names)]
        composed.all_reduces += reply["all_reduces"]
        composed.counter = reply["counter"]
        return reply["out"]

    return _Asked.apply(ask, x, *attn.parameters())


def _mlp(student: Student, mlp, x: Tensor, t: int, composed: Composed) -> Tensor:
    first = student.ask("split_mlp", mlp, t)
    keys = [(rank, name) for rank in range(len(first["shards"])) for name in ("W1", "b1", "W2")]
    parameters = dict(mlp.named_parameters())

    def split(upstream, values):
        if upstream is None:
            return (*(first["shards"][rank][name] for rank, name in keys), first["b2"])
        grouped = [{"W1": None, "b1": None, "W2": None} for _ in first["shards"]]
        for (rank, name), grad in zip(keys, upstream):
            grouped[rank][name] = grad
        reply = student.ask("split_mlp", mlp, t, [*grouped, {"b2": upstream[-1]}])
        return [reply["grads"][name] for name in parameters]

    def forward(upstream, values):
        counter = composed.counter if upstream is None else None
        shards = [{} for _ in first["shards"]]
        for (rank, name), value in zip(keys, values[1:]):
            shards[rank][name] = value
        reply = student.ask("tp_mlp_forward", values[0], shards, values[-1], counter, upstream)
        if upstream is not None:
            return [reply["grads"][n] for n in ("x", *(f"{name} of rank {rank}" for rank, name in keys), "b2")]
        composed.all_reduces += reply["all_reduces"]
        composed.counter = reply["counter"]
        return reply["out"]

    pieces = _Asked.apply(split, *parameters.values())
    return _Asked.apply(forward, x, *pieces)


class _Asked(torch.autograd.Function):
    """`ask(None, values)` forward; `ask(upstream, values)` backward, which gives a gradient for each input."""

    @staticmethod
    def forward(ctx, ask, *inputs):
        ctx.ask, ctx.values = ask, [value.detach() for value in inputs]
        return ask(None, ctx.values)

    @staticmethod
    def backward(ctx, *upstream):
        return None, *ctx.ask(upstream if len(upstream) > 1 else upstream[0], ctx.values)
