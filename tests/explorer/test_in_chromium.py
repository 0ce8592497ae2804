"""The page in a real browser, from disk: what it shows after drags is what Python computes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from chromium import Page, find_chromium

from pacefno.cli.explore import gather
from pacefno.errors import UsageError
from pacefno.explorer import Problem, build_page
from pacefno.explorer.runtime import find_runtime
from pacefno.explorer.serve import PageServer
from pacefno.fields import Field
from pacefno.groups import PointGroup
from pacefno.metrics import relative_l2

MODELS = Path(__file__).parents[2] / "docs" / "models"
PROBLEMS = ("burgers1d", "shallow_water", "navier_stokes")
CLOSE = 1e-3  # relative: float32 in two runtimes, and what an error of a few percent makes of it
pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def problems() -> dict[str, Problem]:
    runs = [MODELS / name / model for name in PROBLEMS for model in ("fno", "pace")]
    return {problem.id: problem for problem in gather(runs, None, 2, None)}


@pytest.fixture(scope="module")
def file(problems: dict[str, Problem], tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        runtime = find_runtime()
    except UsageError as error:
        pytest.skip(str(error))
    path = tmp_path_factory.mktemp("explorer") / "page.html"
    path.write_text(build_page(list(problems.values()), runtime), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(file: Path) -> Iterator[Page]:
    with Page() as made:
        made.open(file.as_uri())
        made.wait_for("document.getElementById('app').dataset.frame")
        yield made
        assert made.messages == []


def choose(page: Page, problem: str) -> None:
    page.evaluate(
        f"[...document.querySelectorAll('#problems button')]"
        f"[bundle.problems.findIndex((p) => p.id === '{problem}')].click()"
    )
    page.wait_for(f"state.shown && document.getElementById('app').dataset.problem === '{problem}'")


def settle(page: Page) -> dict:
    """What the page says once it has computed what was last asked for."""
    page.wait_for(
        "!waiting && !wanted && JSON.stringify(state.shown.xi) === JSON.stringify(state.xi)"
    )
    return json.loads(
        page.evaluate(
            """JSON.stringify({...document.getElementById('app').dataset,
            errors: Object.fromEntries([...document.querySelectorAll('[data-model]')]
              .map((cell) => [cell.dataset.model, [Number(cell.dataset.error), cell.textContent]])),
            found: JSON.parse(document.getElementById('frame').dataset.xi),
            inside: document.getElementById('inside').dataset.inside,
            path: state.path.length, notice: document.getElementById('notice').textContent})"""
        )
    )


@torch.no_grad()
def computed(problem: Problem, shown: dict) -> tuple[dict[str, float], list[float]]:
    """Errors in the canonical frame and the frame that PACE finds, for the motion on the page."""
    task, number = problem.task, int(shown["sample"])
    xi = torch.tensor([json.loads(shown["xi"])], dtype=torch.float64)
    fields = []
    for values, type in ((problem.input, task.input), (problem.target, task.output)):
        field = Field(values[number : number + 1], type)
        if shown["mirrored"] == "true":
            assert problem.mirror is not None
            mirror = PointGroup(problem.mirror)
            found = (i for i, m in enumerate(mirror.matrices) if torch.tensor(m).double().det() < 0)
            plain = [i for i in found if mirror.moves(i)[0] == list(range(mirror.dim))]
            field = mirror.act(field, torch.full((1, 1), float(plain[0]), dtype=torch.float64))
        fields.append((field.values, task.group.act(field, xi).values))
    (_, moved), (unmoved, _) = fields
    errors, frame = {}, [0.0]
    for one in problem.models:
        made = one.model.predict(moved)
        back = task.group.inverse(Field(made.values, task.output), xi).values
        errors[one.id] = float(relative_l2(back, unmoved, per_channel=task.per_channel))
        if one.model.group.size:
            frame = made.frame.xi[0].tolist()
    return errors, frame


def compare(problem: Problem, shown: dict) -> None:
    errors, frame = computed(problem, shown)
    for name, error in errors.items():
        assert shown["errors"][name][0] == pytest.approx(error, rel=CLOSE), name
        digits = float(shown["errors"][name][1].removesuffix(" %"))
        assert digits / 100 == pytest.approx(error, rel=0.06)
    apart = torch.tensor([shown["found"]]) - torch.tensor([frame])
    assert float(problem.task.group.wrap(apart.double()).abs().max()) < CLOSE


@pytest.mark.parametrize("name", PROBLEMS)
def test_numbers_on_the_page_are_those_of_python(
    page: Page, problems: dict[str, Problem], name: str
) -> None:
    problem = problems[name]
    choose(page, name)
    start = settle(page)
    assert start["inside"] == "yes" and json.loads(start["xi"]) == [0.0] * problem.task.group.size
    compare(problem, start)
    page.drag("#input", (0.21, -0.13))
    dragged = settle(page)
    xi = json.loads(dragged["xi"])
    assert xi[0] == pytest.approx(0.21, abs=0.02) and dragged["inside"] == "no"
    assert dragged["path"] > 1
    boosts = [v for v, name in zip(xi, problem.task.group.coordinates, strict=True)
              if name.startswith("velocity")]  # fmt: skip
    assert all(abs(v) > 0.1 for v in boosts)  # one drag shifts and sets in motion
    if boosts:
        assert dragged["errors"]["fno"][0] > 3 * dragged["errors"]["pace"][0]
    compare(problem, dragged)
    # A slider where there is one, the mirror, another sample, and the keyboard.
    page.evaluate(
        "(() => { const s = document.querySelector('#sliders input'); s.value = 0.6 * s.max;"
        " s.dispatchEvent(new Event('input')); })()"
    )
    boosted = settle(page)
    compare(problem, boosted)
    assert boosted["errors"]["fno"][0] > 3 * boosted["errors"]["pace"][0]
    page.evaluate("document.getElementById('mirror').click()")
    page.wait_for("state.shown.mirrored")
    compare(problem, settle(page))
    page.evaluate("document.querySelectorAll('#samples button')[1].click()")
    page.wait_for("state.shown.sample === 1")
    page.evaluate("document.getElementById('input').focus()")
    page.key("ArrowRight", shift=True)
    page.key("ArrowLeft")
    moved = settle(page)
    cell = 1 / problem.input.shape[2]
    assert json.loads(moved["xi"])[0] == pytest.approx(1 / 8 - cell, abs=1e-9)
    compare(problem, moved)
    assert moved["notice"] == ""


def test_dragging_shifts_or_boosts_as_chosen(page: Page) -> None:
    choose(page, "shallow_water")
    for button, moved in ((1, [True, True, False, False]), (2, [False, False, True, True])):
        page.evaluate("document.getElementById('reset').click()")
        settle(page)
        page.evaluate(f"document.querySelectorAll('#drags button')[{button}].click()")
        page.drag("#input", (0.2, 0.1))
        assert [abs(v) > 0.01 for v in json.loads(settle(page)["xi"])] == moved
    page.evaluate("document.querySelectorAll('#drags button')[0].click()")
    choose(page, "navier_stokes")  # knows no boosts: nothing to choose
    assert page.evaluate("document.getElementById('drags').hidden")


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_and_a_finger(page: Page, dark: bool) -> None:
    page.resize(360, 780, dark=dark)
    for name in PROBLEMS:
        choose(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        page.touch("#input", (0.25, 0.0))
        assert json.loads(settle(page)["xi"])[0] == pytest.approx(0.25, abs=0.02)
        # Predictions are seen without scrolling away from the input.
        page.evaluate("document.getElementById('input').scrollIntoView()")
        assert page.evaluate(
            "document.getElementById('thumb-1').getBoundingClientRect().bottom < 780"
        )
        assert page.evaluate("document.getElementById('thumb-1').width > 60")
    page.resize(1280, 1000)


def test_predictions_are_on_the_first_screen(page: Page) -> None:
    page.resize(1280, 900)
    choose(page, "shallow_water")
    page.evaluate("scrollTo(0, 0)")
    for name in ("input", "prediction-0", "prediction-1", "difference-1"):
        place = f"document.getElementById('{name}').getBoundingClientRect()"
        assert page.evaluate(f"{place}.bottom") < 900, name
    page.resize(1280, 1000)


def test_it_plays_by_itself_and_stops(page: Page) -> None:
    choose(page, "burgers1d")
    page.evaluate("document.getElementById('play').click()")
    page.wait_for("state.path.length > 3")
    page.evaluate("document.getElementById('reset').click()")
    assert page.evaluate("playing") == 0
    assert json.loads(settle(page)["xi"]) == [0.0, 0.0]


def test_it_works_when_served(file: Path) -> None:
    with PageServer() as server, Page() as page:
        server.show(file.read_text(encoding="utf-8"))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        page.open(server.url)
        page.wait_for("document.getElementById('app').dataset.frame")
        assert page.messages == []
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace('id="bundle"', 'id="gone"'), "has no models in it"),
        (lambda text: text.replace('"problems": [', '"problems": [], "kept": ['), "no models in"),
        (lambda text: text.replace("<body>", "<body><script>delete window.WebAssembly</script>"),
         "this browser lacks"),
        (lambda text: text.replace('"grid": [512]', '"grid": [256]'), "do not have the grid 256"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(
    file: Path, tmp_path: Path, change, message: str
) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    with Page() as page:
        page.open(f"{broken.as_uri()}#burgers1d")
        page.wait_for("!document.getElementById('notice').hidden")
        assert message in page.evaluate("document.getElementById('notice').textContent")
        assert page.messages == []
