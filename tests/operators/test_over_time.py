"""Operators between several snapshots, and those that are told the box of a sample."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from pacefno.fields import Box
from pacefno.groups._rotation import quarter_turn
from pacefno.operators import FNO, Conditioned, Recurrent, Residual, SpaceTimeFNO, SplitStep
from pacefno.paper.benchmarks import BENCHMARKS
from pacefno.pde import solve


class NextNumber(nn.Module):
    """Predicts that every snapshot is one more than the last one of the window."""

    def forward(self, window: Tensor) -> Tensor:
        return window[:, -1:] + torch.arange(1, 4, dtype=window.dtype).reshape(1, 3, 1, 1)


def test_a_recurrent_operator_goes_on_from_its_own_snapshots(dtype: torch.dtype) -> None:
    window = torch.arange(4, dtype=dtype).reshape(1, 4, 1, 1).expand(2, 4, 3, 5)
    found = Recurrent(NextNumber(), 8)(window)
    assert found.shape == (2, 8, 3, 5)
    assert torch.equal(found[1, :, 2, 3], torch.arange(4, 12, dtype=dtype))


def test_a_recurrent_operator_sees_a_window_of_constant_length() -> None:
    seen = []

    class Recording(nn.Module):
        def forward(self, window: Tensor) -> Tensor:
            seen.append(window.shape[1])
            return window[:, -2:]

    Recurrent(Recording(), 7)(torch.zeros(1, 5, 4, 4))
    assert seen == [5, 5, 5, 5]


def test_a_recurrent_operator_can_see_the_last_snapshot_alone_and_is_told_the_box() -> None:
    given: list[Tensor | None] = []

    class Doubling(nn.Module):
        def forward(self, window: Tensor, box: Box | None = None) -> Tensor:
            assert window.shape[1] == 1
            given.append(None if box is None else box.step)
            return 2 * window

    repeated, field = Recurrent(Doubling(), 3, snapshots_in=1), torch.ones(1, 5, 4)
    box = Box(torch.ones(1, 1), torch.tensor([0.5]))
    assert repeated(field, box=box)[0, :, 0].tolist() == [2.0, 4.0, 8.0]
    assert all(step is box.step for step in given) and len(given) == 3
    assert repeated(field)[0, :, 0].tolist() == [2.0, 4.0, 8.0] and given[-1] is None
    with pytest.raises(ValueError, match="expected at least 2 snapshots, got 1"):
        Recurrent(Doubling(), 3, snapshots_in=2)(field[:, :1])


def space_time(dtype: torch.dtype) -> SpaceTimeFNO:
    torch.manual_seed(0)
    return SpaceTimeFNO(3, 6, width=4, modes=3, time_modes=4, layers=2).to(dtype)


@pytest.mark.parametrize("grid", [(16, 16), (17, 20)])
def test_a_space_time_network_gives_every_snapshot_its_own_time(
    grid: tuple[int, int], dtype: torch.dtype
) -> None:
    found = space_time(dtype)(torch.ones(2, 3, *grid, dtype=dtype))
    assert found.shape == (2, 6, *grid)
    # a constant input, yet the snapshots differ: they know their time
    assert float(found.std(dim=1).min().detach()) > 1e-6


def test_a_space_time_network_without_coordinates_commutes_with_shifts_by_cells(
    dtype: torch.dtype,
) -> None:
    network = space_time(dtype)
    field = torch.randn(2, 3, 16, 16, dtype=dtype, generator=torch.Generator().manual_seed(1))
    moved_first = network(field.roll((3, -5), (2, 3)))
    moved_last = network(field).roll((3, -5), (2, 3))
    assert torch.allclose(moved_first, moved_last, atol=1e-5 if dtype == torch.float32 else 1e-12)
    assert not torch.allclose(moved_first, network(field), atol=1e-3)


def test_a_group_network_over_space_and_time_commutes_with_quarter_turns(
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(0)
    sizes = {"width": 3, "modes": 3, "time_modes": 4, "layers": 2}
    network = SpaceTimeFNO(3, 6, **sizes, group="p4").to(dtype)
    field = torch.randn(2, 3, 16, 16, dtype=dtype, generator=torch.Generator().manual_seed(1))
    turned_first, turned_last = network(quarter_turn(field)), quarter_turn(network(field))
    atol = 1e-5 if dtype == torch.float32 else 1e-12
    assert torch.allclose(turned_first, turned_last, atol=atol)
    assert not torch.allclose(turned_first, network(field), atol=1e-3)
    with pytest.raises(ValueError, match=r"expected one of p1, p4 and no positions, got 'p4m'"):
        SpaceTimeFNO(3, 6, **sizes, group="p4m")
    with pytest.raises(ValueError, match="positions='grid'"):
        SpaceTimeFNO(3, 6, **sizes, group="p4", positions="grid")


def channels_network() -> nn.Module:
    return FNO(2, 10, 20, 6, 3, 2)


def recurrent_network() -> nn.Module:
    return Recurrent(FNO(2, 10, 5, 6, 3, 2), 20)


def space_time_network() -> nn.Module:
    return SpaceTimeFNO(10, 20, width=4, modes=3, time_modes=4, layers=2)


@pytest.mark.parametrize("make", [channels_network, recurrent_network, space_time_network])
def test_every_way_of_making_snapshots_can_be_trained(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    network = make()
    prediction = network(torch.randn(2, 10, 16, 16, generator=torch.Generator().manual_seed(1)))
    assert prediction.shape == (2, 20, 16, 16)
    prediction.square().mean().backward()
    slopes = [parameter.grad for parameter in network.parameters()]
    assert all(slope is not None and bool(torch.isfinite(slope).all()) for slope in slopes)


# --- around an operator


class Constant(nn.Module):
    """A change of 1 in the first snapshot, 2 in the second, and so on."""

    def __init__(self, channels: int, snapshots: int) -> None:
        super().__init__()
        self.channels, self.snapshots = channels, snapshots

    def forward(self, field: Tensor, scale: float = 1.0) -> Tensor:
        steps = torch.arange(1, self.snapshots + 1, dtype=field.dtype)
        change = scale * steps.repeat_interleave(self.channels)
        return change.reshape(1, -1, *[1] * (field.ndim - 2)) + 0 * field[:, :1]


@pytest.mark.parametrize("grid", [(5,), (4, 6)])
def test_a_residual_operator_adds_the_change_to_the_last_snapshot(
    grid: tuple[int, ...], dtype: torch.dtype
) -> None:
    window = torch.arange(6, dtype=dtype).reshape(1, 6, *[1] * len(grid)).expand(2, 6, *grid)
    found = Residual(Constant(2, 3), channels=2)(window)  # the last snapshot is (4, 5)
    assert found.shape == (2, 6, *grid)
    assert found[0].flatten(1)[:, 0].tolist() == [5, 6, 6, 7, 7, 8]
    assert Residual(Constant(2, 3), channels=2)(window, scale=2.0)[0, 0].max() == 6


class Remember(nn.Module):
    """Returns what it was given."""

    def forward(self, field: Tensor) -> Tensor:
        return field


def test_a_conditioned_operator_is_told_length_and_step_on_a_logarithmic_scale(
    dtype: torch.dtype,
) -> None:
    told = Conditioned(Remember(), [2.0, 3.0], step=0.5, variation=0.1)
    lengths = torch.tensor([[2.0, 3.0], [2.0 * math.exp(0.1), 3.0]])
    box = Box(lengths, torch.tensor([0.5, 0.5 * math.exp(-0.1)]))
    seen = told(torch.ones(2, 1, 4, 6, dtype=dtype), box=box)
    assert seen.shape == (2, 4, 4, 6) and seen.dtype == dtype
    expected = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, -1.0]], dtype=dtype)
    assert torch.allclose(seen[:, :, 2, 3], expected, atol=1e-5)
    assert float(seen.flatten(2).std(dim=2).max()) < 1e-6  # constant over the grid


# --- the exact linear part ------------------------------------------------------------------------


class NoChange(nn.Module):
    """Predicts that the nonlinear part does nothing, and keeps what it was given."""

    def forward(self, field: Tensor, box: Box | None = None) -> Tensor:
        self.seen, self.box = field, box
        return 0 * field[:, :1] + 7.0  # a mean, which is taken out


LENGTHS, STEPS = torch.tensor([[4.0, 6.0], [5.0, 3.0]]), torch.tensor([0.3, 0.2])


@pytest.mark.parametrize("grid", [(16, 18), (15, 17)])
def test_without_a_nonlinear_part_a_split_step_solves_each_sample_in_its_own_box(
    grid: tuple[int, int], dtype: torch.dtype
) -> None:
    x, y = torch.meshgrid(*(torch.arange(n).double() / n for n in grid), indexing="ij")
    ks = 2 * math.pi * torch.tensor([2.0, 1.0], dtype=torch.float64) / LENGTHS.double()  # (B, 2)
    phase = 2 * math.pi * (2 * x - y)

    def wave(time: Tensor) -> Tensor:  # of u_t = -u_xxx - u_yyy + 0.1 (u_xx + u_yy)
        moved = (ks[:, 0] ** 3 - ks[:, 1] ** 3) * time
        decay = torch.exp(-0.1 * ks.square().sum(dim=1) * time)
        waves = torch.cos(phase + moved[:, None, None])
        return (1 + decay[:, None, None] * waves)[:, None].to(dtype)

    inner = NoChange()
    split = SplitStep(inner, [(3, -1.0), (2, 0.1)], [1.0, 1.0], 1.0)
    box = Box(LENGTHS, STEPS)
    found = split(wave(torch.zeros(2)), box=box)
    assert found.dtype == dtype and inner.box is box
    assert torch.allclose(
        found, wave(STEPS.double()), atol=1e-5 if dtype == torch.float32 else 1e-12
    )
    half = wave(STEPS.double() / 2)
    assert torch.allclose(inner.seen[:, :1], half, atol=1e-5 if dtype == torch.float32 else 1e-12)
    shifted = torch.roll(inner.seen[:, :1], -1, dims=2) - torch.roll(inner.seen[:, :1], 1, dims=2)
    slope = shifted * grid[0] / (2 * LENGTHS[:, :1].to(dtype)[..., None, None])
    ratio = math.sin(2 * math.pi * 2 / grid[0]) / (2 * math.pi * 2 / grid[0])  # of a difference
    assert torch.allclose(inner.seen[:, 1:2] * ratio, slope, atol=1e-4)


@pytest.mark.parametrize("name", ["kdv_easy", "kuramoto_sivashinsky"])
def test_the_linear_part_of_a_benchmark_is_that_of_its_equation(name: str) -> None:
    benchmark = BENCHMARKS[name]
    length, step = benchmark.task.input.lengths[0], 0.01
    x = torch.arange(64, dtype=torch.float64) / 64
    small = 1e-7 * (torch.cos(2 * math.pi * 3 * x) + torch.sin(2 * math.pi * 5 * x))[None, None]
    box = Box(torch.tensor([[length]]), torch.tensor([1.0]))
    truth = solve(benchmark.equation, small, [step], 1e-3, box=box)[:, 0]
    split = SplitStep(NoChange(), benchmark.split["operator"]["linear"], [length], step)
    assert torch.allclose(split(small), truth, atol=1e-12)


def test_the_box_is_not_rounded_to_the_precision_of_the_field() -> None:
    """Over many steps a phase that is off by a rounding of the length would add up."""
    length = 2 * math.pi / 0.7
    split = SplitStep(NoChange(), [(3, -1.0)], [length], 0.1)
    found = split._wavenumbers((16,), torch.zeros(1, 1, 16), None)
    exact = 2 * math.pi * torch.arange(9, dtype=torch.float64) / length
    assert torch.allclose(found[0, 0].abs(), exact, rtol=1e-15)


class Squares(nn.Module):
    """Half the square of the first channel, on the points that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.grids: list[tuple[int, ...]] = []

    def forward(self, seen: Tensor) -> Tensor:
        self.grids.append(tuple(seen.shape[2:]))
        return 0.5 * seen[:, :1].square()


@pytest.mark.parametrize("grid", [(32, 40), (33, 31)])
def test_a_split_step_on_fewer_points_changes_what_these_resolve(
    grid: tuple[int, int], dtype: torch.dtype
) -> None:
    x, y = torch.meshgrid(*(torch.arange(n).double() / n for n in grid), indexing="ij")
    smooth = torch.cos(2 * math.pi * (2 * x - y))  # its square has waves of 4 and 2 periods
    steep = 0.1 * torch.cos(2 * math.pi * 12 * x)  # too many for 17 points
    given = {"linear": [(2, 1e-3)], "lengths": [1.0, 1.0], "step": 0.5}
    fine, few = SplitStep(Squares(), **given), SplitStep(Squares(), **given, points=17)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    fields = [part[None, None].to(dtype) for part in (smooth, steep, smooth + steep)]
    torch.testing.assert_close(few(fields[0]), fine(fields[0]), atol=tolerance, rtol=0)
    assert fine.operator.grids == [grid] and few.operator.grids == [(17, 17)]
    # What is too steep follows the linear part alone, whatever the network makes of the rest.
    decayed = fields[1] * math.exp(-1e-3 * (2 * math.pi * 12) ** 2 * 0.5)
    torch.testing.assert_close(
        few(fields[2]), few(fields[0]) + decayed, atol=10 * tolerance, rtol=0
    )
    assert float((fine(fields[2]) - few(fields[2])).abs().max()) > 1e-3
    coarser = SplitStep(Squares(), **given, points=64)
    assert torch.equal(coarser(fields[0]), fine(fields[0]))  # a field is never made finer
    with pytest.raises(ValueError, match="at least 3"):
        SplitStep(Squares(), **given, points=2)


class BurgersFluxes(nn.Module):
    """``-v^2 / 2`` of each field, with the weights of a quadrature over the step."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.weights = torch.tensor(weights, dtype=torch.float64)

    def forward(self, seen: Tensor) -> Tensor:
        fields = seen[:, : len(self.weights)]
        return -0.5 * len(self.weights) * self.weights[:, None] * fields.square()


@pytest.mark.parametrize("name", ["kdv_easy", "kuramoto_sivashinsky"])
def test_what_is_learnt_at_a_node_enters_at_the_time_of_the_node(name: str) -> None:
    """To first order in the nonlinear part a step is an integral, which Simpson's rule does well:
    with a field of size 1e-4 the second order is a ten-thousandth of it."""
    benchmark = BENCHMARKS[name]
    length, step = benchmark.task.input.lengths[0], benchmark.task.input.step
    x = torch.arange(128, dtype=torch.float64) / 128
    small = 1e-4 * (torch.cos(2 * math.pi * 12 * x) + torch.sin(2 * math.pi * 19 * x))[None, None]
    box = Box(torch.tensor([[length]]), torch.tensor([1.0]))
    truth = solve(benchmark.equation, small, [step], step / 100, box=box)[:, 0]
    given = {"linear": benchmark.split["operator"]["linear"], "lengths": [length], "step": step}
    linear = SplitStep(BurgersFluxes([0.0]), **given, flux=True)(small)

    def error(*weights: float) -> float:
        split = SplitStep(BurgersFluxes(list(weights)), **given, flux=True, nodes=len(weights))
        return float((split(small) - truth).norm() / (truth - linear).norm())

    simpson = error(1 / 6, 4 / 6, 1 / 6)
    assert simpson < 0.5 * error(1.0)
    assert error(7 / 90, 32 / 90, 12 / 90, 32 / 90, 7 / 90) < 0.2 * simpson
    assert error(4 / 6, 1 / 6, 1 / 6) > 3 * simpson  # the weights of other nodes


class Flux(nn.Module):
    """A flux that is known: the sine of x along x, and of twice y along y."""

    def forward(self, seen: Tensor, box: Box) -> Tensor:
        n, m = seen.shape[2:]
        x, y = (2 * math.pi * torch.arange(k, dtype=seen.dtype) / k for k in (n, m))
        along = [torch.sin(x)[:, None].expand(n, m), torch.sin(2 * y)[None].expand(n, m)]
        return torch.stack(along).expand(len(seen), 2, n, m)


@pytest.mark.parametrize("grid", [(16, 18), (15, 17)])
def test_the_change_by_a_flux_is_its_divergence(grid: tuple[int, int], dtype: torch.dtype) -> None:
    split = SplitStep(Flux(), [], [1.0, 1.0], 1.0, flux=True)
    box = Box(LENGTHS, STEPS)
    field = torch.randn(2, 1, *grid, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x, y = (2 * math.pi * torch.arange(k, dtype=dtype) / k for k in grid)
    k = 2 * math.pi / LENGTHS.to(dtype)
    slopes = k[:, 0, None, None] * torch.cos(x)[:, None] + 2 * k[:, 1, None, None] * torch.cos(
        2 * y
    )
    expected = field + (STEPS.to(dtype)[:, None, None] * slopes)[:, None]
    atol = 1e-4 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(split(field, box=box), expected, atol=atol, rtol=0)


class Doubling(nn.Module):
    """A change that grows whatever it sees, and by more where it is large."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, seen: Tensor) -> Tensor:
        half = seen.shape[1] // 2  # fields, then slopes
        return self.weight * (seen[:, :half] + seen[:, :half] ** 3)


def test_a_step_that_keeps_the_norm_neither_gains_nor_loses_it(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    field = 2 + torch.randn(3, 2, 30, dtype=dtype, generator=generator)
    field[2, 1] = 2.0  # a channel without waves stays one
    split = SplitStep(Doubling().to(dtype), [(3, -1.0)], [9.0], 0.1, keeps_norm=True)
    made = split(field)
    free = SplitStep(Doubling().to(dtype), [(3, -1.0)], [9.0], 0.1)(field)

    def about(part: Tensor) -> Tensor:
        return (part - part.mean(dim=2, keepdim=True)).norm(dim=2).detach()

    atol = 1e-4 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(about(made), about(field), atol=atol, rtol=0)
    torch.testing.assert_close(made.mean(dim=2), field.mean(dim=2), atol=atol, rtol=0)
    assert float((about(free) / about(field))[:2].min()) > 1.1, "without it the field grows"
    made.square().sum().backward()
    assert split.operator.weight.grad.isfinite()


@pytest.mark.parametrize("name", ["kdv", "kdv_easy", "kuramoto_sivashinsky"])
def test_steps_keep_the_norm_where_the_equation_does(name: str) -> None:
    benchmark = BENCHMARKS[name]
    length, step = benchmark.task.input.lengths[0], benchmark.task.input.step
    x = torch.arange(128, dtype=torch.float64) / 128
    start = (torch.cos(2 * math.pi * 3 * x) + torch.sin(2 * math.pi * 5 * x))[None, None]
    box = Box(torch.tensor([[length]]), torch.tensor([1.0]))
    later = solve(benchmark.equation, start, [20 * step], step / 20, box=box)[:, 0]
    kept = abs(float(later.norm() / start.norm()) - 1) < 1e-6
    assert float((later - start).norm() / start.norm()) > 0.1
    assert benchmark.split["operator"]["keeps_norm"] == kept


def test_a_step_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="nodes: expected a positive number, got 0"):
        SplitStep(NoChange(), [(2, 1.0)], [1.0], 1.0, nodes=0)


def test_a_split_step_of_another_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected \(B, C, N\)"):
        SplitStep(NoChange(), [(2, 1.0)], [1.0], 1.0)(torch.zeros(2, 1, 8, 8))
