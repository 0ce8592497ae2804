"""The paper's sixteen figures and the drawings of ours that show the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pacefno.paper.claims.evidence import MEASURED, Claim, Evidence, Finding

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


def claims() -> Iterator[Claim]:
    for i, (what, name, command) in enumerate(FIGURES, start=1):
        judge = partial(figure, name, COMPARED.get(i, ()))
        yield Claim(f"{i}. {what}", f"pacefno {command}", judge, SHOWN.get(i, ""))
