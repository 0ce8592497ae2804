"""How many samples a dataset has and on which grids, by the name of a preset (protocol, sections 3 and 8)."""

from __future__ import annotations

from dataclasses import dataclass

from pacefno.equations import Problem


@dataclass(frozen=True)
class Sizes:
    """Samples per split, and how fine grids are stored: at most ``thin[d - 1]`` ID points per axis in d dimensions."""

    train: int
    validation: int
    test: int
    thin: tuple[int, ...] | None = None  # None keeps the grids of the problem

    def stride(self, problem: Problem) -> int:
        """Every how many solver points one is stored: the smallest number that divides the ID grid and makes it fit."""
        if self.thin is None:
            return 1
        most = self.thin[problem.dim - 1]
        for stride in range(1, min(problem.id_grid) // 2 + 1):
            divides = all(n % (stride * problem.coarsening) == 0 for n in problem.grid)
            if divides and max(problem.id_grid) // stride <= most:
                return stride
        return 1  # a grid without a suitable divisor is stored whole


SIZES: dict[str, Sizes] = {
    "smoke": Sizes(train=24, validation=8, test=8, thin=(128, 32)),
    "quick": Sizes(train=500, validation=50, test=100),
    "standard": Sizes(train=1000, validation=100, test=200),
    "paper": Sizes(train=1000, validation=100, test=200),
}
TRAJECTORY_SIZES: dict[str, Sizes] = {  # LPSDA's splits have 512 trajectories each
    "smoke": Sizes(train=16, validation=8, test=8),
    "quick": Sizes(train=128, validation=32, test=64),
    "standard": Sizes(train=512, validation=512, test=512),
    "paper": Sizes(train=512, validation=512, test=512),
}


def sizes_named(preset: str, table: dict[str, Sizes] = SIZES) -> Sizes:
    """The sizes of a preset, or an error that lists what there is."""
    if preset not in table:
        raise ValueError(f"unknown preset {preset!r}: expected one of {', '.join(table)}")
    return table[preset]
