"""``pacefno rollout`` as someone with a file uses it: numbers, a picture, a film."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import pacefno
from own_examples import POINTS, SNAPSHOTS, STEP, waves, write_own
from pacefno.cli import app
from pacefno.data.own import check_same_task, open_task
from pacefno.errors import UsageError
from pacefno.metrics import relative_l2
from pacefno.paper.report.rollout import draw_rollout, write_film
from pacefno.task import Task
from pacefno.train.rollout import Start, forecast, read_start

RUNNER = CliRunner()


def call(*words: object, code: int = 0) -> str:
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from one snapshot to the next, and beside it one from two to two."""
    folder = tmp_path_factory.mktemp("own")
    call("train", write_own(folder), "--preset", "smoke", "--out", folder / "run")
    (folder / "two").mkdir()
    task = write_own(folder / "two", history=2, future=2)
    call("train", task, "--preset", "smoke", "--out", folder / "two" / "run")
    return folder


def test_a_rollout_is_the_model_applied_again_and_again(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "rollout.h5"
    call("rollout", home / "run", home / "task.toml", "--steps", 9, "--output", out)
    model = pacefno.load(home / "run")
    with h5py.File(out) as file:
        made, truth, error = (
            torch.from_numpy(file[n][()]) for n in ("prediction", "truth", "error")
        )
        start, time = torch.from_numpy(file["start"][()]), file["time"][()]
    assert made.shape[1:] == (9, 2, POINTS, POINTS) and truth.shape[1] == SNAPSHOTS - 1
    assert time == pytest.approx(STEP * np.arange(1, 10))
    state = start
    for i in range(9):
        state = model(state).detach()
        torch.testing.assert_close(made[:, i], state, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(error[:, 2], relative_l2(made[:, 2], truth[:, 2]).double())
    _, source = open_task(home / "task.toml")
    values = waves()[list(source.rows[2])]
    assert np.array_equal(start, values[:, 0]) and np.array_equal(truth, values[:, 1:])


def test_windows_go_on_with_what_they_predicted(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "errors.json"
    folder = home / "two"
    text = call("rollout", folder / "run", folder / "task.toml", "--steps", 3, "--output", out)
    found = json.loads(out.read_text())
    assert len(found["times"]) == 6 and len(found["error"]) == SNAPSHOTS - 2
    assert "truth for 5 of 6 snapshots" in text


def test_a_data_file_is_read_as_the_task_of_the_run_says(home: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "more.npz", velocity=waves(seed=9))
    out = tmp_path / "all.npz"
    words = ("rollout", home / "run", tmp_path / "more.npz", "--steps", 2, "--samples", 50)
    call(*words, "--output", out)
    with np.load(out) as found:
        assert np.array_equal(found["start"], waves(seed=9)[:, 0]), "all samples of the file"


def test_predictions_may_start_from_a_single_state(home: Path, tmp_path: Path) -> None:
    """A file with one sample that knows nothing of what comes after it."""
    np.savez(tmp_path / "now.npz", velocity=waves(samples=1)[:, :1])
    out = tmp_path / "a.npz"
    text = call("rollout", home / "run", tmp_path / "now.npz", "--steps", 3, "--output", out)
    assert "3 snapshots predicted; the file has no truth for them" in text
    assert np.load(out)["prediction"].shape[:2] == (1, 3)


def test_means_are_kept_where_asked(home: Path, tmp_path: Path) -> None:
    def drift(*more: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        out = tmp_path / "rollout.npz"
        call("rollout", home / "run", home / "task.toml", "--steps", 5, "--output", out, *more)
        with np.load(out) as found:
            means = (
                found["prediction"].mean(axis=(3, 4)) - found["start"].mean(axis=(2, 3))[:, None]
            )
        return np.abs(means).max(axis=(0, 1))

    assert (drift("--conserve", "all") < 1e-5).all()
    one = drift("--conserve", "u")
    assert one[0] < 1e-5 < one[1]
    words = ("rollout", home / "run", home / "task.toml", "--conserve", "w")
    assert "no channel 'w'" in call(*words, code=2)


def test_pictures_and_films_are_drawn(home: Path, tmp_path: Path) -> None:
    picture, film = tmp_path / "r.png", tmp_path / "r.gif"
    words = ("rollout", home / "run", home / "task.toml", "--steps", 8)
    call(*words, "--picture", picture, "--film", film, "--channel", "v")
    with Image.open(picture) as image:
        assert min(image.size) > 500
    with Image.open(film) as frames:
        assert frames.n_frames == 9  # type: ignore[attr-defined]
    assert "no 'w' among u, v" in call(*words, "--picture", picture, "--channel", "w", code=2)
    assert "ends in .gif or .mp4" in call(*words, "--film", tmp_path / "r.avi", code=2)
    assert "ends in .png" in call(*words, "--picture", tmp_path / "r.bmp", code=2)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="there is no program ffmpeg")
def test_a_film_for_a_browser_is_written_and_a_program_that_fails_is_one_sentence(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = tmp_path / "r.mp4"
    words = ("rollout", home / "run", home / "task.toml", "--steps", 8, "--film", film)
    assert "r.mp4 written" in call(*words)
    assert film.read_bytes()[4:8] == b"ftyp" and film.stat().st_size > 2000
    film.unlink()
    monkeypatch.setitem(matplotlib.rcParams, "animation.codec", "unheard-of")
    assert "r.mp4: ffmpeg could not write it" in call(*words, code=1) and not film.exists()


def test_a_film_without_its_program_is_refused_before_any_work(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matplotlib.animation.FFMpegWriter.isAvailable", lambda: False)
    words = ("rollout", home / "run", home / "task.toml", "--film", "r.mp4")
    assert "needs the program ffmpeg" in call(*words, code=2)


@pytest.mark.parametrize("dim", [1, 3])
def test_other_dimensions_are_drawn_too(dim: int, tmp_path: Path) -> None:
    kind = pacefno.FieldType.parse("h: scalar", dim)
    task = Task(input=kind, output=kind.at([1.0]), group=pacefno.Translation(dim))
    model = pacefno.PACE(torch.nn.Identity(), task.group, input=kind, output=task.output).eval()
    start = Start(torch.randn(2, 1, *[8] * dim), torch.randn(2, 3, *[8] * dim))
    made = forecast(model, task, start, 5)
    assert torch.allclose(made.error, made.still, atol=1e-5), "this model leaves all as it is"
    draw_rollout(made, task)
    write_film(made, task, tmp_path / "film.gif")
    blind = forecast(model, task, Start(start.window, start.truth[:, :0]), 2)
    assert blind.error.shape == (2, 0) and "truth" not in blind.arrays()
    draw_rollout(blind, task)


def test_a_sample_that_is_lost_is_counted_and_null(home: Path) -> None:
    task, source = open_task(home / "task.toml")

    class Explodes(torch.nn.Module):
        def forward(self, field: torch.Tensor) -> torch.Tensor:
            return field * 1e30

    model = pacefno.PACE(Explodes(), task.group, input=task.input, output=task.output).eval()
    made = forecast(model, task, read_start(source, task, "test", 2, 3), 3)
    assert made.document()["lost"] == 2 and not np.isfinite(made.document()["error"][-1])
    draw_rollout(made, task)


def test_a_task_is_the_same_to_a_few_digits_and_another_is_refused() -> None:
    kind = pacefno.FieldType.parse("u v: velocity", 2, lengths=6.2831853, step=0.1)
    group = pacefno.Galilean(2)
    task = Task(input=kind, output=kind.at([1]), group=group)
    short = pacefno.FieldType.parse("u v: velocity", 2, lengths=6.2832, step=0.1)
    check_same_task(task, Task(input=short, output=short.at([1]), group=group))
    for text, length in (("u v: velocity", 6.0), ("vx vy: velocity", 6.2832)):
        other = pacefno.FieldType.parse(text, 2, lengths=length, step=0.1)
        with pytest.raises(UsageError, match="say 'u v: velocity' in the task"):
            check_same_task(task, Task(input=other, output=other.at([1]), group=group))


def test_a_task_whose_output_is_no_input_is_refused() -> None:
    kind = pacefno.FieldType.parse("h: scalar", 1)
    group = pacefno.Translation(1)
    uneven = Task(input=kind.at([0, 1]), output=kind.at([4]), group=group)
    with pytest.raises(UsageError, match="not evenly spaced"):
        _ = uneven.spacing
    assert Task(input=kind.at([0, 3]), output=kind.at([6]), group=group).spacing == 3


def test_all_samples_are_those_of_every_split(tmp_path: Path) -> None:
    pairs, trajectories = waves(), waves(4, seed=1)
    path = write_own(tmp_path)
    task, source = open_task(path)
    assert len(read_start(source, task, None, 99, 1).window) == len(pairs)
    path.write_text(path.read_text().replace("split =", "samples = 5\nsplit ="))
    assert len(read_start(open_task(path)[1], task, None, 99, 1).window) == 5
    np.savez(tmp_path / "later.npz", velocity=trajectories)
    path.write_text(path.read_text().replace("samples = 5", 'test_file = "later.npz"'))
    source = open_task(path)[1]
    assert len(read_start(source, task, "test", 99, 1).window) == 4
    with pytest.raises(UsageError, match="choose one of train, validation, test"):
        read_start(source, task, None, 99, 1)
    arrays = {"before": pairs[:, 0], "after": pairs[:, 1]}
    np.savez(tmp_path / "waves.npz", **arrays)
    text = path.read_text().replace(
        'arrays = ["velocity"]', 'inputs = ["before"]\ntargets = ["after"]'
    )
    text = text.replace('test_file = "later.npz"\n', "").replace(
        "sample time channel", "sample channel"
    )
    path.write_text(text)
    task, source = open_task(path)
    every = read_start(source, task, None, 99, 1)
    assert len(every.window) == len(pairs) > len(read_start(source, task, "test", 99, 1).window)
    few = read_start(source, task, None, 5, 1)
    assert len(few.window) == 5 and few.window.shape == few.truth.shape


@pytest.mark.parametrize("error", ["pooled", "per-channel"])
def test_errors_of_snapshots_are_measured_as_the_task_says(error: str) -> None:
    type = pacefno.FieldType.parse("u v: velocity", 2)
    task = Task(input=type, output=type.at([1]), group=pacefno.Translation(2), error=error)
    generator = torch.Generator().manual_seed(0)
    state, truth = (torch.randn(3, 2, 8, 8, generator=generator) for _ in range(2))
    truth[:, 1] *= 30  # the larger channel alone would decide a pooled error
    model = pacefno.PACE(torch.nn.Identity(), pacefno.Translation(2)).eval()
    start = Start(state, truth)
    made = forecast(model, task, start, 1)
    expected = relative_l2(model(state), truth, per_channel=error == "per-channel")
    assert torch.allclose(made.error[:, 0], expected.double(), rtol=1e-4)
