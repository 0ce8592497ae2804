"""What is in a dataset, as tables: shapes, ranges, and whether samples lie where they should."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import Tensor

from pacefno.data.generate import Dataset, explain_missing, is_generated, open_dataset
from pacefno.data.lpsda import TrajectoryDataset
from pacefno.data.recipe import PairRecipe, Recipe, TrajectoryRecipe
from pacefno.data.samples import Pairs
from pacefno.data.store import DatasetError, PairDataset, opened, read_arrays, read_document
from pacefno.fields import Field
from pacefno.metrics import canonical_pair


def open_folder(folder: Path, recipes: Mapping[str, Recipe]) -> tuple[Recipe, Dataset]:
    """The dataset in a folder and which of the recipes made it; every file is verified.

    Files of LPSDA's do not say what made them: their names tell the recipe.
    """
    documents = [read_document(path) for path in sorted(folder.glob("*.h5"))]
    document = next(filter(None, documents), None)
    if document is None:
        for recipe in recipes.values():
            if isinstance(recipe, TrajectoryRecipe) and is_generated(folder, recipe):
                any_preset = next(iter(recipe.sizes))
                return recipe, open_dataset(recipe, folder, preset=any_preset, seed=0)
        raise DatasetError(folder, explain_missing(folder))
    if document["name"] not in recipes:
        known = ", ".join(recipes)
        reason = f"was made by {document['name']!r}, expected one of {known}"
        todo = "import the module that defines it, pacefno --import MODULE"
        raise DatasetError(folder, f"{reason}: {todo}")
    recipe = recipes[document["name"]]
    options = {key: document[key] for key in ("preset", "seed", "stationary") if key in document}
    return recipe, open_dataset(recipe, folder, **options)


def show(dataset: Dataset, recipe: Recipe, console: Console) -> None:
    """Print what is worth knowing of a dataset before training on it."""
    if isinstance(dataset, TrajectoryDataset):
        console.print(_trajectories(dataset))
        return
    assert isinstance(recipe, PairRecipe)
    loaded = {
        split: dataset.load(split, "ood" if split.startswith("test") else "id")
        for split in dataset.splits
    }
    console.print(_settings(dataset, recipe), highlight=False, soft_wrap=True)
    console.print(_shapes(dataset, loaded))
    console.print(_ranges(recipe, loaded))
    if dataset.document["stationary"]:
        console.print("stationary: the samples are not centred, so there is no frame to compare")
    else:
        console.print(_alignment(recipe, loaded["test_id"], loaded["test_ood"]))
    console.print(_dynamics(recipe, loaded["test_id"], loaded["test_ood"]))


def element_errors(recipe: PairRecipe, pairs: Pairs) -> Tensor:
    """Largest distance from where elements say that samples lie: if unmoved, on the slice.

    One for each coordinate, modulo its period; 0 in float32.
    """
    task = recipe.task
    xi = task.slice.coordinates(Field(pairs.input.double(), task.input))
    away = task.group.wrap(xi) if pairs.xi is None else task.group.difference(xi, pairs.xi)
    return away.abs().amax(dim=0)


def last_snapshot_distance(recipe: PairRecipe, first: Tensor, second: Tensor) -> Tensor:
    """Relative L2 distance of the last snapshots, ``(N,)``."""
    channels = len(recipe.task.output.channels)
    a, b = (fields[:, -channels:].double().flatten(1) for fields in (first, second))
    return (a - b).norm(dim=1) / b.norm(dim=1)


# --- the tables -----------------------------------------------------------------------------------


def _settings(dataset: PairDataset, recipe: PairRecipe) -> str:
    task, document = recipe.task, dataset.document
    with opened(dataset.file("train")) as file:
        versions = json.loads(file.attrs["versions"])
    physics = ", ".join(f"{name} = {value:g}" for name, value in document["parameters"].items())
    snapshots = f"{task.input.snapshots} in, {task.output.snapshots} out"
    return (
        f"{dataset.recipe_name}, preset {document['preset']}, seed {document['seed']}"
        f"{', stationary' if document['stationary'] else ''}\n"
        f"physics: {physics}; snapshots: {snapshots}, {task.input.step:g} apart in time; "
        f"solved on {_by(recipe.grid)} points with step {recipe.step:g}\n"
        f"made with {', '.join(f'{name} {number}' for name, number in versions.items())}"
    )


def _shapes(dataset: PairDataset, loaded: Mapping[str, Pairs]) -> Table:
    table = _table("Splits", "split", "samples", "input", "target", "MB", "redrawn")
    for split, pairs in loaded.items():
        shapes = [_by(tuple(part.shape[1:])) for part in (pairs.input, pairs.target)]
        path = dataset.file(split)
        redraws = read_arrays(path, ["redraws"])["redraws"].sum()
        megabytes = f"{path.stat().st_size / 1e6:.1f}"
        table.add_row(split, str(len(pairs)), *shapes, megabytes, str(redraws))
    return table


def _ranges(recipe: PairRecipe, loaded: Mapping[str, Pairs]) -> Table:
    table = _table("Ranges", "split", "field", "least", "mean", "greatest", "rms")
    input, output = recipe.task.input, recipe.task.output
    for split, pairs in loaded.items():
        for part, type, fields in (
            ("input", input, pairs.input),
            ("target", output, pairs.target),
        ):
            for i, name in enumerate(type.channels):
                values = fields[:, i :: len(type.channels)].double()  # in all snapshots
                rms = values.square().mean().sqrt()
                numbers = (values.min(), values.mean(), values.max(), rms)
                table.add_row(split, f"{part} {name}", *(f"{float(n):+.4f}" for n in numbers))
    return table


def _alignment(recipe: PairRecipe, plain: Pairs, moved: Pairs) -> Table:
    nearly = "; the group is only nearly a symmetry here" if recipe.resolve else ""
    title = f"Canonical slice (largest over samples){nearly}"
    table = _table(title, "coordinate", "test_id off the slice", "test_ood off its element")
    off = [element_errors(recipe, pairs).tolist() for pairs in (plain, moved)]
    for name, *numbers in zip(recipe.task.group.coordinates, *off, strict=True):
        table.add_row(name, *(f"{number:.1e}" for number in numbers))
    return table


def _dynamics(recipe: PairRecipe, plain: Pairs, moved: Pairs) -> Table:
    """How much happens from input to target, and how far the flow is from having the symmetry."""
    table = _table("Dynamics", "last snapshot, relative L2", "mean", "greatest")
    pairs = {"change from input to target": (plain.input, plain.target)}
    if moved.resolved is not None:
        # Seen in the frame of each sample: a boost would add its own energy to what is divided by.
        group, type, xi = recipe.task.group, recipe.task.output, moved.elements
        both = (moved.target, moved.resolved)
        if group.moves_in_time:
            both = canonical_pair(group, type, xi, *both)
        name = "moved target against the one solved from the moved input"
        pairs[name] = both
    for name, fields in pairs.items():
        distance = last_snapshot_distance(recipe, *fields)
        table.add_row(name, f"{float(distance.mean()):.4f}", f"{float(distance.max()):.4f}")
    return table


def _trajectories(dataset: TrajectoryDataset) -> Table:
    columns = ("file", "trajectories", "snapshots", "points", "length", "time step", "rms", "peak")
    table = _table(str(dataset.path), *columns)
    for split in dataset.splits:
        found = dataset.load(split)
        assert found.box is not None
        sizes = [f"{v.min():.4g} to {v.max():.4g}" for v in (found.box.lengths, found.box.step)]
        rms, peak = found.values.square().mean().sqrt(), found.values.abs().max()
        counts = map(str, found.values.shape)
        table.add_row(dataset.file(split).name, *counts, *sizes, f"{rms:.4g}", f"{peak:.4g}")
    return table


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left")


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
