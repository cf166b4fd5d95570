"""Fresh inputs for one hidden test: other numbers at every run, the same ones for the same seed and test."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from exercises import samples


class Draw:
    """Draws in turn from a stream that `seed` and the test's name decide."""

    def __init__(self, seed: int, test: str) -> None:
        self._base = int.from_bytes(hashlib.sha256(f"{seed} {test}".encode()).digest()[:6], "big")
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._base + self._count

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Entries in (−1, 1)."""
        return samples.uniform(*shape, seed=self._next(), dtype=dtype)

    def integers(self, *shape: int) -> Tensor:
        """Whole numbers from −4 to 4, in float64."""
        return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(self._next())).double()

    def ids(self, *shape: int, vocab_size: int) -> Tensor:
        return samples.ids(*shape, vocab_size=vocab_size, seed=self._next())

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        generator = torch.Generator().manual_seed(self._next())
        return int(torch.randint(low, high + 1, (), generator=generator))

    def mlp(self, d: int, hidden: int) -> nn.Sequential:
        return samples.mlp(d, hidden, seed=self._next())

    def attention(self, d: int, heads: int) -> nn.Module:
        return samples.attention(d, heads, seed=self._next())

    def model(self, **sizes: int) -> nn.Module:
        """Sizes: vocab_size, d, heads, layers, hidden, context."""
        return samples.model(**sizes, seed=self._next())

    def state(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Parameters by name: weights of unit gain, biases and norms in (−1, 1)."""
        gains = {name: (3 / shape[-1]) ** 0.5 if len(shape) > 1 else 1.0 for name, shape in shapes.items()}
        return {name: gains[name] * self.uniform(*shape) for name, shape in shapes.items()}
