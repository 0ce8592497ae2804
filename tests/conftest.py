"""Shared by all tests: both precisions with what round-off allows, and small datasets and runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from pacefno.data.samples import Source
    from pacefno.paper.bench import Places

# Property tests have no deadline (a shared machine is slow at times), no database (tests write to
# tmp_path only), and try the same examples every time.
settings.register_profile(
    "pacefno", deadline=None, max_examples=20, derandomize=True, database=None
)
settings.load_profile("pacefno")
# Tests run side by side: threads of one, or of a program that it starts, would wait for the other.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Every test that touches numbers runs in both precisions."""
    chosen: torch.dtype = request.param
    return chosen


@pytest.fixture
def tolerance(dtype: torch.dtype) -> float:
    """What exact means: 1e-12 in float64, and the same number of round-offs in float32."""
    return 1e-12 if dtype == torch.float64 else 2e-5


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def smoke_datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of datasets with the smallest one in it, made once; read it, write elsewhere."""
    from pacefno.data import generate  # here, because most test files need none of it
    from pacefno.paper.benchmarks import benchmark_named

    root = tmp_path_factory.mktemp("datasets")
    generate(benchmark_named("burgers1d_smooth").recipe, "smoke", 42, root, workers=1)
    return root


@pytest.fixture(scope="session")
def smoke_source(smoke_datasets: Path) -> Source:
    """The samples of that dataset."""
    from pacefno.paper.bench import prepare_data
    from pacefno.paper.benchmarks import benchmark_named

    return prepare_data(benchmark_named("burgers1d_smooth"), "smoke", smoke_datasets)


@pytest.fixture(scope="session")
def smoke_places(smoke_datasets: Path, tmp_path_factory: pytest.TempPathFactory) -> Places:
    """The trainings that studies work on, with their rows, made once; read it, write elsewhere."""
    from pacefno.paper.bench import Places, plan, run_job
    from pacefno.train.loop import Callbacks

    root = tmp_path_factory.mktemp("studied")
    places = Places(smoke_datasets, root / "runs", root / "results")
    for job in plan(["burgers1d_smooth"], "smoke", ["fno", "pace", "pace-cnn"], [42]):
        list(run_job(job, places, Callbacks()))
    return places
