"""How long it takes to reach an error, from the same arrays: our loop beside neuraloperator's.

    pip install 'pacefno[all]' neuraloperator==2.0.0
    python benchmarks/time_to_error.py --problems burgers1d,burgers2d,navier_stokes

Both train an FNO of the same width, modes and layers on the training samples of a benchmark, and
are judged by the relative L2 error on its validation samples, on the training grid. Ours runs as
``pacefno train --model fno`` does, as it is and with batches of half the size and products of
channels among its activations. The peer keeps its own Trainer, normalisers and AdamW with a cosine
schedule, as in its scripts; it is tried with two learning rates, with its default network as well
as the bare one, and with both sizes of batches. Each side is tried with several lengths of training
(a schedule that ends later starts slower), and the better half of its ways goes on to the next
length. The time to an error is that of the best attempt of each side: the first validation at or
below it, everything since the first step included. Run it on a quiet machine, or count processor
seconds (``--clock cpu --threads 1``).
"""

from __future__ import annotations

import argparse
import json
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
SMALLER = "smaller batches, products"


class Way(NamedTuple):
    """How the peer is trained."""

    rate: float
    defaults: bool
    batch: int

    def __str__(self) -> str:
        network = "default" if self.defaults else "bare"
        return f"rate {self.rate:g}, {network} network, batches of {self.batch}"


def halving(
    ways: Sequence[Any], lengths: list[float], usual: int, attempt: Callable[[int, Any], Curve]
) -> Attempts:
    """An attempt with every way; the better half of the ways goes on to each longer training."""
    attempts: Attempts = {}
    for share in sorted(lengths):
        epochs, reached = max(2, round(share * usual)), {}
        for way in ways:
            name = f"{epochs} epochs, {way}"
            found = attempt(epochs, way)
            attempts[name] = [(round(s, 2), float(f"{error:.4g}")) for s, error in found]
            reached[way] = min(error for _, error in attempts[name])
            print(f"  {name}: {reached[way]:.4f}", flush=True)
        ways = sorted(ways, key=lambda way: reached[way])[: -(-len(ways) // 2)]
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


def ours(config: RunConfig, source: Source, lengths: list[float], clock: Clock) -> Attempts:
    """The preset as it is, and with smaller batches and products of channels."""
    small = [f"schedule.batch={config.schedule.batch // 2}", "operator.activation=products"]

    def attempt(epochs: int, way: str) -> Curve:
        changes = [f"schedule.epochs={epochs}", "schedule.validate_every=1"]
        changes += small if way == SMALLER else []
        return our_curve(with_overrides(config, changes), source, clock)

    return halving(["preset", SMALLER], lengths, config.schedule.epochs, attempt)


# --- the peer -------------------------------------------------------------------------------------


class Samples(Dataset[dict[str, Tensor]]):
    """Pairs in the form that its Trainer takes."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"x": self.pairs.input[row].float(), "y": self.pairs.target[row].float()}


def peer_network(config: RunConfig, *, defaults: bool) -> torch.nn.Module:
    """Its FNO of the same width, modes and layers; with its defaults it has more parameters."""
    from neuralop.models import FNO

    sizes, task = config.operator, config.task
    modes, width = sizes["modes"], sizes["width"]
    given = {
        "n_modes": (2 * modes,) * task.dim,
        "in_channels": task.input.size,
        "out_channels": task.output.size,
        "hidden_channels": width,
        "n_layers": sizes["layers"],
    }
    if not defaults:
        given |= {"use_channel_mlp": False, "projection_channel_ratio": sizes["head"] / width}
    found: torch.nn.Module = FNO(**given)
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
    model = peer_network(config, defaults=way.defaults)
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


def peer(
    config: RunConfig, source: Source, lengths: list[float], rates: list[float], clock: Clock
) -> Attempts:
    """Attempts with each learning rate, kind of network and size of batches."""
    batches = config.schedule.batch, config.schedule.batch // 2
    ways = [Way(*one) for one in product(rates, (True, False), batches)]
    return halving(
        ways,
        lengths,
        config.schedule.epochs,
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


def compare(mine: Attempts, theirs: Attempts) -> list[dict[str, Any]]:
    """Seconds of both at some errors that both reach, from large to small."""

    def best(attempts: Attempts) -> float:
        return min(value for curve in attempts.values() for _, value in curve)

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
    rows = []
    for name, found in document["problems"].items():
        title = benchmark_named(name).title
        for row in found["compared"]:
            sides = (f"{row[f'{side}_seconds']:.0f} ({row[side]})" for side in ("pacefno", "peer"))
            rows.append([title, f"{row['error']:.4f}", *sides, f"{row['ratio']:.1f}"])
    clock = "processor seconds" if document["clock"] == "cpu" else "seconds"
    head = ["problem", "validation error", f"pacefno, {clock}", f"neuraloperator, {clock}", "ratio"]
    threads = f"{document['threads']} thread{'s' * (document['threads'] > 1)}"
    how = f"Preset `{document['preset']}`, {threads}, {document['machine']}."
    return f"{markdown(head, rows)}\n{how}\n"


def numbers(kind: Callable[[str], float], text: str) -> list[float]:
    return [kind(part) for part in text.split(",") if part]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problems", default="burgers1d,burgers2d,navier_stokes")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--data", type=Path, default=Path("datasets"))
    parser.add_argument("--lengths", default="0.25,0.5,1,2", help="shares of the preset's epochs")
    parser.add_argument("--rates", default="1e-3,4e-3", help="learning rates of the peer")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--output", type=Path, default=Path("results/time_to_error.json"))
    parser.add_argument("--figure", type=Path, help="draw the curves here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock, problems = CLOCKS[options.clock], dict[str, Any]()
    settings = {"preset": options.preset, "clock": options.clock, "threads": options.threads}
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
        lengths, rates = numbers(float, options.lengths), numbers(float, options.rates)
        mine = ours(config, source, lengths, clock)
        theirs = peer(config, source, lengths, rates, clock)
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
