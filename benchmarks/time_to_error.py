"""How long it takes to reach an error, from the same arrays: our loop beside neuraloperator's.

    pip install 'pacefno[all]' neuraloperator==2.0.0
    python benchmarks/time_to_error.py --problems burgers1d,burgers2d,navier_stokes

Both train an FNO of the same width, modes and layers on the training samples of a benchmark, and
are judged by the relative L2 error on its validation samples, on the training grid. Ours runs as
``pacefno train --model fno`` does, but on every second point (in 1-D every fourth), as the first
epochs of a preset, without coordinates among the inputs, and with a head of twice the width, which
is what the peer's network has; also with products of channels among its activations, and both of
these averaged over the finite symmetries of the equation. The peer keeps its own Trainer,
normalisers and AdamW with a cosine schedule, as in its scripts, and the defaults of its network.
Ours has eight ways: the four networks and batches of half and a quarter of the preset's, at twice
its learning rate. The peer has twelve: with and without coordinates, batches of the preset's size,
half and a quarter of it, at its learning rate and twice that. All begin with a short training (a
schedule that ends later starts slower); the better third, and at least two, go on to the next
length, ours with and without the average apart. The time to an error is that of the best attempt of
each side: up to the first validation at or below it, without the time of the validations, which
only measure. Run it on a quiet machine, or count processor seconds (``--clock cpu --threads 1``).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from _timing import CLOCKS, Clock, machine
from documents import markdown
from pacefno.data import prepare
from pacefno.data.samples import Pairs, Source
from pacefno.paper.benchmarks import Benchmark, benchmark_named
from pacefno.paper.presets import config_for
from pacefno.train.batches import PairData
from pacefno.train.config import RunConfig, with_overrides
from pacefno.train.loop import Callbacks, train

Curve = list[tuple[float, float]]  # seconds since the start, validation error
Attempts = dict[str, Curve]
LEVELS = (2.0, 1.5, 1.2, 1.0)  # times the best error that both reach
PROTOCOL = 4  # one more when what is compared changes: older results are then not kept
AVERAGED = "averaged"  # our network that knows the finite symmetries of the equation


class Way(NamedTuple):
    """How a side is trained."""

    network: str
    coordinates: bool
    batch: int
    rate: float

    def __str__(self) -> str:
        without = "" if self.coordinates else " without coordinates"
        return f"{self.network}{without}, batches of {self.batch}, rate {self.rate:g}"


def all_ways(
    networks: Sequence[str],
    coordinates: Sequence[bool],
    config: RunConfig,
    shares: Sequence[int],
    times: Sequence[float],
) -> list[Way]:
    """All combinations with batches of these shares, and rates of so many times, the preset's."""
    batches = [config.schedule.batch // share for share in shares]
    rates = [config.schedule.rate * many for many in times]
    return [Way(*one) for one in product(networks, coordinates, batches, rates)]


class Race(NamedTuple):
    """What both sides are given: samples, trainings of so many epochs, and a clock."""

    benchmark: Benchmark
    source: Source
    preset: str
    shares: list[float]  # of the preset's epochs
    clock: Clock

    def config(self, row: str) -> RunConfig:
        """The preset's settings of a row of the tables."""
        return config_for(self.benchmark, row, self.preset, 42)

    @property
    def lengths(self) -> list[int]:
        epochs = self.config("fno").schedule.epochs
        return [max(2, round(share * epochs)) for share in sorted(self.shares)]


class Stopwatch:
    """Seconds since it was made, without those of what only measures."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.start = clock, clock()

    def __call__(self) -> float:
        return self.clock() - self.start

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The time in here does not count."""
        begun = self.clock()
        try:
            yield
        finally:
            self.start += self.clock() - begun


def search(
    ways: list[Way], lengths: Sequence[int], attempt: Callable[[int, Way], Curve], kept: Attempts
) -> Attempts:
    """Trainings of so many epochs in all ways; the better third, at least two, goes on.

    Those that are in ``kept`` are not repeated.
    """
    attempts: Attempts = {}
    for epochs in lengths:
        reached = {}
        for way in ways:
            name = f"{epochs} epochs, {way}"
            found = kept.get(name) or attempt(epochs, way)
            attempts[name] = [(round(s, 2), float(f"{error:.4g}")) for s, error in found]
            reached[way] = min(error for _, error in attempts[name])
            print(f"  {name}: {reached[way]:.4f}", flush=True)
        ways = sorted(ways, key=lambda way: reached[way])[: max(2, len(ways) // 3)]
    return attempts


# --- ours -----------------------------------------------------------------------------------------


def our_curve(config: RunConfig, source: Source, clock: Clock) -> Curve:
    """Validation errors of one training in our loop."""
    curve: Curve = []
    watch, validate = Stopwatch(clock), PairData.validate

    def judged(*arguments: Any) -> float:
        with watch.stopped():
            return validate(*arguments)

    def note(progress: Any) -> None:
        curve.append((watch(), progress.log[-1]["validation_error"]))

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(PairData, "validate", judged),
    ):
        train(config, source, Path(folder) / "run", callbacks=Callbacks(on_epoch=note))
    return curve


def ours(race: Race, kept: Attempts) -> Attempts:
    """The preset's network, the same with products of channels, and both averaged."""
    plain, averaged = race.config("fno"), race.config("fno-symmetrised")
    # Over all elements in every step; the row of the tables draws one.
    averaged = averaged.model_copy(update={"operator": {**averaged.operator, "samples": None}})

    def attempt(epochs: int, way: Way) -> Curve:
        changes = {
            "schedule.epochs": epochs,
            "schedule.validate_every": 1,
            "schedule.batch": way.batch,
            "schedule.rate": way.rate,
            "schedule.coarse": 1.0,  # it is judged on the whole grid all the same
            "operator.activation": "products" if "products" in way.network else "gelu",
            "operator.head": 2 * plain.operator["width"],
            "operator.positions": "null",
        }
        config = averaged if AVERAGED in way.network else plain
        made = with_overrides(config, [f"{key}={value}" for key, value in changes.items()])
        return our_curve(made, race.source, race.clock)

    attempts: Attempts = {}
    for networks in (("gelu", "products"), (AVERAGED, f"{AVERAGED} products")):  # so both go on
        ways = all_ways(networks, (False,), plain, (2, 4), (2,))
        attempts |= search(ways, race.lengths, attempt, kept)
    return attempts


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
            with watch.stopped():
                found: dict[str, Any] = super().evaluate_all(*args, **kwargs)
            curve.append((watch(), float(found["validation_l2"])))
            return found

    torch.manual_seed(42)
    few, judged = source.load("train"), source.load("validation")
    assert isinstance(few, Pairs) and isinstance(judged, Pairs)
    watch = Stopwatch(clock)
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


def peer(race: Race, kept: Attempts) -> Attempts:
    """Its network, with and without coordinates."""
    config = race.config("fno")
    return search(
        all_ways(("FNO",), (True, False), config, (1, 2, 4), (1, 2)),
        race.lengths,
        lambda epochs, way: peer_curve(config, race.source, epochs, way, race.clock),
        kept,
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
    """Seconds of both at some errors that both reach, from large to small; ``alone`` is without
    what knows the symmetries of the equation, where that reaches the error.
    """
    hardest = max(best(mine), best(theirs))
    plain = {name: curve for name, curve in mine.items() if AVERAGED not in name}
    rows = []
    for level in LEVELS:
        a, b = time_to(mine, level * hardest), time_to(theirs, level * hardest)
        assert a is not None and b is not None
        alone = time_to(plain, level * hardest)
        row = {"error": level * hardest, "pacefno_seconds": a[0], "pacefno": a[1]}
        row |= {"peer_seconds": b[0], "peer": b[1], "ratio": b[0] / a[0]}
        row["alone_ratio"] = b[0] / alone[0] if alone else None
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
            alone = f"{row['alone_ratio']:.1f}" if row["alone_ratio"] else "not reached"
            rows.append([title, f"{row['error']:.4f}", f"{row['ratio']:.1f}", alone, *sides])
    clock = "processor seconds" if document["clock"] == "cpu" else "seconds"
    faster = ["times faster", "without symmetries"]
    head = ["problem", "error", *faster, f"pacefno, {clock}", f"neuraloperator, {clock}"]
    threads = f"{document['threads']} thread{'s' * (document['threads'] > 1)}"
    how = f"Preset `{document['preset']}`, {threads}, {document['machine']}."
    return f"{markdown(head, rows)}\n{how} Lowest errors of all: {'; '.join(lowest)}.\n"


def measured_before(path: Path, head: dict[str, Any]) -> dict[str, Any]:
    """Problems that a file has already, if they were measured in the same way."""
    before = json.loads(path.read_text()) if path.exists() else {}
    return dict(before["problems"]) if head.items() <= before.items() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problems", default="burgers1d,burgers2d,navier_stokes")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--data", type=Path, default=Path("datasets"))
    parser.add_argument(
        "--lengths", default="0.125,0.18,0.25,0.35,0.5,0.7,1", help="shares of all epochs"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--output", type=Path, default=Path("results/time_to_error.json"))
    parser.add_argument("--figure", type=Path, help="draw the curves here")
    parser.add_argument(
        "--keep", action="store_true", help="do not repeat the attempts that the output has"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = CLOCKS[options.clock]
    settings = {key: getattr(options, key) for key in ("preset", "clock", "threads")}
    head = {"study": "time_to_error", "protocol": PROTOCOL, "machine": machine(), **settings}
    document: dict[str, Any] = {**head, "problems": {}}
    for name in options.problems.split(","):
        benchmark = benchmark_named(name)
        source = prepare(benchmark.recipe, options.preset, root=options.data)
        print(f"{benchmark.title}, preset {options.preset}", flush=True)
        shares = [float(share) for share in options.lengths.split(",")]
        race = Race(benchmark, source, options.preset, shares, clock)
        kept = measured_before(options.output, head).get(name, {}) if options.keep else {}
        mine, theirs = (
            attempts(race, kept.get(side, {}))
            for side, attempts in (("pacefno", ours), ("neuraloperator", peer))
        )
        rows = compare(mine, theirs)
        print(sketch("pacefno", mine))
        print(sketch("neuraloperator", theirs))
        for row in rows:
            print(
                f"  error {row['error']:.4f}: {row['pacefno_seconds']:.1f} s ({row['pacefno']}), "
                f"peer {row['peer_seconds']:.1f} s ({row['peer']}), ratio {row['ratio']:.2f}",
                flush=True,
            )
        found = {"pacefno": mine, "neuraloperator": theirs, "compared": rows}
        others = measured_before(options.output, head)  # now: of another process, perhaps
        document = {**head, "problems": {**others, name: found}}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    if options.figure:
        draw(document, options.figure)


if __name__ == "__main__":
    main()
