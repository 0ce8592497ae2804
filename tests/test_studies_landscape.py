"""The landscape of test-time adaptation: known energies are drawn where they are, and every basin is found."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.data import Samples
from pacefno.equations import problem_named
from pacefno.frames import AdamRefiner, AnalyticFrame, Estimate, Frame
from pacefno.grid import points, resample
from pacefno.pace import PACE
from pacefno.studies.bench import Places
from pacefno.studies.report.figures.landscape import draw_landscape
from pacefno.studies.study.landscape.measure import basins, cut_through, measure
from pacefno.symmetry import Galilean, Group

PROBLEM = "burgers1d_smooth"


class TwoFold(Frame):
    """Reads the second harmonic along x, whose phase repeats every half period: two self-consistent frames."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def forward(self, field: Tensor) -> Estimate:
        xi = AnalyticFrame(self.group)(field).xi
        n = field.shape[2]
        x = torch.arange(n, dtype=field.dtype) / n
        line = field[:, 0].mean(dim=2)
        phase = torch.atan2((line * torch.sin(4 * math.pi * x)).sum(1), (line * torch.cos(4 * math.pi * x)).sum(1))
        return Estimate(torch.cat([(phase / (4 * math.pi))[:, None], xi[:, 1:]], dim=1), torch.ones(len(field)))


def sample_of(group: Group, dtype: torch.dtype, n: int, xi: list[float]) -> Samples:
    generator = torch.Generator().manual_seed(2)
    field = 0.1 * resample(torch.randn(1, 1, 7, 7, dtype=torch.float64, generator=generator), [n, n])
    x, y = points([n, n])
    field = field + torch.cos(2 * math.pi * x) + torch.cos(2 * math.pi * y) + torch.cos(4 * math.pi * x)
    field = group.inverse(field, AnalyticFrame(group)(field).xi)
    true = torch.tensor([xi], dtype=torch.float64)
    target = group.act(torch.tanh(field), group.transport(true, 1.0))
    return Samples(group.act(field, true).to(dtype), target.to(dtype), true)


def cell_of(frame: type[Frame], dtype: torch.dtype, xi: list[float]) -> dict[str, object]:
    problem = problem_named("burgers2d")
    model = PACE(nn.Tanh(), problem.group, frame(problem.group), problem.horizon)
    sample = sample_of(problem.group, dtype, 20, xi)
    cut = cut_through(problem, None)
    return measure(model, problem, cut, sample, AdamRefiner(rate=0.05), points=16, starts=6)


def test_the_energy_of_the_analytic_frame_is_a_sum_of_cosines(dtype: torch.dtype, tolerance: float) -> None:
    cell = cell_of(AnalyticFrame, dtype, [0.2, -0.3, 0.7])
    line = -0.5 + (torch.arange(16, dtype=torch.float64) + 0.5) / 16
    parts = [1 - torch.cos(2 * math.pi * (line - true)) for true in (0.2, -0.3)]
    expected = parts[0][:, None] + parts[1][None, :]
    assert torch.allclose(torch.tensor(cell["energy"], dtype=torch.float64), expected, atol=100 * tolerance)
    [minimum] = cell["minima"]  # type: ignore[misc]
    assert minimum["share"] == 1 and minimum["from_true"] < 1e-4 and minimum["error"] < 1e-3
    assert minimum["place"] == pytest.approx([0.2, -0.3], abs=1e-4) and cell["true"] == pytest.approx([0.2, -0.3], abs=1e-6)


def test_a_frame_with_two_answers_has_two_basins() -> None:
    cell = cell_of(TwoFold, torch.float64, [0.2, -0.3, 0.7])
    first, second = cell["minima"]  # type: ignore[misc]
    apart = abs(first["place"][0] - second["place"][0])
    assert apart == pytest.approx(0.5, abs=1e-3) and first["share"] + second["share"] == 1
    assert 0.3 < first["share"] < 0.7
    near, far = sorted((first["from_true"], second["from_true"]))
    assert near < 0.05 and far > 0.4


def test_paths_go_downhill_and_newton_ends_in_a_minimum() -> None:
    cell = cell_of(AnalyticFrame, torch.float64, [0.1, 0.4, 0.0])
    paths: dict[str, dict[str, list[list[float]]]] = cell["paths"]  # type: ignore[assignment]
    for name in ("gauss-newton", "adam"):
        for values in paths[name]["energy"]:
            assert all(b <= a for a, b in pairwise(values))
    assert max(values[-1] for values in paths["gauss-newton"]["energy"]) < 1e-12
    assert len(paths["gauss-newton"]["places"]) == 9 and len(paths["from the estimate"]["places"]) == 1


def test_end_points_on_both_sides_of_the_seam_are_one_minimum() -> None:
    group = Galilean(2)
    ends = torch.tensor([[0.499, 0.0, 0.0], [-0.499, 0.001, 0.0], [0.1, 0.1, 0.0], [0.1, 0.1, 0.0], [0.3, 0.2, 0.0]])
    values = torch.tensor([1e-12, 1e-13, 1e-11, 2e-11, math.nan])
    minima, labels = basins(group, ends, values)
    assert labels.tolist() == [0, 0, 1, 1, -1] and minima == [1, 2]


@pytest.mark.parametrize(("pair", "message"), [(("x", "z"), "unknown 'z'"), (("x", "x"), "twice")], ids=["unknown", "same"])
def test_a_cut_that_is_none_is_refused(pair: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cut_through(problem_named("burgers2d"), pair)


def test_angles_and_velocities_have_their_own_ranges() -> None:
    cut = cut_through(problem_named("navier_stokes"), ("x", "angle"))
    assert cut.high == (0.5, math.pi)
    cut = cut_through(problem_named(PROBLEM), None)
    assert cut.high == (0.5, 1.0)


def test_the_command_computes_a_landscape_once(smoke_places: Places, tmp_path: Path) -> None:
    words = ["study", "landscape", PROBLEM, "--preset", "smoke", "--points", "10", "--starts", "4"]
    places = ["--data", smoke_places.data, "--runs", smoke_places.runs, "--results", tmp_path, "--figures", tmp_path / "f"]
    for _ in range(2):
        result = CliRunner().invoke(app, [*words, *map(str, places)])
        assert result.exit_code == 0, result.output
    assert "Minima of J_TTA" in result.output
    path = tmp_path / "studies" / f"landscape-{PROBLEM}.json"
    stamp = path.stat().st_mtime_ns
    CliRunner().invoke(app, [*words, *map(str, places)])
    assert path.stat().st_mtime_ns == stamp
    assert (tmp_path / "f" / f"{PROBLEM}-landscape-x-velocity.pdf").exists()
    result = CliRunner().invoke(app, [*words, "--sample", "99", *map(str, places)])
    assert result.exit_code == 2 and "has 8 samples" in result.output


def test_a_landscape_is_drawn_with_its_paths() -> None:
    cell = {**cell_of(TwoFold, torch.float32, [0.45, -0.3, 0.7]), "model": "pace-cnn", "sample": 0}
    figure = draw_landscape(problem_named("burgers2d"), [cell]).figure
    assert len(figure.axes) == 2  # the panel and the colour bar
