"""The report: tables say what the result files say, ties are pointed out, documents cannot go stale, figures repeat exactly."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from matplotlib.backends.backend_agg import FigureCanvasAgg
from torch import Tensor, nn
from typer.testing import CliRunner

from pacefno.data import Samples, generate
from pacefno.equations import PROBLEMS, problem_named
from pacefno.metrics import relative_l2
from pacefno.operators import FNO
from pacefno.pace import PACE
from pacefno.studies.bench import Places, plan, run_task
from pacefno.studies.report import collect, shift_sweep, stale_tables, sweep, update_tables, write
from pacefno.studies.report.collect import Table, Tables, statistic
from pacefno.studies.report.columns import columns_of
from pacefno.studies.report.commands import report_command
from pacefno.studies.report.documents import DocumentError
from pacefno.studies.report.figures import draw_canonical, draw_predictions, draw_spectra, draw_training
from pacefno.studies.report.figures.film import draw_film
from pacefno.studies.report.figures.style import STYLES
from pacefno.studies.report.findings import findings, is_tie, ties
from pacefno.studies.report.settings import differences
from pacefno.studies.report.sweep import FRACTIONS, cached_sweep, training_share
from pacefno.studies.report.tables import latex_table, markdown_summary, markdown_table
from pacefno.studies.report.trained import Prediction, Trained, find_trained, typical_sample
from pacefno.studies.results import ResultsError, merge_results
from pacefno.symmetry import Trivial
from pacefno.training.loop import Hooks
from pacefno.training.models import MODELS

app = typer.Typer()
app.command()(report_command)


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def row(model: str, seed: int, ood: float, **others: object) -> dict[str, Any]:
    errors = {"id_error": 0.02, "id_error_fine": 0.02, "ood_error": ood, "ood_error_canonical": ood, "equivariance_error": 1e-7}
    machine = {"device": "cpu", "threads": 2, "versions": {"pacefno": "0.1.0"}, "parameters": 1234, "train_seconds": 61.2}
    command = f"pacefno bench burgers2d --models {model} --seeds {seed}"
    named = {"problem": "burgers2d", "model": model, "seed": seed, "preset": "standard", "ood_seconds": 0.5, "command": command}
    return {**named, **errors, **machine, **others}


ROWS = [
    *(row("fno", seed, ood) for seed, ood in ((42, 0.60), (1234, 0.62), (3407, 0.64))),
    *(row("fno-aug", seed, ood) for seed, ood in ((42, 0.20), (1234, 0.21), (3407, 0.22))),
    *(row("fno-nogrid-centred", seed, ood) for seed, ood in ((42, 0.0200), (1234, 0.0212), (3407, 0.0203))),
    *(row("pace", seed, ood) for seed, ood in ((42, 0.0201), (1234, 0.0205), (3407, 0.0203))),
    row("pace-oracle", 42, 0.0100, equivariance_error=None),
]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    merge_results(tmp_path / "results", "burgers2d", ROWS)
    return tmp_path / "results"


@pytest.fixture
def tables(results: Path) -> Tables:
    return collect([results])


def table_of(tmp_path: Path, *rows: dict[str, Any], problem: str = "burgers2d") -> Table:
    merge_results(tmp_path / "some", problem, list(rows))
    return collect([tmp_path / "some"])[problem]


# --- collecting -----------------------------------------------------------------------------------------------------


def test_a_statistic_is_the_mean_and_the_sample_deviation_over_seeds(tables: Tables) -> None:
    found = statistic(tables["burgers2d"].line("fno").rows, "ood_error")  # type: ignore[union-attr]
    assert found is not None and found.std is not None
    assert math.isclose(found.mean, 0.62) and math.isclose(found.std, 0.02, rel_tol=1e-12)
    assert str(found) == "0.6200 ± 0.0200"
    assert str(statistic([row("fno", 1, 2.04e-7)], "ood_error")) == "2.0e-07"
    assert statistic(ROWS, "no such key") is None


def test_the_largest_preset_is_shown_unless_another_is_asked_for(results: Path) -> None:
    merge_results(results, "burgers2d", [row("fno", 1, 0.9, preset="smoke")])
    assert collect([results])["burgers2d"].preset == "standard"
    smoke = collect([results], "smoke")["burgers2d"]
    assert smoke.preset == "smoke" and len(smoke.rows) == 1


def test_results_of_several_machines_merge(results: Path, tmp_path: Path) -> None:
    merge_results(tmp_path / "other", "burgers2d", [row("fno", 7, 0.5), row("pace", 42, 0.0301)])
    merged = collect([results, tmp_path / "other"])["burgers2d"]
    assert merged.line("fno").seeds == [7, 42, 1234, 3407]  # type: ignore[union-attr]
    assert merged.line("pace").rows[0]["ood_error"] == 0.0301  # type: ignore[union-attr]


def test_a_folder_of_runs_is_accepted_too(results: Path) -> None:
    assert collect([results.parent]).keys() == collect([results]).keys()


def test_missing_results_name_the_command_that_makes_them(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="pacefno bench PROBLEM"):
        collect([tmp_path / "nothing"])
    with pytest.raises(ResultsError, match="'paper'"):
        collect([results], "paper")


def test_the_true_frame_does_not_compete_for_the_lowest_error(tables: Tables) -> None:
    assert tables["burgers2d"].best == {"pace"}  # the oracle has half its error


def test_models_with_the_same_printed_error_are_both_best(tmp_path: Path) -> None:
    table = table_of(tmp_path, row("fno-nogrid", 1, 0.02004), row("pace", 1, 0.02001), row("fno", 1, 0.0201))
    assert table.best == {"fno-nogrid", "pace"}


# --- tables ---------------------------------------------------------------------------------------------------------


def test_markdown_has_every_number_beside_the_papers_and_the_best_in_bold(tables: Tables) -> None:
    text = markdown_table(tables["burgers2d"])
    line = next(line for line in text.splitlines() if line.startswith("| PACE, one-shot"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    named = dict(zip([column.title for column in columns_of(tables["burgers2d"])], cells, strict=True))
    assert named["OOD"] == "**0.0203 ± 0.0002**"
    assert named["paper OOD"] == "0.0755" and named["paper ID"] == "0.0393"
    assert named["seeds"] == "3" and named["parameters"] == "1,234"
    assert text.count("**") == 2
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1
    assert "epochs: 24" in text and "(paper: 500)" in text and "2 threads" in text


def test_a_number_that_was_not_measured_is_a_dash(tables: Tables) -> None:
    line = next(line for line in markdown_table(tables["burgers2d"]).splitlines() if "true frame" in line)
    assert line.split("|")[8].strip() == "–"


def test_latex_rows_have_as_many_cells_as_columns(tables: Tables) -> None:
    text = latex_table(tables["burgers2d"])
    columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1])  # type: ignore[index]
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + 5 and all(line.count("&") == columns - 1 for line in rows)
    assert r"$\mathbf{0.0203 \pm 0.0002}$" in text and r"$1.0\times 10^{-7}" in text
    assert r"\toprule" in text and r"\bottomrule" in text


def test_the_summary_has_one_line_per_problem(tables: Tables) -> None:
    assert "**0.0203 ± 0.0002**" in markdown_summary(tables)
    assert len(markdown_summary(tables).strip().splitlines()) == 2 + len(tables)


def test_settings_that_differ_are_found_and_equal_ones_are_not(tmp_path: Path) -> None:
    standard = {setting.name for setting in differences(table_of(tmp_path, row("pace", 1, 0.1)))}
    paper = {setting.name for setting in differences(table_of(tmp_path / "p", row("pace", 1, 0.1, preset="paper")))}
    assert {"epochs", "learning rate", "device", "equation and horizon"} <= standard
    assert "samples, training / test" not in standard  # the same as in the paper
    assert paper == {"device", "equation and horizon"}


# --- sentences ------------------------------------------------------------------------------------------------------


def test_a_simple_baseline_that_ties_with_pace_is_pointed_out(tables: Tables) -> None:
    sentences = ties(tables["burgers2d"])
    assert len(sentences) == 1
    assert sentences[0].startswith("FNO without coordinates, mean removed matches PACE, one-shot")
    assert "within the scatter of the seeds" in sentences[0]


@pytest.mark.parametrize(
    ("ood", "expected"), [(0.0100, "is better than"), (0.0196, "matches"), (0.0204, "matches"), (0.03, None)]
)
def test_a_baseline_is_better_equal_or_not_mentioned(ood: float, expected: str | None, tmp_path: Path) -> None:
    sentences = ties(table_of(tmp_path, row("pace", 1, 0.02), row("fno-nogrid-centred", 1, ood)))
    assert len(sentences) == (expected is not None)
    assert expected is None or expected in sentences[0]


def test_models_are_compared_on_the_seeds_that_both_have(tmp_path: Path) -> None:
    pace = [row("pace", 1, 0.020), row("pace", 2, 0.060)]
    sentences = ties(table_of(tmp_path, *pace, row("fno-nogrid-centred", 1, 0.030)))
    assert sentences == []  # worse on the same seed, though better than the mean of two
    (sentence,) = ties(table_of(tmp_path, *pace, row("fno-nogrid-centred", 1, 0.020)))
    assert "matches" in sentence and "(seed 1)" in sentence


def test_a_tie_needs_means_closer_than_the_seeds_scatter() -> None:
    pace, near, far = (
        statistic([row("x", i, mean + d) for i, d in enumerate((-0.01, 0.01))], "ood_error") for mean in (1, 1.01, 2)
    )
    assert pace and near and far
    assert is_tie(pace, near) and is_tie(near, pace)
    assert not is_tie(pace, far) and not is_tie(far, pace)


def test_the_norm_of_a_boost_is_explained_only_where_there_are_boosts(tmp_path: Path) -> None:
    flattered = {"id_error_fine": 0.06, "ood_error_canonical": 0.06}
    burgers = table_of(tmp_path / "a", row("pace", 1, 0.02, **flattered))
    flow = table_of(tmp_path / "b", row("pace", 1, 0.02, **flattered), problem="navier_stokes")
    assert any("boost" in sentence for sentence in findings(burgers))
    assert not any("boost" in sentence for sentence in findings(flow))
    assert any("moving the input costs nothing" in sentence for sentence in findings(burgers))


def test_a_point_group_is_compared_at_rest_and_moved(tmp_path: Path) -> None:
    rows = [row("pace", 1, 0.02), row("fno-nogrid", 1, 0.6, id_error=0.03), row("gfno", 1, 0.5, id_error=0.025)]
    text = " ".join(findings(table_of(tmp_path, *rows)))
    assert "an ID error of 0.0250 (FNO without coordinates: 0.0300) and an OOD error of 0.5000, 25 times" in text


def test_findings_compare_with_augmentation_and_with_the_paper(tables: Tables) -> None:
    text = " ".join(findings(tables["burgers2d"]))
    assert "10 times below FNO + augmentation" in text
    assert "The paper reports 0.0755" in text and "3.7 times lower" in text


def test_a_model_that_has_learned_nothing_is_called_so(tmp_path: Path) -> None:
    assert "nothing has been learned" in findings(table_of(tmp_path, row("pace", 1, 0.9, id_error=0.98)))[0]


def test_a_table_without_pace_has_nothing_to_say_about_it(tmp_path: Path) -> None:
    assert findings(table_of(tmp_path, row("fno", 1, 0.9))) == []


# --- documents ------------------------------------------------------------------------------------------------------

DOCUMENT = """# Results\r
Text before, with 0.1234 in it.
<!-- table:burgers2d -->
<!-- /table -->
between
<!-- findings:burgers2d -->
old
<!-- /findings -->
<!-- table:summary -->
<!-- /table -->
after"""


def test_documents_are_rewritten_between_markers_only(tables: Tables, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_bytes(DOCUMENT.encode())
    assert update_tables(path, tables) == ["table:burgers2d", "findings:burgers2d", "table:summary"]
    text = path.read_bytes().decode()
    assert text.startswith("# Results\r\nText before, with 0.1234 in it.\n<!-- table:burgers2d -->\n") and text.endswith(
        "\nafter"
    )
    assert markdown_table(tables["burgers2d"]) in text and "between" in text and "old" not in text
    assert update_tables(path, tables) == [] and path.read_bytes().decode() == text


def test_a_stale_document_is_detected(results: Path, tables: Tables, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(DOCUMENT)
    assert call("--check", path, results).exit_code == 1
    assert call("--update", path, results).exit_code == 0
    assert call("--check", path, results).exit_code == 0 and stale_tables(path, tables) == []
    merge_results(results, "burgers2d", [row("pace", 42, 0.0191)])
    answer = call("--check", path, results)
    assert answer.exit_code == 1
    assert "table:burgers2d" in answer.output and "--update" in answer.output
    path.write_text(path.read_text().replace("0.6200", "0.6100"))  # a number typed by hand
    assert call("--update", path, results).exit_code == 0 and "0.6200" in path.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table:burgers9d -->\n<!-- /table -->", "burgers9d: expected summary or one of"),
        ("<!-- table:navier_stokes -->\n<!-- /table -->", "pacefno bench navier_stokes"),
        ("<!-- table:burgers2d -->\n<!-- /table -->\n<!-- table:summary -->\n", "has no `<!-- /table -->`"),
        ("no markers", "has no `<!-- table:PROBLEM -->`"),
    ],
)
def test_markers_that_cannot_be_filled_are_refused(text: str, message: str, tables: Tables, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(DocumentError, match=re.escape(message)):
        update_tables(path, tables)
    assert path.read_text() == text


# --- the page from result files alone -------------------------------------------------------------------------------


def test_the_report_works_from_result_files_alone(results: Path, tmp_path: Path) -> None:
    output = tmp_path / "report"
    answer = call(results, "--output", output, "--runs", tmp_path / "no", "--data", tmp_path / "no")
    assert answer.exit_code == 0, answer.output
    page = (output / "report.html").read_text()
    assert "pacefno bench burgers2d --preset standard" in page  # what would make the missing figures
    assert (output / "tables" / "burgers2d.md").exists() and (output / "tables" / "burgers2d.tex").exists()
    assert (output / "figures" / "overview.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "figures" / "overview.pdf").read_bytes().startswith(b"%PDF")


def test_the_page_needs_no_network_and_fits_a_phone(results: Path, tmp_path: Path) -> None:
    call(results, "--output", tmp_path, "--runs", tmp_path / "no")
    page = (tmp_path / "report.html").read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:image/png;base64,|#)""", page)
    assert not re.search(r"@import|url\(|<script|<link|<iframe", page)
    assert 'name="viewport"' in page and "prefers-color-scheme: dark" in page and "overflow-x: auto" in page


def test_names_from_a_result_file_cannot_bring_markup_in(results: Path, tmp_path: Path) -> None:
    merge_results(results, "burgers2d", [row("<script>alert(1)</script>", 1, 0.5, command="<b>x</b>")])
    call(results, "--output", tmp_path, "--runs", tmp_path / "no")
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page and "<b>x" not in page and "&lt;script&gt;" in page


def test_wrong_calls_end_in_one_plain_line(results: Path, tmp_path: Path) -> None:
    for arguments in (
        [tmp_path / "none"],
        ["--update", results],
        [tmp_path / "README.md", results],
        [results, "--preset", "x"],
    ):
        answer = call(*arguments)
        assert answer.exit_code == 2 and answer.output.startswith("error: ") and answer.output.count("\n") <= 2


# --- the size of the motion -----------------------------------------------------------------------------------------


def field_pairs(grid: tuple[int, ...], dtype: torch.dtype) -> Samples:
    generator = torch.Generator().manual_seed(1)
    x = torch.arange(grid[0], dtype=dtype) / grid[0]
    waves = torch.stack([torch.sin(2 * math.pi * k * x) for k in (1, 2, 3)])
    values = torch.rand(2, 4, 3, generator=generator, dtype=dtype) @ waves
    return Samples(values[0][:, None], values[1][:, None])


class MeanFollowing(nn.Module):
    """Some operator without coordinates: equivariant under translations, not under boosts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.7))

    def forward(self, field: Tensor) -> Tensor:
        return torch.tanh(self.weight.to(field.dtype) * field)


@pytest.mark.parametrize("grid", [(32,), (33,)])
def test_the_sweep_of_an_equivariant_model_is_flat_and_that_of_another_is_not(
    grid: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    problem, samples = problem_named("burgers1d_smooth"), field_pairs(grid, dtype)
    with_frame = PACE(MeanFollowing(), problem.group, None, problem.horizon).to(dtype)
    fractions, errors = shift_sweep(with_frame, MODELS["pace-oracle"], problem, samples)
    assert fractions.tolist() == list(FRACTIONS) and errors.shape == (len(FRACTIONS), 4)
    assert float((errors - errors[0]).abs().max()) < 10 * tolerance
    plain = PACE(MeanFollowing(), Trivial(1), None, problem.horizon).to(dtype)
    _, broken = shift_sweep(plain, MODELS["fno"], problem, samples)
    expected = relative_l2(MeanFollowing()(samples.input), samples.target).double()
    assert torch.allclose(broken[0], expected, atol=10 * tolerance)  # where nothing is moved: the ID error
    assert float(broken[-1].mean()) > 1.3 * float(broken[0].mean())


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_the_training_range_ends_inside_the_sweep(name: str) -> None:
    every, some = training_share(problem_named(name))
    assert 0 < every <= some < 1


# --- figures from trained models ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Places:
    root = tmp_path_factory.mktemp("bench")
    places = Places(root / "datasets", root / "runs", root / "runs" / "results")
    generate(problem_named("burgers1d_smooth"), "smoke", 42, places.data, workers=1)
    for task in plan(["burgers1d_smooth"], "smoke", ["fno", "pace", "pace-oracle"], [42]):
        list(run_task(task, places, Hooks()))
    return places


def trained_of(places: Places) -> Trained:
    found = find_trained(collect([places.results])["burgers1d_smooth"], places.runs, places.data)
    assert isinstance(found, Trained)
    return found


def test_the_same_results_give_the_same_bytes(bench: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    places = ["--runs", bench.runs, "--data", bench.data]
    assert call(bench.results, "--output", first, *places).exit_code == 0
    monkeypatch.setattr(sweep, "shift_sweep", None)  # the second time, the sweep comes from beside the run
    assert call(bench.results, "--output", second, *places).exit_code == 0
    written = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    kinds = ("predictions", "canonical", "sweep", "spectra", "training")
    expected = {f"burgers1d_smooth-{kind}.{ending}" for kind in kinds for ending in ("png", "pdf")}
    assert expected <= {path.name for path in written}
    assert all((first / path).read_bytes() == (second / path).read_bytes() for path in written)
    page = (first / "report.html").read_text()
    assert page.count("<img ") == 1 + len(kinds) and "left out" not in page


def test_a_cached_sweep_of_other_weights_or_a_damaged_one_is_made_anew(bench: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = trained_of(bench)
    rows = {one.name: one for one in trained.rows()}
    _, errors = cached_sweep(rows["pace"], trained)
    path = rows["pace"].run / "shift_sweep-pace.json"
    good = json.loads(path.read_text())
    calls: list[str] = []

    def counted(*arguments: Any) -> tuple[Tensor, Tensor]:
        calls.append("called")
        return torch.tensor(FRACTIONS), errors

    monkeypatch.setattr(sweep, "shift_sweep", counted)
    assert torch.equal(cached_sweep(rows["pace"], trained)[1], errors) and not calls
    other = {**good, "key": {**good["key"], "weights": "0" * 64}}
    for text in (json.dumps(other), "{", json.dumps({"key": good["key"], "errors": [[1.0]]}), "[]"):
        path.write_text(text)
        cached_sweep(rows["pace"], trained)
    assert len(calls) == 4 and json.loads(path.read_text()) == good


def test_a_row_without_a_usable_training_is_named_and_left_out(
    bench: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = merge_results(tmp_path / "results", "burgers1d_smooth", collect([bench.results])["burgers1d_smooth"].rows)
    extra = {**copied[0], "model": "fno-aug"}
    merge_results(tmp_path / "results", "burgers1d_smooth", [extra])
    monkeypatch.setattr(write, "draw_trained", lambda trained, say: [])
    _, notes = write.draw_all(collect([tmp_path / "results"])["burgers1d_smooth"], bench.runs, bench.data, print)
    assert len(notes) == 1 and notes[0].endswith("can be loaded: FNO + augmentation.")
    without = find_trained(collect([bench.results])["burgers1d_smooth"], bench.runs, tmp_path / "none")
    assert isinstance(without, str) and "pacefno data generate burgers1d_smooth --preset smoke" in without


@pytest.mark.parametrize("name", ["burgers1d", "burgers2d", "shallow_water", "navier_stokes"])
def test_every_problem_can_be_drawn(name: str) -> None:
    problem = problem_named(name)
    grid = (24,) if problem.dim == 1 else (12, 16)
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (
        1 + 0.1 * torch.rand(3, c, *grid, generator=generator) for c in (problem.in_channels, problem.out_channels)
    )
    xi = problem.group.sample(problem.ood_low, problem.ood_high, 3, generator)
    samples = Samples(inputs, targets, xi)
    found = [Prediction(model, targets + 0.01 * i, xi, torch.rand(3)) for i, model in enumerate(("fno", "pace", "unknown"))]
    drawings = [*draw_predictions(problem, samples, found), draw_canonical(problem, samples, samples, found[1])]
    drawings.append(draw_spectra(problem, targets, found))
    assert len(drawings) == len(problem.equation.channels) + 2
    assert [drawing.folded for drawing in drawings].count(True) == len(problem.equation.channels) - 1
    for drawing in (drawings[0], *drawings[-2:]):
        FigureCanvasAgg(drawing.figure).draw()


def test_a_preset_of_another_version_still_has_its_table(results: Path, tmp_path: Path) -> None:
    merge_results(results, "burgers2d", [row("pace", 1, 0.5, preset="huge")])
    answer = call(results, "--preset", "huge", "--output", tmp_path, "--runs", tmp_path / "no")
    assert answer.exit_code == 0 and "0.5000" in (tmp_path / "tables" / "burgers2d.md").read_text()


def test_training_curves_show_epochs_with_and_without_validation(tmp_path: Path) -> None:
    log = [
        {"epoch": e, "grid_stride": 2 if e < 3 else 1, "l2": 1 / e, "validation_error": 1 / e if e % 2 else None}
        for e in range(1, 6)
    ]
    figure = draw_training(problem_named("burgers1d"), {"fno": [log, log], "pace": [log]}).figure
    left, right = figure.axes
    assert [len(line.get_xdata()) for line in left.lines] == [5, 5, 5]  # type: ignore[arg-type]
    assert [len(line.get_xdata()) for line in right.lines] == [3, 3, 3]  # type: ignore[arg-type]


def test_every_model_has_a_look_of_its_own() -> None:
    assert MODELS.keys() <= STYLES.keys()
    assert len({(style.colour, style.line) for style in STYLES.values()}) == len(STYLES)


def test_an_fno_can_be_swept_like_any_model() -> None:
    problem = problem_named("burgers1d_smooth")
    torch.manual_seed(0)
    model = PACE(FNO(1, 1, 1, 4, 3, layers=1), problem.group, None, problem.horizon).eval()
    _, errors = shift_sweep(model, MODELS["pace"], problem, field_pairs((32,), torch.float32))
    assert float((errors - errors[0]).abs().max()) < 1e-3  # the analytic frame follows every motion


def test_a_film_shows_the_truth_and_the_models_at_the_same_moments() -> None:
    problem = problem_named("navier_stokes")
    generator = torch.Generator().manual_seed(0)
    moved = Samples(torch.randn(2, 10, 8, 8, generator=generator), torch.randn(2, 20, 8, 8, generator=generator))
    found = [
        Prediction(name, moved.target + shift, torch.zeros(2, 3), torch.full((2,), shift))
        for name, shift in (("fno", 0.5), ("pace", 0.0), ("gfno", 0.1))
    ]
    drawing = draw_film(problem, moved, found)
    panels = [axis for axis in drawing.figure.axes if axis.images]
    assert len(panels) == 3 * 6  # truth, FNO and PACE; GFNO is not among the few
    last = torch.from_numpy(panels[5].images[0].get_array().data).T
    assert torch.allclose(last.float(), moved.target[typical_sample(found), 19])
    titles = [axis.get_title(loc="left") or axis.get_title() for axis in panels[:6]]
    assert titles[0] == "last input" and titles[5].startswith("t = ")
