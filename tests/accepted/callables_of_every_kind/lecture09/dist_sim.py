"""No graded name is a plain def: a callable instance, a lambda with *args, a partial and a bound method."""

# ruff: noqa: E731

from __future__ import annotations

from functools import partial

from torch.nn import functional as F

from collectives import all_reduce


class Splitter:
    """A callable instance that takes *args."""

    names = ("W1", "b1", "W2")

    def __call__(self, *args):
        mlp, t = args
        tensors = ((mlp[0].weight, 0), (mlp[0].bias, 0), (mlp[2].weight, 1))
        self.check(t, mlp[0].out_features)
        cut = [tensor.chunk(t, axis) for tensor, axis in tensors]
        return [dict(zip(self.names, (pieces[r] for pieces in cut))) for r in range(t)], mlp[2].bias

    @staticmethod
    def check(t, size):
        if t < 1 or size % t:
            raise ValueError(f"{size} is not shared evenly by {t}")


split_mlp = Splitter()

tp_mlp_forward = lambda *args: (
    all_reduce([F.linear(F.gelu(F.linear(args[0], s["W1"], s["b1"])), s["W2"]) for s in args[1]], *args[3:]) + args[2]
)


def _attention(check, all_reduce, attn, x, t, counter=None):
    check(t, attn.n_heads)

    def rank(q, k, v, out):
        q, k, v = (F.linear(x, *wb).unflatten(-1, (attn.n_heads // t, -1)).transpose(1, 2) for wb in (q, k, v))
        return F.linear(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2), out)

    qkv = [zip(p.weight.chunk(t), p.bias.chunk(t)) for p in (attn.q_proj, attn.k_proj, attn.v_proj)]
    return all_reduce(list(map(rank, *qkv, attn.out_proj.weight.chunk(t, 1))), counter) + attn.out_proj.bias


tp_attention_forward = partial(_attention, Splitter.check, all_reduce)


class Model:
    def forward(self, model, idx, t, *counter, **named):
        length = idx.shape[1]
        if length > model.context:
            raise ValueError(f"{length} is more than {model.context}")
        x = model.tok_emb(idx) + model.pos_emb.weight[:length]
        for block in model.blocks:
            x = x + tp_attention_forward(block.attn, block.ln1(x), t, *counter, **named)
            x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), *counter, *named.values())
        return F.linear(model.ln_f(x), model.tok_emb.weight)


tp_model_forward = Model().forward
