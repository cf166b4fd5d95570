"""Hidden tests of `rope_angles` and `apply_rope`."""

import pytest
import torch

import reference
from comparing import refuses, state_kept
from exercises.checks import Check, gradients_of


def compare_tables(check, reply, turn, tolerance=None):
    dtype = torch.get_default_dtype()
    check.value(reply["cos"], turn.cos().to(dtype), "cos", "cos", tolerance)
    check.value(reply["sin"], turn.sin().to(dtype), "sin", "sin", tolerance)


@pytest.mark.weight(3)
@pytest.mark.parametrize(("head_dim", "theta"), [(8, ()), (6, (500.0,)), (2, ()), (16, (1e6,))])
def test_tables(student, draw, head_dim, theta):
    positions = torch.tensor([0, 1, *(draw.number(2, 300) for _ in range(4))])
    check = Check(f"rope_angles({head_dim}, positions{''.join(f', {x:g}' for x in theta)})", safe=True)
    reply = student.ask("rope_angles", head_dim, positions, *theta)
    compare_tables(check, reply, reference.angles(head_dim, positions, *theta))
    check.that(not reply["changed"], "positions was changed", "positions 被改动了")
    state_kept(check, student)


@pytest.mark.weight(2)
def test_high_positions_in_float32(student, draw):
    """Angles computed in float32 are off by 1e-3 and more out here; cast at the end, by 1e-7."""
    torch.set_default_dtype(torch.float32)
    positions = torch.tensor([3, *(draw.number(30_000, 900_000) for _ in range(4))])
    check = Check("rope_angles(8, positions), float32, high positions", safe=True)
    compare_tables(check, student.ask("rope_angles", 8, positions), reference.angles(8, positions), 3e-7)
    state_kept(check, student)


def test_the_same_positions_again(student, draw):
    """Under another default dtype, with another theta and another head size."""
    positions = torch.tensor([0, 2, draw.number(3, 90)])
    for dtype, head_dim, *theta in (
        (torch.float64, 8),
        (torch.float32, 8),
        (torch.float64, 8, 100.0),
        (torch.float64, 4, 100.0),
        (torch.float64, 8),
    ):
        torch.set_default_dtype(dtype)
        check = Check("rope_angles(head_dim, positions, theta)", safe=True, default_dtype=dtype)
        reply = student.ask("rope_angles", head_dim, positions, *theta)
        compare_tables(check, reply, reference.angles(head_dim, positions, *theta), 3e-7)


@pytest.mark.weight(3)
@pytest.mark.parametrize(("shape", "layout"), [((5, 8), "plain"), ((2, 3, 5, 6), "plain"), ((2, 8, 4), "transposed")])
def test_rotation(student, draw, shape, layout):
    x, turn = draw.uniform(*shape), 9 * draw.uniform(shape[-2], shape[-1] // 2)
    check = Check("apply_rope(x, cos, sin)", safe=True, x=x, layout=layout)
    reply = student.ask("apply_rope", x, turn.cos(), turn.sin(), None, layout)
    check.value(reply["out"], reference.rotated(x, turn), "the rotated x", "旋转后的 x")
    check.that(not reply["changed"], "x or the tables were changed in place", "x 或角度表被就地修改了")
    state_kept(check, student)


@pytest.mark.parametrize(("x_dtype", "table_dtype"), [("float32", "float32"), ("float64", "float32")])
def test_dtypes(student, draw, x_dtype, table_dtype):
    x, turn = draw.uniform(2, 5, 8, dtype=getattr(torch, x_dtype)), draw.uniform(5, 4)
    cos, sin = turn.cos().to(getattr(torch, table_dtype)), turn.sin().to(getattr(torch, table_dtype))
    check = Check(f"apply_rope(x, cos, sin), tables in {table_dtype}", safe=True, x=x)
    reply = student.ask("apply_rope", x, cos, sin)
    half = x.double().chunk(2, dim=-1)
    wide = torch.complex(*half) * torch.complex(cos.double(), sin.double())
    expected = torch.cat((wide.real, wide.imag), dim=-1).to(x.dtype)
    check.value(reply["out"], expected, "the rotated x", "旋转后的 x")


@pytest.mark.weight(2)
def test_gradient(student, draw):
    x, turn, upstream = draw.uniform(2, 5, 8), 9 * draw.uniform(5, 4), draw.uniform(2, 5, 8)
    leaf = x.clone().requires_grad_()
    out = reference.rotated(leaf, turn)
    check = Check("apply_rope(x, cos, sin)", safe=True, x=x)
    reply = student.ask("apply_rope", x, turn.cos(), turn.sin(), upstream)
    check.value(reply["out"], out, "the rotated x", "旋转后的 x")
    check.gradients(reply["grads"].items(), gradients_of(out, upstream, {"x": leaf}))


@pytest.mark.weight(2)
def test_scores_depend_on_relative_position_only(student, draw):
    """Tables and rotation together: q at m and k at n score as q at m + s and k at n + s, and not as at (n, m)."""
    q, k = draw.uniform(1, 8), draw.uniform(1, 8)

    def score(m, n):
        turned = []
        for vector, position in ((q, m), (k, n)):
            tables = student.ask("rope_angles", 8, torch.tensor([position]))
            turned.append(student.ask("apply_rope", vector, tables["cos"], tables["sin"])["out"])
        return (turned[0] * turned[1]).sum().reshape(1)

    m, shift = draw.number(5, 9), draw.number(50, 200)
    check = Check("the score of q at position m and k at position n", safe=True)
    check.value(score(m + shift, 2 + shift), score(m, 2), "the score after a shift of both", "两者同移之后的得分")
    truth = reference.rotated(q, reference.angles(8, torch.tensor([m - 2])))
    check.value(score(m, 2), (truth * k).sum().reshape(1), "the score", "得分")


@pytest.mark.parametrize("head_dim", [7, 1])
def test_an_odd_head_size_is_refused(student, head_dim):
    positions = torch.arange(3)
    check = Check(f"rope_angles({head_dim}, positions)", safe=True)
    compare_tables(check, student.ask("rope_angles", 8, positions), reference.angles(8, positions))
    refuses(check, lambda: student.ask("rope_angles", head_dim, positions))
