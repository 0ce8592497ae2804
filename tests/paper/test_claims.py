"""The paper, claim by claim: words follow from results, and no claim can be done without any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pacefno.errors import UsageError
from pacefno.paper import SEEDS
from pacefno.paper.bench import merge_results, runtime_file
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.claims import judged, sections, settings, tally, theory
from pacefno.paper.claims.evidence import GALLERY, MANIFEST, PROBLEMS, Evidence, Finding
from pacefno.paper.claims.figures import FIGURES, figure
from pacefno.paper.claims.method import exists
from pacefno.paper.claims.rows import ablation_row, factor, rollout_row, table_row
from pacefno.paper.claims.settings import ADAPTATION, OWN, architectures, core, losses
from pacefno.paper.claims.theory import decay, over_runs, projection
from pacefno.paper.claims.times import ablation_times, times
from pacefno.paper.presets import config_for
from pacefno.paper.report.documents import stale_documents
from pacefno.paper.report.tables import latex_of, markdown_claims, markdown_of, terminal_claims
from pacefno.paper.report.write import write_gallery
from pacefno.paper.studies.ablation import errors_table
from pacefno.paper.studies.base import study_file
from pacefno.train.config import with_overrides

ROOT = Path(__file__).parents[2]


def row(model: str, seed: int, preset: str = "standard", **values: float) -> dict[str, Any]:
    return {"problem": "burgers1d", "model": model, "seed": seed, "preset": preset} | values


def evidence(folder: Path, benchmark: str = "burgers1d", *rows: dict[str, Any]) -> Evidence:
    folder.mkdir(parents=True, exist_ok=True)
    if rows:
        merge_results(folder, benchmark, list(rows))
    return Evidence((folder,))


def test_without_results_nothing_that_is_measured_is_done(tmp_path: Path) -> None:
    found = judged([evidence(tmp_path / "results").folders[0]])
    assert set(found) == set(sections()) and len(found["figures"]) == len(FIGURES) == 16
    for name in ("text", "tables", "ablation", "times", "theory", "figures", "settings"):
        assert all(finding.word != "done" for _, finding in found[name]), name
    assert all(claim.what and finding.result for own in found.values() for claim, finding in own)
    assert tally(found["figures"]) == "0 done, 0 partly, 16 not"


def test_a_row_with_a_frame_is_done_with_three_seeds_below_both_errors(tmp_path: Path) -> None:
    good = {"id_error": 0.05, "ood_error": 0.02}  # the paper's: 0.0623 and 0.0267
    few = [row("pace-cnn", seed, **good) for seed in SEEDS[:2]]
    assert table_row(
        "burgers1d", ["pace-cnn"], evidence(tmp_path / "a", "burgers1d", *few)
    ).word == ("partly")
    all_seeds = [row("pace-cnn", seed, **good) for seed in SEEDS]
    done = table_row("burgers1d", ["pace-cnn"], evidence(tmp_path / "b", "burgers1d", *all_seeds))
    assert done.word == "done" and done.seeds == "3" and "paper 0.0267)" in done.result
    worse = [one | {"id_error": 0.1246} for one in all_seeds]
    missed = table_row("burgers1d", ["pace-cnn"], evidence(tmp_path / "c", "burgers1d", *worse))
    assert missed.word == "partly" and "paper 0.0623, 2 times" in missed.result
    with_frame = [row("pace-analytic", seed, **good) for seed in SEEDS]
    known = evidence(tmp_path / "f", "burgers1d", *worse, *with_frame)
    why = table_row("burgers1d", ["pace-cnn"], known).why
    assert why.endswith(
        "with an analytic frame instead of the encoder ID 0.0500 ± 0.0000 (paper 0.0623)"
    )
    ways = ["pace-cnn", "pace-products-long"]
    other = [one | {"model": ways[1]} for one in all_seeds]
    found = table_row("burgers1d", ways, evidence(tmp_path / "e", "burgers1d", *worse, *other))
    assert found.word == "done" and "pace-products-long, `standard`: ID" in found.result
    quick = [one | {"preset": "quick"} for one in all_seeds]
    small = evidence(tmp_path / "d", "burgers1d", *quick)
    assert table_row("burgers1d", ["pace-cnn"], small).word == "not"


def test_a_row_without_a_frame_is_done_where_it_fails_as_in_the_paper(tmp_path: Path) -> None:
    plain = [row("fno", seed, id_error=0.05, ood_error=1.0) for seed in SEEDS]
    alone = evidence(tmp_path / "a", "burgers1d", *plain)
    found = table_row("burgers1d", ["fno"], alone)
    assert (found.word, found.why) == (
        "partly",
        "its OOD error is to be compared with that of `pace`",
    )
    pace = [row("pace", seed, id_error=0.05, ood_error=0.02) for seed in SEEDS]
    both = evidence(tmp_path / "b", "burgers1d", *plain, *pace)
    assert table_row("burgers1d", ["fno"], both).word == "done"
    lucky = [one | {"ood_error": 0.01} for one in plain]
    found = table_row("burgers1d", ["fno"], evidence(tmp_path / "b", "burgers1d", *lucky))
    assert (found.word, found.why) == ("partly", "its OOD error is not above that of `pace`")


@pytest.mark.parametrize(
    ("error", "seeds", "word"),
    [(0.004, 3, "done"), (0.004, 1, "partly"), (0.009, 3, "partly"), (0.01, 3, "not")],
)
def test_trajectories_may_miss_the_papers_error_by_a_factor_of_two(
    error: float, seeds: int, word: str, tmp_path: Path
) -> None:
    rows = [row("pace-1", seed, nmse=error, train_seconds=120.0) for seed in SEEDS[:seeds]]
    found = rollout_row("kdv_easy", ("pace-1",), evidence(tmp_path, "kdv_easy", *rows))
    assert (found.word, found.seeds) == (word, str(seeds))
    missing = "with 1 of 3 seeds (one takes 2 minutes)" if seeds == 1 else "above the paper's"
    assert missing in found.why or word != "partly"


def test_an_ablation_says_whether_the_paper_is_confirmed(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    errors = {"paper-full": 0.02, "paper-no-full-lie": 0.9}
    cells = [
        {"preset": "standard", "row": name, "seed": seed, "ood_error": error, "id_error": 0.1}
        for name, error in errors.items()
        for seed in SEEDS
    ]
    study_file(folder / "studies", "ablation", "burgers1d", "preset", "row", "seed").add(cells)
    found = ablation_row("burgers1d", "paper-no-full-lie", Evidence((folder,)))
    assert found.word == "done" and "the paper says otherwise" in found.result
    worse = [cell | {"row": "paper-no-structure", "ood_error": 0.03} for cell in cells[:3]]
    study_file(folder / "studies", "ablation", "shallow_water", "preset", "row", "seed").add(
        [*cells[:3], *worse]
    )
    found = ablation_row("shallow_water", "paper-no-structure", Evidence((folder,)))
    assert "the paper's seeds differ by more" in found.result  # 0.1008 and 0.1071, each ± 0.015
    table = errors_table(benchmark_named("burgers1d"), cells)
    assert "the paper's: without full Lie generator" in markdown_of(table)
    latex = latex_of(table._replace(rows=[["a_b", "0.1 ± 0.2", "1.5e-07"]]), "parts")
    assert r"a\_b & 0.1 $\pm$ 0.2 & $1.5\times 10^{-7}$ \\" in latex and "parts" in latex


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_settings_of_the_paper_preset_are_those_of_its_tables(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = evidence(tmp_path)
    for judge in (core, losses):
        found = judge(name, nothing)
        assert found.word == "partly" and found.result.endswith("as in the paper")
    row = {"problem": name, "preset": "paper", "model": "pace-cnn", "epochs": 500, "threads": 2}
    runtime_file(tmp_path).add([row | {"epoch_seconds": 36.0}])
    expected = "0 of 3 seeds: one takes 5 hours (500 epochs of 36 s, 2 threads)"
    assert core(name, nothing).why.endswith(expected)
    found = settings.adaptation(name, nothing)
    assert found.word == "partly" and found.seeds == "0"
    monkeypatch.setitem(ADAPTATION, name, (1, 1.0, 0.0))
    monkeypatch.setitem(settings.CORE, name, {"batch": 3})
    assert settings.adaptation(name, nothing).word == "not" and core(name, nothing).word == "not"


def test_a_theorem_is_done_where_it_holds_on_every_problem(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    mean = {"gap": 0.1, "gap_projected": 0.2, "eta": 1.0, "holds": True, "violations": 0}
    cell = {"preset": "quick", "seed": 42, "model": "pace", "projection": mean}

    def judge() -> Finding:
        return over_runs(projection, Evidence((folder,)))

    for done, name in enumerate(PROBLEMS, start=1):
        study_file(folder / "studies", "theory", name, "preset", "seed", detail="pace").add([cell])
        assert judge().word == ("done" if done == 4 else "partly")
    broken = cell | {"seed": 7, "projection": mean | {"holds": False}}
    study_file(folder / "studies", "theory", "burgers1d", "preset", "seed", detail="fno").add(
        [broken | {"model": "fno"}]
    )
    assert judge().word == "partly" and judge().result.startswith("FAILS")


def test_a_factor_over_augmentation_has_to_be_the_paper_s(tmp_path: Path) -> None:
    def judge(folder: str, ours: float, seeds: Sequence[int] = SEEDS) -> Finding:
        rows = [row("fno-aug", seed, ood_error=0.6, id_error=0.1) for seed in seeds]
        rows += [row("pace-cnn", seed, ood_error=ours, id_error=0.1) for seed in seeds]
        found = evidence(tmp_path / folder, "burgers1d", *rows)
        return factor("burgers1d", ["pace-cnn"], found)

    assert judge("good", 0.03).word == "done" and "20 times (paper 12.1" in judge("a", 0.03).result
    assert judge("less", 0.06).why == "less than the paper's"
    assert judge("few", 0.03, SEEDS[:1]).why == "1 of 3 seeds"
    assert factor("burgers1d", ["pace-cnn"], evidence(tmp_path / "none")).word == "not"


def test_a_gradient_flow_has_to_balance_and_an_older_cell_has_none() -> None:
    path = {"rises": 0, "imbalance": 1e-5, "gradient": [1.0, 1e-4], "pull": [6.0, 7.0]}
    cell = {"refinement": {"flow": path}}
    held, text = decay(cell) or (False, "")
    assert held and "rises 0 times" in text and "|∇J| falls to 0.0001" in text
    for change in ({"rises": 1}, {"imbalance": 0.1}):
        said = decay({"refinement": {"flow": path | change}})
        assert said is not None and not said[0]
    assert theory.pull_back(cell) == (True, "at most 7 of a field's norm per period")
    for older in ({}, {"refinement": None}, {"refinement": {"adam": {"rises": 0}}}):
        assert decay(older) is None and theory.pull_back(older) is None


def test_a_bound_that_fails_with_the_largest_slope_is_told() -> None:
    operator = {"steepest": [2.0, 3.0], "violations_with_steepest": 0}
    cell = {"samples": 5, "violations": 0, "violations_as_printed": 0, "operator": operator}
    assert theory.bound(cell) == (True, "on 5 of 5 samples, with the largest L on 2 of 2")
    held, text = theory.bound(cell | {"violations_as_printed": 4})
    assert held and text.endswith("without K_C before epsilon, on 1")
    assert not theory.bound(cell | {"operator": operator | {"violations_with_steepest": 1}})[0]


def test_networks_for_trajectories_have_the_sizes_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = evidence(tmp_path)
    for name in ("kdv_easy", "kuramoto_sivashinsky"):
        assert architectures(name, nothing).why == "trained with 0 of 3 seeds"
    monkeypatch.setitem(settings.ARCHITECTURES, "kdv_easy", {"fno": (32, 64, 4, 20)})
    assert architectures("kdv_easy", nothing).word == "not"


def test_code_is_found_by_its_name() -> None:
    assert exists("pacefno.losses.objective") and exists("pacefno.pace.PACE.at")
    assert not exists("pacefno.losses.objektive") and not exists("pacefno.nowhere.at.all")
    for claim, finding in judged([ROOT / "results"])["method"]:
        open_ = "guess" in claim.differs or "not ablated yet" in finding.why
        assert finding.word == ("partly" if open_ else "done"), (claim.what, finding.result)


def test_times_are_multiples_of_those_of_the_fno(tmp_path: Path) -> None:
    assert times("burgers1d", 0, evidence(tmp_path)).word == "not"
    timed = [
        {"problem": "burgers1d", "preset": "standard", "model": model, "epoch_seconds": seconds}
        | {"pass_seconds": 1.0}
        for model, seconds in {"fno": 2.0, "gfno": 5.0, "pace-free": 9.0}.items()
    ]
    runtime_file(tmp_path).add(timed)
    found = times("burgers1d", 0, Evidence((tmp_path,)))
    assert found.word == "partly" and found.result.endswith("times fno (paper): gfno 2.5 (2.5)")
    rest = [timed[0] | {"model": model} for model in ("fno-aug", "pace-cnn", "pace-cnn-tta")]
    runtime_file(tmp_path).add(rest)
    assert times("burgers1d", 1, Evidence((tmp_path,))).word == "done"


def test_seconds_of_the_ablation_are_multiples_of_the_whole_method(tmp_path: Path) -> None:
    def judge() -> Finding:
        return ablation_times("burgers1d", Evidence((tmp_path,)))

    assert judge().word == "not"
    for name, word in (
        ("paper-full", "partly"), ("paper-no-full-lie", "partly"), ("paper-one-shot", "partly"),
        ("paper-no-canonicalisation", "done"),
    ):  # fmt: skip
        seconds = 3.0 if name == "paper-no-full-lie" else 2.0
        row = {"problem": "burgers1d", "preset": "standard", "model": name}
        runtime_file(tmp_path).add([row | {"epoch_seconds": seconds, "pass_seconds": 1.0}])
        assert judge().word == word
    epoch, passed = judge().result.splitlines()
    assert epoch.endswith("times that (paper): no-full-lie 1.5 (1)")
    assert "no-canonicalisation 1 (0.067)" in passed and "one-shot 1 (0.089)" in passed


def test_a_figure_is_done_when_it_was_drawn_from_the_tables(tmp_path: Path) -> None:
    results = evidence(tmp_path / "results")
    assert figure("burgers1d-canonical", (), results).word == "not"
    folder = tmp_path / GALLERY
    folder.mkdir(parents=True)
    about = {"file": "a.webp", "preset": "standard", "caption": "A caption."}
    (folder / MANIFEST).write_text(json.dumps({"burgers1d-canonical": about}))
    assert figure("burgers1d-canonical", (), Evidence(results.folders)).word == "not"  # no file
    (folder / "a.webp").write_bytes(b"")
    assert figure("burgers1d-canonical", (), Evidence(results.folders)).word == "done"
    assert "![A caption.](figures/paper/a.webp)" in markdown_claims("gallery", results.folders)
    (folder / MANIFEST).write_text(json.dumps({"burgers1d-canonical": about | {"preset": "quick"}}))
    assert figure("burgers1d-canonical", (), Evidence(results.folders)).word == "partly"


def test_a_figure_that_compares_models_lacks_those_that_are_not_drawn(tmp_path: Path) -> None:
    results, folder = evidence(tmp_path / "results"), tmp_path / GALLERY
    folder.mkdir(parents=True)
    (folder / "a.webp").write_bytes(b"")
    about = {"file": "a.webp", "preset": "standard", "caption": "A caption."}
    for models, why in ((["fno", "pace"], "without `gfno`"), (["gfno", "pace", "fno"], "")):
        (folder / MANIFEST).write_text(json.dumps({"a": about | {"models": models}}))
        found = figure("a", ("fno", "gfno", "pace"), Evidence(results.folders))
        assert (found.word, found.why) == ("partly" if why else "done", why)
    (folder / MANIFEST).write_text(json.dumps({"a": about}))
    assert figure("a", ("fno",), Evidence(results.folders)).why == "without `fno`"


def test_the_gallery_is_small_and_keeps_what_cannot_be_drawn_now(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"burgers1d-canonical": {"file": "old.webp"}}))
    nowhere = tmp_path / "nowhere"
    made = write_gallery([ROOT / "results"], tmp_path, runs=nowhere, data=nowhere)
    assert {"shallow_water-tta", "burgers2d-landscape-x-y"} <= set(made)
    known = json.loads((tmp_path / MANIFEST).read_text())
    assert known["burgers1d-canonical"] == {"file": "old.webp"}
    sizes = [(tmp_path / known[name]["file"]).stat().st_size for name in made]
    assert 0 < max(sizes) < 250_000


def test_a_figure_with_more_models_stays(tmp_path: Path) -> None:
    nowhere, said, name = tmp_path / "nowhere", list[str](), "navier_stokes-tta"
    for models, preset, stays in (
        (["pace-cnn", "pace-free", "pace"], "standard", True),
        (["pace-cnn", "pace-free", "pace"], "quick", False),
        (["pace-cnn"], "standard", False),
    ):
        old = {name: {"file": "old.webp", "preset": preset, "models": models}}
        (tmp_path / MANIFEST).write_text(json.dumps(old))
        how = {"runs": nowhere, "data": nowhere, "say": said.append}
        made = write_gallery([ROOT / "results"], tmp_path, **how)
        assert (name not in made) == stays
        known = json.loads((tmp_path / MANIFEST).read_text())[name]
        assert (known["file"] == "old.webp") == stays
    assert sum("has more models" in text for text in said) == 1
    assert any("no trained models" in text for text in said)


def test_the_committed_gallery_is_below_three_megabytes() -> None:
    assert sum(path.stat().st_size for path in (ROOT / GALLERY).iterdir()) < 3_000_000


def test_the_page_and_the_terminal_have_every_section(tmp_path: Path) -> None:
    page = (ROOT / "docs/paper.md").read_text()
    shown = [grid.title for grid in terminal_claims([ROOT / "results"])]
    for name in sections():
        assert f"<!-- table:paper-{name} -->" in page
        assert any(str(title).startswith(f"The paper's {name}: ") for title in shown)
    with pytest.raises(UsageError, match="unknown section of the paper's claims 'tabels'"):
        markdown_claims("tabels", [ROOT / "results"])


def test_a_model_has_a_line_and_a_shared_difference_a_number(tmp_path: Path) -> None:
    """Each line of a result has its own number of seeds; a note of many rows stands once, below."""
    ways = ["pace-cnn", "pace-products-long"]
    rows = [row(ways[0], seed, id_error=0.2, ood_error=0.1) for seed in SEEDS]
    rows.append(row(ways[1], 42, id_error=0.04, ood_error=0.01))
    found = table_row("shallow_water", ways, evidence(tmp_path, "shallow_water", *rows))
    assert [line.partition(",")[0] for line in found.result.splitlines()] == ways
    assert (found.word, found.seeds) == ("partly", "3\n1")
    page = markdown_claims("tables", [tmp_path])
    table, _, notes = page.partition("\nWhat differs, by number:\n\n")
    number, _, note = notes.splitlines()[0].partition(". ")
    assert note == OWN and OWN not in table
    assert f"| {number}, 2 | **not** |" in table  # the other is about `standard`
    shown = next(line for line in table.splitlines() if "shallow water: PACE-FNO (one" in line)
    assert f"{ways[0]}, `standard`" in shown and f"<br>{ways[1]}, `standard`" in shown
    assert " (3 seeds)<br>" in shown and " (1 seed) |" in shown
    missing = "`pace-products-long` at `standard` is good enough, but with 1 of 3 seeds"
    assert f"| **partly**: {missing}" in shown


def test_every_line_that_is_partly_done_says_what_is_missing(tmp_path: Path) -> None:
    for folder in (ROOT / "results", tmp_path):
        for claim, finding in (one for own in judged([folder]).values() for one in own):
            assert bool(finding.why) == (finding.word == "partly"), (claim.what, finding)


def test_the_page_is_not_older_than_the_results() -> None:
    assert stale_documents([ROOT / "docs/paper.md"], [ROOT / "results"]) == {}, "run: make tables"


def test_every_command_with_settings_changes_something() -> None:
    """`--set` refuses what would do nothing, so it is enough that it takes them all."""
    tried = 0
    for claim in (claim for section in sections().values() for claim in section):
        words = claim.command.split()
        if "--set" not in words:
            continue
        benchmark = benchmark_named(words[2])
        usual = config_for(benchmark, benchmark.default_row, "standard", 42)
        changes = [word for before, word in pairwise(words) if before == "--set"]
        with_overrides(usual, changes)
        tried += 1
    assert tried >= 4
