"""Shared by all tests: both precisions with what round-off allows in each, and property tests that repeat exactly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

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
