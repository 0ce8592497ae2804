"""The tutorial runs as it is printed, and the numbers in its text are true."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import pacefno

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
Names = dict[str, Any]


@pytest.fixture(scope="module")
def names() -> Names:
    """What the blocks leave behind, run in order in one namespace."""
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks, "the page has no code"
    found: Names = {}
    state = torch.get_rng_state()
    for block in blocks:
        with warnings.catch_warnings():  # the constant field warns, as the page says
            warnings.simplefilter("ignore", pacefno.UndeterminedFrameWarning)
            exec(compile(block, str(TUTORIAL), "exec"), found)
    torch.set_rng_state(state)
    return found


def test_wrapping_removes_the_equivariance_error(names: Names) -> None:
    assert float(names["before"].mean()) > 0.5
    assert float(names["after"].max()) < 1e-5
    assert float(names["after_finer"].max()) < 1e-5


def test_wrapping_takes_no_more_than_ten_lines() -> None:
    wrap = TUTORIAL.read_text(encoding="utf-8").split("## 2. Wrap it")[1].split("```")[1]
    assert 2 <= len(wrap.strip().splitlines()) <= 10


def test_joint_training_keeps_the_error_outside_the_training_range(names: Names) -> None:
    error = names["error"]
    assert error["plain", "near"] < 0.15
    assert error["pace", "near"] < 0.08
    assert error["plain", "far"] > 0.3
    assert error["pace", "far"] < 0.05


def test_the_inside_is_as_described(names: Names) -> None:
    assert float(names["velocity_error"].max()) < 1e-5
    assert float(names["same"].abs().max()) < 1e-4
    assert 1e-3 < float(names["shift_error"].mean()) < 0.1
    confidence = names["estimate"].confidence
    assert float(confidence.mean()) > 0.5
    assert float(confidence.min()) > 0 and float(confidence.max()) <= 1
    assert float(names["unknown"].confidence) == 0
    assert names["unknown"].xi.tolist()[0] == pytest.approx([0.0, 0.3], abs=1e-6)
    assert bool(torch.isfinite(names["prediction"]).all())


def test_refinement_leaves_a_consistent_frame_alone_and_helps_another(names: Names) -> None:
    refined, result = names["refined"], names["result"]
    assert refined.evaluations == 1
    assert torch.equal(refined.xi, names["estimate"].xi)
    assert torch.equal(names["better"], names["pace"](names["a"]).detach())
    assert float(names["gain"]) < 0.6
    assert bool((result.energy_after <= result.energy_before).all())


def test_a_saved_model_predicts_the_same(names: Names) -> None:
    a = names["a"]
    assert torch.equal(names["again"](a), names["pace"](a))


def test_a_constant_field_warns_and_names_the_coordinate(names: Names) -> None:
    fresh = pacefno.PACE(names["pace"].operator, names["group"], **names["what"]).eval()
    with pytest.warns(pacefno.UndeterminedFrameWarning, match="not determined: x"):
        fresh(names["flat"])


def test_the_page_uses_public_names_and_names_no_machine() -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    used = set(re.findall(r"pacefno\.(\w+)", text)) - {"paper"}
    assert used <= set(pacefno.__all__)
    assert "/work" not in text and "/home" not in text
