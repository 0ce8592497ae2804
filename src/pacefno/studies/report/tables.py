"""Tables as Markdown, LaTeX and cells for the page. The lowest OOD error is bold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from rich.table import Table as Grid

from pacefno.studies.report.collect import Table, Tables
from pacefno.studies.report.columns import Cell, columns_of
from pacefno.studies.report.grids import latex_escape, latex_float, markdown_grid
from pacefno.studies.report.settings import differences

SUMMARY_MODELS = ("fno", "fno-aug", "fno-nogrid-centred", "gfno", "pace", "pace-tta", "pace-gfno")


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
    return f"{markdown_grid(head, rows)}\n\n{caption(table)} Where settings differ from the paper: {settings}.\n"


def markdown_summary(tables: Tables) -> str:
    """The OOD error of the main models on every problem, with the paper's PACE."""
    shown = [name for name in SUMMARY_MODELS if any(table.line(name) for table in tables.values())]
    head = ["problem", *shown, "paper: PACE", "preset"]
    rows = []
    for table in tables.values():
        cells = [_summary_cell(table, name) for name in shown]
        paper = table.problem.paper.get("pace")
        rows.append([table.problem.title, *cells, f"{paper[1]:.4f}" if paper else "", table.preset])
    return markdown_grid(head, rows) + "\n"


def _summary_cell(table: Table, model: str) -> str:
    line = table.line(model)
    value = None if line is None else line.of("ood_error")
    return "" if value is None else _markdown_cell(Cell(value=value, bold=model in table.best))


def _markdown_cell(cell: Cell) -> str:
    text = cell.plain.replace("|", r"\|")
    return f"**{text}**" if cell.bold else text


# --- LaTeX ----------------------------------------------------------------------------------------------------------


def latex_table(table: Table) -> str:
    """A booktabs table in a float, ready for ``\\input``."""
    columns = columns_of(table)
    chosen = [i for i, column in enumerate(columns) if column.kind != "cost" or column.title == "parameters"]
    head = " & ".join(latex_escape(columns[i].title) for i in chosen)
    rows = "\n".join(" & ".join(_latex_cell(cells[i]) for i in chosen) + r" \\" for cells in cells_of(table))
    label = table.problem.name
    return latex_float(head, rows, len(chosen), caption=caption(table), label=label)


def _latex_cell(cell: Cell) -> str:
    if cell.value is None:
        return latex_escape(cell.text)
    parts = [_latex_number(text) for text in (cell.value.mean_text, cell.value.std_text) if text]
    body = r" \pm ".join(parts)
    return rf"$\mathbf{{{body}}}$" if cell.bold else f"${body}$"


def _latex_number(text: str) -> str:
    return power_of_ten(text, lambda digits, power: rf"{digits}\times 10^{{{power}}}")


def power_of_ten(text: str, form: Callable[[str, int], str]) -> str:
    """``1.2e-07`` as digits and power; anything else as it is."""
    match = re.fullmatch(r"([-\d.]+)e([-+]\d+)", text)
    return form(match[1], int(match[2])) if match else text
