"""How long one FNO training step takes, as ratios to the classic layer, GFNO and neuraloperator.

    python benchmarks/operators.py [--threads 2] [--rounds 7]

The contestants take turns within each round, so that a disturbance of the machine hits all of them;
the best of the rounds counts. neuraloperator runs twice: as close to this
network as its options allow (its lifting has one layer more), and with its defaults (an MLP in
every block, coordinates as channels). Absolute times depend on the machine and on its memory
allocator (with glibc, try ``MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_MMAP_MAX_=0`` in front of the
command): quote the ratios.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _timing import CLOCKS, HEADER, Clock, Row, best_times
from pacefno.operators import FNO, GroupFNO

BATCH = 20
# Dim, points per axis, width, modes
SIZES = [(1, 1024, 64, 20), (1, 256, 64, 20), (2, 64, 32, 12), (2, 32, 32, 12)]
# A GFNO of about as many weights: its group and width, by dimension.
GROUPS = {1: ("z2", 45), 2: ("p4", 16)}
CONVOLUTION: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d}


class ClassicSpectral(nn.Module):
    """Channels first, complex weights, full FFT, the corners ``0 .. m-1`` and ``-m .. -1`` of the
    spectrum.
    """

    def __init__(self, dim: int, width: int, modes: int) -> None:
        super().__init__()
        self.dim, self.modes = dim, modes
        shape = (width, width, *(modes,) * dim)
        self.corners = nn.ParameterList(
            nn.Parameter(torch.rand(*shape, dtype=torch.cfloat) / width**2)
            for _ in range(2 ** (dim - 1))
        )

    def forward(self, v: Tensor) -> Tensor:
        m, axes = self.modes, tuple(range(-self.dim, 0))
        spectrum = torch.fft.rfftn(v, dim=axes)
        out = torch.zeros_like(spectrum)
        if self.dim == 1:
            out[..., :m] = torch.einsum("bix,iox->box", spectrum[..., :m], self.corners[0])
        else:
            for rows, weight in zip((slice(0, m), slice(-m, None)), self.corners, strict=True):
                out[:, :, rows, :m] = torch.einsum(
                    "bixy,ioxy->boxy", spectrum[:, :, rows, :m], weight
                )
        field: Tensor = torch.fft.irfftn(out, s=v.shape[2:], dim=axes)
        return field


class ClassicFNO(nn.Module):
    """The usual FNO with 1 x 1 convolutions: same depth, width and head as ours."""

    def __init__(self, dim: int, width: int, modes: int, layers: int = 4, head: int = 128) -> None:
        super().__init__()
        convolution = CONVOLUTION[dim]
        self.lifting = convolution(1, width, 1)
        self.pointwise = nn.ModuleList(convolution(width, width, 1) for _ in range(layers))
        self.spectral = nn.ModuleList(ClassicSpectral(dim, width, modes) for _ in range(layers))
        self.widen, self.project = convolution(width, head, 1), convolution(head, 1, 1)

    def forward(self, field: Tensor) -> Tensor:
        v = self.lifting(field)
        for i, (pointwise, spectral) in enumerate(zip(self.pointwise, self.spectral, strict=True)):
            v = F.gelu(v) if i else v
            v = pointwise(v) + spectral(v)
        out: Tensor = self.project(F.gelu(self.widen(v)))
        return out


def contestants(dim: int, width: int, modes: int) -> dict[str, nn.Module]:
    models: dict[str, nn.Module] = {
        "pacefno": FNO(dim, 1, 1, width, modes),
        "classic": ClassicFNO(dim, width, modes),
    }
    group, narrow = GROUPS[dim]
    models["gfno, as many weights"] = GroupFNO(dim, 1, 1, narrow, modes, group, norm=False)
    if importlib.util.find_spec("neuralop"):
        from neuralop.models import FNO as Peer

        sizes = {"in_channels": 1, "out_channels": 1, "hidden_channels": width}
        models["neuralop, same network"] = Peer(
            n_modes=(
                *(2 * modes,) * (dim - 1),
                2 * modes - 2,
            ),  # it keeps n_modes // 2 + 1 wavenumbers on the last axis
            positional_embedding=None,
            use_channel_mlp=False,
            projection_channel_ratio=128 / width,
            **sizes,
        )
        models["neuralop, defaults"] = Peer(n_modes=(2 * modes,) * dim, **sizes)
    return models


def training_step(model: nn.Module, field: Tensor, target: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        (model(field) - target).square().mean().backward()
        optimizer.step()

    return step


def measure(rounds: int, clock: Clock) -> Iterator[Row]:
    """Training steps of ours against those of others: a ratio below 1 is a gain."""
    for dim, n, width, modes in SIZES:
        field, target = torch.randn(2, BATCH, 1, *(n,) * dim)
        models = contestants(dim, width, modes)
        steps = {name: training_step(model, field, target) for name, model in models.items()}
        best = best_times(dict(steps), rounds, clock)
        size = f"{dim}-D, {n}{'' if dim == 1 else f'^{dim}'}, width {width}"
        for name in [name for name in models if name != "pacefno"]:
            yield Row(size, f"training step, pacefno FNO / {name}", best[name], best["pacefno"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(
        f"batch {BATCH}, float32, {options.threads} threads, best of {options.rounds} interleaved "
        f"rounds, {options.clock} clock\n{HEADER}"
    )
    for row in measure(options.rounds, CLOCKS[options.clock]):
        print(row.text, flush=True)


if __name__ == "__main__":
    main()
