"""Small recipes for the tests of datasets; all functions at the top, where workers find them."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from pacefno.data.generate import Dataset, folder_of, open_dataset
from pacefno.data.recipe import PairRecipe, Recipe, Sizes, TrajectoryRecipe
from pacefno.data.samples import Trajectories
from pacefno.fields import Box
from pacefno.files import sha256_of
from pacefno.frames import MomentSlice, PhaseSlice
from pacefno.pde import Burgers, Equation, KdV, Law, NavierStokes, ShallowWater
from pacefno.pde.initial import compact_vorticity, gaussian_field, scale_to_rms
from pacefno.task import Task

TINY = {"tiny": Sizes(train=20, validation=8, test=12)}
FEW = {"tiny": Sizes(train=4, validation=4, test=8)}


def draw_wave(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    return gaussian_field(grid, generator, sigma=25.0, tau=5.0, gamma=2.0, cutoff=20)[None]


def draw_water(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    h, mx, my = (gaussian_field(grid, generator, tau=5.0, gamma=3.0, cutoff=9) for _ in range(3))
    return torch.stack([1 + scale_to_rms(h, 0.2), scale_to_rms(mx, 0.15), scale_to_rms(my, 0.15)])


def draw_vortices(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    field = gaussian_field(grid, generator, tau=7.0, gamma=2.5, cutoff=21)
    return compact_vorticity(field, radius=0.14, rms=3.0)[None]


def task_of(
    equation: Equation, spacing: float, snapshots: tuple[int, int] = (1, 1), moment: bool = False
) -> Task:
    history, future = snapshots
    type = equation.field_type(range(history), step=spacing)
    slice = MomentSlice(equation.group) if moment else PhaseSlice(equation.group)
    return Task(
        input=type,
        output=type.at(range(history, history + future)),
        group=equation.group,
        slice=slice,
    )


BURGERS = PairRecipe(
    "tiny_burgers",
    Burgers(1, 1e-2),
    Law("waves", draw_wave),
    task_of(Burgers(1, 1e-2), 0.5),
    grid=(128,),
    coarsening=2,
    step=0.01,
    ood_low=(0.1, 0.2),
    ood_high=(0.5, 1.0),
    sizes=TINY,
    part_samples=8,
)
WATER = PairRecipe(
    "tiny_water",
    ShallowWater(2e-3, 1.0),
    Law("water", draw_water),
    task_of(ShallowWater(2e-3, 1.0), 0.1),
    grid=(32, 48),
    coarsening=2,
    step=0.02,
    ood_low=(0.15, 0.15, 0.2, 0.2),
    ood_high=(0.5, 0.5, 1.0, 1.0),
    precision="float32",
    sizes=FEW,
    part_samples=4,
)
# On a coarser grid the solver's cut removes part of the compact vorticity, which leaves its slice.
VORTICES = PairRecipe(
    "tiny_vortices",
    NavierStokes(4e-4),
    Law("vortices", draw_vortices),
    task_of(NavierStokes(4e-4), 0.1, snapshots=(2, 2), moment=True),
    grid=(128, 128),
    coarsening=2,
    step=0.02,
    ood_low=(0.05, 0.05, math.pi / 4),
    ood_high=(0.25, 0.25, math.pi / 2),
    resolve=True,
    sizes=FEW,
    part_samples=4,
)
PAIR_RECIPES: Mapping[str, PairRecipe] = {r.name: r for r in (BURGERS, WATER, VORTICES)}

_KDV_TYPE = KdV().field_type(range(2), lengths=128.0, step=0.2)
KDV = TrajectoryRecipe(
    "tiny_kdv",
    KdV(),
    Task(input=_KDV_TYPE, output=_KDV_TYPE.at((2, 3)), group=KdV().group),
    solved=8,
    ood_low=(0.0, 0.4, 0.05),
    ood_high=(0.5, 1.2, 0.15),
    file_name=("KdV", "easy"),
    solver_points=36,
    substeps=2,
    kept=5,
    points=24,
    sizes={"tiny": Sizes(train=16, validation=8, test=8)},
    part_samples=4,
)


def explode(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    return 1e9 * draw_wave(generator, grid)


EXPLOSIVE = replace(BURGERS, law=Law("explosive", explode))


def folder(recipe: Recipe, root: Path) -> Path:
    return folder_of(root, recipe, "tiny", 42)


def opened_tiny(recipe: Recipe, place: Path, *, verify: bool = True) -> Dataset:
    return open_dataset(recipe, place, preset="tiny", seed=42, verify=verify)


def sums(place: Path) -> dict[str, str]:
    """The sum of every file of a dataset, by name."""
    return {path.name: sha256_of(path) for path in sorted(place.glob("*.h5"))}


def times(place: Path) -> dict[str, int]:
    """When each file of a folder was written."""
    return {path.name: path.stat().st_mtime_ns for path in sorted(place.glob("*.h5"))}


def kill_worker(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    """A draw that kills its process, as the system would when memory is short."""
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return draw_wave(generator, grid)


def sign_in(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    """A draw that leaves the number of its process in the folder that the environment names."""
    (Path(os.environ["PACEFNO_TEST_SIGN_IN"]) / str(os.getpid())).touch()
    return draw_wave(generator, grid)


SUICIDAL = replace(BURGERS, law=Law("suicidal", kill_worker))
SIGNING = replace(BURGERS, law=Law("waves", sign_in))  # the same law as that of BURGERS


def die(done: int, total: int) -> None:
    """A progress display that kills its process after the first job."""
    if done:
        os.kill(os.getpid(), signal.SIGKILL)


def some(count: int = 3, dtype: torch.dtype = torch.float64) -> Trajectories:
    """Random trajectories of five snapshots on eight points, each in a box of its own."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(count, 5, 8, dtype=torch.float64, generator=generator)
    rows = torch.linspace(0.9, 1.1, count, dtype=torch.float64)
    return Trajectories(values, Box(128 * rows[:, None], 0.4 * rows)).to(dtype)


def as_lpsda_writes(path: Path, mode: str = "train", count: int = 3) -> None:
    """Empty arrays first, then one trajectory after the other, all in the library's defaults."""
    source, all_snapshots = some(count), 9
    with h5py.File(path, "a") as file:
        group = file.create_group(mode)
        u = group.create_dataset("pde_5-8", (count, 5, 8), dtype=float)
        x = group.create_dataset("x", (count, 8), dtype=float)
        dx = group.create_dataset("dx", (count,), dtype=float)
        t = group.create_dataset("t", (count, 5), dtype=float)
        dt = group.create_dataset("dt", (count,), dtype=float)
        for i in range(count):
            length = float(source.box.lengths[i])
            end = float(source.box.step[i]) * (all_snapshots - 1)
            u[i : i + 1] = source.values[i].numpy()
            x[i : i + 1] = np.linspace(0, (1 - 1 / 8) * length, 8)
            dx[i : i + 1] = length / 8
            t[i : i + 1] = np.linspace(0, end, all_snapshots)[-5:]
            dt[i : i + 1] = end / (all_snapshots - 1)
