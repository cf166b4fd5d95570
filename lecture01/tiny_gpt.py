"""Lecture 1: a character tokenizer and a tiny GPT on a single device.

Shapes: B sequences, T positions, d width, H heads, hd = d / H, F hidden width of the MLP, V vocabulary.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import checkpoint

if TYPE_CHECKING:
    from fm_world import World

SHIPPED = Path(__file__).resolve().parent / "base_model.safetensors"  # for build_world(0) and all of its ALPHABET
CACHE = SHIPPED.parent / ".cache"  # base models of other worlds


class CharTokenizer:
    """One id for each character of `alphabet`, in its order."""

    def __init__(self, alphabet: str) -> None:
        if len(set(alphabet)) != len(alphabet):
            raise ValueError("the alphabet names a character twice; each must stand in it once")
        self._chars = list(alphabet)
        self._ids = {char: i for i, char in enumerate(alphabet)}

    @property
    def vocab_size(self) -> int:
        return len(self._chars)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`. A character outside the alphabet is a `ValueError` that names it and its position."""
        try:
            return [self._ids[char] for char in text]
        except KeyError:
            position = next(i for i, char in enumerate(text) if char not in self._ids)
            raise ValueError(
                f"character {text[position]!r} at position {position} is not in the alphabet; "
                "use only characters of fm_world.ALPHABET"
            ) from None

    def decode(self, ids) -> str:
        """The text of `ids`, a sequence of integers. An id outside the vocabulary is a `ValueError`."""
        chars = []
        for position, i in enumerate(ids):
            if not 0 <= i < len(self._chars):
                raise ValueError(f"id {int(i)} at position {position} is outside 0 … {len(self._chars) - 1}")
            chars.append(self._chars[i])
        return "".join(chars)


class CausalSelfAttention(nn.Module):
    """Multi-head causal self-attention, (B, T, d) to (B, T, d). Scores are scaled by 1 / sqrt(hd).

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"n_heads = {n_heads} does not divide d_model = {d_model}")
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            proj(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (B, H, T, hd)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(heads.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Pre-norm transformer block: x + attn(ln1(x)), then x + mlp(ln2(x))."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(d_model)
        self.attn = CausalSelfAttention(d_model, n_heads)
        self.ln2 = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class TinyGPT(nn.Module):
    """Decoder-only language model: (B, T) int64 ids to (B, T, V) logits.

    Learned positions, pre-norm, biases everywhere, output embedding tied to the input embedding.
    T above `context` is a `ValueError`. Source: Radford et al. 2019 (GPT-2), section 2.3.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 2,
        d_ff: int = 256,
        context: int = 128,
    ) -> None:
        super().__init__()
        self.context = context
        self.tok_emb = nn.Embedding(vocab_size, d_model)
        self.pos_emb = nn.Embedding(context, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.ln_f = nn.LayerNorm(d_model)

    def forward(self, idx: Tensor) -> Tensor:
        T = idx.shape[1]
        if T > self.context:
            raise ValueError(f"a sequence of {T} tokens is longer than the context of {self.context}")
        x = self.tok_emb(idx) + self.pos_emb.weight[:T]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln_f(x), self.tok_emb.weight)


def bits_per_char(model: nn.Module, data: Tensor, T: int = 96) -> float:
    """Mean cross-entropy of `model` on `data`, in bits per character.

    `data` is a 1-D int64 tensor. It is cut into consecutive windows of T targets, each predicted from the T
    characters before them; what is left over at the end (fewer than T targets) is not counted.
    Fewer than T + 1 characters: `ValueError`.
    """
    windows = (len(data) - 1) // T
    if windows < 1:
        raise ValueError(f"{len(data)} characters are too few: one window of T = {T} targets needs {T + 1}")
    inputs = data[: windows * T].view(windows, T)
    targets = data[1 : windows * T + 1].view(windows, T)
    was_training = model.training
    model.eval()
    nats = 0.0
    with torch.no_grad():
        for x, y in zip(inputs.split(32), targets.split(32)):
            nats += F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item()
    model.train(was_training)
    return nats / (windows * T) / math.log(2)


def load_or_train_base_model(world: World, tok: CharTokenizer) -> tuple[TinyGPT, dict[str, Any]]:
    """The trained base model for `world`, in eval mode with parameters that require gradients, and where it is from.

    A checkpoint is taken if its fingerprint says that it was trained on this world with this tokenizer and this model:
    the shipped one, else one in the cache folder. Otherwise the model is trained, which takes a few minutes, and
    cached. A checkpoint that is damaged or belongs elsewhere is reported on stderr and not used.

    The dict has "source" ("shipped", "cache" or "trained"), "path" (None if the model could not be cached),
    "fingerprint", "val_bits_per_char" (measured after training) and "steps".
    """
    with torch.random.fork_rng(devices=[]):  # building a model draws from the global random state
        model = TinyGPT(tok.vocab_size).float()
    alphabet = tok.decode(range(tok.vocab_size))
    fingerprint = checkpoint.fingerprint(world.train_text(), world.val_text(), alphabet, model)
    cached = CACHE / f"{fingerprint[:16]}.safetensors"
    for source, path in (("shipped", SHIPPED), ("cache", cached)):
        try:
            state, metadata = checkpoint.load(path, fingerprint, model.state_dict())
            info = _info(source, path, metadata)
        except FileNotFoundError:
            continue
        except (OSError, checkpoint.CheckpointError) as error:
            print(f"Base model: {error}, so this checkpoint is not used.", file=sys.stderr)
            continue
        model.load_state_dict(state)
        return model.eval(), info

    from train_base_model import train_base_model  # here, because it imports this module, and rich, which takes time

    model, metadata = train_base_model(world, tok)
    try:
        checkpoint.save(cached, model.state_dict(), metadata)
    except OSError as error:
        print(f"Base model: it can't be cached and will be trained again next time ({error}).", file=sys.stderr)
        return model, _info("trained", None, metadata)
    return model, _info("trained", cached, metadata)


def _info(source: str, path: Path | None, metadata: dict[str, str]) -> dict[str, Any]:
    try:
        bits, steps = float(metadata["val_bits_per_char"]), int(metadata["steps"])
    except (KeyError, ValueError):
        raise checkpoint.ForeignCheckpoint(f"{path} does not say how its model was trained") from None
    return {
        "source": source,
        "path": path,
        "fingerprint": metadata["fingerprint"],
        "val_bits_per_char": bits,
        "steps": steps,
    }
