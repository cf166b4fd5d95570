"""Public tests of `rope_angles` and `apply_rope`."""

import math

import pytest
import torch

from exercises import samples
from exercises.checks import Check


def true_angles(head_dim, positions, theta):
    return torch.tensor(
        [[p * theta ** (-2 * i / head_dim) for i in range(head_dim // 2)] for p in positions], dtype=torch.float64
    )


def rotated(x, angles):
    """Each position's vector times its rotation matrix, the exponential of the generator of the rotation."""
    half = x.shape[-1] // 2
    generator = torch.zeros(len(angles), 2 * half, 2 * half, dtype=x.dtype)
    for i in range(half):
        generator[:, half + i, i] = angles[:, i]
        generator[:, i, half + i] = -angles[:, i]
    return (torch.linalg.matrix_exp(generator) @ x.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize(("head_dim", "theta"), [(8, 10000.0), (6, 500.0)])
def test_tables(palm_modules, head_dim, theta):
    positions = torch.tensor([0, 1, 2, 5, 11])
    angles = true_angles(head_dim, positions.tolist(), theta)
    check = Check(f"rope_angles({head_dim}, positions, {theta:g})", positions=positions)
    cos, sin = palm_modules.rope_angles(head_dim, positions, theta)
    check.value(cos, angles.cos(), "cos", "cos")
    check.value(sin, angles.sin(), "sin", "sin")


def test_tables_in_float32_are_right_at_high_positions(palm_modules):
    torch.set_default_dtype(torch.float32)
    positions = torch.tensor([0, 1000, 50_001, 1_000_003])
    angles = true_angles(8, positions.tolist(), 10000.0)
    check = Check("rope_angles(8, positions)", positions=positions, default_dtype="float32")
    cos, sin = palm_modules.rope_angles(8, positions)
    check.value(cos, angles.cos().float(), "cos", "cos", 1e-6)
    check.value(sin, angles.sin().float(), "sin", "sin", 1e-6)


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 5, 8)])
def test_rotation(palm_modules, shape):
    x = samples.uniform(*shape, seed=51)
    angles = true_angles(8, range(shape[-2]), 10000.0)
    check = Check("apply_rope(x, cos, sin)", x=x)
    with check.leaves_alone(x=x):
        out = palm_modules.apply_rope(x, angles.cos(), angles.sin())
    check.value(out, rotated(x, angles), "the rotated x", "旋转后的 x")


def test_a_float32_x_stays_float32(palm_modules):
    x, angle = samples.uniform(2, 5, 8, seed=52, dtype=torch.float32), torch.full((5, 4), 0.5, dtype=torch.float32)
    out = palm_modules.apply_rope(x, angle.cos(), angle.sin())
    Check("apply_rope(x, cos, sin)", x=x).value(out, rotated(x, angle), "the rotated x", "旋转后的 x")


def test_scores_depend_on_relative_position_only(palm_modules):
    q, k = samples.uniform(1, 8, seed=53), samples.uniform(1, 8, seed=54)

    def score(m, n):
        turned = [
            palm_modules.apply_rope(v, *palm_modules.rope_angles(8, torch.tensor([p]))) for v, p in ((q, m), (k, n))
        ]
        return (turned[0] * turned[1]).sum().reshape(1)

    check = Check("the score of q at position m and k at position n")
    check.value(
        score(107, 103),
        score(7, 3),
        "the score at (107, 103), which must equal the one at (7, 3),",
        "(107, 103) 处的得分应等于 (7, 3) 处的得分，它",
    )
    check.that(
        not math.isclose(float(score(3, 7)), float(score(7, 3))),
        "the score at (3, 7) equals the one at (7, 3): positions don't matter at all",
        "(3, 7) 处的得分等于 (7, 3) 处的得分：位置完全没有作用",
    )


def test_an_odd_head_size_is_refused(palm_modules):
    palm_modules.rope_angles(8, torch.arange(3))
    with Check("rope_angles(7, positions)").refuses():
        palm_modules.rope_angles(7, torch.arange(3))
