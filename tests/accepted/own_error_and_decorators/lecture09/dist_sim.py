"""A decorator checks t by divmod and raises a ValueError subclass of its own; its message is half Chinese."""

from __future__ import annotations

import functools
import inspect

from torch.nn import functional as F

from collectives import all_reduce


class CannotShare(ValueError):
    """t ranks and a size that don't go together."""

    def __init__(self, t: int, size: int) -> None:
        self.t, self.size = t, size
        super().__init__(f"不能分给 {t} 个 rank：共有 {size} 份，{t} 必须是 {size} 的正因数")


class TooLong(ValueError):
    pass


def shared(size_of):
    """The function needs `size_of(first argument)` to be shared evenly by its argument t."""

    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            t, size = bound.arguments["t"], size_of(args[0])
            if t < 1:
                raise CannotShare(t, size)
            _, rest = divmod(size, t)
            if rest:
                raise CannotShare(t, size)
            return function(*args, **kwargs)

        return checked

    return decorate


@shared(lambda mlp: mlp[0].out_features)
def split_mlp(mlp, t):
    n, _ = divmod(mlp[0].out_features, t)
    shards = [{} for _ in range(t)]
    for r, shard in enumerate(shards):
        shard |= {"W1": mlp[0].weight[r * n : r * n + n], "b1": mlp[0].bias[r * n : r * n + n]}
        shard |= {"W2": mlp[2].weight[..., r * n : r * n + n]}
    return shards, mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    match shards:
        case [only]:
            parts = [F.linear(F.gelu(F.linear(x, only["W1"], only["b1"])), only["W2"])]
        case [*several]:
            parts = [F.linear(F.gelu(F.linear(x, s["W1"], s["b1"])), s["W2"]) for s in several]
    return all_reduce(parts, counter) + b2


@shared(lambda attn: attn.n_heads)
def tp_attention_forward(attn, x, t, counter=None):
    parts = []
    for r in range(t):
        q, k, v = (
            F.linear(x, p.weight.chunk(t)[r], p.bias.chunk(t)[r]).unflatten(-1, (attn.n_heads // t, -1)).transpose(1, 2)
            for p in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        parts.append(F.linear(z.transpose(1, 2).flatten(2), attn.out_proj.weight.chunk(t, 1)[r]))
    return all_reduce(parts, counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise TooLong(f"{T} 个位置超过了上下文长度 {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter=counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
