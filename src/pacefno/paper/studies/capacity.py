"""How rich is a class of operators, and how much of it is left after averaging over the group?

FNOs of several widths and seeds are trained on the canonical samples of a benchmark: a family that
stands for the class. Of the class itself nobody can compute what follows, of the family it is
exact.

Universal approximation: on a compact set of canonical inputs some FNO is as close to the solution
operator as one likes. That such a network exists cannot be measured. That errors on the fitted
samples fall as networks grow can.

Covering numbers: ``N(eps)`` is the least number of members such that each member is within eps of
one of them, with ``d(F_1, F_2) = max |F_1(a) - F_2(a)|`` over moved inputs. The average
``Pi F = mean over g of C_g^-1 F C_g`` brings no two members further apart, so that it needs no more
of them; and the lemma bounds the generalisation gap of every member on n samples,

    |R(F) - R_n(F)|  <=  2 L eps + B (log(2 N(eps) / delta) / 2n)^1/2

with probability ``1 - delta``. The loss is ``|F(a) - u| / U`` with one scale U, so in units of U
its Lipschitz constant L is 1; B is the largest loss of any member, averaged or not: a class and
its averages are compared at equal B.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import partial, reduce
from itertools import combinations
from operator import or_
from pathlib import Path

import torch
from torch import Tensor

from pacefno.data.samples import Pairs
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.inference import predict
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.presets import config_for
from pacefno.paper.studies.base import Cell, Outcome, Scope, Table, batches, grouped
from pacefno.paper.studies.theory import Operator, action_norm, moved_answers, norm
from pacefno.task import Task
from pacefno.train.config import with_overrides
from pacefno.train.evaluate import load_run

DELTA = 0.05  # the lemma may fail so often
RADII = 24  # at which covering numbers are counted
MOST_MEMBERS = 18  # covers are found by trying all: 2^18 of them
ROUND_OFF = 1e-9  # by which distances may grow, in units of the targets' norm


def run(
    scope: Scope, widths: Sequence[int], seeds: Sequence[int], samples: int, elements: int
) -> Outcome:
    """Train the family where it is not there yet, measure each member, and then all together."""
    family = [
        (width, seed, scope.run_folder(f"fno-width{width}", seed))
        for seed in seeds
        for width in widths
    ]
    if len(family) > MOST_MEMBERS:
        raise UsageError(
            f"{len(widths)} widths and {len(seeds)} seeds make {len(family)} operators, too many "
            f"to try all covers: choose at most {MOST_MEMBERS}"
        )
    for width, seed, folder in family:
        config = config_for(scope.benchmark, "fno", scope.preset, seed)
        scope.train(with_overrides(config, [f"operator.width={width}"]), folder)
    members = scope.file("capacity", "preset", "width", "seed")
    jobs = [
        (scope.identity(folder, seed, width=width), partial(measure_member, scope, folder, samples))
        for width, seed, folder in family
    ]
    cells = scope.measured(members, jobs, samples=samples)
    # One cell for all of them together: other weights of any member make it anew.
    weights = "".join(job[0]["weights"] for job in jobs)
    identity = {"preset": scope.preset, "members": len(family)}
    identity["weights"] = hashlib.sha256(weights.encode()).hexdigest()[:16]
    folders = [folder for _, _, folder in family]
    job = identity, partial(measure_family, scope, folders, samples, elements)
    together = scope.file("capacity", "preset", detail="family")
    asked = {"samples": samples, "elements": elements}
    found = scope.measured(together, [job], **asked)
    everything = [*cells, *found]
    tables = [errors_table(scope.benchmark, cells)]
    return Outcome(together.path, tables, draw(scope.benchmark, everything), notes(everything))


# --- one member -----------------------------------------------------------------------------------


def operator_of(folder: Path) -> Operator:
    """A member in float64, as a function of fields."""
    model = load_run(folder).model.double().eval()
    return lambda field: predict(model, field).values


def both_splits(scope: Scope, samples: int) -> tuple[Pairs, Pairs]:
    """Training and held-out samples, canonical, on the training grid."""
    few, others = (scope.pairs(s, samples, "id").to(torch.double) for s in ("train", "test_id"))
    return few, others


def measure_member(scope: Scope, folder: Path, samples: int) -> Cell:
    """Relative errors on fitted and on held-out samples."""
    operate, found = operator_of(folder), dict[str, float]()
    for name, pairs in zip(("fitted", "held_out"), both_splits(scope, samples), strict=True):
        losses = losses_of(operate, pairs) / norm(pairs.target)
        found[f"{name}_error"] = float(losses.mean())
    scope.say(f"{folder.name}: fitted {found['fitted_error']:.4f}")
    return found | {"parameters": sum(p.numel() for p in load_run(folder).model.parameters())}


@torch.no_grad()
def losses_of(operate: Operator, pairs: Pairs) -> Tensor:
    """``|F(a) - u|`` of each sample."""
    parts = [pairs.select(rows) for rows in batches(len(pairs))]
    return torch.cat([norm(operate(part.input) - part.target) for part in parts])


# --- all of them ----------------------------------------------------------------------------------


def measure_family(scope: Scope, folders: Sequence[Path], samples: int, elements: int) -> Cell:
    """Distances, covering numbers and the lemma's bound, of the family and of its averages."""
    task, (_, high) = scope.task, scope.benchmark.ood
    few, others = both_splits(scope, samples)
    unit = float(torch.cat([norm(few.target), norm(others.target)]).square().mean().sqrt())
    generator = torch.Generator().manual_seed(0)
    drawn = task.group.sample([0.0] * task.group.size, high, elements, generator)
    plain = [operator_of(folder) for folder in folders]
    averaged = [average(operate, task, drawn) for operate in plain]
    apart, apart_averaged = (
        distances(family, task, others.input, moves) / unit
        for family, moves in ((plain, drawn), (averaged, task.group.identity(1)))
    )
    last = task.output.at(task.output.times[-1:])
    stretch = float(action_norm(task.group, last, task.group.inverse_element(drawn)).max())
    radii = torch.linspace(0, float(apart.max()), RADII)
    cell: Cell = {"unit": unit, "stretch": stretch, "radii": radii.tolist()}
    cell["expanded"] = int((apart_averaged > stretch * apart + ROUND_OFF).sum())
    for key, family, distance in (("plain", plain, apart), ("averaged", averaged, apart_averaged)):
        losses = [[losses_of(f, p) / unit for p in (few, others)] for f in family]
        largest = max(float(values.max()) for pair in losses for values in pair)
        numbers = [covering_number(distance, float(radius)) for radius in radii]
        gap = max(abs(float(held.mean() - seen.mean())) for seen, held in losses)
        cell[key] = {"numbers": numbers, "gap": gap, "largest_loss": largest}
    return cell


def lemma_bound(cell: Cell, key: str) -> float:
    """The least that the lemma allows at any radius, for the family or for its averages."""
    largest = max(cell[name]["largest_loss"] for name in ("plain", "averaged"))
    return min(
        2 * radius + largest * math.sqrt(math.log(2 * number / DELTA) / (2 * cell["samples"]))
        for radius, number in zip(cell["radii"], cell[key]["numbers"], strict=True)
    )


def average(operate: Operator, task: Task, elements: Tensor) -> Operator:
    """``Pi F``: the mean of ``C_g^-1 F C_g`` over elements ``(K, size)``."""

    def averaged(field: Tensor) -> Tensor:
        back = [
            task.group.inverse(Field(there, task.output), xi).values
            for xi, there in moved_answers(operate, task, field, elements)
        ]
        return torch.stack(back).mean(dim=0)

    return averaged


@torch.no_grad()
def distances(family: Sequence[Operator], task: Task, field: Tensor, elements: Tensor) -> Tensor:
    """``max |F_i(C_g a) - F_j(C_g a)|`` over the inputs and the elements, ``(K, K)``."""
    apart = torch.zeros(len(family), len(family), dtype=field.dtype)
    for rows in batches(len(field)):
        for element in elements:
            xi = element.expand(len(field[rows]), -1)
            moved = task.group.act(Field(field[rows], task.input), xi).values
            answers = torch.stack([operate(moved).flatten(1) for operate in family])  # (K, B, n)
            here = [(answers - one).norm(dim=2).amax(dim=1) for one in answers]
            apart = torch.maximum(apart, torch.stack(here))
    return apart


def covering_number(distance: Tensor, radius: float) -> int:
    """The least number of members within ``radius`` of which all members lie."""
    near = (distance <= radius + ROUND_OFF).tolist()
    reached = [sum(1 << i for i, yes in enumerate(row) if yes) for row in near]
    everything = (1 << len(reached)) - 1
    for count in range(1, len(reached)):
        if any(reduce(or_, chosen) == everything for chosen in combinations(reached, count)):
            return count
    return len(reached)


# --- in words and as a figure ---------------------------------------------------------------------


def widths_of(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of single members."""
    return [cell for cell in cells if "width" in cell]


def fitted_errors(cells: Sequence[Cell]) -> dict[int, float]:
    """The mean error on fitted samples by width, from narrow to wide."""
    groups = sorted(grouped(widths_of(cells), "width").items())
    return {w: sum(c["fitted_error"] for c in own) / len(own) for w, own in groups}


def notes(cells: Sequence[Cell]) -> list[str]:
    """What the cells say about both statements."""
    errors = fitted_errors(cells)
    pairs = ", ".join(f"{error:.4f} (width {width})" for width, error in errors.items())
    lines = [f"Error on fitted samples: {pairs}."]
    for cell in (cell for cell in cells if "radii" in cell):
        plain, averaged = cell["plain"], cell["averaged"]
        middle = len(cell["radii"]) // 4
        lines.append(
            f"{cell['members']} FNOs: averaging over {cell['elements']} elements took "
            f"{cell['expanded']} pairs of them further apart. Their covering number at a radius of "
            f"{cell['radii'][middle]:.3g} is {plain['numbers'][middle]}, that of the averages "
            f"{averaged['numbers'][middle]}. The largest generalisation gap is {plain['gap']:.3g}, "
            f"of the averages {averaged['gap']:.3g}; the lemma allows "
            f"{lemma_bound(cell, 'plain'):.3g} and {lemma_bound(cell, 'averaged'):.3g}."
        )
    return lines


def errors_table(benchmark: Benchmark, cells: list[Cell]) -> Table:
    """Errors by width."""
    by_width = sorted(grouped(cells, "width").items())
    rows = {f"width {width}": own for width, own in by_width}
    columns = {"fitted samples": "fitted_error", "held out": "held_out_error"}
    title = f"{benchmark.title}: FNOs of several widths"
    return Table.over_seeds(title, rows, {"parameters": "parameters"}, columns)


def draw(benchmark: Benchmark, cells: list[Cell]) -> list[style.Drawing]:
    """Errors against the width, and covering numbers against the radius."""
    single, families = widths_of(cells), [cell for cell in cells if "radii" in cell]
    figure, (axes,) = style.panels(9.0, 3.8, 1, 2)
    for key, colour, name in (
        ("fitted_error", style.BLUE, "fitted samples"),
        ("held_out_error", style.VERMILION, "held-out samples"),
    ):
        look: style.Look = {"color": colour, "marker": "o", "markersize": 4, "label": name}
        style.draw_means(axes[0], single, "width", "width", key, look | {"capsize": 3})
    style.finish(axes[0], "width of the FNO", "relative L2 error", log="xy")
    for cell in families:
        for key, colour, name in (
            ("plain", style.BLACK, "as they are"),
            ("averaged", style.GREEN, "averaged over the group"),
        ):
            look = {"color": colour, "label": name, "drawstyle": "steps-post"}
            axes[1].plot(cell["radii"], cell[key]["numbers"], **look)
    style.finish(axes[1], "radius, in units of the targets", "covering number")
    style.legend_below(figure, columns=4)
    caption = (
        f"{benchmark.title}. Left: errors of FNOs of growing width on the samples that they were "
        "fitted to and on others; bars are deviations over seeds. Right: how many of them it takes "
        "to have one within a radius of each, before and after averaging over the group."
    )
    return [style.Drawing(f"{benchmark.name}-capacity", caption, figure)]
