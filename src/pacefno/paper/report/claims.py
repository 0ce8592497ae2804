"""The paper, claim by claim: the command, what was measured, how it differs, and a verdict.

The verdict is done, partly or not, and is computed: from the number of seeds and a stated limit on
their error, from settings compared with the paper's, from figures that were drawn. Where a claim is
about code alone, it says whether the code and its tests exist. No verdict is typed by hand.
"""

from __future__ import annotations

import json
import math
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, final

from pacefno.data.recipe import TRAJECTORY_SIZES
from pacefno.paper import SEEDS
from pacefno.paper.bench import Result, results_file, runtime_file
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.presets import config_for
from pacefno.paper.report.settings import changed, grids
from pacefno.paper.studies.ablation import PAPER as ABLATION
from pacefno.paper.studies.ablation import PAPER_SPREAD, PAPERS
from pacefno.paper.studies.base import Cell, grouped, study_cells
from pacefno.paper.studies.capacity import fitted_errors, lemma_bound, widths_of
from pacefno.paper.studies.theory import BALANCED, balance
from pacefno.paper.studies.tta import gain
from pacefno.paper.style import Statistic, statistic
from pacefno.train.config import RunConfig, innermost

Word: TypeAlias = Literal["done", "partly", "not"]
MEASURED = ("paper", "long", "standard")  # presets that count
PROBLEMS = ("burgers1d", "burgers2d", "shallow_water", "navier_stokes")
GALLERY = Path("docs/figures/paper")  # beside the folder of results
MANIFEST = "figures.json"
NO_DIFFERENCE = 0.02  # errors that differ by less than this share are the same


class Finding(NamedTuple):
    """What is there of a claim; the result has a line for each model or run that it speaks of.

    ``why`` says what is missing where the word is partly.
    """

    word: Word
    result: str
    seeds: str = ""
    why: str = ""


@final
@dataclass(frozen=True)
class Evidence:
    """What folders of results hold, and the project around the first of them."""

    folders: tuple[Path, ...]
    _read: dict[tuple[str, ...], list[Result]] = field(default_factory=dict, compare=False)

    @property
    def root(self) -> Path:
        return self.folders[0].resolve().parent

    def rows(self, benchmark: str, model: str, preset: str) -> list[Result]:
        """The results of one row, a seed each; the last folder's count."""
        if (benchmark,) not in self._read:
            files = [results_file(folder, benchmark) for folder in self.folders]
            merged = {file.key_of(row): row for file in files for row in file.read()}
            self._read[benchmark,] = list(merged.values())
        wanted = (preset, model)
        return [r for r in self._read[benchmark,] if (r["preset"], r["model"]) == wanted]

    def at(self, study: str, benchmark: str, preset: str) -> list[Cell]:
        """The cells of a study at a preset."""
        if (key := (study, benchmark, preset)) not in self._read:
            self._read[key] = study_cells(study, self.folders, benchmark_named(benchmark), preset)
        return self._read[key]

    def cells(self, study: str, benchmark: str, **wanted: Any) -> list[Cell]:
        """The cells of a study at the largest preset that has any."""
        for preset in MEASURED:
            found = self.at(study, benchmark, preset)
            if found := [cell for cell in found if cell | wanted == cell]:
                return found
        return []

    def timed(self, benchmark: str, preset: str) -> list[Result]:
        """Seconds of the rows of a benchmark, as ``benchmarks/runtime.py`` measured them."""
        rows = [row for folder in self.folders for row in runtime_file(folder).read()]
        return [row for row in rows if (row["problem"], row["preset"]) == (benchmark, preset)]

    @cached_property
    def gallery(self) -> dict[str, Cell]:
        """Which figures were drawn, and from which preset."""
        path = self.root / GALLERY / MANIFEST
        found: dict[str, Cell] = json.loads(path.read_text()) if path.exists() else {}
        return {name: one for name, one in found.items() if (path.parent / one["file"]).exists()}


Judge: TypeAlias = Callable[[Evidence], Finding]


class Claim(NamedTuple):
    """One row of the page; ``differs`` has a line for each difference from the paper."""

    what: str
    command: str
    judge: Judge
    differs: str = ""


# --- tables ---------------------------------------------------------------------------------------


def seeds_of(rows: Sequence[Cell]) -> int:
    return len({row["seed"] for row in rows})


class Score(NamedTuple):
    """The errors of one model at one preset, and whether they meet the limit of their line."""

    model: str
    preset: str
    errors: tuple[Statistic, Statistic]
    met: bool
    seeds: int


def table_row(benchmark: str, models: Sequence[str], evidence: Evidence) -> Finding:
    """A row of pairs: done with three seeds whose errors meet a limit, in one of our ways.

    With a frame: neither error above the paper's. Without one: fails where the paper's fails, an
    OOD error above that of PACE.
    """
    problem, scores = benchmark_named(benchmark), list[Score]()
    paper = problem.paper[models[0]]
    for model, preset in product(models, MEASURED):
        rows = evidence.rows(benchmark, model, preset)
        own, moved = (statistic(rows, key) for key in ("id_error", "ood_error"))
        if own is None or moved is None:
            continue
        if problem.rows[model].frame is None:
            best = statistic(evidence.rows(benchmark, "pace", preset), "ood_error")
            met = best is not None and moved.mean > best.mean
        else:
            met = own.mean <= paper[0] and moved.mean <= paper[1]
        scores.append(Score(model, preset, (own, moved), met, seeds_of(rows)))
    if not scores:
        return Finding("not", "not measured", "0")
    texts = []
    for score in scores:
        name = f"`{score.preset}`"  # quoted: one is called as the paper is
        name = name if len(models) == 1 else f"{score.model}, {name}"
        both = zip(("ID", "OOD"), score.errors, paper, strict=True)
        texts.append(f"{name}: " + ", ".join(beside(*part) for part in both))
    seeds = "\n".join(str(score.seeds) for score in scores)
    if any(score.met and score.seeds >= len(SEEDS) for score in scores):
        return Finding("done", "\n".join(texts), seeds)
    why = _not_met(benchmark, scores, paper, evidence)
    return Finding("partly", "\n".join(texts), seeds, why)


def _not_met(
    benchmark: str, scores: Sequence[Score], paper: tuple[float, float], evidence: Evidence
) -> str:
    """Why a row of pairs is only partly done, with the measurements that explain its error."""
    near = max((s for s in scores if s.met), key=lambda s: s.seeds, default=None)
    if near is not None:
        return f"`{near.model}` at `{near.preset}` is good enough, but with {too_few(near.seeds)}"
    first = scores[0]
    if benchmark_named(benchmark).rows[first.model].frame is None:
        known = evidence.rows(benchmark, "pace", first.preset)
        return f"its OOD error is {'not above' if known else 'to be compared with'} that of `pace`"
    pairs = zip(("ID", "OOD"), first.errors, paper, strict=True)
    above = [name for name, ours, theirs in pairs if ours.mean > theirs]
    why = f"{' and '.join(above)} error of `{first.model}` above the paper's"
    analytic = statistic(evidence.rows(benchmark, "pace-analytic", first.preset), "id_error")
    if analytic and first.errors[0].mean > 1.2 * analytic.mean:
        why += f"; with an analytic frame instead of the encoder {beside('ID', analytic, paper[0])}"
    if long := statistic(evidence.rows(benchmark, "fno", "long"), "id_error"):
        why += f"; an FNO with the paper's updates has an ID error of {long} (`long`)"
    return why


def four_decimals(error: float) -> str:
    """As the paper prints errors; one that exploded as a power of ten."""
    return f"{error:.4f}" if error < 10 else f"{error:.3g}"


def too_few(seeds: int) -> str:
    return f"{seeds} of {len(SEEDS)} seeds"


def beside(name: str, ours: Statistic, paper: float) -> str:
    """An error, the paper's, and by how much ours is larger if it is."""
    times = ours.mean / paper
    more = f", {times:.0f} times" if times >= 10 else f", {times:.2g} times" if times > 1 else ""
    return f"{name} {ours} (paper {paper:.4f}{more})"


def factor(benchmark: str, models: Sequence[str], evidence: Evidence) -> Finding:
    """How many times the OOD error of augmentation is above that of PACE, in the text's words.

    Done: with three seeds as many times as in the paper.
    """
    paper = benchmark_named(benchmark).paper
    theirs = paper["fno-aug"][1] / paper["pace-cnn"][1]
    texts, seeds, done = [], [], False
    for model, preset in product(models, MEASURED):
        rows = [evidence.rows(benchmark, name, preset) for name in ("fno-aug", model)]
        augmented, ours = (statistic(own, "ood_error") for own in rows)
        if augmented is None or ours is None:
            continue
        times = augmented.mean / ours.mean
        name = f"`{preset}`" if len(models) == 1 else f"{model}, `{preset}`"
        texts.append(f"{name}: {augmented} / {ours}, {times:.3g} times (paper {theirs:.3g} times)")
        seeds.append(min(map(seeds_of, rows)))
        done = done or (times >= theirs and seeds[-1] >= len(SEEDS))
    if not texts:
        return Finding("not", "not measured", "0")
    text, counts = "\n".join(texts), "\n".join(map(str, seeds))
    if done:
        return Finding("done", text, counts)
    few = max(seeds) < len(SEEDS)
    return Finding("partly", text, counts, too_few(max(seeds)) if few else "less than the paper's")


def rollout_row(benchmark: str, models: Sequence[str], evidence: Evidence) -> Finding:
    """A row of trajectories: done at the paper's NMSE with three seeds, partly up to twice that."""
    problem = benchmark_named(benchmark)
    paper, _ = problem.paper[models[0]]
    texts, seeds, reasons, done = [], [], [], False
    for model, preset in product(models, MEASURED):
        rows = evidence.rows(benchmark, model, preset)
        if (value := statistic(rows, "nmse")) is None:
            continue
        texts.append(f"{model}, `{preset}`: {beside('NMSE', value, paper)}")
        seeds.append(str(count := seeds_of(rows)))
        if value.mean <= paper:
            done = done or count >= len(SEEDS)
            minutes = max(row["train_seconds"] for row in rows) / 60
            reasons.append(
                f"`{model}` at `{preset}` is good enough, but with {too_few(count)} (one takes "
                f"{minutes:.0f} minutes)"
            )
        elif value.mean <= 2 * paper:
            within = value.std is not None and value.mean - value.std <= paper
            reason = "above the paper's" + (
                " by less than the spread of its seeds" if within else ""
            )
            trained = problem.rows[model].trained_as
            if trained and problem.rows[trained].frame is None:
                reason += f"; `{trained}`, whose weights it has, was trained without a frame"
            reasons.append(f"`{model}` at `{preset}`: {reason}")
    word: Word = "done" if done else "partly" if reasons else "not"
    why = "; ".join(reasons) if word == "partly" else ""
    return Finding(word, "\n".join(texts) or "not measured", "\n".join(seeds) or "0", why)


def ablation_row(benchmark: str, row: str, evidence: Evidence) -> Finding:
    """A row of the ablation: measured with three seeds, and whether it moves the error as there."""
    own, full = (evidence.cells("ablation", benchmark, row=name) for name in (row, "paper-full"))
    error, whole = statistic(own, "ood_error"), statistic(full, "ood_error")
    theirs, baseline = (ABLATION[benchmark].get(name) for name in (row, "paper-full"))
    if error is None:
        return Finding("not", "not measured", "0")
    text = f"OOD {error}" + (f" (paper {four_decimals(theirs[1])})" if theirs else "")
    if whole and theirs and baseline and row != "paper-full":
        ours, paper = error.mean / whole.mean, theirs[1] / baseline[1]
        alike = (ours > 1) == (paper > 1) or max(abs(ours - 1), abs(paper - 1)) < NO_DIFFERENCE
        spread = max(PAPER_SPREAD[benchmark][name] for name in (row, "paper-full"))
        if alike:
            same = "as in the paper"
        elif abs(theirs[1] - baseline[1]) < spread:
            same = "the paper's seeds differ by more"
        else:
            same = "the paper says otherwise"
        text += f"; {ours:.3g} times the whole method's, in the paper {paper:.3g}: {same}"
    if (seeds := seeds_of(own)) < len(SEEDS):
        return Finding("partly", text, str(seeds), too_few(seeds))
    return Finding("done", text, str(seeds))


# --- times ----------------------------------------------------------------------------------------


# Seconds of an epoch and of one OOD pass in the paper's tables, on its GPU.
TIMES: dict[str, dict[str, tuple[float, float]]] = {
    "burgers1d": {
        "fno": (0.4212, 0.3943), "fno-aug": (0.7698, 1.2826), "pace-cnn": (0.4560, 0.5287),
        "pace-cnn-tta": (0.4560, 5.4611), "gfno": (1.0365, 1.0148),
    },
    "burgers2d": {
        "fno": (0.6524, 0.1244), "fno-aug": (0.7559, 0.1045), "pace-cnn": (1.5770, 0.1399),
        "pace-cnn-tta": (1.5770, 4.4345), "gfno": (4.8613, 0.7462),
    },
    "shallow_water": {
        "fno": (0.7024, 0.1501), "fno-aug": (0.8502, 0.1503), "pace-cnn": (2.6139, 0.2952),
        "pace-cnn-tta": (2.6139, 8.1388), "gfno": (6.7509, 0.7161),
    },
    "navier_stokes": {
        "fno": (10.6448, 1.8308), "fno-aug": (10.7371, 1.9761), "pace-cnn": (16.5571, 3.3728),
        "pace-cnn-tta": (16.5571, 10.0376), "gfno": (55.9359, 9.2956),
    },
}  # fmt: skip


def times(benchmark: str, column: int, evidence: Evidence) -> Finding:
    """A column of seconds as multiples of the FNO's, which compare better than processors do."""
    key, known = ("epoch_seconds", "pass_seconds")[column], dict[str, float]()
    for row in evidence.timed(benchmark, "standard"):
        if row["model"] in TIMES[benchmark]:
            known[row["model"]] = row[key]
    if "fno" not in known:
        return Finding("not", "not measured on a quiet machine")
    paper = {model: both[column] for model, both in TIMES[benchmark].items()}
    texts = [
        f"{model} {seconds / known['fno']:.2g} ({paper[model] / paper['fno']:.2g})"
        for model, seconds in known.items()
        if model != "fno"
    ]
    text = f"fno {known['fno']:.3g} s (paper {paper['fno']:.3g} s); times fno (paper): "
    text += ", ".join(texts)
    for row in evidence.timed(benchmark, "paper"):
        if row["model"] in paper:
            theirs = f"(paper {paper[row['model']]:.3g} s)"
            text += f"\n{row['model']} with the settings of `paper`: {row[key]:.3g} s {theirs}"
    if missing := [model for model in paper if model not in known]:
        return Finding("partly", text, why=f"not timed: {', '.join(missing)}")
    return Finding("done", text)


def ablation_times(benchmark: str, evidence: Evidence) -> Finding:
    """The seconds in the paper's table of the ablation, as multiples of the whole method's."""
    timed = {row["model"]: row for row in evidence.timed(benchmark, "standard")}
    if not (whole := timed.get("paper-full")):
        return Finding("not", "not measured on a quiet machine")
    texts, missing = [], set[str]()
    for what, key, column in (("an epoch", "epoch_seconds", 2), ("a pass", "pass_seconds", 3)):
        paper = {name: row[column] for name, row in ABLATION[benchmark].items() if row[column]}
        base, shares = paper.pop("paper-full"), []
        for name, seconds in paper.items():
            if name not in timed:
                missing.add(name)
            elif base and seconds:
                ours = timed[name][key] / whole[key]
                shares.append(f"{name.removeprefix('paper-')} {ours:.2g} ({seconds / base:.2g})")
        text = f"{what}: paper-full {whole[key]:.3g} s (paper {base:.3g} s); times that (paper): "
        texts.append(text + (", ".join(shares) or "none"))
    if missing:
        why = f"not timed: {', '.join(sorted(missing))}"
        return Finding("partly", "\n".join(texts), why=why)
    return Finding("done", "\n".join(texts))


# --- settings -------------------------------------------------------------------------------------

# The paper's table of hyperparameters and the ranges of its training perturbations. Its footnote on
# shallow water is `plain_decay`, the weight decay of FNO and GFNO.
COMMON = {
    "optimizer": "adam", "shape": "step", "samples": (1000, 200), "weight_decay": 1e-4,
    "plain_decay": 1e-4, "batch": 20, "epochs": 500, "rate": 1e-3, "step_every": 100,
    "step_factor": 0.5, "grids": "64 × 64 → 128 × 128", "width": 32,
}  # fmt: skip
CORE: dict[str, dict[str, Any]] = {
    "burgers1d": COMMON
    | {"train_range": (0.1, 0.2), "grids": "1024 → 2048", "modes": 20, "width": 64}
    | {"step_every": 50},
    "burgers2d": COMMON | {"train_range": (0.1, 0.1, 0.5), "modes": 12},
    "shallow_water": COMMON
    | {"train_range": (0.15, 0.15, 0.2, 0.2), "modes": 16}
    | {"plain_decay": 1e-3, "step_factor": 0.2},
    "navier_stokes": COMMON
    | {"train_range": (0.05, 0.05, math.pi / 4), "modes": 10, "width": 20}
    | {"batch": 10, "epochs": 100, "rate": 2.5e-3},
}
# Its table of losses, and of steps, rate and weight decay at test time.
LOSSES: dict[str, dict[str, Any]] = {
    "burgers1d": {"h1_schedule": "ema", "h1_memory": 0.9, "equivariance": 10.0},
    "burgers2d": {"h1": 5.0, "equivariance": 1.0, "anchor": 5.0},
    "shallow_water": {"equivariance": 10.0, "anchor": 5.0, "invariant": 0.5},
    "navier_stokes": {
        "h1": 5.0, "equivariance": 1.0, "anchor": 20.0, "anchor_decay": 0.85, "anchor_floor": 0.1,
    },
}  # fmt: skip
ADAPTATION = {
    "burgers1d": (20, 0.05, 0.0), "burgers2d": (50, 0.01, 0.0),
    "shallow_water": (80, 0.05, 1e-4), "navier_stokes": (5, 0.05, 0.0),
}  # fmt: skip


def core(benchmark: str, evidence: Evidence) -> Finding:
    """The paper's hyperparameters against those of the preset, and whether it was ever run."""
    problem = benchmark_named(benchmark)
    config, sizes = config_for(problem, "pace-cnn", "paper", 42), problem.recipe.sizes_of("paper")
    plain = config_for(problem, "fno", "paper", 42)
    ours = config.schedule.model_dump() | config.operator
    ours |= {"samples": (sizes.train, sizes.test), "grids": grids(problem, "paper")}
    ours |= {"plain_decay": plain.schedule.weight_decay, "train_range": config.task.train_range}
    return compared(CORE[benchmark], ours, benchmark, evidence)


# Modes, width, layers and snapshots of its two tables of trajectories.
LARGE, COMPACT = (32, 256, 5, 20), (20, 64, 4)
ARCHITECTURES = {
    "kdv_easy": {"fno": LARGE, "fno-aug": LARGE, "pace-1": (*COMPACT, 1), "pace-20": LARGE},
    "kuramoto_sivashinsky": {
        "fno": LARGE, "fno-aug": LARGE, "pace-1": (*COMPACT, 1), "pace-20": (*COMPACT, 20),
    },
}  # fmt: skip


def sizes(benchmark: str, model: str, preset: str) -> tuple[int, ...]:
    """Modes, width, layers of the network of a row, and the snapshots that it is given."""
    config = config_for(benchmark_named(benchmark), model, preset, SEEDS[0])
    inner = innermost(config.operator)
    return inner["modes"], inner["width"], inner["layers"], config.task.input.snapshots


def architectures(benchmark: str, evidence: Evidence) -> Finding:
    """The sizes of the networks for trajectories, and whether they were trained."""
    paper = ARCHITECTURES[benchmark]
    wrong = [model for model, theirs in paper.items() if sizes(benchmark, model, "paper") != theirs]
    if wrong:
        return Finding("not", f"not the paper's: {', '.join(wrong)}", "0")
    seeds = min(seeds_of(evidence.rows(benchmark, model, "paper")) for model in paper)
    text = f"modes, width, layers and snapshots of {len(paper)} models as in the paper"
    if seeds >= len(SEEDS):
        return Finding("done", text, str(seeds))
    why = f"trained with {too_few(seeds)}"
    if seconds := statistic(evidence.rows(benchmark, "fno", "standard"), "train_seconds"):
        few, many = (updates(benchmark, "fno", preset) for preset in ("standard", "paper"))
        (_, width, *_), wide = sizes(benchmark, "fno", "standard"), paper["fno"][1]
        took = seconds.mean / 60
        why += f": the {few:,} updates of `fno` at `standard` took {took:.1f} minutes, so {many:,} "
        why += f"take {took * many / few:.0f}, and a width of {wide} instead of {width} has "
        why += f"{(wide / width) ** 2:.0f} times the products"
    return Finding("partly", text, str(seeds), why)


def updates(benchmark: str, model: str, preset: str) -> int:
    """Of a whole training on trajectories."""
    schedule = config_for(benchmark_named(benchmark), model, preset, SEEDS[0]).schedule
    return schedule.epochs * schedule.updates(TRAJECTORY_SIZES[preset].train)


def losses(benchmark: str, evidence: Evidence) -> Finding:
    """The paper's loss weights against those of the preset, and whether it was ever run."""
    config: RunConfig = config_for(benchmark_named(benchmark), "pace-cnn", "paper", 42)
    return compared(LOSSES[benchmark], config.loss.model_dump(), benchmark, evidence)


def compared(
    paper: dict[str, Any], ours: dict[str, Any], benchmark: str, evidence: Evidence
) -> Finding:
    wrong = [f"{key} is {ours.get(key)}, not {v}" for key, v in paper.items() if ours.get(key) != v]
    seeds = seeds_of(evidence.rows(benchmark, "pace-cnn", "paper"))
    text = "; ".join(wrong) or f"all {len(paper)} settings as in the paper"
    if wrong or seeds >= len(SEEDS):
        return Finding("not" if wrong else "done", text, str(seeds))
    why = f"trained with {too_few(seeds)}"
    for row in evidence.timed(benchmark, "paper"):
        if row["model"] == "pace-cnn":
            epochs, seconds = row["epochs"], row["epoch_seconds"]
            hours = epochs * seconds / 3600
            why += f": one takes {hours:.2g} hours ({epochs} epochs of {seconds:.3g} s, "
            why += f"{row['threads']} threads)"
    return Finding("partly", text, str(seeds), why)


def adaptation(benchmark: str, evidence: Evidence) -> Finding:
    """The optimiser at test time, and the row that uses it."""
    ours = tuple(asdict(benchmark_named(benchmark).adaptation).values())
    if ours != ADAPTATION[benchmark]:
        return Finding("not", f"{ours} instead of the paper's {ADAPTATION[benchmark]}")
    rows = evidence.rows(benchmark, "pace-cnn-tta", "standard")
    text, seeds = f"row `pace-cnn-tta`: {len(rows)} results", seeds_of(rows)
    if seeds < len(SEEDS):
        return Finding("partly", text, str(seeds), too_few(seeds))
    return Finding("done", text, str(seeds))


def sensitivity(benchmark: str, evidence: Evidence) -> Finding:
    """The gain of adaptation over steps and rates, with the paper's estimator."""
    problem, cells = benchmark_named(benchmark), evidence.cells("tta", benchmark)
    models = grouped(cells, "model")
    text = "\n".join(gain(problem, model, own) for model, own in models.items())
    seeds = seeds_of(models.get("pace-cnn", []))
    if 0 < seeds < len(SEEDS):
        return Finding("partly", text, str(seeds), too_few(seeds))
    text += "" if seeds else "\nNot measured with the paper's estimator."
    return Finding("done" if seeds else "not", text.strip(), str(seeds))


# --- code -----------------------------------------------------------------------------------------


def code(names: str, test: str, evidence: Evidence) -> Finding:
    """Functions by their dotted names, and the file of their tests."""
    missing = [name for name in names.split() if not exists(f"pacefno.{name}")]
    if missing:
        return Finding("not", f"there is no {', '.join(missing)}")
    tested = (evidence.root / test).exists()
    shown = ", ".join(f"`{name}`" for name in names.split())
    if not tested:
        return Finding("partly", shown, why=f"{test} is missing")
    return Finding("done", f"{shown}; {test}")


def guessed(names: str, test: str, evidence: Evidence) -> Finding:
    """Code for something that the paper does not define: at best partly."""
    found = code(names, test, evidence)
    if found.word != "done":
        return found
    return found._replace(word="partly", why="the paper does not define it")


def ablated(row: str, names: str, test: str, evidence: Evidence) -> Finding:
    """Code for something undefined whose effect has to be measured by a row of an ablation too."""
    found = code(names, test, evidence)
    for problem in PROBLEMS if found.word == "done" else ():
        own, without = (evidence.cells("ablation", problem, row=r) for r in (row, "cnn-loss-paper"))
        errors = statistic(own, "ood_error"), statistic(without, "ood_error")
        if all(errors):
            text = f"{problem}: OOD {errors[0]} with it, {errors[1]} without"
            why = "the paper does not define it"
            return Finding("partly", f"{found.result}; {text}", str(seeds_of(own)), why)
    return found if found.word == "not" else found._replace(word="partly", why="not ablated yet")


def exists(name: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


# --- theory ---------------------------------------------------------------------------------------


def over_runs(say: Callable[[Cell], tuple[bool, str] | None], evidence: Evidence) -> Finding:
    """A statement that the study of the theory checks on every run that it analysed.

    ``say`` tells whether it holds and how it was measured, or None where it was not. Done: it holds
    everywhere, and every problem has a run.
    """
    texts, held, seeds = dict[tuple[str, str], str](), True, set[int]()
    for problem, preset in ((p, s) for p in PROBLEMS for s in (*MEASURED, "quick")):
        for cell in evidence.at("theory", problem, preset):  # a theorem holds for every operator
            if (said := say(cell)) is None:
                continue
            held = held and said[0]
            model = cell["model"]  # the largest preset of each is shown, all count
            texts.setdefault((problem, model), f"{problem} `{model}` ({preset}): {said[1]}")
            seeds.add(cell["seed"])
    if not texts:
        return Finding("not", "not measured", "0")
    text, count = "\n".join(texts.values()), str(len(seeds))
    if not held:
        return Finding("partly", f"FAILS somewhere:\n{text}", count, "it fails on a run")
    measured = {problem for problem, _ in texts}
    if missing := [problem for problem in PROBLEMS if problem not in measured]:
        return Finding("partly", text, count, f"not measured on {', '.join(missing)}")
    return Finding("done", text, count)


def bound(cell: Cell) -> tuple[bool, str]:
    count, failed, operator = cell["samples"], cell["violations"], cell["operator"]
    tried, steep = len(operator["steepest"]), operator["violations_with_steepest"]
    text = (
        f"on {count - failed} of {count} samples, with the largest L on {tried - steep} of {tried}"
    )
    if printed := cell["violations_as_printed"]:
        text += f"; as the paper prints it, without K_C before epsilon, on {count - printed}"
    return failed == steep == 0, text


def isometry(cell: Cell) -> tuple[bool, str]:
    largest = max(cell["terms"]["action"])
    return math.isfinite(largest), f"K_C at most {largest:.3g}"


def lipschitz(cell: Cell) -> tuple[bool, str]:
    steepest = max(cell["operator"]["steepest"])
    return math.isfinite(steepest), f"L at most {steepest:.3g} at canonical inputs"


def pull_back(cell: Cell) -> tuple[bool, str] | None:
    if (flow := _flow(cell)) is None:
        return None
    steepest = max(flow["pull"])
    return math.isfinite(steepest), f"at most {steepest:.3g} of a field's norm per period"


def _flow(cell: Cell) -> Cell | None:
    """The gradient flow of a cell's frames; cells that are older than it have none."""
    found: Cell | None = (cell.get("refinement") or {}).get("flow")
    return found


def projection(cell: Cell) -> tuple[bool, str] | None:
    if not (mean := cell.get("projection")):
        return None
    text = f"gap {mean['gap']:.3g}, of the projection {mean['gap_projected']:.3g}, eta "
    return mean["holds"] and not mean["violations"], text + f"{mean['eta']:.2g}"


def decay(cell: Cell) -> tuple[bool, str] | None:
    if (flow := _flow(cell)) is None:
        return None
    held = flow["rises"] == 0 and flow["imbalance"] <= BALANCED
    return held, f"the energy rises {flow['rises']} times, {balance(flow)}"


def corollary(cell: Cell) -> tuple[bool, str] | None:
    if not (paths := cell.get("refinement")):
        return None
    checked, bad = (sum(p[key] for p in paths.values()) for key in ("checked", "violations"))
    alpha = min(min(path["alpha"]) for path in paths.values())
    return checked > 0 and bad == 0, f"{checked - bad} of {checked} points, alpha {alpha:.2g}"


def approximation(evidence: Evidence) -> Finding:
    """Errors on fitted samples: done where every wider network has a smaller one."""
    texts, falls, seeds = [], True, set[int]()
    for problem in PROBLEMS:
        if not (cells := widths_of(evidence.cells("capacity", problem))):
            continue
        errors = fitted_errors(cells)
        falls = falls and all(a > b for a, b in pairwise(errors.values()))
        seeds |= {cell["seed"] for cell in cells}
        shown = ", ".join(f"{error:.3g} ({width})" for width, error in errors.items())
        texts.append(f"{problem}, error on fitted samples (width): {shown}")
    if not texts:
        return Finding("not", "not measured", "0")
    if not falls:
        return Finding("partly", "\n".join(texts), str(len(seeds)), "a wider one fits worse")
    return Finding("done", "\n".join(texts), str(len(seeds)))


def covering(evidence: Evidence) -> Finding:
    """Covering numbers of a family: averaging never raises one, and the lemma's bound holds."""
    texts, held = [], True
    for problem in PROBLEMS:
        for cell in (c for c in evidence.cells("capacity", problem) if "radii" in c):
            plain, averaged = cell["plain"], cell["averaged"]
            allowed = [lemma_bound(cell, key) for key in ("plain", "averaged")]
            fewer = all(a <= p for a, p in zip(averaged["numbers"], plain["numbers"], strict=True))
            held = held and not cell["expanded"] and (fewer or cell["stretch"] > 1)
            held = held and plain["gap"] <= allowed[0] and averaged["gap"] <= allowed[1]
            shown = dict.fromkeys(len(cell["radii"]) * i // 12 for i in (1, 2, 5))
            counts = ", ".join(
                f"{averaged['numbers'][i]} instead of {plain['numbers'][i]} "
                f"(radius {cell['radii'][i]:.2g})"
                for i in shown
            )
            texts.append(
                f"{problem}, {cell['members']} FNOs: averaged over the group, {counts} of them are "
                "enough to have one within the radius of each\n"
                f"largest generalisation gap {plain['gap']:.3g}, averaged {averaged['gap']:.3g}; "
                f"the lemma allows {allowed[0]:.3g} and {allowed[1]:.3g}"
            )
    if not texts:
        return Finding("not", "not measured")
    return Finding("done" if held else "partly", "\n".join(texts), why="" if held else "it fails")


# --- figures --------------------------------------------------------------------------------------

# The paper's sixteen figures, the drawing of ours that shows the same, and what makes its numbers.
FIGURES: tuple[tuple[str, str, str], ...] = (
    ("Geometric view: orbit, slice, quotient", "burgers1d-orbits", "bench burgers1d"),
    ("Pipeline", "burgers2d-canonical", "bench burgers2d"),
    ("OOD prediction, 2-D Burgers (main text)", "burgers2d-predictions", "bench burgers2d"),
    ("OOD prediction, shallow water (main text)", "shallow_water-predictions-h",
     "bench shallow_water"),
    ("OOD prediction, Navier-Stokes (main text)", "navier_stokes-predictions",
     "bench navier_stokes"),
    ("Landscape of J_TTA, 2-D Burgers", "burgers2d-landscape-x-y", "study landscape burgers2d"),
    ("TTA sensitivity, Navier-Stokes", "navier_stokes-tta",
     "study tta navier_stokes --models pace-cnn"),
    ("Canonicalization, 1-D Burgers", "burgers1d-canonical", "bench burgers1d"),
    ("OOD prediction, 1-D Burgers, four models", "burgers1d-predictions", "bench burgers1d"),
    ("Canonicalization, 2-D Burgers", "burgers2d-canonical", "bench burgers2d"),
    ("OOD prediction, 2-D Burgers, four models", "burgers2d-predictions", "bench burgers2d"),
    ("Canonicalization, shallow water", "shallow_water-canonical", "bench shallow_water"),
    ("OOD prediction, shallow water, four models", "shallow_water-predictions-h",
     "bench shallow_water"),
    ("Canonicalization, Navier-Stokes", "navier_stokes-canonical", "bench navier_stokes"),
    ("OOD prediction, Navier-Stokes, four models", "navier_stokes-predictions",
     "bench navier_stokes"),
    ("TTA sensitivity, shallow water", "shallow_water-tta",
     "study tta shallow_water --models pace-cnn"),
)  # fmt: skip


SHOWN = {  # what differs, by the number of the figure
    1: "the paper's is a drawing; ours has real fields",
    2: "the paper's is a drawing, also of a Fourier layer; ours are the stages with real fields",
    6: "one period is drawn, with one basin in it, which every period repeats (paper: several)",
    **dict.fromkeys(
        (8, 10, 12, 14),
        "frames of `pace`, as numbers beside the true ones (paper: latent panels of the residual)",
    ),
}
COMPARED = {  # models that have to be drawn, likewise
    **dict.fromkeys((3, 4, 5, 6, 7, 16), ("pace-cnn",)),
    **dict.fromkeys((9, 11, 13, 15), ("fno", "fno-aug", "gfno", "pace-cnn")),
}


def figure(name: str, models: tuple[str, ...], evidence: Evidence) -> Finding:
    """A figure of the gallery: done from the preset of the tables, with all the paper's models."""
    if not (made := evidence.gallery.get(name)):
        return Finding("not", f"`{name}` is not drawn: the models or samples behind it are missing")
    text = f"[{name}](figures/paper/{made['file']}), preset {made['preset']}"
    if made["preset"] not in MEASURED:
        return Finding("partly", text, why="from a smaller preset than the tables")
    if lacking := [f"`{model}`" for model in models if model not in made.get("models", ())]:
        return Finding("partly", text, why=f"without {', '.join(lacking)}")
    return Finding("done", text)


# --- the page -------------------------------------------------------------------------------------

TITLES = {
    "fno": "FNO", "fno-aug": "FNO+Aug", "pace-cnn": "PACE-FNO (one-shot)",
    "pace-cnn-tta": "PACE-FNO + TTA", "gfno": "GFNO",
}  # fmt: skip
OWN = "viscosity, horizon, random law and OOD ranges are ours, the paper gives none"
OVER_TIME = "snapshots are channels (paper: an operator over space and time)"
LONG = "pace-products-long"
NOTES = {
    LONG: f"`{LONG}` has an analytic frame, more updates and products of channels",
    "pace-analytic": "`pace-analytic` is the plain FNO with an analytic frame",
    "gfno": "as many weights as the FNO (paper: its width); a channel that changes its sign or "
    "turns under a symmetry does so here (paper: scalars, as it seems)",
    "pace-cnn": "the encoder is our reading of one sentence",
    "pace-cnn-tta": "the best frame on the way is kept; the residual is wrapped (1 - cos) on every "
    "problem; except on shallow water its three trainings are others than those of the one-shot "
    "row (paper: the same), the ablation has both of the same",
}
ROLLED = {  # what the paper calls the rows of trajectories
    "fno": "FNO (AR), 20 snapshots", "fno-aug": "FNO (AR), 20 snapshots, augmented",
    "pace-1": "PACE-FNO (AR), 1 snapshot", "pace-20": "PACE-FNO (AR), 20 snapshots",
}  # fmt: skip
SPLIT = {  # with an exact linear part
    "fno": ("fno-1-split",), "fno-aug": ("fno-aug-1-split",), "pace-1": ("pace-1-split",),
    "pace-20": ("pace-20-split", "pace-20-1-split"),
}  # fmt: skip


def in_paper(model: str) -> str:
    """The row of the paper's table of trajectories that a row of ours stands beside."""
    return next((kind for kind, ours in SPLIT.items() if model in ours), model)


UNDERTRAINED = ("shallow_water", "navier_stokes", "navier_stokes_literal")  # at `standard`
CORES = "two cores instead of a GPU; the paper's evaluation batches"


def sections() -> dict[str, list[Claim]]:
    """Every claim by the section of the page."""
    return {
        "text": list(_text()),
        "tables": list(_tables()),
        "ablation": list(_ablation()),
        "times": list(_times()),
        "method": list(METHOD),
        "settings": list(_settings()),
        "theory": list(THEORY),
        "figures": [
            Claim(
                f"{i}. {what}",
                f"pacefno {command}",
                partial(figure, name, COMPARED.get(i, ())),
                SHOWN.get(i, ""),
            )
            for i, (what, name, command) in enumerate(FIGURES, start=1)
        ],
    }


def _text() -> Iterator[Claim]:
    for problem in (*PROBLEMS, "navier_stokes_literal"):
        models: tuple[str, ...] = ("pace-cnn",)
        if problem.startswith("navier_stokes"):
            models += ("pace-analytic",)
        what = f"{benchmark_named(problem).title}: FNO+Aug's OOD error over that of one-shot PACE"
        command = f"pacefno bench {problem} --models fno-aug,{','.join(models)}"
        yield Claim(what, command, partial(factor, problem, models), OWN)


def _tables() -> Iterator[Claim]:
    for problem in (*PROBLEMS, "navier_stokes_literal"):
        for model, title in TITLES.items():
            models: tuple[str, ...] = (model,)
            if model == "pace-cnn" and problem in UNDERTRAINED:
                models = (model, "pace-analytic", LONG)
            notes = [OWN, *(NOTES[name] for name in models if name in NOTES)]
            notes.append(_settings_of_standard(problem))
            what = f"{benchmark_named(problem).title}: {title}"
            command = f"pacefno bench {problem} --models {','.join(models)}"
            yield Claim(what, command, partial(table_row, problem, models), "\n".join(notes))
    for problem in ("kdv_easy", "kuramoto_sivashinsky"):
        for model in benchmark_named(problem).paper:
            models = (model, *SPLIT[model])
            what = f"{benchmark_named(problem).title}: {ROLLED[model]}"
            command = f"pacefno bench {problem} --models {','.join(models)}"
            yield Claim(
                what, command, partial(rollout_row, problem, models), _budget(problem, models)
            )


def _budget(problem: str, models: Sequence[str]) -> str:
    """How much less than in the paper models of trajectories are trained, and what they know."""
    benchmark, count = benchmark_named(problem), partial(updates, problem)
    ours = " and ".join(dict.fromkeys(f"{count(model, 'standard'):,}" for model in models))
    note = f"`standard` has {ours} updates, LPSDA's code {count(models[0], 'paper'):,}"
    small, large = (_network(problem, models[0], preset) for preset in ("standard", "paper"))
    note += f"\n{models[0]} at `standard`: {small} (paper: {large})"
    for split in (model for model in models if benchmark.rows[model].split):
        network = _network(problem, split, "standard")
        note += f"\n`{split}` ({network}) knows the linear part of the equation"
        if benchmark.split["operator"]["keeps_norm"]:
            note += ", and that the norm is kept"
        if benchmark.rows[models[0]].history != 1:
            note += ", and makes steps of one snapshot"
        if trained := benchmark.rows[split].trained_as:
            note += f" with the weights of `{trained}`, all twenty in one frame"
    return note


def _network(problem: str, model: str, preset: str) -> str:
    modes, width, layers, _ = sizes(problem, model, preset)
    return f"{modes} modes, width {width}, {layers} layers"


def _ablation() -> Iterator[Claim]:
    for problem in PROBLEMS:
        for row in PAPERS:
            note = "" if row.name in ABLATION[problem] else "not in the paper's table"
            if (problem, row.name) == ("shallow_water", "paper-no-full-lie"):
                note = "the paper's is numerically unstable (2.1e4 ± 2.3e4), ours is not"
            what = f"{benchmark_named(problem).title}: {row.title.partition(': ')[2]}"
            command = f"pacefno study ablation {problem} --rows {row.name}"
            yield Claim(what, command, partial(ablation_row, problem, row.name), note)


def _times() -> Iterator[Claim]:
    for problem in PROBLEMS:
        name, command = (
            benchmark_named(problem).title,
            f"python benchmarks/runtime.py --problems {problem}",
        )
        notes = "\n".join([CORES, _settings_of_standard(problem)])
        for column, title in enumerate(("Train (s/ep.)", "OOD Inf. (s)")):
            yield Claim(f"{name}: {title}", command, partial(times, problem, column), notes)
        yield Claim(
            f"{name}: seconds of the ablation", command, partial(ablation_times, problem), notes
        )


def _settings_of_standard(problem: str) -> str:
    """What of ``standard`` is not as in the paper, as one note; with the sizes of the network."""
    settings = changed(benchmark_named(problem), "standard")
    texts = [f"{one.name}: {one.ours} (paper: {one.paper})" for one in settings]
    over = f"; {OVER_TIME}" if problem.startswith("navier_stokes") else ""
    return f"`standard`, {benchmark_named(problem).title}: {'; '.join(texts)}{over}"


METHOD = (
    Claim("Algorithm 1, lines 1-3: moved pairs", "pacefno train burgers1d --model pace-cnn",
          partial(code, "train.batches.PairData._moved groups.Group.act",
                  "tests/train/test_training_loop.py")),
    Claim("Algorithm 1, line 4: estimate, and Gamma_B", "",
          partial(code, "frames.CNNFrame fields.FieldType.at", "tests/frames/test_frames.py"),
          "the encoder is our reading of one sentence; Gamma_B needs no code of its own: an "
          "element acts on a field that knows the times of its snapshots, and a boost has moved "
          "later ones further"),
    Claim("Algorithm 1, lines 5-6: pull back, operate, push out (Eq. 1)", "",
          partial(code, "pace.PACE.at pace.PACE.predict", "tests/test_pace.py")),
    Claim("Algorithm 1, line 7: joint update", "",
          partial(code, "train.loop.Trainer._step losses.objective",
                  "tests/train/test_training_loop.py")),
    Claim("Algorithm 1, one-shot", "pacefno evaluate RUN",
          partial(code, "inference.predict", "tests/test_inference.py")),
    Claim("Algorithm 1, optional TTA (Eq. 2)", "pacefno evaluate RUN --model pace-cnn-tta",
          partial(code, "frames.AdamRefiner frames.base.SelfConsistency",
                  "tests/frames/test_refine.py"),
          "cosine form on every problem (paper: squares for Burgers and shallow water), the same "
          "for small residuals; the best frame on the way is kept; Adam as in its table, with "
          "decay on shallow water (its text: AdamW)"),
    Claim("Algorithm 1, last line: coordinates modulo the period", "",
          partial(code, "groups.Group.wrap", "tests/groups/test_groups.py")),
    Claim("Kinematic reduction by means", "",
          partial(code, "groups.Group.kinematic", "tests/groups/test_groups.py")),
    Claim("Spectral action: shift theorem, three shears", "",
          partial(code, "groups.Translation groups._rotation", "tests/groups/test_rotation.py")),
    Claim("Sources of the generators (table)", "",
          partial(code, "frames.KinematicFrame frames.CNNFrame", "tests/frames/test_frames.py"),
          "as in the paper; it has two signs of the terminal shift, and ours is the one that "
          "solutions have"),
    Claim("L_PDE: relative L2 and H1", "pacefno train burgers2d --set loss.h1=5",
          partial(code, "metrics.relative_l2 metrics.relative_h1", "tests/test_losses.py")),
    Claim("L_equiv", "pacefno train burgers2d --set loss.equivariance=1",
          partial(code, "losses.equivariance_loss", "tests/test_losses.py"),
          "spatial coordinates: velocities are measured, not learned"),
    Claim("L_anchor and its decay",
          "pacefno train navier_stokes --set loss.anchor=20 --set loss.anchor_decay=0.85",
          partial(code, "losses.anchor_loss train.schedule.anchor_weight", "tests/test_losses.py"),
          "spatial coordinates, to the nearest image (paper: all, plain difference); constant on "
          "2-D Burgers and shallow water, as its table says (its text: decayed)"),
    Claim("No weight decay for the estimator", "",
          partial(code, "train.loop.Trainer._parameter_groups",
                  "tests/train/test_training_loop.py")),
    Claim("EMA and schedule of the H1 weight",
          "pacefno train burgers1d --set loss.h1=1 --set loss.h1_schedule=ema",
          partial(guessed, "train.schedule.h1_weight", "tests/train/test_training_loop.py"),
          "a guess: weight 1 times the average of L2/H1; on shallow water a ramp over a fifth"),
    Claim("Channel weights and invariant height", "pacefno train shallow_water",
          partial(guessed, "losses.objective", "tests/test_losses.py"), "a guess: equal weights"),
    Claim("Gradient balancing of the loss weights",
          "pacefno study ablation burgers2d --rows cnn-loss-paper,cnn-loss-balanced",
          partial(ablated, "cnn-loss-balanced", "train.objective.Loss.ratios",
                  "tests/train/test_training_loop.py"),
          "a guess, as GradNorm's idea is usually read: gradients on the frame as large as the "
          "error's; off in every preset, because the paper's table has fixed weights"),
)  # fmt: skip


def _settings() -> Iterator[Claim]:
    for problem in PROBLEMS:
        title = benchmark_named(problem).title
        train = f"pacefno bench {problem} --preset paper --models pace-cnn"
        yield Claim(f"{title}: core hyperparameters", train, partial(core, problem))
        note = {
            "burgers1d": "H1 weight and the law of its average are guesses",
            "shallow_water": "H1 weight 1, its ramp and equal channel weights are guesses",
        }.get(problem, "")
        yield Claim(f"{title}: PACE losses", train, partial(losses, problem), note)
        command = f"pacefno bench {problem} --models pace-cnn-tta"
        yield Claim(f"{title}: TTA steps and rate", command, partial(adaptation, problem))
        command, what = f"pacefno study tta {problem} --models pace-cnn", "TTA over steps and rates"
        theirs = {
            "navier_stokes": "the paper finds the error stable over steps and rates",
            "shallow_water": "the paper finds the error nearly flat",
        }.get(problem, "not in the paper")
        notes = f"40 of 200 test samples\n{theirs}"
        yield Claim(f"{title}: {what}", command, partial(sensitivity, problem), notes)
    for problem in ("kdv_easy", "kuramoto_sivashinsky"):
        what = f"{benchmark_named(problem).title}: architectures"
        command = f"pacefno bench {problem} --preset paper"
        yield Claim(what, command, partial(architectures, problem), "frames are analytic")


CAPACITY = "pacefno study capacity burgers1d --widths 4,8,16,32"
TAKE_APART = "pacefno study theory RUN"
THEORY = (
    Claim("Theorem 3.1, error decomposition", TAKE_APART, partial(over_runs, bound),
          "of each sample instead of suprema, with L along its own misalignment, and on some with "
          "the largest L at the canonical input; K_C stands before epsilon too: the paper's proof "
          "leaves it out, which is right for isometries, and a momentum boost is none"),
    Claim("Theorem 3.2, complexity reduction", TAKE_APART, partial(over_runs, projection),
          "average over 16 drawn elements; boosts are no compact group, so the average is "
          "equivariant only as far as they are sampled; where an action stretches (shallow water), "
          "so does eta"),
    Claim("Induced terminal element", "",
          partial(code, "groups.Group.act fields.FieldType.at", "tests/pde/test_equations.py"),
          "solving a moved state is moving the solution, for every equation and group"),
    Claim("Lemma, compactness and orbit saturation", "",
          partial(code, "groups.Group.sample", "tests/groups/test_groups.py"),
          "an assumption: OOD elements are drawn from closed and bounded ranges"),
    Claim("Lemma, isometry and Lipschitz action", TAKE_APART, partial(over_runs, isometry)),
    Claim("Lemma, Lipschitz continuity of the operator", TAKE_APART, partial(over_runs, lipschitz),
          "an assumption on a neighbourhood: measured at points, by power iteration"),
    Claim("Lemma, Lipschitz continuity of the inverse action", TAKE_APART,
          partial(over_runs, pull_back), "between frames up to 0.05 periods apart"),
    Claim("Lemma and corollary, quadratic growth", TAKE_APART, partial(over_runs, corollary),
          "around the minimum that is found"),
    Claim("Theorem, monotone energy decay", TAKE_APART, partial(over_runs, decay),
          "to a finite time, from frames up to 0.05 periods off"),
    Claim("Theorem, universal approximation", CAPACITY, approximation,
          "a statement of existence: what is measured is that errors on fitted samples fall with "
          "the width"),
    Claim("Lemma, covering numbers", CAPACITY, covering,
          "of a family of trained FNOs, where they can be counted, instead of the whole class; "
          "its samples are those that the FNOs were trained on (the lemma: a class chosen before); "
          "for so small a family the least bound is at radius 0"),
)  # fmt: skip


def judged(folders: Sequence[Path]) -> dict[str, list[tuple[Claim, Finding]]]:
    """Every claim with what is there of it."""
    evidence = Evidence(tuple(folders))
    return {
        name: [(claim, claim.judge(evidence)) for claim in claims]
        for name, claims in sections().items()
    }


COLUMNS = ("the paper's, and the command", "result", "differs", "status")


def lines_of(found: Sequence[tuple[Claim, Finding]]) -> list[list[str]]:
    """The rows of one section, as text; a status that is not done says what is missing."""
    return [
        [
            f"{claim.what}\n`{claim.command}`" if claim.command else claim.what,
            result_and_seeds(finding),
            claim.differs,
            f"{finding.word}: {finding.why}" if finding.why else finding.word,
        ]
        for claim, finding in found
    ]


def result_and_seeds(finding: Finding) -> str:
    """Each line of a result with its number of seeds, or all of them with one number."""

    def words(count: str) -> str:
        return "" if count in ("", "0") else f" ({count} seed{'s' * (count != '1')})"

    lines, counts = finding.result.splitlines(), finding.seeds.splitlines()
    if len(counts) == len(lines):
        return "\n".join(line + words(count) for line, count in zip(lines, counts, strict=True))
    return finding.result + words(finding.seeds)


def tally(found: Sequence[tuple[Claim, Finding]]) -> str:
    """How many lines of a section are done, partly done and not."""
    counts = Counter(finding.word for _, finding in found)
    return ", ".join(f"{counts[word]} {word}" for word in ("done", "partly", "not"))
