"""Figures show what they say, have names and legends, and come out for every benchmark."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from report_examples import result, rollout, table_of, write_results
from torch import Tensor, nn

from pacefno.data import PairDataset, PairRecipe, Pairs
from pacefno.fields import Field
from pacefno.groups import Trivial
from pacefno.metrics import relative_l2
from pacefno.operators import FNO
from pacefno.pace import PACE
from pacefno.paper import style
from pacefno.paper.bench import Places
from pacefno.paper.benchmarks import Benchmark, benchmark_named, field_benchmarks
from pacefno.paper.report import fields, figures
from pacefno.paper.report.collect import collect
from pacefno.paper.report.runs import FRACTIONS, Outcome, sweep_errors, typical_sample
from pacefno.paper.rows import FIELD_ROWS, TRAJECTORY_ROWS, listed

SMOOTH = benchmark_named("burgers1d_smooth")


def drawn(figure: Figure) -> np.ndarray[Any, Any]:
    """The pixels of a figure."""
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def outcome(model: str, values: Tensor, shift: float = 0.0) -> Outcome:
    errors = shift + torch.linspace(0, 1, len(values))
    growth = torch.linspace(0.1, 0.1 + shift, len(FRACTIONS))
    return Outcome(model, values + shift, SMOOTH.task.group.identity(len(values)), errors, growth)


# --- the size of the motion -----------------------------------------------------------------------


class WithoutCoordinates(nn.Module):
    """An operator that follows shifts and not boosts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.7))

    def forward(self, field: Tensor) -> Tensor:
        return torch.tanh(self.weight.to(field.dtype) * field)


def wrapped(operator: nn.Module, *, follows: bool = True) -> PACE:
    task = SMOOTH.task
    group = task.group if follows else Trivial(1)
    return PACE(operator, group, input=task.input, output=task.output).eval()


def wave_pairs(grid: tuple[int, ...], dtype: torch.dtype) -> Pairs:
    generator = torch.Generator().manual_seed(1)
    x = torch.arange(grid[0], dtype=dtype) / grid[0]
    waves = torch.stack([torch.sin(2 * math.pi * k * x) for k in (1, 2, 3)])
    values = torch.rand(2, 4, 3, generator=generator, dtype=dtype) @ waves
    return Pairs(values[0][:, None], values[1][:, None])


@pytest.mark.parametrize("grid", [(32,), (33,)])
def test_the_sweep_of_an_equivariant_model_is_flat_and_that_of_another_is_not(
    grid: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    pairs = wave_pairs(grid, dtype)
    errors = sweep_errors(wrapped(WithoutCoordinates()).to(dtype), SMOOTH, pairs, "oracle")
    assert errors.shape == (len(FRACTIONS), 4)
    assert float((errors - errors[0]).abs().max()) < 10 * tolerance
    plain = wrapped(WithoutCoordinates(), follows=False).to(dtype)
    broken = sweep_errors(plain, SMOOTH, pairs)
    expected = relative_l2(WithoutCoordinates()(pairs.input), pairs.target).double()
    assert torch.allclose(broken[0], expected, atol=10 * tolerance)  # nothing is moved: ID error
    assert float(broken[-1].mean()) > 1.3 * float(broken[0].mean())


def test_an_estimated_frame_follows_every_motion_of_the_sweep() -> None:
    torch.manual_seed(0)
    model = wrapped(FNO(1, 1, 1, 4, 3, layers=1))
    errors = sweep_errors(model, SMOOTH, wave_pairs((32,), torch.float32))
    assert float((errors - errors[0]).abs().max()) < 1e-3


@pytest.mark.parametrize("benchmark", field_benchmarks(), ids=lambda one: one.name)
def test_the_training_range_ends_inside_the_sweep(benchmark: Benchmark) -> None:
    high = benchmark.ood[1]
    shares = [a / b for a, b in zip(benchmark.task.train_range, high, strict=True)]
    assert 0 < min(shares) <= max(shares) < 1


def test_the_small_sweep_has_the_three_rows_of_the_message_and_the_other_all() -> None:
    values = torch.randn(4, 1, 16)
    outcomes = [outcome(m, values, 0.1) for m in ("fno", "fno-aug", "gfno", "pace", "pace-cnn")]
    small, full = figures.draw_sweeps(SMOOTH, outcomes)
    inside = "inside the training range"
    assert legend_of(small.figure) == ["FNO", "FNO + augmentation", "PACE, one-shot", inside]
    assert len(legend_of(full.figure)) == 6 and full.folded and not small.folded
    assert small.name == "burgers1d_smooth-sweep" and full.name == "burgers1d_smooth-sweep-all"
    axis = small.figure.axes[0]
    assert "velocity 1" in axis.get_xlabel() and "error" in axis.get_ylabel()
    assert np.array_equal(np.asarray(axis.lines[0].get_xdata()), np.asarray(FRACTIONS))


# --- fields ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["burgers1d", "burgers2d", "shallow_water", "navier_stokes"])
def test_every_benchmark_can_be_drawn(name: str) -> None:
    benchmark = benchmark_named(name)
    task, generator = benchmark.task, torch.Generator().manual_seed(0)
    grid = (24,) if task.dim == 1 else (12, 16)
    inputs, targets = (
        1 + 0.1 * torch.rand(3, type.size, *grid, generator=generator)
        for type in (task.input, task.output)
    )
    xi = task.group.sample(*benchmark.ood, 3, generator)
    pairs = Pairs(inputs, targets, xi)
    growth = torch.ones(len(FRACTIONS))
    outcomes = [
        Outcome(model, targets + 0.01 * i, xi, torch.arange(3.0), growth)
        for i, model in enumerate(("fno", "pace", "unknown"))
    ]
    drawings = fields.draw_predictions(benchmark, pairs, outcomes)
    drawings.append(fields.draw_canonicalisation(benchmark, pairs, pairs, outcomes[1]))
    drawings.append(figures.draw_error_spectra(benchmark, targets, outcomes))
    channels = len(task.output.channels)
    assert len(drawings) == channels + 2
    assert drawings[0].models == ("fno", "pace", "unknown")
    assert [drawing.folded for drawing in drawings].count(True) == channels - 1
    for drawing in (drawings[0], *drawings[-2:]):
        assert drawn(drawing.figure).std() > 5, drawing.name  # not an empty page


def test_a_shift_turns_the_first_wave_and_a_boost_leaves_it() -> None:
    task = benchmark_named("burgers1d_smooth").task
    field = torch.randn(3, 1, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    xi = torch.tensor([[0.1, 0.3], [-0.2, 0.0], [0.4, -1.0]], dtype=torch.float64)
    moved = task.group.act(Field(field, task.input), xi).values
    (radius, angle), (same, turned) = (fields.first_wave(f[:, 0]) for f in (field, moved))
    assert torch.allclose(radius, same)
    turn = torch.polar(torch.ones(3, dtype=torch.float64), turned - angle)
    assert torch.allclose(turn.angle(), -2 * math.pi * xi[:, 0])


def test_orbits_are_drawn_of_lines() -> None:
    benchmark = benchmark_named("burgers1d_smooth")
    task, generator = benchmark.task, torch.Generator().manual_seed(0)
    inputs, targets = (torch.rand(4, 1, 32, generator=generator) for _ in range(2))
    xi = task.group.sample(*benchmark.ood, 4, generator)
    pairs = Pairs(inputs, targets, xi)
    outcome = Outcome("pace", targets, xi, torch.zeros(4), torch.ones(len(FRACTIONS)))
    drawing = fields.draw_orbits(benchmark, pairs, pairs, outcome)
    assert drawing.name == "burgers1d_smooth-orbits" and drawn(drawing.figure).std() > 5


def test_panels_of_one_scale_share_limits_and_an_image_is_shown_less_its_mean() -> None:
    one, two = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(0))
    rows: list[list[fields.Panel | None]] = [
        [fields.Panel(one + 5, "a", "u"), fields.Panel(2 * two, "b", "u")],
        [fields.Panel(one, "c", "error", centred=False), None],
    ]
    figure = fields.draw_panels(rows, ["first", "second"])
    images = [axis.images[0] for axis in figure.axes if axis.images]
    first, second, error = images[:3]
    assert first.get_clim() == second.get_clim() != error.get_clim()
    shown = torch.from_numpy(np.array(first.get_array())).T
    assert torch.allclose(shown.float(), one - one.mean(), atol=1e-5)
    assert "mean +5" in " ".join(text.get_text() for axis in figure.axes for text in axis.texts)
    assert figure.axes[0].get_ylabel() == "first" and figure.axes[0].get_title(loc="left") == "a"


def test_a_line_is_drawn_over_the_truth_and_both_are_in_the_legend() -> None:
    truth = torch.randn(16, generator=torch.Generator().manual_seed(0))
    figure = fields.draw_panels([[fields.Panel(truth + 1, "FNO", "u", truth=truth)]])
    values = [np.asarray(line.get_ydata()) for line in figure.axes[0].lines]
    assert any(np.allclose(v, truth) for v in values if len(v) == 16)
    assert legend_of(figure) == ["the truth", "the model"]
    assert figure.axes[0].get_xlabel() == "x" and figure.axes[0].get_ylabel() == "u"


def test_snapshots_in_time_show_the_truth_and_a_few_rows_at_the_same_moments() -> None:
    benchmark = benchmark_named("navier_stokes")
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (torch.randn(2, s, 8, 8, generator=generator) for s in (10, 20))
    moved = Pairs(inputs, targets)
    shifts = {"fno": 0.5, "pace": 0.0, "gfno": 0.1}
    outcomes = [outcome(name, targets, shift) for name, shift in shifts.items()]
    figure = fields.draw_in_time(benchmark, moved, outcomes).figure
    panels = [axis for axis in figure.axes if axis.images]
    titles = [axis.get_title(loc="left") for axis in panels[:6]]
    assert titles[0] == "last input" and titles[5] == "t = 2"
    rows = [axis.get_ylabel() for axis in panels[::6]][:3]
    assert rows == ["truth", "FNO", "PACE, one-shot"]  # GFNO is not among the few
    last = torch.from_numpy(np.array(panels[5].images[0].get_array())).T
    assert torch.allclose(last.float(), targets[typical_sample(outcomes), 19])


def test_rollouts_show_prediction_and_error_of_each_row() -> None:
    truth = torch.randn(12, 16, generator=torch.Generator().manual_seed(0))
    rollouts = {"fno-aug": truth, "pace-20": 0.5 * truth}
    drawing = fields.draw_rollouts(benchmark_named("kdv_easy"), truth, rollouts, 128.0, 20.0)
    titles = [axis.get_title(loc="left") for axis in drawing.figure.axes if axis.images]
    assert "error, 0.000 of the norm" in titles and "error, 0.500 of the norm" in titles
    assert "length 128" in drawing.caption


def test_samples_and_spectra_of_a_dataset_are_written(
    smoke_source: PairDataset, tmp_path: Path
) -> None:
    recipe = SMOOTH.recipe
    assert isinstance(recipe, PairRecipe)
    for draw in (fields.draw_samples, fields.draw_spectra):
        path = tmp_path / "pictures" / f"{draw.__name__}.png"
        draw(smoke_source, recipe, path)
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


# --- errors ---------------------------------------------------------------------------------------


def test_the_overview_has_a_line_for_every_row_and_the_papers_numbers(tmp_path: Path) -> None:
    figure = figures.draw_overview(collect([write_results(tmp_path)])).figure
    (axis,) = figure.axes  # trajectories are measured in another way
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names[-1] == "FNO" and names[0] == "PACE, true frame"
    diamonds = [line for line in axis.lines if line.get_marker() == "D"]
    assert 0.0755 in [float(np.asarray(line.get_xdata())[0]) for line in diamonds]
    assert legend_of(figure) == ["mean over seeds", "one seed", "the paper"]


def test_errors_over_time_have_a_line_per_row_and_times_in_the_units_of_the_data(
    tmp_path: Path,
) -> None:
    rows = [rollout("fno-aug", 42, 0.4), rollout("pace-20", 42, 0.2)]
    drawing = figures.draw_over_time(table_of(tmp_path, *rows, benchmark="kdv_easy"))
    assert drawing is not None and len(drawing.figure.axes) == 2
    line = drawing.figure.axes[0].lines[0]
    step = benchmark_named("kdv_easy").task.input.step
    assert np.allclose(np.asarray(line.get_xdata()), step * np.arange(1, 5))
    assert legend_of(drawing.figure) == ["FNO, 20 snapshots + augmentation", "PACE, 20 snapshots"]


def test_one_snapshot_has_no_figure_over_time(tmp_path: Path) -> None:
    rows = result("pace", 1, 0.1, ood_error_channels=[0.1])
    assert figures.draw_over_time(table_of(tmp_path, rows)) is None


def test_training_curves_show_epochs_with_and_without_validation() -> None:
    log = [
        {
            "epoch": e,
            "grid_stride": 2 if e < 3 else 1,
            "l2": 1 / e,
            "validation_error": 1 / e if e % 2 else None,
        }
        for e in range(1, 6)
    ]
    figure = figures.draw_training(SMOOTH, {"fno": [log, log], "pace": [log]}).figure
    left, right = figure.axes
    assert [len(np.asarray(line.get_xdata())) for line in left.lines] == [5, 5, 5]
    assert [len(np.asarray(line.get_xdata())) for line in right.lines] == [3, 3, 3]
    assert legend_of(figure) == ["FNO", "PACE, one-shot", "epochs on the coarse grid"]


@pytest.mark.parametrize("rows", [FIELD_ROWS, TRAJECTORY_ROWS], ids=["pairs", "trajectories"])
def test_every_row_has_a_look_of_its_own(rows: dict[str, Any]) -> None:
    looks = [style.STYLES[name] for name in listed(rows)]
    assert len({(look.colour, look.line) for look in looks}) == len(looks)


@pytest.mark.parametrize(("low", "high"), [(0.0285, 0.0289), (0.02, 0.09), (0.011, 0.3), (1e-4, 2)])
def test_a_logarithmic_axis_has_numbers_whatever_it_spans(low: float, high: float) -> None:
    figure, ((axis,),) = style.panels(4, 3)
    axis.plot([1, 2], [low, high])
    style.finish(axis, log="y")
    drawn(figure)
    bottom, top = axis.get_ylim()
    ticks = [*axis.yaxis.get_major_ticks(), *axis.yaxis.get_minor_ticks()]
    texts = [t.label1.get_text() for t in ticks if bottom <= t.get_loc() <= top]
    assert len([text for text in texts if text]) >= 2


def test_the_same_figure_is_saved_as_the_same_bytes(tmp_path: Path, smoke_places: Places) -> None:
    tables = collect([smoke_places.results])
    for name in ("a", "b"):
        style.save(figures.draw_overview(tables), tmp_path / name)
    for ending in ("png", "pdf"):
        first, second = ((tmp_path / n / f"overview.{ending}").read_bytes() for n in "ab")
        assert first == second and len(first) > 5000
