"""The report as a whole: one page that needs no network, and notes on what is missing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from report_examples import result, rollout, write_results

from pacefno.checkpoint import FINAL
from pacefno.data import Trajectories
from pacefno.fields import Box
from pacefno.paper.bench import Places, merge_results, results_file
from pacefno.paper.benchmarks import Benchmark, benchmark_named
from pacefno.paper.presets import config_for
from pacefno.paper.report import write
from pacefno.paper.report.collect import collect
from pacefno.paper.report.write import draw_table, write_report
from pacefno.train.evaluate import Trained
from pacefno.train.model import build_model

ROOT = Path(__file__).parents[2]
SMOOTH = "burgers1d_smooth"


@pytest.fixture(scope="module")
def from_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report from result files alone, one with names that try to be markup."""
    root = tmp_path_factory.mktemp("report")
    results = write_results(root / "results")
    script = result("<script>alert(1)</script>", 1, 0.5, command="<b>x</b>")
    merge_results(results, "burgers2d", [script])
    write_report([results], root / "report", runs=root / "no", data=root / "no")
    return root / "report"


def test_the_report_works_from_result_files_alone(from_results: Path) -> None:
    page = (from_results / "report.html").read_text()
    assert "pacefno bench burgers2d --preset standard" in page  # what would make the rest
    assert "2-D Burgers" in page and "KdV" in page and page.count("<img ") == 2
    for name in ("burgers2d.md", "burgers2d.tex", "kdv_easy.md", "kdv_easy.tex"):
        assert (from_results / "tables" / name).stat().st_size > 100
    figures = from_results / "figures"
    assert (figures / "overview.png").read_bytes().startswith(b"\x89PNG")
    assert (figures / "overview.pdf").read_bytes().startswith(b"%PDF")
    assert (figures / "kdv_easy-over-time.png").exists()


def test_the_page_needs_no_network_and_fits_a_phone(from_results: Path) -> None:
    page = (from_results / "report.html").read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:image/png;base64,|#)""", page)
    assert not re.search(r"@import|url\(|<script|<link|<iframe", page)
    assert 'name="viewport"' in page and "prefers-color-scheme: dark" in page
    names = re.findall(r' id="([^"]+)"', page)
    assert len(set(names)) == len(names)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(names)
    assert all(re.findall(r'<img [^>]*alt="([^"]+)"', page))


def test_every_number_of_a_table_is_on_the_page(from_results: Path) -> None:
    page = (from_results / "report.html").read_text()
    assert '<strong>0.0203 <span class="spread">± 0.0002</span></strong>' in page
    assert "0.2500" in page and "1.0·10<sup>−7</sup>" in page
    assert re.search(r'title="pace">PACE, one-shot</th>', page)


def test_the_page_begins_in_the_words_of_the_readme(from_results: Path) -> None:
    page = (from_results / "report.html").read_text()
    table = (Path(__file__).parents[2] / "README.md").read_text().split("<!-- table:summary -->")[1]
    for words in ("PACE around an FNO", "plain FNO"):
        assert words in page.split("</nav>")[1].split("<table")[0] and words in table


def test_names_from_a_result_file_cannot_bring_markup_in(from_results: Path) -> None:
    page = (from_results / "report.html").read_text()
    assert "<script>" not in page and "<b>x" not in page and "&lt;script&gt;" in page


# --- with trained models --------------------------------------------------------------------------


@pytest.mark.slow
def test_trained_models_bring_figures_and_the_same_results_give_the_same_bytes(
    smoke_places: Places, tmp_path: Path
) -> None:
    runs, data = smoke_places.runs, smoke_places.data
    for name in ("a", "b"):
        write_report([smoke_places.results], tmp_path / name, runs=runs, data=data)
    first, second = tmp_path / "a", tmp_path / "b"
    written = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    kinds = ("predictions", "canonical", "orbits", "sweep", "sweep-all", "spectra", "training")
    expected = {f"{SMOOTH}-{kind}.{ending}" for kind in kinds for ending in ("png", "pdf")}
    assert expected <= {path.name for path in written}
    assert all((first / path).read_bytes() == (second / path).read_bytes() for path in written)
    page = (first / "report.html").read_text()
    assert page.count("<img ") == 1 + len(kinds) and 'class="note"' not in page


def test_a_row_without_a_usable_training_is_named_and_left_out(
    smoke_places: Places, tmp_path: Path
) -> None:
    rows = results_file(smoke_places.results, SMOOTH).read()
    extra = {**rows[0], "model": "fno-aug"}
    merge_results(tmp_path / "results", SMOOTH, [*rows, extra])
    table = collect([tmp_path / "results"])[SMOOTH]
    drawings, notes = draw_table(table, smoke_places.runs, smoke_places.data, print)
    assert drawings and len(notes) == 1
    assert notes[0].endswith("can be loaded: FNO + augmentation.")


def test_a_run_that_cannot_be_loaded_is_left_out(smoke_places: Places, tmp_path: Path) -> None:
    rows = results_file(smoke_places.results, SMOOTH).read()
    run = tmp_path / "runs" / SMOOTH / "fno-smoke-seed42"
    run.mkdir(parents=True)
    (run / FINAL).write_bytes(b"of another version")
    merge_results(tmp_path / "results", SMOOTH, rows)
    table = collect([tmp_path / "results"])[SMOOTH]
    drawings, notes = draw_table(table, tmp_path / "runs", smoke_places.data, print)
    assert drawings == [] and "FNO" in notes[0]


def test_missing_runs_and_datasets_are_noted_with_the_command_that_makes_them(
    smoke_places: Places, tmp_path: Path
) -> None:
    table = collect([smoke_places.results])[SMOOTH]
    words = f"{SMOOTH} --preset smoke"
    _, notes = draw_table(table, tmp_path, smoke_places.data, print)
    assert f"`pacefno bench {words}`" in notes[0]
    _, notes = draw_table(table, smoke_places.runs, tmp_path, print)
    assert f"`pacefno data generate {words}`" in notes[0]


def test_a_benchmark_of_trajectories_alone_has_a_page_too(tmp_path: Path) -> None:
    merge_results(tmp_path / "results", "kdv_easy", [rollout("pace-20", 42, 0.2)])
    nothing = tmp_path / "no"
    page = write_report([tmp_path / "results"], tmp_path / "out", runs=nothing, data=nothing)
    assert "PACE, 20 snapshots" in page.read_text() and "#overview" not in page.read_text()


def test_the_figures_of_studies_are_on_the_page(tmp_path: Path) -> None:
    results, nothing = write_results(tmp_path / "results"), tmp_path / "no"
    name = "ablation-burgers2d.json"
    (results / "studies").mkdir()
    shutil.copy(ROOT / "results" / "studies" / name, results / "studies" / name)
    page = write_report([results], tmp_path / "out", runs=nothing, data=nothing).read_text()
    assert 'id="figure-burgers2d-ablation"' in page
    assert (tmp_path / "out" / "figures" / "burgers2d-ablation.pdf").exists()


class Waves:
    """A source of one trajectory."""

    def load(self, split: str, grid: str = "id") -> Trajectories:
        x = torch.arange(64, dtype=torch.float64) / 64
        values = torch.sin(2 * torch.pi * (x - 0.01 * torch.arange(60.0)[:, None]))[None]
        box = Box(torch.tensor([[128.0]]), torch.tensor([0.2]))
        return Trajectories(values.double(), Box(box.lengths.double(), box.step.double()))


def test_a_rollout_of_every_trained_row_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = benchmark_named("kdv_easy")

    def untrained(benchmark: Benchmark, runs: dict[str, Path]) -> Iterator[tuple[str, Trained]]:
        for name in runs:
            config = config_for(benchmark, name, "smoke", 42)
            yield name, Trained(build_model(config).eval(), config, 0.0, True)

    monkeypatch.setattr(write, "load_models", untrained)
    runs = dict.fromkeys(("fno", "fno-aug", "pace-20", "pace-1"), Path("run"))
    (drawing,), used = write.draw_rollouts(benchmark, runs, Waves())
    assert used == ["fno-aug", "pace-20", "pace-1"]  # a plain FNO is not among those shown
    titles = [axis.get_title(loc="left") for axis in drawing.figure.axes if axis.images]
    assert titles[0] == "truth" and "PACE, 1 snapshot" in titles and len(titles) == 7


def test_a_seed_that_diverged_is_not_left_out_of_its_mean() -> None:
    from pacefno.paper.report.own import table

    def row(error: float | None) -> dict[str, object]:
        errors = dict.fromkeys(("ood_error", "ood_error_canonical", "equivariance_error"), error)
        same = {"model": "fno", "preset": "quick", "parameters": 3, "train_seconds": 1.0}
        return {**same, "id_error": 0.1, **errors}

    (line,) = table([row(0.2), row(None)])
    assert line[1].startswith("0.1000") and line[2:5] == ["not finite"] * 3
    two = [row(0.3), row(0.2) | {"preset": "standard"}]  # presets are not averaged
    assert [line[0] for line in table(two)] == ["FNO, preset standard", "FNO, preset quick"]
