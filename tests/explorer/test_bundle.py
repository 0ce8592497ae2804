"""The page holds what was asked for, refuses what it cannot show, and names no path."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import pacefno
from pacefno.errors import UsageError
from pacefno.explorer import Model, Problem, build_page, bundle
from pacefno.explorer.runtime import Runtime
from pacefno.fields import Field, FieldType
from pacefno.groups import PointGroup

RUNTIME = Runtime(b"export default 1", b"\0asm")


def make_problem(dim: int = 2, n: int = 12, samples: int = 2) -> Problem:
    torch.manual_seed(0)
    type = FieldType.parse("h: scalar, m: momentum of h" if dim == 2 else "u: speed", dim)
    group = pacefno.Galilean(dim)
    task = pacefno.Task(
        name="small", input=type, output=type.at([1]), group=group, train_range=(0.1,) * group.size
    )
    size = type.size
    sizes = {"dim": dim, "in_channels": size, "out_channels": size, "width": 4, "modes": 2}
    operator = pacefno.FNO(**sizes, layers=1, head=4, positions="grid")
    framed = pacefno.PACE(operator, group, input=type, output=task.output).eval()
    trivial = pacefno.PACE(operator, pacefno.Trivial(dim), input=type, output=task.output).eval()
    field = torch.randn(samples, size, *[n] * dim)
    field[:, :1] += 10.0
    models = [Model("fno", "FNO", trivial), Model("pace", "PACE </script><b>", framed)]
    return Problem("small", "Small & <odd>", task, models, field, 2 * field)


@pytest.fixture
def without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_program", lambda model, example: b"program")


def stored(page: str) -> tuple[dict, dict[str, bytes]]:
    """The document of a page, and what is packed in it by name."""
    scripts = re.findall(r'<script type="([^"]+)" id="([^"]+)">(.*?)</script>', page, re.DOTALL)
    document = json.loads(next(text for _, name, text in scripts if name == "bundle"))
    packed = {
        name: gzip.decompress(base64.b64decode(text))
        for kind, name, text in scripts
        if kind == "text/plain" and name != "worker"
    }
    return document, packed


@pytest.mark.usefixtures("without_programs")
def test_the_page_holds_samples_programs_and_words() -> None:
    problem = make_problem()
    told: list[tuple[int, int]] = []
    document, packed = stored(
        build_page([problem], RUNTIME, lambda done, total: told.append((done, total)))
    )
    assert told == [(done, 4) for done in range(5)]  # from 0: the time left is counted from there
    (about,) = document["problems"]
    assert (about["title"], about["grid"], about["samples"]) == ("Small & <odd>", [12, 12], 2)
    assert [m["title"] for m in about["models"]] == ["FNO", "PACE </script><b>"]
    assert [m["framed"] for m in about["models"]] == [False, True]
    for name, values in (("input", problem.input), ("target", problem.target)):
        numbers = np.frombuffer(packed[about["blobs"][name]], "<f4")
        assert np.array_equal(numbers, values.numpy().ravel())
    programs = about["blobs"]["programs"]
    assert set(programs) == {"move-input", "move-output", "fno", "pace"}
    assert all(packed[name] == b"program" for name in programs.values())
    assert (packed["runtime-script"], packed["runtime-wasm"]) == (RUNTIME.script, RUNTIME.wasm)
    assert [c["kind"] for c in about["coordinates"]] == ["shift", "shift", "velocity", "velocity"]
    assert [c["signed"] for c in about["input_channels"]] == [False, True, True]


@pytest.mark.usefixtures("without_programs")
def test_the_page_needs_nothing_from_elsewhere_and_names_no_path() -> None:
    page = build_page([make_problem()], RUNTIME)
    assert page == build_page([make_problem()], RUNTIME)
    words = re.sub(r'(<script type="text/plain" id="(?!worker)[^>]*>).*?(</script>)', r"\1\2", page)
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", words)
    assert "http" not in words.replace("http-equiv", "")
    assert str(Path.cwd()) not in words and str(Path.home()) not in words
    assert "connect-src" not in words and "default-src 'none'" in words  # so nothing can be sent


@pytest.mark.parametrize(
    ("dim", "group", "element"), [(1, "z2", ((-1,),)), (2, "p4m", ((-1, 0), (0, 1)))]
)
def test_the_mirror_is_the_one_of_the_point_group(dim: int, group: str, element: tuple) -> None:
    problem = replace(make_problem(dim), mirror=group)
    how = bundle._mirror(problem)
    assert how is not None
    known = PointGroup(group)
    assert known.matrices[how["element"]] in (element, ((1, 0), (0, -1)))
    # What the page does: take the values at the mirrored points, then mix the channels.
    values = problem.input.permute(0, 1, *(2 + axis for axis in how["axes"]))
    for axis in how["mirrored"]:
        values = values.flip(2 + axis).roll(1, 2 + axis)
    found = torch.einsum("ij,bj...->bi...", torch.tensor(how["input"]).float(), values)
    xi = torch.full((len(values), 1), float(how["element"]), dtype=torch.float64)
    expected = known.act(Field(problem.input, problem.task.input), xi).values
    assert torch.equal(found, expected)


def test_a_boost_carries_the_density_into_the_momentum() -> None:
    carried = bundle._carried(make_problem().task)
    said = [(c["coordinate"], c["from"], c["to"], c["factor"]) for c in carried]
    assert said == [(2, 0, 1, 1.0), (3, 0, 2, 1.0)]
    assert bundle._carried(make_problem(1).task) == []


def test_there_is_no_mirror_where_none_is_known() -> None:
    assert bundle._mirror(make_problem()) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: replace(p, models=[]), "expected at least one model, got none"),
        (lambda p: replace(p, target=p.target[..., ::2]), "different grids"),
        (lambda p: replace(p, input=p.input[:, :2]), "the samples have 2 channels"),
        (lambda p: replace(p, models=make_problem(1).models), "explore models of one task"),
        (
            lambda p: replace(
                p, input=p.input.repeat(1, 1, 30, 30), target=p.target.repeat(1, 1, 30, 30)
            ),
            "too large to follow a drag",
        ),
        (lambda p: replace(p, input=p.input * float("nan")), "NaN"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("without_programs")
def test_what_cannot_be_shown_is_refused_in_one_sentence(change, message) -> None:
    with pytest.raises(UsageError, match=message):
        build_page([change(make_problem())], RUNTIME)


@pytest.mark.usefixtures("without_programs")
def test_three_dimensions_are_refused() -> None:
    type = FieldType.parse("u: scalar", 3)
    task = pacefno.Task(input=type, output=type.at([1]), group=pacefno.Translation(3))
    field = torch.randn(1, 1, 4, 4, 4)
    problem = replace(make_problem(), task=task, input=field, target=field)
    with pytest.raises(UsageError, match="has 3 dimensions: use pacefno audit"):
        build_page([problem], RUNTIME)
