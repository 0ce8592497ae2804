"""How rich a family of operators is: covering numbers are exact, and averaging never raises one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pacefno.errors import UsageError
from pacefno.groups import Translation
from pacefno.paper.bench import Places
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.claims.evidence import Evidence
from pacefno.paper.claims.theory import approximation, covering
from pacefno.paper.studies import capacity
from pacefno.paper.studies.base import run_study
from pacefno.paper.studies.capacity import (
    average,
    covering_number,
    distances,
    fitted_errors,
    lemma_bound,
)
from pacefno.paper.style import save

TASK = benchmark_named("burgers1d_smooth").task


def on_a_line(*places: float) -> Tensor:
    """Distances of points on a line."""
    points = torch.tensor(places, dtype=torch.float64)
    return (points[:, None] - points).abs()


@pytest.mark.parametrize(
    ("radius", "number"), [(0.0, 5), (0.99, 5), (1.0, 3), (1.5, 3), (5.0, 2), (8.0, 1)]
)
def test_a_cover_is_the_smallest_there_is(radius: float, number: int) -> None:
    # 0 1 2 - - - - 7 - - - - - - - 15: greedy covers from the left end need more.
    assert covering_number(on_a_line(0, 1, 2, 7, 15), radius) == number


def test_a_cover_that_no_single_best_choice_begins_is_found() -> None:
    # The member that reaches most (the middle one) is not part of the smallest cover.
    near = torch.eye(6, dtype=torch.float64)
    for i, j in ((0, 1), (0, 2), (3, 4), (3, 5), (1, 4)):
        near[i, j] = near[j, i] = 1
    assert covering_number(1 - near, 0.0) == 2


def scaled(factor: float) -> Any:
    """An operator that multiplies by the place: as far from commuting with shifts as can be."""
    return lambda field: factor * field * torch.linspace(0, 1, field.shape[-1], dtype=field.dtype)


def test_averages_are_no_further_apart_and_a_wrong_average_is_noticed() -> None:
    field = torch.randn(6, 1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    family = [scaled(factor) for factor in (0.5, 1.0, 2.5)]
    task = TASK.model_copy(update={"group": Translation(1)})
    drawn = torch.rand(8, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rest = task.group.identity(1)
    apart = distances(family, task, field, drawn)
    averaged = distances([average(f, task, drawn) for f in family], task, field, rest)
    assert (averaged <= apart + 1e-12).all() and averaged[0, 2] < 0.95 * apart[0, 2]
    assert torch.equal(apart, apart.T) and apart.diagonal().abs().max() == 0
    # Averages that forget to divide are further apart than the law allows.
    wrong = [lambda a, f=f: 8 * average(f, task, drawn)(a) for f in family]
    assert (distances(wrong, task, field, rest) > apart + 1e-9).any()


@pytest.fixture
def places(smoke_places: Places, tmp_path: Path) -> Places:
    return replace(smoke_places, runs=tmp_path / "runs", results=tmp_path / "results")


def run(places: Places, **how: Any) -> Any:
    given: dict[str, Any] = {"benchmark": "burgers1d_smooth", "preset": "smoke", "samples": 8}
    given |= {"widths": [2, 8], "seeds": [42, 1234], "elements": 3}
    return run_study("capacity", places, print, **given | how)


def test_a_family_is_trained_and_measured_once(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(places)
    [cell] = json.loads(outcome.path.read_text())["cells"]
    assert cell["members"] == 4 and cell["expanded"] == 0 and cell["stretch"] == 1.0
    for way in (cell["plain"], cell["averaged"]):
        assert way["numbers"][0] == 4 and way["numbers"][-1] == 1
        assert way["numbers"] == sorted(way["numbers"], reverse=True)
    singles = json.loads((outcome.path.parent / "capacity-burgers1d_smooth.json").read_text())
    assert {(c["width"], c["seed"]) for c in singles["cells"]} == {
        (2, 42), (8, 42), (2, 1234), (8, 1234),
    }  # fmt: skip
    assert list(fitted_errors(singles["cells"])) == [2, 8]
    [drawing] = outcome.drawings
    save(drawing, tmp_path)
    assert (tmp_path / "burgers1d_smooth-capacity.png").stat().st_size > 5000

    def never(*arguments: Any) -> Any:
        raise AssertionError("measured twice")

    monkeypatch.setattr(capacity, "measure_member", never)
    monkeypatch.setattr(capacity, "measure_family", never)
    assert run(places).sentences == outcome.sentences


def test_a_class_and_its_averages_are_bounded_with_the_same_largest_loss() -> None:
    plain, averaged = ({"numbers": [n, 1], "largest_loss": loss} for n, loss in ((8, 1), (4, 2)))
    cell = {"radii": [0.0, 5.0], "samples": 100, "plain": plain, "averaged": averaged}
    found = [lemma_bound(cell, key) for key in ("plain", "averaged")]
    assert found == [2 * math.sqrt(math.log(2 * n / 0.05) / 200) for n in (8, 4)]


def test_a_family_whose_covers_cannot_all_be_tried_is_refused(places: Places) -> None:
    with pytest.raises(UsageError, match=r"20 operators.*at most 18"):
        run(places, widths=list(range(2, 12)))


def test_the_page_on_the_paper_is_told(tmp_path: Path) -> None:
    assert approximation(Evidence((tmp_path,))).word == "not"
    assert covering(Evidence((tmp_path,))).word == "not"
    folder = tmp_path / "studies"
    folder.mkdir()

    def write(name: str, cells: list[dict[str, Any]]) -> None:
        document = {"study": "capacity", "problem": "burgers1d", "cells": cells}
        (folder / f"capacity-burgers1d{name}.json").write_text(json.dumps(document))

    def word(judge: Any) -> str:
        found: str = judge(Evidence((tmp_path,))).word
        return found

    width = {"preset": "standard", "seed": 42}
    write("", [width | {"width": w, "fitted_error": e} for w, e in ((4, 0.2), (8, 0.1))])
    assert word(approximation) == "done"
    write("", [width | {"width": w, "fitted_error": e} for w, e in ((4, 0.1), (8, 0.2))])
    assert word(approximation) == "partly"
    way = {"numbers": [3, 1], "gap": 0.1, "largest_loss": 1.0}
    cell = {"preset": "standard", "radii": [0, 1], "members": 3, "expanded": 0, "stretch": 1.0}
    cell |= {"samples": 200}
    write("-family", [cell | {"plain": way, "averaged": way}])
    assert word(covering) == "done"
    for change in ({"numbers": [3, 2]}, {"gap": 0.2}):
        write("-family", [cell | {"plain": way, "averaged": way | change}])
        assert word(covering) == "partly"
    write("-family", [cell | {"plain": way, "averaged": way, "expanded": 1}])
    assert word(covering) == "partly"
