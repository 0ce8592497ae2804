"""What is in a dataset, as tables: shapes, ranges, and whether it lies on its slice."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from torch import Tensor

from pacefno.data.pictures import draw_samples, draw_spectra
from pacefno.data.read import Dataset, Samples
from pacefno.data.recipe import SPLITS, Recipe
from pacefno.equations import Problem, problem_named

__all__ = ["draw_samples", "draw_spectra", "show"]


def show(dataset: Dataset, console: Console) -> None:
    """Print everything worth knowing before training on a dataset."""
    recipe = dataset.recipe
    problem = problem_named(recipe.problem)
    loaded = {split: dataset.load(split, "ood" if split.startswith("test") else "id") for split in SPLITS}
    console.print(_settings(recipe), highlight=False, soft_wrap=True)
    console.print(_shapes(dataset, loaded))
    console.print(_ranges(recipe, loaded))
    if recipe.stationary:
        console.print("stationary: the samples are not centred, so they carry no frame to compare with")
    else:
        console.print(_alignment(problem, loaded["test_id"], loaded["test_ood"]))
    console.print(_dynamics(len(recipe.channels), loaded["test_id"], loaded["test_ood"]))


def slice_residuals(problem: Problem, samples: Samples) -> Tensor:
    """Largest distance from the canonical slice per coordinate, ``(size,)``: zero up to float32 for ID samples."""
    xi = problem.slice.coordinates(samples.input.double())
    return problem.group.wrap(xi).abs().amax(dim=0)


def generator_errors(problem: Problem, moved: Samples) -> Tensor:
    """Largest difference, modulo the period, between the coordinates of moved samples and what moved them, ``(size,)``."""
    if moved.generators is None:
        raise ValueError("these samples were not moved: expected those of test_ood")
    xi = problem.slice.coordinates(moved.input.double())
    return problem.group.difference(xi, moved.generators).abs().amax(dim=0)


def _settings(recipe: Recipe) -> str:
    physics = ", ".join(f"{name} = {value:g}" for name, value in recipe.parameters.items())
    return (
        f"{recipe.problem}, preset {recipe.preset}, seed {recipe.seed}{', stationary' if recipe.stationary else ''}\n"
        f"physics: {physics}; frames: {recipe.frames_in} in, {recipe.frames_out} out, {recipe.spacing:g} apart in time; "
        f"solved on {_by(recipe.solver_grid)} points with step {recipe.solver_step:g}\n"
        f"made with {', '.join(f'{name} {number}' for name, number in recipe.versions.items())}"
    )


def _shapes(dataset: Dataset, loaded: dict[str, Samples]) -> Table:
    table = Table("split", "samples", "input", "target", "files", "MB", "redrawn", title="Splits", title_justify="left")
    for split, samples in loaded.items():
        entries = dataset.manifest.entries(split)
        megabytes = sum(entry.bytes for entry in entries) / 1e6
        shapes = [_by(tuple(part.shape[1:])) for part in (samples.input, samples.target)]
        redraws = dataset.manifest.redraws(split)
        table.add_row(split, str(len(samples)), *shapes, str(len(entries)), f"{megabytes:.1f}", str(redraws))
    return table


def _ranges(recipe: Recipe, loaded: dict[str, Samples]) -> Table:
    table = Table("split", "field", "least", "mean", "greatest", "rms", title="Ranges", title_justify="left")
    for split, samples in loaded.items():
        for part, fields in (("input", samples.input), ("target", samples.target)):
            for name, values in _channels(recipe, fields):
                numbers = (values.min(), values.double().mean(), values.max(), values.double().square().mean().sqrt())
                table.add_row(split, f"{part} {name}", *(f"{float(number):+.4f}" for number in numbers))
    return table


def _channels(recipe: Recipe, fields: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Each physical channel with all its frames."""
    for i, name in enumerate(recipe.channels):
        yield name, fields[:, i :: len(recipe.channels)]


def _alignment(problem: Problem, plain: Samples, moved: Samples) -> Table:
    exact = problem.exact_group
    title = "Canonical slice (largest over samples)" + ("" if exact else "; the group is only nearly a symmetry here")
    table = Table("coordinate", "test_id off the slice", "test_ood off its generator", title=title)
    table.title_justify = "left"
    rows = zip(problem.group.coordinates, slice_residuals(problem, plain), generator_errors(problem, moved), strict=True)
    for name, residual, error in rows:
        table.add_row(name, f"{float(residual):.1e}", f"{float(error):.1e}")
    return table


def last_frame_distance(channels: int, first: Tensor, second: Tensor) -> Tensor:
    """Relative L2 distance of the last frames, ``(N,)``."""
    a, b = (fields[:, -channels:].double().flatten(1) for fields in (first, second))
    return (a - b).norm(dim=1) / b.norm(dim=1)


def _dynamics(channels: int, plain: Samples, moved: Samples) -> Table:
    """How much happens between input and target, and how far the flow is from commuting with the group."""
    table = Table("last frame, relative L2", "mean", "greatest", title="Dynamics", title_justify="left")
    rows = {"change from input to target": last_frame_distance(channels, plain.input, plain.target)}
    if moved.resolved is not None:
        rows["moved target against re-solved one (defect of the group)"] = last_frame_distance(
            channels, moved.target, moved.resolved
        )
    for name, distance in rows.items():
        table.add_row(name, f"{float(distance.mean()):.4f}", f"{float(distance.max()):.4f}")
    return table


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
