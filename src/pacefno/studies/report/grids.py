"""Plain rows and columns as Markdown and LaTeX: how every table is set."""

from __future__ import annotations

from collections.abc import Sequence

SPECIAL = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"–": "--", "→": r"$\rightarrow$", "×": r"$\times$"})


def markdown_grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in aligned columns, so that a change of one number is one changed line in version control."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        numbers = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        return f"| {' | '.join([row[0].ljust(widths[0]), *numbers])} |"

    rule = "|".join(["", "-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:]), ""])
    return "\n".join([line(head), rule, *map(line, rows)])


def latex_escape(text: str) -> str:
    return text.translate(SPECIAL).replace("±", r"$\pm$")


def latex_grid(head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, label: str) -> str:
    """Plain text cells in a float."""
    body = "\n".join(" & ".join(map(latex_escape, row)) + r" \\" for row in rows)
    return latex_float(" & ".join(map(latex_escape, head)), body, len(head), caption=caption, label=label)


def latex_float(head: str, rows: str, columns: int, *, caption: str, label: str) -> str:
    """A booktabs table in a float, ready for ``\\input``."""
    return "\n".join(
        [
            "% needs \\usepackage{booktabs} and \\usepackage{graphicx}",
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{latex_escape(caption)}}}",
            rf"\label{{tab:{label.replace('_', '-')}}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{l{'r' * (columns - 1)}}}",
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
