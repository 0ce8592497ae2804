"""How long it takes to reach an error, from the same arrays: our loop beside neuraloperator's.

    pip install 'pacefno[all]' neuraloperator==2.0.0
    python benchmarks/time_to_error.py --problems burgers1d,burgers2d,navier_stokes

Both train an FNO of the same width, modes and layers on the training samples of a benchmark, and
are judged by the relative L2 error on its validation samples, on the training grid. Ours runs as
``pacefno train --model fno`` does, also with products of channels among its activations. The peer
keeps its own Trainer, normalisers and AdamW with a cosine schedule, as in its scripts, and the
defaults of its network, which then has a few more weights. For both, batches may have the preset's
size, half or a quarter of it, the learning rate is the preset's or twice that, and coordinates are
among the inputs or not. Each side has as many tries (all of the peer's ways, ours by chance), with
a short training (a schedule that ends later starts slower); the better third, and at least two, go
on to the next length. The time to an error is that of the best attempt of each side:
the first validation at or below it, everything since the first step included. Run it on a quiet
machine, or count processor seconds (``--clock cpu --threads 1``).
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from _timing import CLOCKS, Clock, machine
from documents import markdown
from pacefno.data import prepare
from pacefno.data.samples import Pairs, Source
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.presets import config_for
from pacefno.train.config import RunConfig, with_overrides
from pacefno.train.loop import Callbacks, train

Curve = list[tuple[float, float]]  # seconds since the start, validation error
Attempts = dict[str, Curve]
LEVELS = (2.0, 1.5, 1.2, 1.0)  # times the best error that both reach


class Way(NamedTuple):
    """How a side is trained."""

    network: str
    coordinates: bool
    batch: int
    rate: float

    def __str__(self) -> str:
        without = "" if self.coordinates else " without coordinates"
        return f"{self.network}{without}, batches of {self.batch}, rate {self.rate:g}"


def some_ways(networks: Sequence[str], config: RunConfig, tries: int) -> list[Way]:
    """Of all networks, batches and rates, with and without coordinates, so many by chance."""
    batches = [config.schedule.batch // share for share in (1, 2, 4)]
    rates = [config.schedule.rate * times for times in (1, 2)]
    ways = [Way(*one) for one in product(networks, (True, False), batches, rates)]
    return random.Random(0).sample(ways, min(tries, len(ways)))


class Search(NamedTuple):
    """How a side looks for its best way: the same for both."""

    lengths: list[float]  # of trainings, as shares of the preset's epochs
    tries: int  # ways that begin

    def __call__(
        self, networks: Sequence[str], config: RunConfig, attempt: Callable[[int, Way], Curve]
    ) -> Attempts:
        """Attempts with all ways; the better third, at least two, goes on to the next length."""
        ways, usual = some_ways(networks, config, self.tries), config.schedule.epochs
        attempts: Attempts = {}
        for share in sorted(self.lengths):
            epochs, reached = max(2, round(share * usual)), {}
            for way in ways:
                name = f"{epochs} epochs, {way}"
                found = attempt(epochs, way)
                attempts[name] = [(round(s, 2), float(f"{error:.4g}")) for s, error in found]
                reached[way] = min(error for _, error in attempts[name])
                print(f"  {name}: {reached[way]:.4f}", flush=True)
            ways = sorted(ways, key=lambda way: reached[way])[: max(2, len(ways) // 3)]
        return attempts


# --- ours -----------------------------------------------------------------------------------------


def our_curve(config: RunConfig, source: Source, clock: Clock) -> Curve:
    """Validation errors of one training in our loop."""
    curve: Curve = []
    start = clock()

    def note(progress: Any) -> None:
        if "validation_error" in progress.log[-1]:
            curve.append((clock() - start, progress.log[-1]["validation_error"]))

    with tempfile.TemporaryDirectory() as folder:
        train(config, source, Path(folder) / "run", callbacks=Callbacks(on_epoch=note))
    return curve


def ours(source: Source, config: RunConfig, search: Search, clock: Clock) -> Attempts:
    """The preset's network, and the same with products of channels."""

    def attempt(epochs: int, way: Way) -> Curve:
        changes = {
            "schedule.epochs": epochs,
            "schedule.validate_every": 1,
            "schedule.batch": way.batch,
            "schedule.rate": way.rate,
            "operator.activation": way.network,
            "operator.positions": '"grid"' if way.coordinates else "null",
        }
        made = with_overrides(config, [f"{key}={value}" for key, value in changes.items()])
        return our_curve(made, source, clock)

    return search(("gelu", "products"), config, attempt)


# --- the peer -------------------------------------------------------------------------------------


class Samples(Dataset[dict[str, Tensor]]):
    """Pairs in the form that its Trainer takes."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"x": self.pairs.input[row].float(), "y": self.pairs.target[row].float()}


def peer_network(config: RunConfig, *, coordinates: bool) -> torch.nn.Module:
    """Its FNO of the same width, modes and layers, and its defaults for the rest."""
    from neuralop.models import FNO

    sizes, task = config.operator, config.task
    modes, width = sizes["modes"], sizes["width"]
    found: torch.nn.Module = FNO(
        n_modes=(2 * modes,) * task.dim,
        in_channels=task.input.size,
        out_channels=task.output.size,
        hidden_channels=width,
        n_layers=sizes["layers"],
        positional_embedding="grid" if coordinates else None,
    )
    return found


def peer_curve(config: RunConfig, source: Source, epochs: int, way: Way, clock: Clock) -> Curve:
    """Validation errors of one training in its Trainer."""
    from neuralop import LpLoss, Trainer
    from neuralop.data.transforms.data_processors import DefaultDataProcessor
    from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
    from neuralop.training import AdamW

    curve: Curve = []

    class Recording(Trainer):  # type: ignore[misc]
        def evaluate_all(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            found: dict[str, Any] = super().evaluate_all(*args, **kwargs)
            curve.append((clock() - start, float(found["validation_l2"])))
            return found

    torch.manual_seed(42)
    few, judged = source.load("train"), source.load("validation")
    assert isinstance(few, Pairs) and isinstance(judged, Pairs)
    start = clock()
    axes = [0, *range(2, 2 + config.task.dim)]
    scalers = [UnitGaussianNormalizer(dim=axes) for _ in range(2)]
    for scaler, values in zip(scalers, (few.input, few.target), strict=True):
        scaler.fit(values.float())
    model = peer_network(config, coordinates=way.coordinates)
    optimizer = AdamW(model.parameters(), lr=way.rate, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    processor = DefaultDataProcessor(in_normalizer=scalers[0], out_normalizer=scalers[1])
    trainer = Recording(
        model=model, n_epochs=epochs, data_processor=processor, device="cpu", verbose=False
    )
    # Its d counts the axes that a norm runs over: channels too, as in our error.
    error = LpLoss(d=config.task.dim + 1, p=2)
    trainer.train(
        DataLoader(Samples(few), batch_size=way.batch, shuffle=True),
        {"validation": DataLoader(Samples(judged), batch_size=50)},
        optimizer,
        scheduler,
        training_loss=error,
        eval_losses={"l2": error},
    )
    return curve


def peer(source: Source, config: RunConfig, search: Search, clock: Clock) -> Attempts:
    """Its network, with every size of batches and rate."""
    return search(
        ("FNO",),
        config,
        lambda epochs, way: peer_curve(config, source, epochs, way, clock),
    )


# --- the comparison -------------------------------------------------------------------------------


def time_to(attempts: Attempts, error: float) -> tuple[float, str] | None:
    """The fewest seconds in which an attempt came to this error, and which it was."""
    found = [
        (seconds, name)
        for name, curve in attempts.items()
        for seconds, value in curve
        if value <= error
    ]
    return min(found) if found else None


def best(attempts: Attempts) -> float:
    """The lowest error of all attempts."""
    return min(value for curve in attempts.values() for _, value in curve)


def compare(mine: Attempts, theirs: Attempts) -> list[dict[str, Any]]:
    """Seconds of both at some errors that both reach, from large to small."""
    hardest = max(best(mine), best(theirs))
    rows = []
    for level in LEVELS:
        a, b = time_to(mine, level * hardest), time_to(theirs, level * hardest)
        assert a is not None and b is not None
        row = {"error": level * hardest, "pacefno_seconds": a[0], "pacefno": a[1]}
        row |= {"peer_seconds": b[0], "peer": b[1], "ratio": b[0] / a[0]}
        rows.append(row)
    return rows


def sketch(name: str, attempts: Attempts) -> str:
    """The lowest error of all attempts against seconds, as a line of pairs."""
    points = sorted(point for curve in attempts.values() for point in curve)
    best, shown = float("inf"), []
    for seconds, value in points:
        if value < 0.9 * best:
            best = value
            shown.append(f"{seconds:.0f} s {value:.3g}")
    return f"  {name:15s} " + ", ".join(shown)


def draw(document: dict[str, Any], path: Path) -> None:
    """All curves, one panel a problem."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(document["problems"]), 3.6), layout="constrained")
    panels = figure.subplots(1, len(document["problems"]), squeeze=False)[0]
    for axis, (name, found) in zip(panels, document["problems"].items(), strict=True):
        for side, colour in (("pacefno", "tab:blue"), ("neuraloperator", "tab:orange")):
            for number, curve in enumerate(found[side].values()):
                label = side if number == 0 else None
                axis.loglog(*zip(*curve, strict=True), color=colour, alpha=0.7, label=label)
        axis.set(title=name, xlabel=f"seconds ({document['clock']} clock)")
    panels[0].set_ylabel("validation error (relative L2)")
    panels[0].legend()
    figure.savefig(path, dpi=150)


def content(document: dict[str, Any]) -> str:
    """Seconds of both sides to some errors, and what they are of each other (docs/speed.md)."""
    rows, lowest = [], []
    for name, found in document["problems"].items():
        title = benchmark_named(name).title
        errors = (f"{side} {best(found[side]):.4f}" for side in ("pacefno", "neuraloperator"))
        lowest.append(f"{title} {' and '.join(errors)}")
        for row in found["compared"]:
            sides = (f"{row[f'{side}_seconds']:.0f} ({row[side]})" for side in ("pacefno", "peer"))
            rows.append([title, f"{row['error']:.4f}", f"{row['ratio']:.1f}", *sides])
    clock = "processor seconds" if document["clock"] == "cpu" else "seconds"
    head = ["problem", "error", "times faster", f"pacefno, {clock}", f"neuraloperator, {clock}"]
    threads = f"{document['threads']} thread{'s' * (document['threads'] > 1)}"
    how = f"Preset `{document['preset']}`, {threads}, {document['machine']}."
    return f"{markdown(head, rows)}\n{how} Lowest errors of all: {'; '.join(lowest)}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problems", default="burgers1d,burgers2d,navier_stokes")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--data", type=Path, default=Path("datasets"))
    parser.add_argument("--lengths", default="0.25,0.5,1,2", help="shares of the preset's epochs")
    parser.add_argument("--tries", type=int, default=12, help="ways that each side begins with")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--output", type=Path, default=Path("results/time_to_error.json"))
    parser.add_argument("--figure", type=Path, help="draw the curves here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock, problems = CLOCKS[options.clock], dict[str, Any]()
    settings = {
        key: getattr(options, key) for key in ("preset", "clock", "threads", "tries", "lengths")
    }
    document = {"study": "time_to_error", "machine": machine(), **settings}
    if options.output.exists():  # problems that were measured before, in the same way, are kept
        before = json.loads(options.output.read_text())
        problems |= before["problems"] if document.items() <= before.items() else {}
    document["problems"] = problems
    for name in options.problems.split(","):
        benchmark = benchmark_named(name)
        source = prepare(benchmark.recipe, options.preset, root=options.data)
        print(f"{benchmark.title}, preset {options.preset}", flush=True)
        config = config_for(benchmark, "fno", options.preset, 42)
        search = Search([float(share) for share in options.lengths.split(",")], options.tries)
        mine = ours(source, config, search, clock)
        theirs = peer(source, config, search, clock)
        rows = compare(mine, theirs)
        print(sketch("pacefno", mine))
        print(sketch("neuraloperator", theirs))
        for row in rows:
            print(
                f"  error {row['error']:.4f}: {row['pacefno_seconds']:.1f} s ({row['pacefno']}), "
                f"peer {row['peer_seconds']:.1f} s ({row['peer']}), ratio {row['ratio']:.2f}",
                flush=True,
            )
        problems[name] = {"pacefno": mine, "neuraloperator": theirs, "compared": rows}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    if options.figure:
        draw(document, options.figure)


if __name__ == "__main__":
    main()
