"""How long it takes to reach an error, from the same arrays: our loop beside neuraloperator's.

    pip install 'pacefno[all]' neuraloperator==2.0.0
    python benchmarks/time_to_error.py --problems burgers1d,burgers2d,navier_stokes

Both train an FNO of the same width, modes and layers on the training samples of a benchmark, and
are judged by the relative L2 error on its validation samples, on the training grid. Ours runs as
``pacefno train --model fno`` does. The peer keeps its own Trainer, normalisers and AdamW with a
cosine schedule, as in its scripts. Each side is tried with several lengths of training (a schedule
that ends later starts slower), the peer with several learning rates and with its default network
as well as the bare one, of which the better half goes on to each longer training. The time to an
error is that of the best attempt of each side: the first validation at or below it, everything
since the first step included. Run it on a quiet machine, or
count processor seconds (``--clock cpu --threads 1``).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from _timing import CLOCKS, Clock, machine
from documents import markdown
from pacefno.data import prepare
from pacefno.data.samples import Pairs, Source
from pacefno.paper.benchmarks import Benchmark, benchmark_named
from pacefno.paper.presets import config_for
from pacefno.train.config import RunConfig, with_overrides
from pacefno.train.loop import Callbacks, train

Curve = list[tuple[float, float]]  # seconds since the start, validation error
LEVELS = (2.0, 1.5, 1.2, 1.0)  # times the best error that both reach


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


def ours(
    benchmark: Benchmark, preset: str, source: Source, lengths: list[float], clock: Clock
) -> dict[str, Curve]:
    """An attempt for each length of training, as a share of the preset's epochs."""
    config = config_for(benchmark, "fno", preset, 42)
    attempts = {}
    for share in lengths:
        epochs = max(2, round(share * config.schedule.epochs))
        changes = [f"schedule.epochs={epochs}", "schedule.validate_every=1"]
        attempts[f"{epochs} epochs"] = our_curve(with_overrides(config, changes), source, clock)
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


def peer_curve(
    config: RunConfig, source: Source, epochs: int, rate: float, defaults: bool, clock: Clock
) -> Curve:
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
    model = peer_network(config, defaults=defaults)
    optimizer = AdamW(model.parameters(), lr=rate, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    processor = DefaultDataProcessor(in_normalizer=scalers[0], out_normalizer=scalers[1])
    trainer = Recording(
        model=model, n_epochs=epochs, data_processor=processor, device="cpu", verbose=False
    )
    # Its d counts the axes that a norm runs over: channels too, as in our error.
    error = LpLoss(d=config.task.dim + 1, p=2)
    trainer.train(
        DataLoader(Samples(few), batch_size=config.schedule.batch, shuffle=True),
        {"validation": DataLoader(Samples(judged), batch_size=50)},
        optimizer,
        scheduler,
        training_loss=error,
        eval_losses={"l2": error},
    )
    return curve


def peer(
    benchmark: Benchmark,
    preset: str,
    source: Source,
    lengths: list[float],
    rates: list[float],
    clock: Clock,
) -> dict[str, Curve]:
    """Attempts with each learning rate and kind of network; the better half is trained longer."""
    config = config_for(benchmark, "fno", preset, 42)
    attempts = {}
    ways = [(rate, defaults) for rate in rates for defaults in (True, False)]
    for share in sorted(lengths):
        epochs = max(2, round(share * config.schedule.epochs))
        reached = {}
        for rate, defaults in ways:
            name = f"{epochs} epochs, rate {rate:g}, {'default' if defaults else 'bare'} network"
            attempts[name] = peer_curve(config, source, epochs, rate, defaults, clock)
            reached[rate, defaults] = min(error for _, error in attempts[name])
            print(f"  {name}: {reached[rate, defaults]:.4f}", flush=True)
        ways = sorted(ways, key=lambda way: reached[way])[: -(-len(ways) // 2)]
    return attempts


# --- the comparison -------------------------------------------------------------------------------


def time_to(attempts: dict[str, Curve], error: float) -> tuple[float, str] | None:
    """The fewest seconds in which an attempt came to this error, and which it was."""
    found = [
        (seconds, name)
        for name, curve in attempts.items()
        for seconds, value in curve
        if value <= error
    ]
    return min(found) if found else None


def compare(mine: dict[str, Curve], theirs: dict[str, Curve]) -> list[dict[str, Any]]:
    """Seconds of both at some errors that both reach, from large to small."""

    def best(attempts: dict[str, Curve]) -> float:
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


def sketch(name: str, attempts: dict[str, Curve]) -> str:
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
            seconds = f"{row['pacefno_seconds']:.0f}", f"{row['peer_seconds']:.0f}"
            rows.append([title, f"{row['error']:.4f}", *seconds, f"{row['ratio']:.1f}"])
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
    parser.add_argument("--lengths", default="0.25,0.5,1", help="of ours, shares of the preset")
    parser.add_argument("--peer-lengths", default="0.5,1,2", help="of the peer's, the same unit")
    parser.add_argument("--rates", default="1e-3,4e-3", help="learning rates of the peer")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--output", type=Path, default=Path("results/time_to_error.json"))
    parser.add_argument("--figure", type=Path, help="draw the curves here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock, problems = CLOCKS[options.clock], {}
    for name in options.problems.split(","):
        benchmark = benchmark_named(name)
        source = prepare(benchmark.recipe, options.preset, root=options.data)
        print(f"{benchmark.title}, preset {options.preset}", flush=True)
        lengths = numbers(float, options.lengths)
        mine = ours(benchmark, options.preset, source, lengths, clock)
        lengths, rates = numbers(float, options.peer_lengths), numbers(float, options.rates)
        theirs = peer(benchmark, options.preset, source, lengths, rates, clock)
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
        settings = {"preset": options.preset, "clock": options.clock, "threads": options.threads}
        document = {"study": "time_to_error", "machine": machine(), **settings}
        document["problems"] = problems
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    if options.figure:
        draw(document, options.figure)


if __name__ == "__main__":
    main()
