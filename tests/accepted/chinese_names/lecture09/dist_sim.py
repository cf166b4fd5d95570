"""标识符、注释和报错都是中文，文件以字节顺序标记（BOM）开头。"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as 函数

from collectives import all_reduce as 全归约


def 每份(总数: int, 份数: int) -> int:
    if 份数 < 1 or 总数 % 份数:
        raise ValueError(f"{总数} 不能平均分成 {份数} 份")
    return 总数 // 份数


def split_mlp(多层感知机, 份数):
    宽 = 每份(多层感知机[0].out_features, 份数)
    分片 = []
    for 序号 in range(份数):
        段 = slice(序号 * 宽, (序号 + 1) * 宽)
        分片.append(
            {"W1": 多层感知机[0].weight[段], "b1": 多层感知机[0].bias[段], "W2": 多层感知机[2].weight[:, 段]}
        )
    return 分片, 多层感知机[2].bias


def tp_mlp_forward(输入: Tensor, 分片, 偏置: Tensor, 计数=None) -> Tensor:
    部分 = [函数.linear(函数.gelu(函数.linear(输入, 片["W1"], 片["b1"])), 片["W2"]) for 片 in 分片]
    return 全归约(部分, 计数) + 偏置  # 偏置只加一次


def tp_attention_forward(注意力, 输入: Tensor, 份数: int, 计数=None) -> Tensor:
    头数 = 每份(注意力.n_heads, 份数)
    宽 = 注意力.q_proj.out_features // 份数
    部分 = []
    for 序号 in range(份数):
        段 = slice(序号 * 宽, (序号 + 1) * 宽)
        查询, 键, 值 = (
            函数.linear(输入, 投影.weight[段], 投影.bias[段]).unflatten(-1, (头数, -1)).transpose(1, 2)
            for 投影 in (注意力.q_proj, 注意力.k_proj, 注意力.v_proj)
        )
        混合 = 函数.scaled_dot_product_attention(查询, 键, 值, is_causal=True)
        部分.append(函数.linear(混合.transpose(1, 2).flatten(2), 注意力.out_proj.weight[:, 段]))
    return 全归约(部分, 计数) + 注意力.out_proj.bias


def tp_model_forward(模型, 词元, 份数: int, 计数=None) -> Tensor:
    长度 = 词元.shape[1]
    if 长度 > 模型.context:
        raise ValueError(f"序列有 {长度} 个位置，上下文只有 {模型.context}")
    流 = 模型.tok_emb(词元) + 模型.pos_emb.weight[:长度]
    for 块 in 模型.blocks:
        流 = 流 + tp_attention_forward(块.attn, 块.ln1(流), 份数, 计数)
        流 = 流 + tp_mlp_forward(块.ln2(流), *split_mlp(块.mlp, 份数), 计数)
    return 函数.linear(模型.ln_f(流), 模型.tok_emb.weight)
