"""Tables say what the result files say, in every format."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest
from report_examples import RESULTS, result, table_of, write_results
from rich.console import Console

from pacefno.errors import UsageError
from pacefno.paper.bench import ResultsError, merge_results, runtime_file
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.report.collect import Tables, collect
from pacefno.paper.report.tables import (
    ablation_table,
    columns_of,
    latex_table,
    markdown_budget,
    markdown_rollout_budget,
    markdown_summary,
    markdown_table,
    terminal_table,
)
from pacefno.paper.studies.base import FOLDER, study_file
from pacefno.paper.style import statistic


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_results(tmp_path / "results")


@pytest.fixture
def tables(results: Path) -> Tables:
    return collect([results])


# --- collecting -----------------------------------------------------------------------------------


def test_a_statistic_is_the_mean_and_the_sample_deviation_over_seeds(tables: Tables) -> None:
    found = tables["burgers2d"].line("fno").of("ood_error")  # type: ignore[union-attr]
    assert found is not None and found.std is not None
    assert math.isclose(found.mean, 0.62) and math.isclose(found.std, 0.02, rel_tol=1e-12)
    assert str(found) == "0.6200 ± 0.0200"
    assert str(statistic([result("fno", 1, 2.04e-7)], "ood_error")) == "2.0e-07"
    assert statistic(RESULTS, "no such key") is None


def test_one_failed_seed_shows_in_the_mean_and_has_no_deviation() -> None:
    found = statistic([result("fno", 1, 0.1), result("fno", 2, math.inf)], "ood_error")
    assert str(found) == "inf"


def test_standard_is_shown_unless_another_preset_is_asked_for(results: Path) -> None:
    for preset in ("smoke", "paper", "long"):
        merge_results(results, "burgers2d", [result("fno", 1, 0.9, preset=preset)])
        assert collect([results])["burgers2d"].preset == "standard"
    smoke = collect([results], "smoke")
    assert list(smoke) == ["burgers2d"] and len(smoke["burgers2d"].results) == 1


def test_results_of_several_machines_merge(results: Path, tmp_path: Path) -> None:
    other = [result("fno", 7, 0.5), result("pace", 42, 0.0301)]
    merge_results(tmp_path / "other", "burgers2d", other)
    merged = collect([results, tmp_path / "other"])["burgers2d"]
    assert merged.line("fno").seeds == [7, 42, 1234, 3407]  # type: ignore[union-attr]
    assert merged.line("pace").results[0]["ood_error"] == 0.0301  # type: ignore[union-attr]


def test_a_folder_of_runs_is_accepted_too(results: Path) -> None:
    assert collect([results.parent]).keys() == collect([results]).keys()


def test_missing_results_name_the_command_that_makes_them(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="pacefno bench BENCHMARK"):
        collect([tmp_path / "nothing"])
    with pytest.raises(ResultsError, match="'paper'"):
        collect([results], "paper")
    with pytest.raises(UsageError, match="burgers1d: it has burgers2d"):
        terminal_table("burgers1d", results)


def test_the_true_frame_does_not_compete_for_the_lowest_error(tables: Tables) -> None:
    assert tables["burgers2d"].best == {"pace"}  # the oracle has half its error


def test_rows_with_the_same_printed_error_are_both_best(tmp_path: Path) -> None:
    errors = {"fno-nogrid": 0.02004, "pace": 0.02001, "fno": 0.0201}
    assert table_of(tmp_path, *(result(m, 1, e) for m, e in errors.items())).best == {
        "fno-nogrid",
        "pace",
    }


def test_one_lucky_seed_is_not_the_best_of_three(tmp_path: Path) -> None:
    assert table_of(tmp_path, *RESULTS, result("gfno", 42, 0.001)).best == {"pace"}


# --- formats --------------------------------------------------------------------------------------


def test_markdown_has_every_number_beside_the_papers_and_the_best_in_bold(tables: Tables) -> None:
    table = tables["burgers2d"]
    text = markdown_table(table)
    line = next(line for line in text.splitlines() if line.startswith("| PACE, one-shot"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    named = dict(zip([column.title for column in columns_of(table)], cells, strict=True))
    assert named["OOD"] == "**0.0203 ± 0.0002**"
    assert named["paper OOD"] == "0.0755" and named["paper ID"] == "0.0393"
    assert named["seeds"] == "3" and named["parameters"] == "1,234"
    assert text.count("**") == 2
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1
    assert "epochs: 24" in text and "(paper: 500)" in text and "2 threads" in text


def test_a_table_of_rollouts_has_its_own_columns_and_the_papers_deviation(tables: Tables) -> None:
    text = markdown_table(tables["kdv_easy"])
    line = next(line for line in text.splitlines() if line.startswith("| PACE, 20"))
    assert "0.2500 ± 0.0707" in line and "0.0061 ± 0.0009" in line
    assert "NMSE" in text and "**" not in text and "rescaled" in text


def test_a_number_that_was_not_measured_is_a_dash(tables: Tables) -> None:
    lines = markdown_table(tables["burgers2d"]).splitlines()
    line = next(line for line in lines if "true frame" in line)
    titles = [column.title for column in columns_of(tables["burgers2d"])]
    assert line.split("|")[1 + titles.index("equivariance")].strip() == "–"
    assert "OOD, re-solved" not in titles  # nobody measured that


def test_a_benchmark_that_is_not_in_the_paper_has_no_columns_of_it(tmp_path: Path) -> None:
    name = "burgers1d_smooth"
    merge_results(tmp_path, name, [result("fno", 42, 0.2, problem=name)])
    table = collect([tmp_path])[name]
    assert not any(column.kind == "paper" for column in columns_of(table))
    assert table.differences == [] and "paper" not in markdown_table(table)


@pytest.mark.parametrize("name", ["burgers2d", "kdv_easy"])
def test_latex_rows_have_as_many_cells_as_columns(name: str, tables: Tables) -> None:
    text = latex_table(tables[name])
    columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1])  # type: ignore[index]
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + len(tables[name].lines)
    assert all(len(re.findall(r"(?<!\\)&", line)) == columns - 1 for line in rows)
    for what in ("table", "tabular"):
        assert text.count(rf"\begin{{{what}}}") == text.count(rf"\end{{{what}}}") == 1
    assert text.count("{") == text.count("}") and r"\toprule" in text and r"\bottomrule" in text
    assert all(line.count("$") % 2 == 0 for line in text.splitlines())


def test_latex_writes_powers_and_bold_and_escapes_names(tmp_path: Path) -> None:
    text = latex_table(table_of(tmp_path, *RESULTS, result("a_b & 50%", 1, 0.5)))
    assert r"$\mathbf{0.0203 \pm 0.0002}$" in text and r"$1.0\times 10^{-7}" in text
    assert r"a\_b \& 50\%" in text


def test_the_summary_has_one_line_per_benchmark_of_pairs(tables: Tables) -> None:
    text = markdown_summary(tables)
    assert "**0.0203 ± 0.0002**" in text and "KdV" not in text
    assert len(text.strip().splitlines()) == 2 + 1


def test_the_summary_marks_the_best_of_the_rows_that_it_has(results: Path) -> None:
    seeds = collect([results])["burgers2d"].seeds
    merge_results(results, "burgers2d", [result("pace-free", seed, 0.001) for seed in seeds])
    tables = collect([results])
    assert tables["burgers2d"].best == {"pace-free"}
    assert "**0.0203 ± 0.0002**" in markdown_summary(tables)


def test_what_more_updates_do_is_told_by_the_seeds_that_have_them(tmp_path: Path) -> None:
    usual = [result("fno", seed, 0.5 + 0.1 * (seed == 7)) for seed in (42, 7)]
    long = result("fno", 42, 0.4, preset="long", id_error=0.01)
    alone = result("fno-aug", 42, 0.3, preset="long")  # `standard` lacks it: nothing to compare
    merge_results(tmp_path, "burgers2d", [*usual, long, alone])
    head, _, *lines = markdown_budget([tmp_path]).strip().splitlines()
    assert "ID, standard" in head and "OOD, paper" in head
    (cells,) = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[0] == "2-D Burgers: plain FNO"
    assert cells[1:] == ["0.0200", "0.0100", "0.0274", "0.5000", "0.4000", "0.6137"]


def test_what_more_updates_do_to_rollouts_is_told_with_the_seeds_of_both(tmp_path: Path) -> None:
    assert "Not measured" in markdown_rollout_budget([tmp_path])
    rolled = [
        {"model": "pace-1-split", "seed": seed, "preset": preset, "nmse": nmse}
        for seed, preset, nmse in ((42, "long", 0.5), (7, "long", 0.5), (42, "standard", 0.75))
    ]
    merge_results(tmp_path, "kuramoto_sivashinsky", rolled)
    merge_results(tmp_path, "burgers2d", [result("fno", 42, 0.4, preset="long")])
    _, _, *lines = markdown_rollout_budget([tmp_path]).strip().splitlines()
    (cells,) = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[0].startswith("Kuramoto-Sivashinsky: ")
    assert cells[1:] == ["0.7500", "0.5000 ± 0.0000", "0.0008", "–", "1 / 2"]


def test_the_terminal_has_the_errors_and_leaves_costs_out(results: Path) -> None:
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(terminal_table("burgers2d", results))
    text = console.export_text()
    assert "0.0203 ± 0.0002" in text and "0.0755" in text and "1,234" not in text
    merge_results(results, "burgers2d", [result("[bold]", 1, 0.5)])
    console.print(terminal_table("burgers2d", results))
    assert "[bold]" in console.export_text()  # a name is no markup


def test_settings_that_differ_are_found_and_equal_ones_are_not(tmp_path: Path) -> None:
    def names(folder: str, **others: object) -> set[str]:
        table = table_of(tmp_path / folder, result("pace", 1, 0.1, **others))
        return {setting.name for setting in table.differences}

    standard = names("s")
    assert {"epochs", "learning rate", "device", "equation and horizon"} <= standard
    assert "samples, training / test" not in standard  # the same as in the paper
    assert names("p", preset="paper") == {"device", "equation and horizon"}


def test_a_preset_or_row_of_another_version_still_has_its_table(tmp_path: Path) -> None:
    table = table_of(tmp_path, result("new-row", 1, 0.5, preset="huge", title="A new method"))
    assert "| A new method | 0.5000" in re.sub(r"[ *]+", " ", markdown_table(table))


def test_an_ablation_shows_seconds_of_a_quiet_machine_or_none(tmp_path: Path) -> None:
    busy = {"preset": "standard", "seed": 42, "epoch_seconds": 77.0, "ood_seconds": 88.0}
    errors = {"id_error": 0.1, "ood_error": 0.2, "ood_error_canonical": 0.1}
    models = {
        "paper-full": "pace-cnn", "paper-no-structure": "pace-regression",
        "paper-no-canonicalisation": "pace-cnn", "loss-l2": "pace-cnn",
    }  # fmt: skip
    file = study_file(tmp_path / FOLDER, "ablation", "burgers2d", "preset", "row", "seed")
    file.add([busy | errors | {"row": row, "model": model} for row, model in models.items()])
    quiet = {"problem": "burgers2d", "preset": "standard"}
    runtime_file(tmp_path).add(
        [
            quiet | {"model": "pace-cnn", "epoch_seconds": 1.5, "pass_seconds": 2.5},
            quiet | {"model": "paper-full", "epoch_seconds": 1.5, "pass_seconds": 20.5},
        ]
    )
    table = ablation_table([tmp_path], benchmark_named("burgers2d"))
    assert table is not None and "quiet machine" in table.title
    places = [table.columns.index(name) for name in ("s/epoch", "OOD pass, s")]
    shown = [tuple(row[place] for place in places) for row in table.rows]
    # The whole method, an encoder that was not timed, another way to predict, another loss.
    assert shown == [("1.5", "20.5"), ("", ""), ("1.5", ""), ("", "")]
