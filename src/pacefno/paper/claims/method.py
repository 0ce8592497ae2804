"""Algorithm lines and terms of the loss: the code, its tests, and what the paper leaves open."""

from __future__ import annotations

import pkgutil
from functools import partial

from pacefno.paper.claims.evidence import PROBLEMS, Claim, Evidence, Finding, seeds_of
from pacefno.paper.style import statistic


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


CLAIMS = (
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
