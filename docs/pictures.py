"""Draw the pictures of docs/concepts.md and the moving picture of the README.

    python docs/pictures.py concepts    # docs/figures/concept-*.png, seconds
    python docs/pictures.py drag        # docs/figures/drag.gif, from the models in docs/models

Everything in them is computed by the package: fields are solutions, frames are estimates, and
errors are those of the models.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from pathlib import Path

import matplotlib
import numpy
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

import pacefno
from pacefno.paper.style import BLUE, FAINT, GREEN, GREY, INK, ORANGE, SHADE, SIGNED, VERMILION
from pacefno.train.evaluate import load_run

matplotlib.use("Agg")
FIGURES = Path(__file__).parent / "figures"
DPI = 130


def plain(axes: Axes, title: str = "", colour: str = INK) -> None:
    """No ticks, a thin frame, a title."""
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10, color=colour)
    for spine in axes.spines.values():
        spine.set_color(FAINT)


def image(axes: Axes, field: Tensor, reach: float, title: str = "") -> None:
    """A 2-D field with x to the right and y up, signed colours."""
    axes.imshow(
        field.T, origin="lower", extent=(0, 1, 0, 1), cmap=SIGNED, vmin=-reach, vmax=reach,
        interpolation="bilinear",
    )  # fmt: skip
    plain(axes, title)


def save(figure: Figure, name: str) -> None:
    FIGURES.mkdir(exist_ok=True)
    figure.savefig(FIGURES / f"{name}.png", dpi=DPI, facecolor="white")
    print(f"docs/figures/{name}.png")


# --- what is a frame ------------------------------------------------------------------------------


def vortices(points: int) -> Tensor:
    """Compact vorticity with a place and a direction: a strong pair and a weak third vortex."""
    x = torch.arange(points, dtype=torch.float64) / points
    x, y = torch.meshgrid(x, x, indexing="ij")
    field = torch.zeros_like(x)
    for strength, a, b, width in (
        (1.0, 0.52, 0.59, 0.05),
        (-1.32, 0.52, 0.42, 0.05),
        (0.5, 0.38, 0.5, 0.04),
    ):
        field += strength * torch.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * width**2))
    return field[None, None]  # strengths times areas add up to nothing, as on any torus


def draw_frame() -> None:
    """One field moved four ways with the frame that is read off it, and pulled back."""
    group = pacefno.Euclidean()
    model = pacefno.PACE(torch.nn.Identity(), group, channels="w: pseudoscalar").eval()
    rest = model.canonicalize(vortices(96))
    motions = [(0, 0, 0), (0.18, 0.1, 0), (-0.1, 0.12, 1.2), (0.1, -0.15, -2.4)]
    figure = Figure(figsize=(9.2, 5.0), layout="constrained")
    grid = figure.subplots(2, len(motions))
    kind = pacefno.FieldType.parse("w: pseudoscalar", 2)
    reach = float(rest.abs().max())
    for column, motion in enumerate(motions):
        xi = torch.tensor([motion], dtype=torch.float64)
        moved = group.act(pacefno.Field(rest, kind), xi).values
        found = model.frame_of(moved).xi[0]
        back = model.canonicalize(moved)
        x, y, angle = (float(number) for number in found)
        image(
            grid[0, column],
            moved[0, 0],
            reach,
            f"x {x:+.2f}   y {y:+.2f}   {math.degrees(angle):+.0f}°",
        )
        for turn, colour in ((0.0, INK), (math.pi / 2, GREY)):
            step = 0.17 * math.cos(angle + turn), 0.17 * math.sin(angle + turn)
            grid[0, column].annotate(
                "", (0.5 + x + step[0], 0.5 + y + step[1]), (0.5 + x, 0.5 + y),
                arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.8, "shrinkA": 0},
            )  # fmt: skip
        apart = float(pacefno.metrics.relative_l2(back, rest))
        image(
            grid[1, column], back[0, 0], reach, f"differs by {apart:.0e}" if column else "at rest"
        )
    grid[0, 0].set_ylabel("as it arrives,\nwith its frame", fontsize=10)
    grid[1, 0].set_ylabel("pulled back:\nwhat the operator sees", fontsize=10)
    save(figure, "concept-frame")


# --- what is a slice ------------------------------------------------------------------------------


def draw_slice() -> None:
    """Orbits of shifts are circles of the first Fourier mode; the slice is a half-line."""
    group, points = pacefno.Translation(1), 256
    x = torch.arange(points, dtype=torch.float64) / points
    turn = 2 * math.pi
    fields = torch.stack(
        [
            torch.cos(turn * x) + 0.45 * torch.cos(2 * turn * x + 1.1),
            0.62 * torch.cos(turn * x) + 0.35 * torch.cos(3 * turn * x - 0.6),
            0.32 * torch.cos(turn * x) + 0.3 * torch.cos(2 * turn * x - 2.0),
        ]
    )[:, None]
    kind = pacefno.FieldType.parse("u: scalar", 1)
    slice = pacefno.frames.PhaseSlice(group)
    figure = Figure(figsize=(9.2, 3.9), layout="constrained")
    plane, lines = figure.subplots(1, 2, width_ratios=(1, 1.45))
    angles = torch.linspace(0, turn, 200)
    for number, colour in enumerate((BLUE, ORANGE, GREEN)):
        size = float(torch.fft.rfft(fields[number, 0])[1].abs()) * 2 / points
        plane.plot(size * angles.cos(), size * angles.sin(), color=colour, lw=1.6)
        plane.plot(size, 0, "o", color=colour, ms=8, zorder=5)
    plane.plot([0, 1.25], [0, 0], color=INK, lw=2.2)
    plane.text(1.27, 0, "slice:\nphase 0", va="center", fontsize=10)
    plane.text(0, 1.06, "orbit: all shifts\nof one field", ha="center", fontsize=10, color=BLUE)
    plane.set(aspect="equal", xlim=(-1.15, 1.75), ylim=(-1.15, 1.35))
    plane.set_xlabel("first Fourier mode, real part")
    plane.set_ylabel("imaginary part")
    plane.spines[["top", "right"]].set_visible(False)
    for shift, style, strength in ((0.0, "-", 1.0), (0.15, "--", 0.75), (0.45, ":", 0.75)):
        xi = torch.tensor([[shift]], dtype=torch.float64)
        moved = group.act(pacefno.Field(fields[:1], kind), xi)
        read = float(slice.coordinates(moved))
        mode = torch.fft.rfft(moved.values[0, 0])[1] * 2 / points
        plane.plot(float(mode.real), float(mode.imag), "o", mfc="white", mec=BLUE, ms=7, zorder=4)
        label = "on the slice" if shift == 0 else f"shifted by {shift:g}; read off: {read:.4f}"
        lines.plot(
            x,
            moved.values[0, 0],
            style,
            color=BLUE,
            lw=2.2 if shift == 0 else 1.5,
            alpha=strength,
            label=label,
        )
    plane.plot(1, 0, "o", color=BLUE, ms=8, zorder=6)
    lines.set(xlabel="x", ylabel="u", xlim=(0, 1), ylim=(-1.7, 2.6))
    lines.legend(frameon=False, loc="upper right")
    lines.spines[["top", "right"]].set_visible(False)
    save(figure, "concept-slice")


# --- why Gamma_B ----------------------------------------------------------------------------------


def draw_terminal_frame() -> None:
    """A boosted flow in space and time, and its prediction pushed out with both frames."""
    equation, group = pacefno.pde.Burgers(1, 5e-3), pacefno.Galilean(1)
    kind = pacefno.FieldType.parse("u: speed", 1)
    points, horizon = 256, 1.0
    x = torch.arange(points, dtype=torch.float64) / points
    start = 0.35 * (torch.cos(2 * math.pi * x) + 0.4 * torch.sin(4 * math.pi * x))[None, None]
    what = {"channels": "u: speed", "horizon": horizon, "lengths": 1.0}
    model = pacefno.PACE(torch.nn.Identity(), group, **what)
    start = model.eval().canonicalize(start)
    xi = torch.tensor([[0.15, 0.4]], dtype=torch.float64)
    moved = group.act(pacefno.Field(start, kind), xi).values
    times = torch.linspace(0, horizon, 81).tolist()
    still, moving = (pacefno.pde.solve(equation, a, times, 2.5e-3)[0, :, 0] for a in (start, moved))
    reach = float(moving.abs().max())
    figure = Figure(figsize=(9.2, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.35))
    for axes, film, motion, title in (
        (left, still, (0.0, 0.0), "solved at rest"),
        (middle, moving, xi[0].tolist(), "shifted by 0.15, boosted by 0.4"),
    ):
        axes.imshow(
            film, origin="lower", aspect="auto", extent=(0, 1, 0, horizon), cmap=SIGNED,
            vmin=-reach, vmax=reach,
        )  # fmt: skip
        place = [0.25 + motion[0] + motion[1] * time for time in times]
        axes.plot(place, times, color=INK, lw=2)
        axes.set(xlabel="x", ylabel="time", xlim=(0, 1), title=title)
        axes.title.set_size(10)
    middle.annotate("xi_0", (0.4, 0.0), (0.46, 0.06), color=INK, fontsize=11)
    middle.annotate("Gamma_B(xi_0)", (0.8, 0.95), (0.17, 0.93), color=INK, fontsize=11)
    truth, canonical = moving[-1][None, None], still[-1][None, None]
    early = group.act(pacefno.Field(canonical, kind), xi).values  # as if no time had passed
    late = group.act(pacefno.Field(canonical, kind.at([horizon])), xi).values
    wrong, good = (float(pacefno.metrics.relative_l2(found, truth)) for found in (early, late))
    right.plot(x, truth[0, 0], color=INK, lw=4, alpha=0.3, label="truth: the moved flow, solved")
    right.plot(
        x,
        early[0, 0],
        "--",
        color=VERMILION,
        lw=1.7,
        label=f"pushed out with xi_0: error {wrong:.2f}",
    )
    right.plot(x, late[0, 0], color=BLUE, lw=1.7, label=f"with Gamma_B(xi_0): error {good:.0e}")
    low, high = float(truth.min()), float(truth.max())
    right.set(
        xlabel="x",
        xlim=(0, 1),
        ylim=(low - 0.1, high + 0.75 * (high - low)),
        title="at the final time",
    )
    right.title.set_size(10)
    right.legend(frameon=False, fontsize=9, loc="upper left")
    right.spines[["top", "right"]].set_visible(False)
    save(figure, "concept-terminal-frame")


# --- the moving picture ---------------------------------------------------------------------------

MODELS = Path(__file__).parent / "models"
PROBLEM = "shallow_water"
FRAMES = 36  # of the loop, there and back
FARTHEST = (0.45, 0.3, 0.8, 0.5)  # shifts in periods, velocities: the end of the path
COLOURS = 80  # of the fields in the palette; lines and letters have their own
MODEL_TITLES = {"fno": "FNO", "pace": "PACE", "fno-aug": "FNO + augmentation"}
LARGEST = 2_000_000  # bytes


def load_drag(models: Path) -> tuple[dict[str, pacefno.PACE], pacefno.Task, Tensor, Tensor]:
    """The models, their task and one sample of the moving picture."""
    folder = models / PROBLEM
    if not folder.exists():
        raise SystemExit(f"{folder}: expected trained models: make models")
    samples = load_file(folder / "samples.safetensors")
    found = {title: pacefno.load(folder / name) for name, title in MODEL_TITLES.items()}
    task = load_run(folder / "pace").config.task
    return found, task, samples["input"][:1], samples["target"][:1]


def fingerprint(models: Path) -> str:
    """Of the models and samples in the picture, kept as its comment: a test compares them."""
    files = sorted((models / PROBLEM).rglob("*.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def draw_palette() -> Image.Image:
    """The colours of the moving picture: cividis, and each line and letter with its soft edges.

    Chosen rather than counted: few pixels are lines, so that an adaptive palette would give two of
    them one colour.
    """
    colours = [(255, 255, 255)]
    for share in numpy.linspace(0, 1, COLOURS):
        colours.append(tuple(round(255 * c) for c in matplotlib.colormaps["cividis"](share)[:3]))
    paper, shade = (numpy.array(matplotlib.colors.to_rgb(c)) for c in ("white", SHADE))
    colours.append(tuple(round(255 * c) for c in shade))
    for name in ("black", INK, GREY, FAINT, VERMILION, BLUE, ORANGE):
        ink = numpy.array(matplotlib.colors.to_rgb(name))
        for strength in (0.25, 0.5, 0.75, 1.0):
            mixed = strength * ink + (1 - strength) * (shade if name == GREY else paper)
            colours.append(tuple(round(255 * c) for c in mixed))
    assert len(colours) <= 128  # seven bits for each pixel
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in colours for part in colour])
    return palette


def draw_drag(models: Path, output: Path, stills: Path | None) -> None:
    """A field dragged and set in motion, there and back: input, truth, both predictions, errors."""
    known, task, field, target = load_drag(models)
    pace = known["PACE"]
    group, names = pace.group, list(known)
    shares = [(1 - math.cos(2 * math.pi * i / FRAMES)) / 2 for i in range(FRAMES // 2 + 1)]
    fields, errors = [], {name: [] for name in known}
    for share in shares:
        xi = share * torch.tensor([FARTHEST], dtype=torch.float64)
        moved = group.act(pacefno.Field(field, pace.input), xi).values
        truth = group.act(pacefno.Field(target, pace.output), xi).values
        with torch.no_grad():
            found = [model(moved) for model in known.values()]
        fields.append([one[0, 0] for one in (moved, truth, *found)])
        for name, one in zip(names, found, strict=True):
            error = pacefno.metrics.canonical_error(
                group, pace.output, xi, one, truth, per_channel=task.per_channel
            )
            errors[name].append(float(error))
    seen = torch.cat([field[0, 0].flatten(), target[0, 0].flatten()])
    low, high = (float(seen.quantile(share)) for share in (0.01, 0.99))
    inside = min(reach / far for reach, far in zip(task.train_range, FARTHEST, strict=True))
    pages = []
    for number, share in enumerate(shares):
        figure = Figure(figsize=(7.6, 3.9), dpi=100, facecolor="white")
        figure.subplots_adjust(
            left=0.09, right=0.985, top=0.83, bottom=0.13, hspace=0.32, wspace=0.06
        )
        grid = figure.add_gridspec(2, 4, height_ratios=(1.75, 1))
        heads = [
            "input, now",
            "truth, later",
            *(f"{name}: {errors[name][number]:.0%} off" for name in names[:2]),
        ]
        for column, (values, head) in enumerate(zip(fields[number][:4], heads, strict=True)):
            axes = figure.add_subplot(grid[0, column])
            axes.imshow(
                values.T,
                origin="lower",
                cmap="cividis",
                vmin=low,
                vmax=high,
                interpolation="bilinear",
            )
            plain(axes, head, (INK, INK, VERMILION, BLUE)[column])
            axes.title.set(weight="bold", size=11)
        axes = figure.add_subplot(grid[1, :])
        axes.axvspan(0, inside, color=SHADE)
        axes.text(
            inside / 2,
            3.2,
            "moved so far in training",
            ha="center",
            va="top",
            fontsize=8,
            color=GREY,
        )
        for name, colour in zip(names, (VERMILION, BLUE, ORANGE), strict=True):
            axes.semilogy(shares, errors[name], color=colour, lw=2)
            axes.plot(share, errors[name][number], "o", color=colour, ms=8)
            at, lift = {"FNO": (8, 5), "PACE": (4, -12)}.get(name, (-5, -14))
            axes.annotate(
                name, (shares[at], errors[name][at]), (0, lift), textcoords="offset points",
                ha="center", fontsize=9, weight="bold", color=colour,
            )  # fmt: skip
        axes.set(xlim=(0, 1.01), ylim=(0.06, 4), yticks=[0.1, 1], yticklabels=["10 %", "100 %"])
        axes.set_xlabel("how far and how fast it is dragged", fontsize=9)
        axes.set_ylabel("error", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.set_xticks([])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        speed = math.hypot(*FARTHEST[2:]) * share
        place = (
            f"shifted by {FARTHEST[0] * share:.2f} of the box, carried by a current of {speed:.2f}"
        )
        figure.text(0.09, 0.925, f"Height of shallow water, {place}", fontsize=11, color=INK)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        pages.append(Image.fromarray(numpy.asarray(canvas.buffer_rgba())).convert("RGB"))
    palette = draw_palette()
    reduced = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in pages]
    loop = [*reduced, *reduced[-2:0:-1]]
    durations = [90] * len(loop)
    durations[0] = durations[len(shares) - 1] = 900  # rest at both ends
    loop[0].save(
        output, save_all=True, append_images=loop[1:], duration=durations, loop=0,
        comment=f"of the models {fingerprint(models)}".encode(),
    )  # fmt: skip
    size = output.stat().st_size
    print(f"{output}: {len(loop)} frames, {size / 1e6:.2f} MB")
    for name in names:
        print(
            f"{name}: {errors[name][0]:.3f} unmoved, {errors[name][-1]:.3f} at the end of the path"
        )
    if stills is not None:
        stills.mkdir(parents=True, exist_ok=True)
        for number in (0, len(shares) // 2, len(shares) - 1):
            pages[number].save(stills / f"drag-{number:02d}.png")
    if size > LARGEST:
        raise SystemExit(f"{output}: expected at most {LARGEST / 1e6:g} MB: use fewer frames")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("concepts", "drag"))
    parser.add_argument("--models", type=Path, default=MODELS, help="where `make models` put them")
    parser.add_argument("--stills", type=Path, help="also write some frames of drag.gif as PNG")
    options = parser.parse_args()
    if options.what == "drag":
        draw_drag(options.models, FIGURES / "drag.gif", options.stills)
        return
    draw_frame()
    draw_slice()
    draw_terminal_frame()


if __name__ == "__main__":
    main()
