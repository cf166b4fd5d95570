"""Lecture 10, given: one small model with every PaLM choice as a switch, and the loop that trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import palm_modules as palm
from fm_world import ALPHABET
from tiny_gpt import bits_per_char

MAX_GRAD_NORM = 1.0  # embeddings from N(0, 1) start with a loss of dozens of bits, and gradients to match
WINDOW = 96  # training targets a sequence, as in bits_per_char
CHOICES = {"mlp": ("gelu", "swiglu"), "pos": ("learned", "rope")}


@dataclass(frozen=True)
class FlexConfig:
    """Which choices a model makes, and its sizes (the base model's). An unknown choice is a `ValueError`."""

    mlp: str = "gelu"
    parallel: bool = False
    mqa: bool = False
    pos: str = "learned"
    bias: bool = True
    vocab_size: int = len(ALPHABET)
    context: int = 128
    n_layers: int = 2
    d_model: int = 64
    n_heads: int = 4
    d_ff: int = 256

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} = {getattr(self, name)!r} is unknown; choose one of {', '.join(choices)}")
        for name in ("parallel", "mqa", "bias"):
            if getattr(self, name) not in (True, False):
                raise ValueError(f"{name} = {getattr(self, name)!r} is unknown; choose True or False")
        for name in ("vocab_size", "context", "n_layers", "d_model", "n_heads", "d_ff"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)!r} must be at least 1")
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads = {self.n_heads} does not divide d_model = {self.d_model}")
        if self.pos == "rope" and self.d_model // self.n_heads % 2:
            raise ValueError(f"pos = 'rope' needs an even head size, not {self.d_model // self.n_heads}")


class FlexAttention(nn.Module):
    """Multi-head causal attention as in lecture 1, with biases and rotary positions as switches."""

    def __init__(self, d_model: int, n_heads: int, bias: bool, rope: bool) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.rope = rope
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            proj(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.rope:
            cos, sin = palm.rope_angles(q.shape[-1], torch.arange(x.shape[1]))
            q, k = palm.apply_rope(q, cos, sin), palm.apply_rope(k, cos, sin)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(heads.transpose(1, 2).flatten(2))


class SerialBlock(nn.Module):
    """The pre-norm block of lecture 1: x + attn(ln1(x)), then x + mlp(ln2(x))."""

    def __init__(self, d_model: int, attn: nn.Module, mlp: nn.Module, bias: bool) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(d_model, bias=bias)
        self.attn = attn
        self.ln2 = nn.LayerNorm(d_model, bias=bias)
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


def make_block(config: FlexConfig) -> nn.Module:
    """One block of the model, (B, T, d) to (B, T, d)."""
    c = config
    attention = palm.MultiQueryAttention if c.mqa else FlexAttention
    attn = attention(c.d_model, c.n_heads, bias=c.bias, rope=c.pos == "rope")
    if c.mlp == "swiglu":
        mlp: nn.Module = palm.SwiGLU(c.d_model, palm.swiglu_hidden(c.d_model), bias=c.bias)
    else:
        mlp = nn.Sequential(
            nn.Linear(c.d_model, c.d_ff, bias=c.bias), nn.GELU(), nn.Linear(c.d_ff, c.d_model, bias=c.bias)
        )
    block = palm.ParallelBlock if c.parallel else SerialBlock
    return block(c.d_model, attn, mlp, bias=c.bias)


class FlexGPT(nn.Module):
    """TinyGPT with the choices of a `FlexConfig`: ids (B, T) to logits (B, T, V), embeddings tied."""

    def __init__(self, config: FlexConfig) -> None:
        super().__init__()
        c = config
        self.config = config
        self.tok_emb = nn.Embedding(c.vocab_size, c.d_model)
        if c.pos == "learned":
            self.pos_emb = nn.Embedding(c.context, c.d_model)
        self.blocks = nn.ModuleList(make_block(c) for _ in range(c.n_layers))
        self.ln_f = nn.LayerNorm(c.d_model, bias=c.bias)

    def forward(self, idx: Tensor) -> Tensor:
        length = idx.shape[1]
        if length > self.config.context:
            raise ValueError(f"a sequence of {length} tokens is longer than the context of {self.config.context}")
        x = self.tok_emb(idx)
        if self.config.pos == "learned":
            x = x + self.pos_emb.weight[:length]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln_f(x), self.tok_emb.weight)


def make_flex(config: FlexConfig, seed: int) -> FlexGPT:
    """A model with PyTorch's default initialisation, embeddings N(0, 1) included, drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FlexGPT(config)


def count_params(model: nn.Module) -> int:
    """The number of parameters; a matrix that is used twice counts once."""
    return sum(p.numel() for p in model.parameters())


def eval_bpc(model: nn.Module, data: Tensor) -> float:
    """Bits per character on `data`, a 1-D int64 tensor, in windows as in `bits_per_char`."""
    return bits_per_char(model, data, WINDOW)


def train_flex(
    model: nn.Module,
    data: Tensor,
    steps: int,
    batch_size: int = 32,
    lr: float = 3e-3,
    seed: int = 0,
    log_every: int = 100,
    on_step: Callable[[int], None] | None = None,
) -> list[float]:
    """Train `model` in place and return the losses in nats, one every `log_every` steps.

    Adam at a constant rate, without warm-up, gradients clipped to a norm of `MAX_GRAD_NORM`. `data` is a 1-D int64
    tensor of more than `WINDOW` characters; `seed` decides which windows are drawn. `on_step(step)` is called after
    each step, counted from 1. Too little data, or a count below 1: `ValueError`.
    """
    for name, count in (("steps", steps), ("batch_size", batch_size), ("log_every", log_every)):
        if count < 1:
            raise ValueError(f"{name} = {count} must be at least 1")
    if len(data) <= WINDOW:
        raise ValueError(f"{len(data)} characters are too few: one training window needs {WINDOW + 1}")
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    offsets = torch.arange(WINDOW + 1)
    losses = []
    model.train()
    for step in range(1, steps + 1):
        starts = torch.randint(len(data) - WINDOW, (batch_size,), generator=generator)
        batch = data[starts[:, None] + offsets]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        if step % log_every == 0:
            losses.append(loss.item())
        if on_step:
            on_step(step)
    return losses
