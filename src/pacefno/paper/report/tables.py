"""Tables from one definition of their columns: Markdown, LaTeX, the terminal and the page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, final

from rich.table import Table as TerminalTable
from rich.text import Text

from pacefno.errors import UsageError
from pacefno.paper import claims
from pacefno.paper.bench import Result, ResultsError, runtime_file
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.claims.evidence import Evidence
from pacefno.paper.claims.rows import in_paper
from pacefno.paper.report.collect import Line, Table, Tables, collect, results_folder
from pacefno.paper.studies import ablation
from pacefno.paper.studies.base import Table as StudyTable
from pacefno.paper.studies.base import study_cells
from pacefno.paper.style import Statistic, statistic
from pacefno.registry import unknown

SUMMARY_ROWS = {  # row of a benchmark -> its title for readers who do not know our names
    "fno": "plain FNO",
    "fno-aug": "FNO trained on moved inputs",
    "fno-nogrid-centred": "FNO without position channels, mean removed",
    "gfno": "group FNO",
    "pace": "PACE around an FNO",
    "pace-gfno": "PACE around a group FNO",
}

SYMMETRY_ROWS = {
    "pace": "PACE around an FNO",
    "pace-symmetrised": "averaged over the symmetry",
    "pace-symmetrised-long": "averaged, three times the epochs",
    "pace-gfno-short": "group FNO, half the epochs",
    "pace-gfno": "group FNO",
}

BUDGET_ROWS = {  # row -> its title, and the row of the paper that it stands beside
    "fno": ("plain FNO", "fno"),
    "pace-analytic": ("the same in PACE", "pace"),
    "fno-aug": ("FNO trained on moved inputs", "fno-aug"),
}


NOT_MEASURED = "Not measured yet.\n"

# --- columns --------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Cell:
    """A mean with its deviation, or plain text; every format writes it in its own way."""

    text: str = ""
    value: Statistic | None = None
    bold: bool = False

    @property
    def plain(self) -> str:
        return self.text if self.value is None else str(self.value)


@final
@dataclass(frozen=True)
class Column:
    """A column: its title, what is in it, and the number's key in a result."""

    title: str
    kind: Literal["name", "error", "paper", "parameters", "seconds", "seeds"]
    key: str = ""  # of the paper's numbers: how they are written

    @property
    def meaning(self) -> str:
        return MEANINGS.get(self.title, "what the paper reports" if self.kind == "paper" else "")

    @property
    def is_cost(self) -> bool:
        return self.kind in ("parameters", "seconds", "seeds")

    def cell(self, line: Line) -> Cell:
        """What stands in this column for a line; a dash where nothing was measured."""
        if self.kind == "name":
            return Cell(line.title)
        if self.kind == "paper":
            return Cell(self.key.format(*line.paper) if line.paper else "")
        if self.kind == "seeds":
            return Cell(str(len(set(line.seeds))))
        if self.kind == "parameters":
            counts = {int(r[self.key]) for r in line.results if r.get(self.key) is not None}
            return Cell(" / ".join(f"{count:,}" for count in sorted(counts)) or "–")
        value = line.of(self.key)
        if value is None or self.kind == "error":
            return Cell("–", value)
        return Cell(f"{value.mean:.0f}" if value.mean >= 10 else f"{value.mean:.2f}")


MODEL = Column("model", "name")
EQUIVARIANCE = Column("equivariance", "error", "equivariance_error")
PARAMETERS = Column("parameters", "parameters", "parameters")
TRAINING = Column("training, s", "seconds", "train_seconds")
SEEDS = Column("seeds", "seeds")
PAIR_COLUMNS = (
    MODEL,
    Column("OOD", "error", "ood_error"),
    Column("paper OOD", "paper", "{1:.4f}"),
    Column("ID", "error", "id_error"),
    Column("paper ID", "paper", "{0:.4f}"),
    Column("ID, fine grid", "error", "id_error_fine"),
    Column("OOD, canonical", "error", "ood_error_canonical"),
    Column("OOD, re-solved", "error", "ood_error_resolved"),
    EQUIVARIANCE,
    PARAMETERS,
    Column("epoch, s", "seconds", "epoch_seconds"),
    Column("OOD pass, s", "seconds", "pass_seconds"),
    SEEDS,
)
ROLLOUT_COLUMNS = (
    MODEL,
    Column("NMSE", "error", "nmse"),
    Column("per snapshot", "error", "nmse_frame"),
    Column("OOD NMSE", "error", "ood_nmse"),
    Column("OOD, canonical", "error", "ood_nmse_canonical"),
    EQUIVARIANCE,
    Column("paper NMSE", "paper", "{0:.4f} ± {1:.4f}"),
    PARAMETERS,
    TRAINING,
    SEEDS,
)
MEANINGS = {
    "OOD": "relative L2 error on samples moved beyond the training range, on the finer grid; "
    "lowest in bold, the true frame aside",
    "ID": "the samples before they were moved, on the training grid",
    "ID, fine grid": "the samples before they were moved, on the OOD grid",
    "OOD, canonical": "the OOD error after the true motion is removed from prediction and target: "
    "compare it with the error of the samples before they were moved",
    "OOD, re-solved": "the OOD error against the moved initial state solved anew: the physics, "
    "where the group is only nearly a symmetry",
    "NMSE": "LPSDA's squared relative error of rollouts, summed over snapshots",
    "per snapshot": "NMSE divided by the number of snapshots",
    "OOD NMSE": "NMSE on trajectories moved beyond the augmentation",
    "equivariance": "how far moving the input is from moving the prediction; 0 for a model that "
    "follows its input",
    "parameters": "trainable numbers",
    "training, s": "seconds of training, mean over seeds",
    "epoch, s": "seconds of an epoch of training on a quiet machine (benchmarks/runtime.py)",
    "OOD pass, s": "seconds to predict the OOD test set there, in the paper's batches",
    "seeds": "trainings behind the line",
}


def columns_of(table: Table) -> list[Column]:
    """The columns of a table, without those that nothing was measured for."""
    columns = ROLLOUT_COLUMNS if table.of_rollouts else PAIR_COLUMNS
    known = {key for r in table.results for key, value in r.items() if value is not None}
    if table.benchmark.paper:
        known |= {column.key for column in columns if column.kind == "paper"}
    always = ("name", "parameters", "seeds")
    return [column for column in columns if column.kind in always or column.key in known]


def cells_of(table: Table) -> list[list[Cell]]:
    """The cells of each line, in the order of the columns; the lowest OOD error is bold."""
    columns, best = columns_of(table), table.best
    return [
        [
            replace(column.cell(line), bold=column.title == "OOD" and line.model in best)
            for column in columns
        ]
        for line in table.lines
    ]


def caption(table: Table) -> str:
    """What a table shows, without numbers that it already holds."""
    seeds = ", ".join(map(str, table.seeds))
    several = f"mean ± standard deviation over the seeds {seeds}"
    over = several if len(table.seeds) > 1 else f"seed {seeds}"
    benchmark = table.benchmark
    what = f"{benchmark.title}, preset {table.preset}:"
    if not table.of_rollouts:
        mean = ", mean over channels" if benchmark.task.per_channel else ""
        return f"{what} relative L2 errors{mean}, {over}."
    rescaled = " and rescaled" if "scale" in benchmark.task.group.coordinates else ""
    return (
        f"{what} LPSDA's NMSE of rollouts over 100 snapshots, a sum over them (per snapshot: its "
        f"mean), {over}. OOD: shifted, and boosted{rescaled} beyond the augmentation; canonical: "
        "measured without that motion."
    )


# --- terminal -------------------------------------------------------------------------------------


def terminal_table(benchmark: str, results: Path, preset: str | None = None) -> TerminalTable:
    """The table of a benchmark for the terminal; costs are left to the wider formats."""
    tables = collect([results], preset)
    if benchmark not in tables:
        raise UsageError(f"{results} has no results of {benchmark}: it has {', '.join(tables)}")
    table = tables[benchmark]
    shown = [i for i, column in enumerate(columns_of(table)) if not column.is_cost]
    grid = TerminalTable(title=caption(table), title_justify="left")
    for i in shown:
        justify: Literal["left", "right"] = "right" if i else "left"
        grid.add_column(columns_of(table)[i].title, justify=justify, no_wrap=True)
    for cells in cells_of(table):
        chosen = [cells[i] for i in shown]
        grid.add_row(*(Text(c.plain, style="bold" if c.bold else "") for c in chosen))
    return grid


def terminal_claims(folders: Sequence[Path]) -> list[TerminalTable]:
    """Every claim of the paper with what is there of it, a table for each section."""
    grids = []
    for name, found in claims.judged([results_folder(folder) for folder in folders]).items():
        title = f"The paper's {name}: {claims.tally(found)}"
        grid = TerminalTable(*claims.COLUMNS, title=title, title_justify="left", show_lines=True)
        for line in claims.lines_of(found):
            grid.add_row(*map(Text, line))
        grids.append(grid)
    return grids


# --- Markdown -------------------------------------------------------------------------------------


def markdown_table(table: Table) -> str:
    """The table, what it shows, and (for pairs) where settings differ from the paper's."""
    rows = [[_markdown_cell(cell) for cell in cells] for cells in cells_of(table)]
    text = f"{_aligned([c.title for c in columns_of(table)], rows)}\n\n{caption(table)}"
    settings = "; ".join(f"{s.name}: {s.ours} (paper: {s.paper})" for s in table.differences)
    if table.of_rollouts or not settings:
        return f"{text}\n"
    return f"{text} Where settings differ from the paper: {settings}.\n"


def markdown_summary(tables: Tables) -> str:
    """The OOD error of the main rows on the paper's benchmarks of pairs, beside its PACE."""
    papers = (table for table in tables.values() if table.benchmark.in_tables)
    of_pairs = [table for table in papers if not table.of_rollouts]
    shown = [name for name in SUMMARY_ROWS if any(table.line(name) for table in of_pairs)]
    rows = []
    for table in of_pairs:
        paper = table.benchmark.paper.get("pace")
        main = replace(table, lines=tuple(line for line in table.lines if line.model in shown))
        cells = [_summary_cell(main, name) for name in shown]
        ends = [f"{paper[1]:.4f}" if paper else ""]
        preset = "" if table.preset == "standard" else f", preset {table.preset}"
        rows.append([f"{table.benchmark.title}{preset}", *cells, *ends])
    heads = [SUMMARY_ROWS[name] for name in shown]
    return _aligned(["moved inputs of", *heads, "paper: PACE"], rows) + "\n"


def markdown_symmetries(tables: Tables) -> str:
    """What a finite symmetry gains within PACE, and what it costs: ID errors and times of training.

    In brackets what the error is of PACE's without, and how many times as long the training takes.
    """
    of_pairs = [table for table in tables.values() if not table.of_rollouts]
    shown = [name for name in SYMMETRY_ROWS if any(table.line(name) for table in of_pairs)]
    rows = [
        [table.benchmark.title, *(_symmetry_cell(table, name) for name in shown)]
        for table in of_pairs
        if any(table.line(name) for name in shown if name != "pace")
    ]
    return _aligned(["problem", *(SYMMETRY_ROWS[name] for name in shown)], rows) + "\n"


def _symmetry_cell(table: Table, name: str) -> str:
    line, plain = table.line(name), table.line("pace")
    error = line.of("id_error") if line else None
    base = plain.of("id_error") if plain else None
    if line is None or plain is None or error is None or base is None:
        return "–"
    if line is plain:
        return f"{error.mean:.4f}"
    notes = [f"{error.mean / base.mean:.2f}"]
    own, usual = _training_seconds(line), _training_seconds(plain)
    if own and usual:
        notes.append(f"{own / usual:.1f} × time")
    if (seeds := len(set(line.seeds))) != len(table.seeds):
        notes.append(f"{seeds} seed{'s' * (seeds > 1)}")
    return f"{error.mean:.4f} ({', '.join(notes)})"


def _training_seconds(line: Line) -> float | None:
    """Of a training on a quiet machine, where that was measured."""
    first = line.results[0]
    seconds, epochs = first.get("epoch_seconds"), first.get("epochs")
    return None if seconds is None or epochs is None else float(seconds * epochs)


def markdown_budget(folders: Sequence[Path]) -> str:
    """What the paper's number of updates does: errors at `standard`, at `long` and in the paper.

    Those of `standard` are of the seeds that `long` has.
    """
    rows = []
    for usual, longer in _standard_and_long(folders):
        for model, (title, beside) in BUDGET_ROWS.items():
            line, before = longer.line(model), usual.line(model) if usual else None
            paper = longer.benchmark.paper.get(beside)
            if longer.of_rollouts or line is None or before is None or paper is None:
                continue
            same = tuple(one for one in before.results if one["seed"] in line.seeds)
            cells = []
            for key, theirs in zip(("id_error", "ood_error"), paper, strict=True):
                ours = [statistic(results, key) for results in (same, line.results)]
                cells += [*("–" if one is None else str(one) for one in ours), f"{theirs:.4f}"]
            rows.append([f"{longer.benchmark.title}: {title}", *cells])
    heads = [f"{kind}, {when}" for kind in ("ID", "OOD") for when in ("standard", "long", "paper")]
    return _aligned(["", *heads], rows) + "\n" if rows else NOT_MEASURED


def markdown_rollout_budget(folders: Sequence[Path]) -> str:
    """What the paper's number of updates does to rollouts: NMSEs, over all seeds of each preset."""
    rows = []
    for usual, longer in _standard_and_long(folders):
        for line in longer.lines if longer.of_rollouts else ():
            before = usual.line(line.model) if usual else None
            paper = longer.benchmark.paper.get(in_paper(line.model))
            errors = [before and before.of("nmse"), line.of("nmse")]
            cells = ["–" if one is None else str(one) for one in errors]
            cells += [f"{paper[0]:.4f}" if paper else "–"]
            cells += [str(line.of("ood_nmse_canonical") or "–")]
            seeds = " / ".join(str(len(set(one.seeds))) if one else "0" for one in (before, line))
            rows.append([f"{longer.benchmark.title}: {line.title}", *cells, seeds])
    heads = ["NMSE, standard", "NMSE, long", "NMSE, paper", "OOD, canonical, long", "seeds"]
    return _aligned(["", *heads], rows) + "\n" if rows else NOT_MEASURED


def _standard_and_long(folders: Sequence[Path]) -> Iterator[tuple[Table | None, Table]]:
    """The tables of each benchmark that was trained with `long`, at `standard` and at `long`."""
    try:
        usual, longer = (collect(folders, preset) for preset in ("standard", "long"))
    except ResultsError:
        return
    for name, table in longer.items():
        yield usual.get(name), table


def markdown_claims(section: str, folders: Sequence[Path]) -> str:
    """One section of the paper's claims; "summary" counts those of every section."""
    found = claims.judged(folders)
    if section == "summary":
        rows = [[f"[{name}](#{name})", claims.tally(own)] for name, own in found.items()]
        return _plain_table(["section", "lines"], rows)
    if section == "gallery":
        gallery = Evidence(tuple(folders)).gallery.values()
        shown = [f"![{one['caption']}](figures/paper/{one['file']})\n\n" for one in gallery]
        captions = [f"*{one['caption']} Preset {one['preset']}.*\n" for one in gallery]
        return "\n".join(map("".join, zip(shown, captions, strict=True))) or "None drawn yet.\n"
    if section not in found:
        known = ["summary", "gallery", *found]
        raise UsageError(unknown("section of the paper's claims", section, known))
    lines = claims.lines_of(found[section])
    numbers = _shared_notes([differs for *_, differs, _ in lines])
    rows = [
        [*line, _by_number(differs, numbers), re.sub(r"^\w+", r"**\g<0>**", status)]
        for *line, differs, status in lines
    ]
    notes = "".join(f"{number}. {note}\n" for note, number in numbers.items())
    table = _plain_table(claims.COLUMNS, rows)
    return f"{table}\nWhat differs, by number:\n\n{notes}" if notes else table


def _shared_notes(cells: Sequence[str]) -> dict[str, int]:
    """The notes that more than one cell has, a line each there, numbered as they occur."""
    counts = Counter(note for cell in cells for note in cell.splitlines())
    return {note: i for i, note in enumerate((n for n, k in counts.items() if k > 1), start=1)}


def _by_number(cell: str, numbers: dict[str, int]) -> str:
    """A cell of notes in which those that are written below the table stand as numbers."""
    notes = cell.splitlines()
    shared = ", ".join(str(numbers[note]) for note in notes if note in numbers)
    return "\n".join(filter(None, [shared, *(note for note in notes if note not in numbers)]))


def _plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of sentences, whose columns are not aligned in the source."""
    cells = [[cell.replace("|", r"\|").replace("\n", "<br>") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def ablation_table(folders: Sequence[Path], benchmark: Benchmark) -> StudyTable | None:
    """The table of an ablation at the largest preset that has one."""
    for preset in ("paper", "long", "standard", "quick"):
        if cells := study_cells("ablation", folders, benchmark, preset):
            timed = {
                row["model"]: row
                for folder in folders
                for row in runtime_file(folder).read()
                if (row["problem"], row["preset"]) == (benchmark.name, preset)
            }
            table = ablation.errors_table(
                benchmark, [_quiet_seconds(cell, timed) for cell in cells]
            )
            seconds = "Seconds where `benchmarks/runtime.py` measured them on a quiet machine"
            return table._replace(title=f"{table.title}, preset {preset}. {seconds}")
    return None


# The row of the tables that predicts as a row of the ablation does; the paper's rows are timed.
PREDICTS_AS = {"full": "pace-tta", "one-shot": "pace", "frame-oracle": "pace-oracle"}


def _quiet_seconds(cell: Result, timed: Mapping[str, Result]) -> Result:
    """A cell with seconds of a quiet machine, or none: its own training ran beside other work.

    ``timed`` has what was measured there of each row of the tables and of the paper's ablation.
    """
    name: str = cell["row"]
    trained = timed.get(name) or timed.get(cell["model"], {})
    predicts = timed.get(PREDICTS_AS.get(name, name), {})
    plain_loss = "loss" not in cell["row"]  # a training with other loss terms takes another time
    return cell | {
        "epoch_seconds": trained.get("epoch_seconds") if plain_loss else None,
        "ood_seconds": predicts.get("pass_seconds"),
    }


def markdown_of(table: StudyTable) -> str:
    """The table of a study."""
    return f"{_aligned(table.columns, table.rows)}\n\n{table.title}.\n"


def _summary_cell(table: Table, model: str) -> str:
    line = table.line(model)
    value = None if line is None else line.of("ood_error")
    return "" if value is None else _markdown_cell(Cell(value=value, bold=model in table.best))


def _markdown_cell(cell: Cell) -> str:
    text = cell.plain.replace("|", r"\|")
    return f"**{text}**" if cell.bold else text


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in aligned columns: a change of one number changes one line of the document."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        numbers = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        return f"| {' | '.join([row[0].ljust(widths[0]), *numbers])} |"

    dashes = ["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]
    return "\n".join([line(head), f"|{'|'.join(dashes)}|", *map(line, rows)])


# --- LaTeX ----------------------------------------------------------------------------------------

SPECIAL = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"–": "--", "±": r"$\pm$", "→": r"$\rightarrow$", "×": r"$\times$"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
LATEX = r"""% needs \usepackage{booktabs} and \usepackage{graphicx}
\begin{table}[htbp]
\centering
\caption{CAPTION}
\label{tab:LABEL}
\resizebox{\textwidth}{!}{%
\begin{tabular}{COLUMNS}
\toprule
HEAD \\
\midrule
ROWS
\bottomrule
\end{tabular}}
\end{table}
"""


def latex_table(table: Table) -> str:
    """A booktabs table in a float, ready for ``\\input``; of the costs, the parameters."""
    columns = columns_of(table)
    chosen = [i for i, c in enumerate(columns) if not c.is_cost or c.kind == "parameters"]
    rows = [[_latex_cell(cells[i]) for i in chosen] for cells in cells_of(table)]
    head = [columns[i].title for i in chosen]
    return _latex(caption(table), table.benchmark.name, head, rows)


def latex_of(table: StudyTable, label: str) -> str:
    """The table of a study as a booktabs table in a float."""
    rows = [[_latex_text(cell) for cell in row] for row in table.rows]
    return _latex(f"{table.title}.", label, table.columns, rows)


def _latex_text(text: str) -> str:
    """Text, or numbers with their powers of ten."""
    parts = [split_power(part, r"${}\times 10^{{{}}}$") for part in text.split(" ± ")]
    return r" $\pm$ ".join(p if p.startswith("$") else p.translate(SPECIAL) for p in parts)


def _latex(text: str, label: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    filled = {
        "CAPTION": text.translate(SPECIAL),
        "LABEL": label.replace("_", "-"),
        "COLUMNS": "l" + "r" * (len(head) - 1),
        "HEAD": " & ".join(title.translate(SPECIAL) for title in head),
        "ROWS": "\n".join(rf"{' & '.join(row)} \\" for row in rows),
    }
    return re.sub("|".join(filled), lambda match: filled[match[0]], LATEX)


def _latex_cell(cell: Cell) -> str:
    if cell.value is None:
        return cell.text.translate(SPECIAL)
    parts = [text for text in (cell.value.mean_text, cell.value.std_text) if text]
    body = r" \pm ".join(split_power(text, r"{}\times 10^{{{}}}") for text in parts)
    return rf"$\mathbf{{{body}}}$" if cell.bold else f"${body}$"


def split_power(text: str, form: str) -> str:
    """``1.2e-07`` as digits and power in a form such as ``"{} * 10^{}"``; else the text itself."""
    match = re.fullmatch(r"([-\d.]+)e([-+]\d+)", text)
    return form.format(match[1], int(match[2])) if match else text
