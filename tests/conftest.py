"""Shared by all tests: both precisions with what round-off allows in each, and property tests that repeat exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from pacefno.studies.bench import Places

# no deadline (a shared machine is slow at times), no database (tests write to tmp_path only), the same examples every time
settings.register_profile("pacefno", deadline=None, max_examples=20, derandomize=True, database=None)
settings.load_profile("pacefno")
torch.set_num_threads(1)  # tests run side by side: threads of one would wait for the other


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
def smoke_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A smoke dataset with the trainings that studies work on, made once; read it, write elsewhere."""
    from pacefno.data import generate  # here, because most test files need none of it
    from pacefno.equations import problem_named
    from pacefno.studies.bench import Places, plan, run_task
    from pacefno.training.loop import Hooks

    root = tmp_path_factory.mktemp("studied")
    places = Places(root / "datasets", root / "runs", root / "results")
    generate(problem_named("burgers1d_smooth"), "smoke", 42, places.data, workers=1)
    for task in plan(["burgers1d_smooth"], "smoke", ["fno", "pace", "pace-cnn"], [42]):
        list(run_task(task, places, Hooks()))
    return places
