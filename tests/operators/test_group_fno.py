"""The operator that commutes with a point group."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
import torch.nn.functional as F
from spectral_reference import spectral_convolution_fft
from torch import Tensor, nn

from pacefno.grid import FieldError
from pacefno.groups import POINT_GROUPS, PointGroup, representation, symmetric_scale
from pacefno.operators import GroupFNO, Standardised
from pacefno.operators._group_layers import GroupSpectral, kernel_table, turned_kernels

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
WATER = "h: scalar, m: momentum of h"

# group, channels of one snapshot, how many channels, grid: even and odd; p4 on three axes leaves
# the last one, time, alone
CASES = [
    ("z2", "u: speed", 1, (16,)),
    ("z2", "scalar", 2, (17,)),
    ("p4", "scalar", 2, (10, 10)),
    ("p4", WATER, 3, (9, 9)),
    ("p4", "u: vector", 4, (10, 10)),
    ("p4m", "p: scalar, u: velocity", 3, (9, 9)),
    ("p4m", "w: pseudoscalar", 2, (10, 10)),
    ("diagonal", "u: speed", 1, (10, 10)),
    ("diagonal", "u: speed, e: vector", 3, (9, 9)),
    ("p4", "u: velocity", 2, (7, 7, 6)),
    ("p4m", "w: pseudoscalar", 1, (8, 8, 5)),
]


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def distance(a: Tensor, b: Tensor) -> float:
    return ((a - b).detach().norm() / b.detach().norm()).item()


def small(group: str, channels: str, count: int, dim: int, **options: object) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"dim": dim, "in_channels": count, "out_channels": count, "width": 3, "modes": 3}
    sizes |= {"layers": 2, "group": POINT_GROUPS[group], "channels": channels}
    return strengthen(GroupFNO(**(sizes | options)))


def strengthen(model: nn.Module) -> nn.Module:
    """Kaiming's weights shrink what passes: an odd output is then a difference of large numbers."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


def defect(model: nn.Module, field: Tensor, group: PointGroup, rho: Tensor) -> float:
    """The largest relative difference of ``f(g a)`` and ``g f(a)`` over the group."""
    out = model(field)
    return max(
        distance(model(group.move(field, g, rho)), group.move(out, g, rho))
        for g in range(group.order)
    )


def size_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# --- equivariance


@pytest.mark.parametrize("norm", [True, False], ids=["norm", "plain"])
@pytest.mark.parametrize("positions", [None, "symmetric"])
@pytest.mark.parametrize(("name", "channels", "count", "grid"), CASES)
def test_the_operator_commutes_with_every_element(
    name: str,
    channels: str,
    count: int,
    grid: tuple[int, ...],
    positions: str | None,
    norm: bool,
    dtype: torch.dtype,
) -> None:
    group = POINT_GROUPS[name]
    model = small(name, channels, count, len(grid), positions=positions, norm=norm).to(dtype)
    field = random(2, count, *grid, dtype=dtype)
    assert defect(model, field, group, representation(group, channels, count)) < TOLERANCE[dtype]
    average = model(field).mean(dim=0, keepdim=True).expand_as(field)
    assert distance(model(field), average) > 1e-2  # not just a constant


def test_only_a_symmetric_scale_keeps_the_operator_equivariant() -> None:
    group, field = POINT_GROUPS["p4"], random(2, 3, 10, 10)
    rho = representation(group, WATER, 3)
    mean, std = torch.tensor([1.0, 0.1, -0.2]).double(), torch.tensor([0.2, 0.3, 0.4]).double()
    symmetric = symmetric_scale(rho, mean, std)
    operator = small("p4", WATER, 3, 2).double()
    scaled = Standardised(operator, symmetric, symmetric).double()
    assert defect(scaled, field, group, rho) < 1e-12
    scaled = Standardised(operator, (mean, std), (mean, std)).double()
    assert defect(scaled, field, group, rho) > 1e-2


def test_snapshots_in_and_out_may_differ_in_number() -> None:
    """Two snapshots from ten."""
    group = POINT_GROUPS["p4m"]
    model = small("p4m", "u: velocity", 20, 2, out_channels=4).double()
    rho_in = representation(group, "u: velocity", 20)
    rho_out = representation(group, "u: velocity", 4)
    field = random(1, 20, 10, 10)
    for g in range(group.order):
        moved = model(group.move(field, g, rho_in))
        assert distance(moved, group.move(model(field), g, rho_out)) < 1e-12


@pytest.mark.parametrize("output", ["u: velocity", None])
def test_channels_out_may_be_of_another_kind_if_it_is_said(output: str | None) -> None:
    """A velocity from two scalars."""
    group, field = POINT_GROUPS["p4"], random(1, 2, 10, 10)
    model = small("p4", "a: scalar, b: scalar", 2, 2, output=output).double()
    rho_in = representation(group, "a: scalar, b: scalar", 2)
    rho_out = representation(group, "u: velocity", 2)
    off = max(
        distance(model(group.move(field, g, rho_in)), group.move(model(field), g, rho_out))
        for g in range(group.order)
    )
    assert off < 1e-12 if output else off > 0.1


def test_momenta_treated_as_scalars_do_not_turn() -> None:
    group, field = POINT_GROUPS["p4"], random(2, 3, 10, 10)
    rho = representation(group, WATER, 3)
    assert defect(small("p4", "scalar", 3, 2).double(), field, group, rho) > 0.1
    assert defect(small("p4", WATER, 3, 2).double(), field, group, rho) < 1e-12


@pytest.mark.parametrize("name", ["z2", "p4", "p4m", "diagonal"])
def test_kernels_that_are_not_turned_are_found(name: str) -> None:
    group = POINT_GROUPS[name]
    grid = (10,) * group.dim
    model = small(name, "scalar", 1, group.dim).double()
    for layer in model.modules():
        if isinstance(layer, GroupSpectral):  # every copy gets the first copy's kernels
            layer.table.copy_(layer.table[..., :1].expand_as(layer.table))
    # all copies stay alike then, and their sum is an ordinary FNO
    rho = representation(group, "scalar", 1)
    assert defect(model, random(1, 1, *grid), group, rho) > 1e-2


def test_a_position_channel_that_is_not_symmetric_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = POINT_GROUPS["p4"]
    model = small("p4", "scalar", 1, 2, positions="symmetric").double()
    original = model.lifting.forward
    slope = torch.linspace(0, 1, 10, dtype=torch.float64)[:, None, None]

    def tilted(field: Tensor) -> Tensor:
        return original(torch.cat([field[..., :1], field[..., 1:] + slope[..., None]], dim=-1))

    monkeypatch.setattr(model.lifting, "forward", tilted)
    rho = representation(group, "scalar", 1)
    assert defect(model, random(1, 1, 10, 10), group, rho) > 1e-2


def test_shifts_commute_exactly_when_there_are_no_positions(dtype: torch.dtype) -> None:
    field = random(1, 1, 9, 12, dtype=dtype)
    for positions, low, high in ((None, 0.0, TOLERANCE[dtype]), ("symmetric", 1e-2, 10.0)):
        model = small("p4", "scalar", 1, 2, positions=positions).to(dtype)
        moved = model(field.roll((2, 5), (2, 3)))
        assert low <= distance(moved, model(field).roll((2, 5), (2, 3))) < high


# --- the spectral layer


@pytest.mark.parametrize(
    ("name", "modes"),
    [("z2", (4,)), ("p4", (3, 3)), ("p4m", (2, 2)), ("diagonal", (3, 3)), ("p4", (2, 2, 3))],
)
def test_the_table_is_the_definition(name: str, modes: tuple[int, ...], dtype: torch.dtype) -> None:
    """``K_{h h'}(k) = K_{h^-1 h'}(h^-1 k)`` with complex kernels, wavenumber by wavenumber."""
    group, w = POINT_GROUPS[name], 2
    p = random(group.order, *(2 * m - 1 for m in modes), w, w, dtype=dtype)
    weight = turned_kernels(p, kernel_table(modes, group))
    extended = torch.tensor(group.matrices)
    for k in product(*(range(1 - m, m) for m in modes[:-1]), range(modes[-1])):
        space, time = torch.tensor(k[: group.dim]), k[group.dim :]
        place = tuple(reversed([*(k[i] + modes[i] - 1 for i in range(len(k) - 1)), k[-1]]))
        got = weight[place].reshape(group.order, w, group.order, 2, w)
        for h, other in product(range(group.order), repeat=2):
            back = [*(extended[h].T @ space).tolist(), *time]
            own = group.quotients[h][other]
            plus, minus = (
                p[(own, *(s * q + m - 1 for q, m in zip(back, modes, strict=True)))]
                for s in (1, -1)
            )
            assert torch.equal(got[other, :, h, 0], (plus + minus) / 2)
            assert torch.equal(got[other, :, h, 1], (minus - plus) / 2)


@pytest.mark.parametrize("modes", [(4,), (3, 3), (2, 2, 3)])
def test_every_coefficient_matters_and_outputs_are_real_kernels(modes: tuple[int, ...]) -> None:
    """From ``p`` to kernels on the band has full rank: as many reals as needed, no more."""
    dim = len(modes)
    identity = tuple(tuple(int(i == j) for j in range(dim)) for i in range(dim))
    group = PointGroup("trivial", [(identity,)])
    sizes = [2 * m - 1 for m in modes]
    count = torch.Size(sizes).numel()
    basis = torch.eye(count, dtype=torch.float64).reshape(count, 1, *sizes, 1, 1)
    table = kernel_table(modes, group)
    kernels = torch.stack([turned_kernels(p, table).flatten() for p in basis])
    assert int(torch.linalg.matrix_rank(kernels)) == count
    # Hermitian: on the plane k_d = 0, which the half band holds twice, opposites are conjugate
    plane = turned_kernels(random(1, *sizes, 1, 1), table)[0]
    opposite = plane.flip(list(range(dim - 1)))
    assert torch.equal(plane[..., 0, :], opposite[..., 0, :])
    assert torch.equal(plane[..., 1, :], -opposite[..., 1, :])


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize(
    ("name", "modes", "grid"),
    [("z2", (4,), (16,)), ("p4", (3, 3), (8, 9)), ("p4", (2, 2, 3), (6, 5, 7))],
)
def test_norms_and_the_pointwise_map_on_coefficients_equal_those_on_the_grid(
    name: str, modes: tuple[int, ...], grid: tuple[int, ...], norm: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    group, width = POINT_GROUPS[name], 2
    layer = GroupSpectral(width, modes, group, norm).to(dtype)
    v = 0.7 + random(*reversed(grid), 3, group.order * width, dtype=dtype)

    def normalised(field: Tensor) -> Tensor:
        """Instance normalisation of ``(B, w, |G| * points)``."""
        split = field.reshape(-1, 3, group.order, width).permute(1, 3, 2, 0)
        done = F.instance_norm(split.flatten(2)).reshape(split.shape)
        return done.permute(3, 0, 2, 1).reshape(field.shape)

    step = normalised if norm else (lambda field: field)
    kernels = turned_kernels(layer.weight, layer.table).transpose(-3, -2).flatten(-2)
    expected = layer.pointwise(step(spectral_convolution_fft(step(v), kernels, modes)))
    assert distance(layer(v), expected) < TOLERANCE[dtype]


def test_a_variance_much_smaller_than_the_mean_keeps_its_digits() -> None:
    torch.manual_seed(0)
    layer, v = GroupSpectral(2, (3, 3), POINT_GROUPS["p4"], True), random(8, 9, 3, 8)
    shifted = (v + 300).float().double()  # what float32 holds: only the arithmetic is compared
    single = layer(shifted.float()).double()
    assert distance(single, layer.double()(shifted)) < 2e-4  # E v^2 - (E v)^2 would miss by 1e-2


def test_first_and_second_derivatives_of_the_norm_are_correct() -> None:
    model = small("z2", "u: speed", 1, 1, width=2, modes=2).double()
    field = random(2, 1, 5).requires_grad_()
    assert torch.autograd.gradcheck(model, field)
    assert torch.autograd.gradgradcheck(model, field)


def test_a_norm_over_space_alone_is_told_from_the_right_one() -> None:
    layer, v = GroupSpectral(2, (3,), POINT_GROUPS["z2"], True).double(), random(16, 3, 4)
    per_copy = F.instance_norm(v.permute(1, 2, 0)).permute(2, 0, 1)
    layer_free = GroupSpectral(2, (3,), POINT_GROUPS["z2"], False).double()
    layer_free.load_state_dict(layer.state_dict())
    assert distance(layer(v), layer_free(per_copy)) > 1e-2


# --- parameters

# dim, in, out, width, modes, group, parameters: first what G-FNO publishes, then sizes for the four
# problems
COUNTS = [
    (2, 10, 1, 10, 12, "p4", 853_121),
    (2, 10, 1, 7, 12, "p4m", 835_969),
    (3, 10, 1, 11, (8, 8, 6), "p4", 4_799_708),
    (3, 10, 1, 7, (8, 8, 6), "p4m", 3_887_304),
    (1, 1, 1, 64, 20, "z2", 1_410_497),
    (1, 1, 1, 45, 20, "z2", 697_636),
    (2, 1, 1, 16, 12, "p4", 2_183_537),
    (2, 1, 1, 17, 12, "p4", 2_464_984),
    (2, 3, 3, 16, 16, "p4", 3_953_171),
]


@pytest.mark.parametrize(("dim", "inputs", "outputs", "width", "modes", "group", "count"), COUNTS)
def test_parameter_counts_are_the_published_ones(
    dim: int,
    inputs: int,
    outputs: int,
    width: int,
    modes: int | tuple[int, ...],
    group: str,
    count: int,
) -> None:
    model = GroupFNO(dim, inputs, outputs, width, modes, group, positions="symmetric")
    assert size_of(model) == count


def test_a_representation_changes_only_the_bias_of_the_output() -> None:
    """By Frobenius reciprocity a channel costs as many weights however it transforms."""
    scalar = size_of(small("p4", "scalar", 3, 2))
    assert size_of(small("p4", WATER, 3, 2)) == scalar - 2
    assert size_of(small("p4", "u: vector", 4, 2)) == size_of(small("p4", "scalar", 4, 2)) - 4


@pytest.mark.parametrize(("name", "channels", "count", "grid"), CASES)
def test_every_parameter_receives_a_gradient_and_the_state_holds_nothing_else(
    name: str, channels: str, count: int, grid: tuple[int, ...]
) -> None:
    model = small(name, channels, count, len(grid)).double()
    model(random(2, count, *grid)).square().sum().backward()
    assert all(p.grad is not None and p.grad.norm() > 1e-8 for p in model.parameters())
    assert set(model.state_dict()) == {key for key, _ in model.named_parameters()}
    assert not any(tensor.is_complex() for tensor in model.state_dict().values())


# --- as any other operator


def test_the_output_has_the_grid_and_dtype_of_the_input(dtype: torch.dtype) -> None:
    model = small("p4", "scalar", 2, 2, out_channels=5).to(dtype)
    for grid in ((5, 5), (8, 11), (12, 12)):
        out = model(random(3, 2, *grid, dtype=dtype))
        assert out.shape == (3, 5, *grid)
        assert out.dtype == dtype


@pytest.mark.parametrize("norm", [False, True])
def test_a_smooth_field_gives_the_same_output_on_a_finer_grid(norm: bool) -> None:
    model = small("diagonal", "u: speed", 1, 2, norm=norm).double()

    def on(n: int) -> Tensor:
        x = torch.arange(n, dtype=torch.float64) * (2 * torch.pi / n)
        field = torch.sin(x)[:, None] + 0.3 * torch.cos(x[:, None] - x)
        out: Tensor = model(field[None, None])
        return out

    outputs = [on(n) for n in (16, 32, 64, 128)]
    # GELU makes all wavenumbers: two grids differ by what folds back, which soon vanishes
    apart = [distance(fine[..., ::2, ::2], coarse) for coarse, fine in pairwise(outputs)]
    assert 1e-6 < apart[0] < 1e-2 and apart[1] < apart[0] / 100 and apart[2] < 1e-10


@pytest.mark.parametrize("value", [0.0, 100.0])
def test_constant_fields_and_their_gradients_stay_finite(value: float, dtype: torch.dtype) -> None:
    model = small("p4", "scalar", 1, 2).to(dtype)
    field = torch.full((1, 1, 8, 8), value, dtype=dtype, requires_grad=True)
    out = model(field)
    out.square().sum().backward()
    assert bool(out.isfinite().all())
    assert field.grad is not None and bool(field.grad.isfinite().all())


def test_cutting_the_projection_into_pieces_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, field = small("p4", "u: vector", 2, 2).double(), random(2, 2, 9, 9)
    whole = model(field)
    monkeypatch.setattr("pacefno.operators.fno.HEAD_ENTRIES", 400)
    assert distance(model(field), whole) < 1e-14


def test_autocast_stays_close_and_returns_the_dtype_of_the_input() -> None:
    model, field = small("p4", WATER, 3, 2), random(2, 3, 9, 9, dtype=torch.float32)
    exact = model(field)
    # Some virtual machines announce matrix instructions that they cannot run: stay off that path.
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
        out = model(field)
    assert out.dtype == torch.float32
    assert 1e-6 < distance(out, exact) < 5e-2


def test_forward_derivatives_and_vmap_work() -> None:
    model = small("p4", "u: vector", 2, 2).double()
    field, tangent = random(3, 2, 9, 9), random(3, 2, 9, 9, seed=5)
    value, derivative = torch.func.jvp(model, (field,), (tangent,))
    assert distance(value, model(field)) < 1e-14
    step = 1e-5
    difference = (model(field + step * tangent) - model(field - step * tangent)) / (2 * step)
    assert distance(derivative, difference) < 1e-8
    one_by_one = torch.func.vmap(lambda sample: model(sample[None])[0])(field)
    assert distance(one_by_one, model(field)) < 1e-12


# --- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modes": (3, 4)}, r"p4 exchanges axes.*got \(3, 4\)"),
        ({"dim": 1}, "p4 acts on 2 axes, got a field of 1"),
        ({"channels": "u: speed"}, r"does not keep the line along \(1, ..., 1\)"),
        ({"channels": "s: tensor"}, "unknown kind 'tensor'.* Expected one of scalar, pseudoscalar"),
        ({"channels": "u: vector"}, "'u: vector' describes 2 channels, got 3: expected a multiple"),
        ({"group": "p5"}, "unknown point group 'p5'. Expected one of z1, z2, p1"),
        ({"positions": "grid"}, "positions: expected None or 'symmetric', got 'grid'"),
        ({"width": 0}, "width: expected a positive integer, got 0"),
    ],
)
def test_impossible_operators_are_refused_when_building(
    options: dict[str, object], message: str
) -> None:
    sizes = {"dim": 2, "in_channels": 3, "out_channels": 3, "width": 3, "modes": 3, "group": "p4"}
    with pytest.raises(ValueError, match=message):
        GroupFNO(**(sizes | options))


def test_fields_that_do_not_fit_are_refused() -> None:
    model = small("p4", "scalar", 2, 2)
    with pytest.raises(FieldError, match=r"at least \(5, 5\) points, got \(5, 4\): resample"):
        model(random(1, 2, 5, 4, dtype=torch.float32))
    expected = r"expected torch\.float32.*got torch\.float64.*convert"
    with pytest.raises(FieldError, match=expected):
        model(random(1, 2, 8, 8))
    with pytest.raises(FieldError, match="add a batch axis"):
        model(random(2, 8, 8, dtype=torch.float32))


@pytest.mark.parametrize("group", ["sign-2d", "p4", "p2m"])
def test_positions_do_not_change_their_sign_with_the_field(group: str) -> None:
    model = small(group, "scalar", 1, 2, positions="symmetric").double().eval()
    field, rho = random(2, 1, 10, 10), representation(POINT_GROUPS[group], "scalar", 1)
    for element in range(POINT_GROUPS[group].order):
        moved = POINT_GROUPS[group].move(field, element, rho)
        expected = POINT_GROUPS[group].move(model(field), element, rho)
        assert distance(model(moved), expected) < 1e-12


def test_positions_need_elements_that_keep_the_centre() -> None:
    for group in (POINT_GROUPS["glide-y"], PointGroup("p4", centre=0.25)):
        with pytest.raises(ValueError, match="which .* does not keep: leave positions out"):
            GroupFNO(2, 1, 1, 3, 3, group, positions="symmetric")
