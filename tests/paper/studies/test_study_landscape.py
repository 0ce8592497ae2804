"""The landscape of test-time adaptation: energies lie where they are, every basin is found."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pacefno.data.samples import Pairs
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.frames import Estimate, Frame
from pacefno.grid import points, resample
from pacefno.groups import Galilean
from pacefno.pace import PACE
from pacefno.paper.bench import Places
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.studies.base import Scope, run_study
from pacefno.paper.studies.landscape import basins, cut_through, draw, measure

SMOKE = "burgers1d_smooth"
BENCHMARK = benchmark_named("burgers2d")
TASK = BENCHMARK.task


class TwoFold(Frame):
    """Reads the second harmonic along x, which repeats every half period: two consistent frames."""

    def __init__(self) -> None:
        super().__init__()
        self.group = TASK.group

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        xi = TASK.slice.coordinates(field)
        n = field.grid[0]
        x = torch.arange(n, dtype=field.values.dtype) / n
        line = field.values[:, 0].mean(dim=2)
        parts = [(line * wave(4 * math.pi * x)).sum(1) for wave in (torch.sin, torch.cos)]
        position = (torch.atan2(*parts) / (4 * math.pi))[:, None]
        return Estimate(torch.cat([position, xi[:, 1:]], dim=1), torch.ones_like(xi))


def sample_of(dtype: torch.dtype, n: int, xi: list[float]) -> Pairs:
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(1, 1, 7, 7, dtype=torch.float64, generator=generator)
    x, y = points([n, n])
    waves = torch.cos(2 * math.pi * x) + torch.cos(2 * math.pi * y) + torch.cos(4 * math.pi * x)
    field = Field(0.1 * resample(noise, [n, n]) + waves, TASK.input)
    field = TASK.group.inverse(field, TASK.slice.coordinates(field))
    true = torch.tensor([xi], dtype=torch.float64)
    target = TASK.group.act(Field(torch.tanh(field.values), TASK.output), true).values
    return Pairs(TASK.group.act(field, true).values.to(dtype), target.to(dtype), true)


def cell_of(frame: Frame, dtype: torch.dtype, xi: list[float]) -> dict[str, Any]:
    model = PACE(nn.Tanh(), TASK.group, input=TASK.input, output=TASK.output, frame=frame)
    scope, cut = Scope(BENCHMARK, "smoke", Places()), cut_through(BENCHMARK)
    return measure(model, scope, cut, sample_of(dtype, 20, xi), points=16, starts=6)


def test_the_energy_of_the_analytic_frame_is_a_sum_of_cosines(
    dtype: torch.dtype, tolerance: float
) -> None:
    cell = cell_of(TASK.slice.frame(), dtype, [0.2, -0.3, 0.7])
    line = -0.5 + (torch.arange(16, dtype=torch.float64) + 0.5) / 16
    parts = [1 - torch.cos(2 * math.pi * (line - true)) for true in (0.2, -0.3)]
    expected = parts[0][:, None] + parts[1][None, :]
    energy = torch.tensor(cell["energy"], dtype=torch.float64)
    assert torch.allclose(energy, expected, atol=100 * tolerance)
    [minimum] = cell["minima"]
    assert minimum["share"] == 1 and minimum["from_true"] < 1e-4 and minimum["error"] < 1e-3
    assert minimum["place"] == pytest.approx([0.2, -0.3], abs=1e-4)
    assert cell["true"] == pytest.approx([0.2, -0.3], abs=1e-6)


def test_a_frame_with_two_answers_has_two_basins() -> None:
    cell = cell_of(TwoFold(), torch.float64, [0.2, -0.3, 0.7])
    first, second = cell["minima"]
    apart = abs(first["place"][0] - second["place"][0])
    assert apart == pytest.approx(0.5, abs=1e-3) and first["share"] + second["share"] == 1
    assert 0.3 < first["share"] < 0.7
    near, far = sorted((first["from_true"], second["from_true"]))
    assert near < 0.05 and far > 0.4


def test_paths_go_downhill_and_newton_ends_in_a_minimum() -> None:
    paths = cell_of(TASK.slice.frame(), torch.float64, [0.1, 0.4, 0.0])["paths"]
    for name in ("gauss-newton", "adam"):
        for values in paths[name]["energy"]:
            assert all(b <= a for a, b in pairwise(values))
    assert max(values[-1] for values in paths["gauss-newton"]["energy"]) < 1e-12
    assert len(paths["gauss-newton"]["places"]) == 9
    assert len(paths["from the estimate"]["places"]) == 1


def test_end_points_on_both_sides_of_a_period_are_one_minimum() -> None:
    group = Galilean(2, diagonal=True)
    ends = torch.tensor(
        [[0.499, 0.0, 0.0], [-0.499, 0.001, 0.0], [0.1, 0.1, 0.0], [0.1, 0.1, 0.0], [0.3, 0.2, 0.0]]
    )
    values = torch.tensor([1e-12, 1e-13, 1e-11, 2e-11, math.nan])
    minima, labels = basins(group, ends, values)
    assert labels.tolist() == [0, 0, 1, 1, -1] and minima == [1, 2]


@pytest.mark.parametrize(
    ("names", "message"),
    [(("x", "z"), "unknown coordinate 'z'"), (("x", "x"), "two different"), (("x",), "two diff")],
    ids=["unknown", "same", "one"],
)
def test_a_cut_along_other_than_two_coordinates_is_refused(
    names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        cut_through(BENCHMARK, names)


def test_angles_and_velocities_have_their_own_ranges() -> None:
    cut = cut_through(benchmark_named("navier_stokes"), ("x", "angle"))
    assert cut.high == (0.5, math.pi)
    cut = cut_through(benchmark_named(SMOKE))
    assert cut.high == (0.5, 1.0)


def run(places: Places, sample: int = 0) -> Any:
    how: dict[str, Any] = {"benchmark": SMOKE, "preset": "smoke", "points": 10, "starts": 4}
    return run_study("landscape", places, print, sample=sample, **how)


def test_a_landscape_is_computed_once(smoke_places: Places, tmp_path: Path) -> None:
    places = replace(smoke_places, results=tmp_path)
    outcome = run(places)
    stamp = outcome.path.stat().st_mtime_ns
    assert run(places).tables == outcome.tables and outcome.path.stat().st_mtime_ns == stamp
    assert outcome.tables[0].title == "Minima of J_TTA, sample 0"
    assert [one.name for one in outcome.drawings] == [f"{SMOKE}-landscape-x-velocity"]
    with pytest.raises(UsageError, match="has 8 samples"):
        run(places, sample=99)


def test_a_landscape_is_drawn_with_its_paths() -> None:
    cell = cell_of(TwoFold(), torch.float32, [0.45, -0.3, 0.7])
    cell |= {"model": "pace-cnn", "sample": 0, "cut": "x,y", "seed": 42}
    [drawing] = draw(BENCHMARK, [cell])
    assert len(drawing.figure.axes) == 2  # the panel and the colour bar
