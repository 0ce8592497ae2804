"""Wrap two operators that are not ours around a flow that is not ours, and measure what it does.

Decaying two-dimensional turbulence as a velocity field in a box of length 2 pi, made by a solver of
its own in numpy (vorticity, pseudo-spectral, RK4). A neuraloperator FNO and a zero-padded U-Net are
trained on it as it is. Then each is wrapped by PACE, untrained frame and all, and scored on flows
that were shifted and boosted *before* they were solved, so that the truth owes nothing to our
group.

    pip install 'pacefno[train]' neuraloperator==2.0.0
    python benchmarks/foreign_operators.py --minutes 4 --output results/foreign_operators.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import pacefno

POINTS, LENGTH, HORIZON, VISCOSITY = 64, 2 * math.pi, 0.5, 2e-3
CHANNELS = "u v: velocity"


# --- data -----------------------------------------------------------------------------------------


def wavenumbers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Wavenumbers of the box, and the inverse Laplacian."""
    k = np.fft.fftfreq(POINTS, 1 / POINTS) * (2 * math.pi / LENGTH)
    kx, ky = np.meshgrid(k, k, indexing="ij")
    k2 = kx**2 + ky**2
    return kx, ky, np.where(k2 == 0, 0.0, 1 / np.where(k2 == 0, 1.0, k2))


KX, KY, INVERSE = wavenumbers()
LIMIT = POINTS // 3
KEEP = (np.abs(KX) < LIMIT) & (np.abs(KY) < LIMIT)


def velocity(w: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Velocity ``(N, 2, n, n)`` of a vorticity spectrum and a uniform flow ``(N, 2)``."""
    psi = w * INVERSE
    u = np.fft.ifft2(1j * KY * psi).real + mean[:, 0, None, None]
    v = np.fft.ifft2(-1j * KX * psi).real + mean[:, 1, None, None]
    return np.stack([u, v], axis=1)


def solve(w: np.ndarray, mean: np.ndarray, time: float, steps: int) -> np.ndarray:
    """The vorticity spectrum ``time`` later, in a flow with a uniform part."""

    def rate(w: np.ndarray) -> np.ndarray:
        flow = velocity(w, mean)
        gradient = np.fft.ifft2(1j * KX * w).real, np.fft.ifft2(1j * KY * w).real
        advection = np.fft.fft2(flow[:, 0] * gradient[0] + flow[:, 1] * gradient[1])
        return KEEP * (-advection) - VISCOSITY * (KX**2 + KY**2) * w

    dt = time / steps
    for _ in range(steps):
        a = rate(w)
        b = rate(w + dt / 2 * a)
        c = rate(w + dt / 2 * b)
        w = w + dt / 6 * (a + 2 * b + 2 * c + rate(w + dt * c))
    return w


def initial_vorticity(count: int, rng: np.random.Generator) -> np.ndarray:
    """Spectra of random vorticity around wavenumber 4, aged for two time units."""
    k = np.sqrt(KX**2 + KY**2)
    shape = np.where(k > 0, k, 1.0) ** 1.0 * np.exp(-((k / 4) ** 2)) * KEEP * (k > 0)
    w = np.fft.fft2(rng.standard_normal((count, POINTS, POINTS))) * shape
    level = np.sqrt(np.mean(np.fft.ifft2(w).real ** 2, axis=(1, 2), keepdims=True))
    return solve(2.0 * w / level, np.zeros((count, 2)), 2.0, 100)


def pairs(count: int, seed: int) -> tuple[np.ndarray, Tensor, Tensor]:
    """Vorticity spectra, and velocities now and one horizon later."""
    w = initial_vorticity(count, np.random.default_rng(seed))
    still = np.zeros((count, 2))
    x, y = velocity(w, still), velocity(solve(w, still, HORIZON, 50), still)
    return w, torch.from_numpy(x).float(), torch.from_numpy(y).float()


def moved_pairs(w: np.ndarray, shift: np.ndarray, boost: np.ndarray) -> tuple[Tensor, Tensor]:
    """The same flows shifted (in length units) and boosted, and *solved anew* from there."""
    phase = np.exp(-1j * (KX * shift[:, 0, None, None] + KY * shift[:, 1, None, None]))
    moved = w * phase
    x = velocity(moved, boost)
    y = velocity(solve(moved, boost, HORIZON, 200), boost)
    return torch.from_numpy(x).float(), torch.from_numpy(y).float()


# --- operators ------------------------------------------------------------------------------------


class UNet(nn.Module):
    """An ordinary small U-Net with zero padding, as one would write it for images."""

    def __init__(self, channels: int = 2, width: int = 24) -> None:
        super().__init__()

        def block(a: int, b: int) -> nn.Sequential:
            first, second = nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(b, b, 3, padding=1)
            return nn.Sequential(first, nn.GELU(), second, nn.GELU())

        self.down = nn.ModuleList([block(channels, width), block(width, 2 * width)])
        self.bottom = block(2 * width, 4 * width)
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.out = nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept, given = [], x
        for layer in self.down:
            x = layer(x)
            kept.append(x)
            x = functional.avg_pool2d(x, 2)
        x = self.bottom(x)
        for layer in self.up:
            x = functional.interpolate(x, scale_factor=2, mode="bilinear")
            x = layer(torch.cat([x, kept.pop()], dim=1))
        result: Tensor = given + self.out(x)
        return result


def make_operators() -> dict[str, nn.Module]:
    from neuralop.models import FNO

    fno = FNO(n_modes=(16, 16), hidden_channels=24, in_channels=2, out_channels=2)
    return {"neuraloperator FNO": fno, "zero-padded U-Net": UNet()}


def fit(operator: nn.Module, x: Tensor, y: Tensor, seconds: float) -> int:
    """Train for a while; how many steps it took."""
    optimizer = torch.optim.AdamW(operator.parameters(), lr=2e-3)
    began, step = time.monotonic(), 0
    generator = torch.Generator().manual_seed(0)
    while (share := (time.monotonic() - began) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * 0.5 * (1 + math.cos(math.pi * share))
        rows = torch.randint(len(x), (16,), generator=generator)
        loss = pacefno.metrics.relative_l2(operator(x[rows]), y[rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
    return step


# --- measurement ----------------------------------------------------------------------------------


@torch.no_grad()
def error_at_rest(model: nn.Module, x: Tensor, y: Tensor, mean: Tensor) -> float:
    """Relative error of predictions, both without the uniform flow ``(N, 2)``."""
    level = mean.float().reshape(-1, 2, 1, 1)
    found = torch.cat([model(part) for part in x.split(20)])
    return float(pacefno.metrics.relative_l2(found - level, y - level).mean())


def measure(operator: nn.Module, w: np.ndarray, x: Tensor, y: Tensor) -> dict[str, float]:
    """Errors at rest and moved, and equivariance errors, before and after wrapping."""
    rng = np.random.default_rng(7)
    shift = rng.uniform(0, LENGTH, (len(x), 2))
    boost = rng.uniform(-1, 1, (len(x), 2))
    group = pacefno.Galilean(2)
    wrapped = pacefno.PACE(
        operator, group, channels=CHANNELS, horizon=HORIZON, lengths=LENGTH
    ).eval()
    still, none = torch.zeros(len(x), 2), np.zeros_like(shift)
    row: dict[str, float] = {}
    for name, model in (("bare", operator.eval()), ("wrapped", wrapped)):
        row[f"{name}, at rest"] = error_at_rest(model, x, y, still)
        for what, by, flow in (
            ("shifted", shift, none),
            ("boosted", none, boost),
            ("both", shift, boost),
        ):
            moved = moved_pairs(w, by, flow)
            row[f"{name}, {what}"] = error_at_rest(model, *moved, torch.from_numpy(flow))
        for small in (pacefno.Translation(2), group):
            error = pacefno.metrics.equivariance_error(
                model, small, x[:20], channels=CHANNELS, horizon=HORIZON, lengths=LENGTH
            )
            row[f"{name}, equivariance error, {small.name}"] = float(error.max())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, help="of training, each operator")
    parser.add_argument("--samples", type=int, default=400, help="for training")
    parser.add_argument("--output", type=Path, help="write the numbers here as JSON")
    options = parser.parse_args()
    torch.manual_seed(0)
    _, x, y = pairs(options.samples, seed=1)
    w, x_test, y_test = pairs(60, seed=2)
    rows = {}
    for name, operator in make_operators().items():
        steps = fit(operator, x, y, 60 * options.minutes)
        rows[name] = {"training steps": float(steps)} | measure(operator, w, x_test, y_test)
        print(name)
        for key, value in rows[name].items():
            print(f"  {key:45s} {value:.3g}")
    if options.output:
        settings = {"minutes": options.minutes, "samples": options.samples, "points": POINTS}
        document = {"study": "foreign_operators", "settings": settings, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
