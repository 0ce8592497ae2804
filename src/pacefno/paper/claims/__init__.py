"""The paper, claim by claim: the command, what was measured, how it differs, and a verdict.

The verdict is done, partly or not, and is computed: from the number of seeds and a stated limit on
their error, from settings compared with the paper's, from figures that were drawn. Where a claim is
about code alone, it says whether the code and its tests exist. No verdict is typed by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pacefno.paper.claims import figures, method, rows, settings, theory, times
from pacefno.paper.claims.evidence import Claim, Evidence, Finding


def sections() -> dict[str, list[Claim]]:
    """Every claim by the section of the page."""
    return {
        "text": list(rows.of_text()),
        "tables": list(rows.of_tables()),
        "ablation": list(rows.of_ablation()),
        "times": list(times.claims()),
        "method": list(method.CLAIMS),
        "settings": list(settings.claims()),
        "theory": list(theory.CLAIMS),
        "figures": list(figures.claims()),
    }


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
