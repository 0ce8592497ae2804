"""Tables as Markdown, LaTeX and cells for the page. The lowest OOD error is bold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from rich.table import Table as Grid

from pacefno.studies.report.collect import Table, Tables
from pacefno.studies.report.columns import Cell, columns_of
from pacefno.studies.report.settings import differences

SPECIAL = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"–": "--", "→": r"$\rightarrow$", "×": r"$\times$"})
SUMMARY_MODELS = ("fno", "fno-aug", "fno-nogrid-centred", "gfno", "pace", "pace-tta")


def cells_of(table: Table) -> list[list[Cell]]:
    """One list of cells per model, in the order of the table's columns."""
    best, columns = table.best, columns_of(table)
    rows = []
    for line in table.lines:
        cells = [column.cell(line) for column in columns]
        if line.model in best:
            place = next(i for i, column in enumerate(columns) if column.title == "OOD")
            cells[place] = replace(cells[place], bold=True)
        rows.append(cells)
    return rows


def caption(table: Table) -> str:
    """What a table is, in one sentence, without numbers that it already holds."""
    seeds = ", ".join(map(str, table.seeds))
    over = f"mean ± standard deviation over the seeds {seeds}" if len(table.seeds) > 1 else f"seed {seeds}"
    error = "relative L2 errors, mean over channels" if table.problem.per_channel else "relative L2 errors"
    return f"{table.problem.title}, preset {table.preset}: {error}, {over}."


# --- terminal -------------------------------------------------------------------------------------------------------


def terminal_table(table: Table) -> Grid:
    """The errors of a table for the terminal; costs are left to the wider formats."""
    grid = Grid(title=caption(table), title_justify="left")
    columns = columns_of(table)
    shown = [i for i, column in enumerate(columns) if column.kind != "cost"]
    for i in shown:
        grid.add_column(columns[i].title, justify="left" if columns[i].kind == "name" else "right", no_wrap=True)
    for cells in cells_of(table):
        grid.add_row(*(f"[bold]{cells[i].plain}[/bold]" if cells[i].bold else cells[i].plain for i in shown))
    return grid


# --- Markdown -------------------------------------------------------------------------------------------------------


def markdown_table(table: Table) -> str:
    """The table, what it is, and where its settings differ from the paper's."""
    head = [column.title for column in columns_of(table)]
    rows = [[_markdown_cell(cell) for cell in cells] for cells in cells_of(table)]
    settings = "; ".join(f"{row.name}: {row.ours} (paper: {row.paper})" for row in differences(table))
    return f"{_grid(head, rows)}\n\n{caption(table)} Where settings differ from the paper: {settings}.\n"


def markdown_summary(tables: Tables) -> str:
    """The OOD error of the main models on every problem, with the paper's PACE."""
    shown = [name for name in SUMMARY_MODELS if any(table.line(name) for table in tables.values())]
    head = ["problem", *shown, "paper: PACE", "preset"]
    rows = []
    for table in tables.values():
        cells = [_summary_cell(table, name) for name in shown]
        paper = table.problem.paper.get("pace")
        rows.append([table.problem.title, *cells, f"{paper[1]:.4f}" if paper else "", table.preset])
    return _grid(head, rows) + "\n"


def _summary_cell(table: Table, model: str) -> str:
    line = table.line(model)
    value = None if line is None else line.of("ood_error")
    return "" if value is None else _markdown_cell(Cell(value=value, bold=model in table.best))


def _markdown_cell(cell: Cell) -> str:
    text = cell.plain.replace("|", r"\|")
    return f"**{text}**" if cell.bold else text


def _grid(head: list[str], rows: list[list[str]]) -> str:
    """A table in aligned columns, so that a change of one number is one changed line in version control."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: list[str]) -> str:
        numbers = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        return f"| {' | '.join([row[0].ljust(widths[0]), *numbers])} |"

    rule = "|".join(["", "-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:]), ""])
    return "\n".join([line(head), rule, *map(line, rows)])


# --- LaTeX ----------------------------------------------------------------------------------------------------------


def latex_table(table: Table) -> str:
    """A booktabs table in a float, ready for ``\\input``."""
    columns = columns_of(table)
    chosen = [i for i, column in enumerate(columns) if column.kind != "cost" or column.title == "parameters"]
    head = " & ".join(_escape(columns[i].title) for i in chosen)
    rows = "\n".join(" & ".join(_latex_cell(cells[i]) for i in chosen) + r" \\" for cells in cells_of(table))
    return "\n".join(
        [
            "% needs \\usepackage{booktabs} and \\usepackage{graphicx}",
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{_escape(caption(table))}}}",
            rf"\label{{tab:{table.problem.name.replace('_', '-')}}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{l{'r' * (len(chosen) - 1)}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
            rows,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _latex_cell(cell: Cell) -> str:
    if cell.value is None:
        return _escape(cell.text)
    parts = [_latex_number(text) for text in (cell.value.mean_text, cell.value.std_text) if text]
    body = r" \pm ".join(parts)
    return rf"$\mathbf{{{body}}}$" if cell.bold else f"${body}$"


def _latex_number(text: str) -> str:
    return power_of_ten(text, lambda digits, power: rf"{digits}\times 10^{{{power}}}")


def power_of_ten(text: str, form: Callable[[str, int], str]) -> str:
    """``1.2e-07`` as digits and power; anything else as it is."""
    match = re.fullmatch(r"([-\d.]+)e([-+]\d+)", text)
    return form(match[1], int(match[2])) if match else text


def _escape(text: str) -> str:
    return text.translate(SPECIAL).replace("±", r"$\pm$")
