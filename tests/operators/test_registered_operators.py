"""What every operator of the registry promises."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from group_examples import of_the_package
from pacefno.fields import Box
from pacefno.operators import (
    FNO,
    OPERATORS,
    Adapted,
    Conditioned,
    GroupFNO,
    Recurrent,
    Residual,
    SpaceTimeFNO,
    SplitStep,
    Standardised,
    Symmetrised,
)
from pacefno.registry import build, spec_of

SCALE = (torch.tensor([0.5, -1.0]), torch.tensor([2.0, 3.0]))
# from two channels to three or four
EXAMPLES: dict[str, Callable[[], nn.Module]] = {
    "fno": lambda: FNO(2, 2, 3, 6, 3, layers=2, positions="grid", head=8),
    "group-fno": lambda: GroupFNO(2, 2, 4, 3, 3, "p4", channels="u: velocity", layers=2),
    "space-time-fno": lambda: SpaceTimeFNO(2, 3, width=4, modes=3, time_modes=3, layers=2),
    "recurrent": lambda: Recurrent(FNO(2, 2, 1, 6, 3, layers=2), 3),
    "residual": lambda: Residual(FNO(2, 2, 4, 6, 3, layers=2), channels=2),
    "conditioned": lambda: Conditioned(FNO(2, 5, 3, 6, 3, layers=2), [1.0, 2.0], 0.5, 0.1),
    "split-step": lambda: SplitStep(FNO(2, 6, 2, 6, 3, layers=2), [(2, 0.1)], [1.0, 2.0], 0.5),
    "symmetrised": lambda: Symmetrised(
        FNO(2, 2, 3, 6, 3, layers=2, positions="grid", head=8), "p2m", "u: velocity", "scalar"
    ),
    "adapted": lambda: Adapted(FNO(2, 2, 3, 6, 3, layers=2), inputs={"field": 2}, keywords=True),
    "standardised": lambda: Standardised(FNO(2, 2, 2, 6, 3, layers=2), SCALE, SCALE),
}
over_names = pytest.mark.parametrize("name", of_the_package(OPERATORS))


def made(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return EXAMPLES[name]().to(dtype)


def run(name: str, operator: nn.Module, grid: tuple[int, int], dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    field = torch.randn(3, 2, *grid, dtype=dtype, generator=generator)
    options = {}
    if name == "conditioned":
        options["box"] = Box(torch.tensor([[1.0, 2.0]]).expand(3, 2), torch.full((3,), 0.5))
    out: Tensor = operator(field, **options)
    return out


def test_every_registered_operator_has_an_example() -> None:
    assert [name for name in of_the_package(OPERATORS) if name not in EXAMPLES] == []


@over_names
@pytest.mark.parametrize("grid", [(12, 12), (9, 14)])
def test_the_output_has_the_grid_and_dtype_of_the_input(
    name: str, grid: tuple[int, int], dtype: torch.dtype
) -> None:
    out = run(name, made(name, dtype), grid, dtype)
    assert out.shape[0] == 3 and out.shape[2:] == grid and out.shape[1] in (2, 3, 4)
    assert out.dtype == dtype and bool(out.isfinite().all())


@over_names
def test_all_that_is_stored_is_real(name: str) -> None:
    assert not any(tensor.is_complex() for tensor in made(name).state_dict().values())


@over_names
def test_an_operator_is_rebuilt_from_its_description_and_its_weights(name: str) -> None:
    operator = made(name)
    again = build(spec_of(operator))
    assert type(again) is type(operator) and spec_of(again) == spec_of(operator)
    again.load_state_dict(operator.state_dict())
    out, twin = (run(name, part, (9, 14), torch.float32) for part in (operator, again))
    assert torch.equal(out, twin)
