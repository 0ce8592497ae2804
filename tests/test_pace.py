"""PACE: whatever it wraps becomes equivariant, at any resolution, trained or not."""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from exact_solutions import burgers, places, taylor_green
from group_examples import TAU, Example, example
from pacefno.errors import UsageError
from pacefno.fields import Box, Field, FieldType
from pacefno.frames import (
    AnalyticFrame,
    CNNFrame,
    EquivariantFrame,
    Frame,
    IdentityFrame,
    PhaseSlice,
)
from pacefno.grid import FieldError, from_spectrum, points, resample, to_spectrum, wavenumbers
from pacefno.groups import Euclidean, Galilean, GalileanScaling, Group, Translation, Trivial, shift
from pacefno.metrics import equivariance_error, random_elements, relative_l2
from pacefno.operators import FNO, Conditioned
from pacefno.pace import PACE, UndeterminedFrameWarning
from pacefno.pde.initial import compact_vorticity, gaussian_field, scale_to_rms
from pacefno.testing import assert_equivariant, largest, random_field

CASES: dict[str, Example] = {
    "translation-1d": example(Translation(1), "a: scalar"),
    "translation-2d": example(Translation(2), "a: scalar", (1.0, 3.0)),
    "galilean-1d": example(Galilean(1), "u: speed"),
    "galilean-1d-snapshots": example(Galilean(1), "u: speed", 22.0, (0.0, 1.0), 0.3),
    "galilean-2d": example(Galilean(2), "u: velocity, c: scalar", (TAU, 2.0)),
    "galilean-2d-diagonal": example(Galilean(2, diagonal=True), "u: speed"),
    "galilean-2d-momentum": example(Galilean(2), "h: scalar, m: momentum of h"),
    "translation-3d": example(Translation(3), "a: scalar, e: vector", (1.0, 2.0, 0.5)),
    "galilean-3d": example(Galilean(3), "u: velocity, c: scalar", (TAU, 2.0, 1.0)),
    "galilean-3d-diagonal": example(Galilean(3, diagonal=True), "u: speed", 1.0, (0.0, 0.5)),
}
FRAMES: dict[str, Callable[[Group, FieldType], Frame]] = {
    "analytic": lambda group, type: AnalyticFrame(group),
    "equivariant": lambda group, type: EquivariantFrame(
        group, type, **({"width": 4, "points": 10} if group.dim == 3 else {})
    ),
    "cnn": lambda group, type: CNNFrame(group, type),
}
EXACT_FRAMES = ["analytic", "equivariant"]
GRIDS = {1: [(128,), (511,)], 2: [(32, 32), (64, 48)], 3: [(18, 18, 18), (19, 20, 21)]}
BOUND = {torch.float32: 1e-5, torch.float64: 1e-10}
BURGERS, PLANE = CASES["galilean-1d"], CASES["galilean-2d-diagonal"]
over_cases = pytest.mark.parametrize("case", list(CASES))
over_frames = pytest.mark.parametrize("frame", EXACT_FRAMES)
over_weights = pytest.mark.parametrize("perturbed", [False, True], ids=["untrained", "perturbed"])


def smooth_fields(
    chosen: Example, shape: tuple[int, ...], dtype: torch.dtype, batch: int = 6
) -> Tensor:
    """Random fields like those of the benchmarks; a height is 1 with waves of rms 0.15."""
    return drawn(chosen, shape, batch).to(dtype, copy=True)


@lru_cache
def drawn(chosen: Example, shape: tuple[int, ...], batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(21)
    size = chosen.type.size
    rows = [
        scale_to_rms(gaussian_field(shape, generator, tau=5.0, gamma=3.0, cutoff=8), 0.4)
        for _ in range(batch * size)
    ]
    field = torch.stack(rows).reshape(batch, size, *shape)
    if chosen.has_momentum:
        field = torch.cat([1 + 0.15 / 0.4 * field[:, :1], 0.25 * field[:, 1:]], dim=1)
    return field


@lru_cache(maxsize=1)
def fronts() -> Tensor:
    """Steep solutions of 1-D Burgers at time 1 on 2048 points, ``(4, 1, 2048)``."""
    generator = torch.Generator().manual_seed(0)
    rows = [gaussian_field((2048,), generator, tau=5.0, gamma=4.0, cutoff=16) for _ in range(4)]
    initial = torch.stack([scale_to_rms(row, 0.5) for row in rows])
    return burgers(initial, nu=1e-3, time=1.0)[:, None]


def perturb(model: nn.Module, size: float = 0.3) -> None:
    """Move every weight by a share of its spread; those that start at zero by that much itself."""
    with torch.no_grad():
        for weight in model.parameters():
            spread = float(weight.std()) if weight.numel() > 1 else 0.0
            weight.add_(size * (spread or 1.0) * torch.randn_like(weight))


def later(type: FieldType, horizon: float) -> FieldType:
    return type.at([time + horizon / type.step for time in type.times])


def wrapped(
    operator: nn.Module, chosen: Example, frame: str = "analytic", horizon: float = 1.0
) -> PACE:
    return PACE(
        operator,
        chosen.group,
        input=chosen.type,
        output=later(chosen.type, horizon),
        frame=FRAMES[frame](chosen.group, chosen.type),
    )


def wrapped_fno(
    chosen: Example, frame: str, dtype: torch.dtype, *, perturbed: bool, horizon: float = 1.0
) -> PACE:
    torch.manual_seed(5)
    size = chosen.type.size
    operator = FNO(chosen.group.dim, size, size, 12, 6, positions="grid")
    model = wrapped(operator, chosen, frame, horizon).to(dtype).eval()
    if perturbed:
        perturb(model)
    return model


class Bend(nn.Module):
    """Depends on the position, keeps every front as steep and every field as compact as it was."""

    def forward(self, field: Tensor) -> Tensor:
        return field * (1 + points(field.shape[2:], dtype=field.dtype)[0]) + field.square()


# --- the promise


@over_cases
@over_frames
@over_weights
def test_the_whole_model_is_equivariant_at_every_resolution(
    case: str, frame: str, perturbed: bool, dtype: torch.dtype
) -> None:
    chosen = CASES[case]
    group = chosen.group
    model = wrapped_fno(chosen, frame, dtype, perturbed=perturbed)
    for shape in GRIDS[group.dim]:
        field = smooth_fields(chosen, shape, dtype, batch=4)
        assert_equivariant(model, group, field, seed=shape[0], tolerance=BOUND[dtype])
    types = {"input": model.input, "output": model.output}
    bare = equivariance_error(model.operator, group, field, **types)
    assert float(bare.min()) > 1e-4  # and bare it is not


@over_frames
@over_weights
@pytest.mark.parametrize("n", [1024, 2048])
def test_steep_fronts_are_followed_too(
    frame: str, perturbed: bool, n: int, dtype: torch.dtype
) -> None:
    field = fronts()[..., :: 2048 // n].to(dtype)
    model = wrapped_fno(BURGERS, frame, dtype, perturbed=perturbed)
    for seed in range(3):
        assert_equivariant(model, BURGERS.group, field, seed=seed, tolerance=BOUND[dtype])


@over_frames
def test_an_operator_that_keeps_the_front_is_equivariant(frame: str, dtype: torch.dtype) -> None:
    """A front that comes out as steep as it went in shows every error of the frame.

    An untrained FNO smooths it.
    """
    assert float(fronts().diff().abs().max()) * 2048 > 30  # steep indeed
    model = wrapped(Bend(), BURGERS, frame).to(dtype).eval()
    perturb(model)
    for n, seed in itertools.product((1024, 2048), range(3)):
        field = fronts()[..., :: 2048 // n].to(dtype)
        assert_equivariant(model, BURGERS.group, field, seed=seed, tolerance=BOUND[dtype])


@given(
    shift=st.floats(-40, 40),
    velocity=st.sampled_from([0.0, 1e-3, 0.7, -12.0, 300.0, -1e4]),
    double=st.booleans(),
    frame=st.sampled_from(EXACT_FRAMES),
)
def test_shifts_and_boosts_may_have_any_size(
    shift: float, velocity: float, double: bool, frame: str
) -> None:
    dtype = torch.float64 if double else torch.float32
    model = wrapped_fno(BURGERS, frame, dtype, perturbed=True)
    field = smooth_fields(BURGERS, (128,), dtype, batch=3)
    xi = torch.tensor([[shift, velocity]], dtype=torch.float64).expand(3, 2)
    assert_equivariant(model, BURGERS.group, field, xi=xi, tolerance=BOUND[dtype])


@pytest.mark.parametrize("n", [64, 128])
def test_shallow_water_states_of_the_benchmark_are_followed(n: int, dtype: torch.dtype) -> None:
    chosen = CASES["galilean-2d-momentum"]
    generator = torch.Generator().manual_seed(0)

    def waves(rms: float) -> Tensor:
        law = {"tau": 5.0, "gamma": 3.0, "cutoff": 21}
        return scale_to_rms(gaussian_field((128, 128), generator, **law), rms)

    states = [torch.stack([1 + waves(0.2), waves(0.15), waves(0.15)]) for _ in range(3)]
    field = torch.stack(states)[..., :: 128 // n, :: 128 // n].to(dtype)
    model = wrapped_fno(chosen, "equivariant", dtype, perturbed=True, horizon=0.5)
    assert_equivariant(model, chosen.group, field, tolerance=BOUND[dtype])


def incompressible(grid: tuple[int, int], dtype: torch.dtype, batch: int = 4) -> Tensor:
    """Random divergence-free velocities in a box of length 2 pi, ``(B, 2, *grid)``."""
    type = FieldType.parse("a: scalar", 2)
    stream = random_field(type, grid, batch=batch, top=6, seed=7).values
    slopes = from_spectrum(1j * to_spectrum(stream, 2) * wavenumbers(grid), grid)  # (B, 2, *grid)
    flow = torch.stack([slopes[:, 1], -slopes[:, 0]], dim=1)
    return (flow / flow.std()).to(dtype)


@pytest.mark.parametrize("group", [Translation(2), Galilean(2)], ids=["translation", "galilean"])
@pytest.mark.parametrize("grid", [(32, 32), (48, 37)])
def test_an_incompressible_velocity_is_followed(
    group: Group, grid: tuple[int, int], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    operator = FNO(2, 2, 2, 12, 6, positions="grid").to(dtype).eval()
    perturb(operator)
    model = PACE(
        operator,
        group,
        channels="u: velocity",
        horizon=0.5,
        lengths=2 * math.pi,
        on_undetermined="raise",
    ).eval()
    field = incompressible(grid, dtype)
    for seed in range(3):
        assert_equivariant(model, group, field, seed=seed, tolerance=BOUND[dtype])
    types = {"input": model.input, "output": model.output}
    assert float(equivariance_error(operator, group, field, **types).min()) > 1e-3


def repeating(grid: tuple[int, int]) -> Tensor:
    """A pattern of period 1/2 with a weak longer wave, two samples."""
    x, y = 2 * math.pi * points(grid)
    pattern = torch.cos(2 * x) * torch.cos(2 * y) + torch.cos(2 * x) + 0.7 * torch.sin(2 * y)
    weak = [torch.cos(x + 0.3) + torch.sin(y - 1), torch.sin(x - y + 0.4) + torch.cos(x + 2 * y)]
    return torch.stack([pattern + 0.03 * wave for wave in weak])[:, None]


def forced(grid: tuple[int, int]) -> Tensor:
    """A scalar forced at wavenumber 4 along y, with weak waves of all lengths, two samples."""
    y = points(grid)[1]
    waves = random_field(FieldType.parse("a: scalar", 2), grid, batch=2, top=6).values
    return torch.sin(8 * math.pi * y) + 0.05 * waves


@pytest.mark.parametrize("make", [repeating, forced])
def test_fields_whose_first_mode_is_weak_or_missing_are_followed(
    make: Callable[[tuple[int, int]], Tensor], dtype: torch.dtype
) -> None:
    group = Translation(2)
    model = PACE(Bend(), group, on_undetermined="raise").eval()
    for grid in ((32, 32), (40, 33)):
        field = make(grid).to(dtype)
        for seed in range(3):
            assert_equivariant(model, group, field, seed=seed, tolerance=BOUND[dtype])


def compact_fields(n: int, dtype: torch.dtype) -> Tensor:
    """Compact vorticity without circulation, off the centre of the slice."""
    generator = torch.Generator().manual_seed(2)
    raw = [gaussian_field((n, n), generator, tau=7.0, gamma=2.5, cutoff=10) for _ in range(4)]
    return torch.stack([compact_vorticity(field, 0.12, 1.0) for field in raw])[:, None].to(dtype)


VORTICITY = {"channels": "w: pseudoscalar"}


def test_rigid_motions_of_compact_fields_are_followed_closely(dtype: torch.dtype) -> None:
    """As long as the prediction is compact too: what is at the edges of the box is torn."""
    group = Euclidean()
    model = PACE(Bend(), group, **VORTICITY).eval()
    errors = {}
    for n in (64, 128):
        errors[n] = float(equivariance_error(model, group, compact_fields(n, dtype)).max())
    bare = equivariance_error(Bend(), group, compact_fields(64, dtype), **VORTICITY)
    assert float(bare.min()) > 0.02
    assert 1e-5 < errors[64] < 1e-3
    assert errors[128] < (1e-5 if dtype == torch.float32 else 1e-8)


def test_rigid_motions_of_periodic_fields_are_not_followed_because_they_are_no_symmetry() -> None:
    """The seams of a rotated periodic field: the other half of the statement above."""
    group = Euclidean()
    field = smooth_fields(CASES["translation-2d"], (64, 64), torch.float64)
    model = PACE(Bend(), group, **VORTICITY, on_undetermined="ignore").eval()
    assert float(equivariance_error(model, group, field).max()) > 0.1


class WrongSign(Galilean):
    """A boost that carries the field the other way, as the text of the paper's appendix does."""

    def act(self, field: Field, xi: Tensor) -> Field:
        back = Field(field.values, field.type.at([-time for time in field.type.times]))
        return field.with_values(super().act(back, xi).values)


def test_the_law_fails_for_a_wrong_terminal_frame_and_for_a_frame_that_does_not_follow() -> None:
    group, field = Galilean(1), smooth_fields(BURGERS, (128,), torch.float64)
    speed = {"channels": "u: speed", "horizon": 1.0, "lengths": 1.0}
    wrong = PACE(nn.Identity(), WrongSign(1), **speed, frame=AnalyticFrame(group)).eval()
    with pytest.raises(AssertionError, match="look at: horizon, lengths and the kinds"):
        assert_equivariant(wrong, group, field)
    model = wrapped_fno(BURGERS, "cnn", torch.float64, perturbed=True)
    assert float(equivariance_error(model, group, field).max()) > 1e-3
    with pytest.raises(AssertionError, match="look at: the frame: is it equivariant itself"):
        assert_equivariant(model, group, field)
    with pytest.raises(AssertionError, match="look at: whether the model sees positions"):
        assert_equivariant(model.operator, group, field, **speed)


def test_a_failed_assertion_tells_what_was_measured_and_where() -> None:
    group, field = Translation(2), torch.ones(3, 1, 8, 8, dtype=torch.float64)
    field[1] = points((8, 8))[0]
    model = PACE(Bend(), group, on_undetermined="ignore").eval()
    with pytest.raises(AssertionError) as failed:
        assert_equivariant(model, group, field)
    message = str(failed.value)
    assert "not equivariant under translation" in message and "allowed 1e-05" in message
    assert "worst is sample" in message and "moved by x " in message
    assert "x alone: " in message and "y alone: " in message
    assert "which does not determine x, y" in message
    assert_equivariant(Bend(), Trivial(2), field)
    assert_equivariant(model, group, field, xi=torch.zeros(3, 2))
    spoiled = PACE(nn.Hardtanh(math.nan, math.nan), group, on_undetermined="ignore").eval()
    with pytest.raises(AssertionError):
        assert_equivariant(spoiled, group, field)


# --- what is physics and what is not: the box and the horizon in the units of the data

BOX = (2.0, 3.5)
GRID = (32, 24)
TIME = 0.8
FLOW = {"channels": "u: velocity, c: scalar", "horizon": TIME, "lengths": BOX}


def carried(velocity: tuple[float, float], time: float) -> Tensor:
    """A tracer in a uniform flow, ``c_t + v . grad c = 0``; no symmetry hides swapped axes."""
    x, y = places(GRID, BOX)
    x, y = 2 * math.pi * (x - velocity[0] * time) / BOX[0], y - velocity[1] * time
    y = 2 * math.pi * y / BOX[1]
    tracer = torch.cos(x - 0.4) + 0.5 * torch.sin(2 * x + y) + 0.8 * torch.cos(y + 1)
    flow = [torch.full(GRID, v, dtype=torch.float64) for v in velocity]
    return torch.stack([*flow, tracer])


VELOCITIES = [(0.0, 0.0), (0.9, 0.0), (0.0, -0.7), (3.1, 1.4)]


def off_by(model: PACE, exact: Callable[[tuple[float, float], float], Tensor]) -> float:
    """The largest difference of predictions and exact solutions, over velocities."""
    start = torch.stack([exact(velocity, 0.0) for velocity in VELOCITIES])
    end = torch.stack([exact(velocity, TIME) for velocity in VELOCITIES])
    with torch.no_grad():
        return largest(model.eval()(start) - end)


def test_a_tracer_is_carried_by_the_flow_in_the_units_of_the_data() -> None:
    """At rest nothing happens, so the identity is the exact operator, and the wrapper does all."""
    group = Galilean(2)
    assert off_by(PACE(nn.Identity(), group, **FLOW), carried) < 1e-12
    for wrong in ({"horizon": TIME / 2}, {"lengths": 1.0}, {"lengths": BOX[::-1]}):
        assert off_by(PACE(nn.Identity(), group, **(FLOW | wrong)), carried) > 0.1
    swapped = FLOW | {"channels": "v u: velocity, c: scalar"}  # names do not turn the axes
    assert off_by(PACE(nn.Identity(), group, **swapped), carried) < 1e-12


class Decay(nn.Module):
    """The exact solution operator of Taylor-Green vortices at rest: amplitudes decay."""

    def __init__(self, nu: float = 0.05) -> None:
        super().__init__()
        self.rate = nu * sum((2 * math.pi / length) ** 2 for length in BOX)

    def forward(self, field: Tensor) -> Tensor:
        decay = math.exp(-self.rate * TIME)
        return field * field.new_tensor([decay, decay, decay**2]).reshape(1, 3, 1, 1)


def vortices(velocity: tuple[float, float], time: float) -> Tensor:
    return taylor_green(GRID, BOX, velocity, time)


def test_boosted_vortices_decay_and_drift_as_the_exact_solution_does() -> None:
    """Their pattern repeats itself within the box, which an operator without positions forgives."""
    group = Galilean(2)
    options = FLOW | {"channels": "u: velocity, p: scalar", "on_undetermined": "ignore"}
    assert off_by(PACE(Decay(), group, **options), vortices) < 1e-12
    assert off_by(PACE(Decay(), Translation(2), **options), vortices) > 0.1  # without the boost
    for wrong in ({"horizon": -TIME}, {"lengths": 1.0}, {"lengths": BOX[::-1]}):
        assert off_by(PACE(Decay(), group, **(options | wrong)), vortices) > 0.1


def test_equivariance_does_not_see_a_wrong_box_or_horizon() -> None:
    """Which is why they are asked for: such a model is as equivariant as the right one."""
    group = Galilean(2)
    field = torch.stack([carried(velocity, 0.0) for velocity in VELOCITIES])
    for options in (FLOW, FLOW | {"horizon": 5.0}, FLOW | {"lengths": 1.0}):
        model = PACE(nn.Identity(), group, **options).eval()
        assert_equivariant(model, group, field, tolerance=1e-10)


# --- what has to be said


WAVE = FieldType.parse("a: scalar", 1)


@pytest.mark.parametrize(
    ("group", "options", "sentence"),
    [
        (Galilean(1), {}, 'say what they are: channels="u: velocity, p: scalar"'),
        (Euclidean(), {}, "the euclidean group acts on channels by their kind"),
        (Galilean(1), {"channels": "u: speed"}, "say horizon=T, the time between them"),
        (GalileanScaling(), {"channels": "u: speed"}, "lengths=L, the period of the box"),
        (Galilean(1), {"channels": "u: speed", "horizon": 0.5}, "lengths=L, the period of the box"),
        (Galilean(2), {"channels": "a: scalar"}, "a boost needs a channel that tells velocities"),
        (Galilean(2), {"channels": "u: speed"}, r"use Galilean\(2, diagonal=True\)"),
        (Galilean(2), {"channels": "u v w: velocity"}, "has 2 components in 2 dimensions, got 3"),
        (Euclidean(), {"channels": "w: scalar", "lengths": (1.0, 2.0)}, "needs a square box"),
        (Euclidean(), {"channels": "u: speed"}, r"a speed along \(1, 1\)"),
        (Translation(2), {"lengths": (1.0, 2.0, 3.0)}, "expected 2 positive numbers"),
        (Translation(1), {"on_undetermined": "shout"}, "expected 'warn', 'raise' or 'ignore'"),
        (Translation(1), {"input": FieldType.parse("a: scalar", 1)}, "input= and output= together"),
        (
            Translation(1),
            {"input": WAVE, "output": WAVE, "lengths": 6.28},
            "or channels=, horizon=",
        ),
    ],
)
def test_what_has_to_be_said_is_asked_for_in_a_sentence(
    group: Group, options: dict[str, object], sentence: str
) -> None:
    said = dict(options)
    if "horizon" not in sentence and "lengths=L" not in sentence and group.moves_in_time:
        said |= {"horizon": 1.0, "lengths": 1.0}
    with pytest.raises(ValueError, match=sentence):
        PACE(nn.Identity(), group, **said)


@pytest.mark.parametrize(
    ("operator", "group", "frame", "sentence"),
    [
        (torch.sin, Translation(1), None, "operator: expected a torch.nn.Module"),
        (nn.Identity(), Translation, None, "got the class Translation itself"),
        (nn.Identity(), "translation", None, "such as pacefno.Translation"),
        (nn.Identity(), Translation(1), "analytic", r"frame: expected a frame .*, got 'analytic'"),
        (nn.Identity(), Translation(1), AnalyticFrame, "got the class AnalyticFrame itself"),
        (
            nn.Identity(),
            Translation(2),
            AnalyticFrame(Euclidean()),
            "it finds x, y, angle of the euclidean group, but the translation group has x, y",
        ),
    ],
)
def test_what_is_no_operator_group_or_frame_is_refused_at_once(
    operator: nn.Module, group: Group, frame: Frame, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        PACE(operator, group, frame=frame)


def test_translations_need_nothing_said() -> None:
    field = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    model = PACE(nn.Identity(), Translation(1)).eval()
    assert torch.allclose(model(field), field, atol=1e-5)


def test_a_vector_with_one_component_is_refused() -> None:
    model = PACE(nn.Identity(), Galilean(2), channels="u: velocity", horizon=1.0, lengths=1.0)
    with pytest.raises(FieldError, match="give it 2 channels, not 1"):
        model(torch.zeros(1, 1, 8, 8))


def test_a_rescaling_knows_the_step_that_only_the_output_says(dtype: torch.dtype) -> None:
    given = FieldType.parse("u: speed", 1, lengths=4.0)
    later = FieldType.parse("u: speed", 1, times=[1.0], step=0.5, lengths=4.0)
    field = random_field(given, (32,), top=4, dtype=dtype).values + 1
    model = PACE(nn.Identity(), GalileanScaling(), input=given, output=later).eval()
    mean = field.double().mean(dim=(1, 2))
    carried = shift(field, (mean * 0.5 / 4.0)[:, None])
    assert largest(model(field) - carried) < 100 * torch.finfo(dtype).eps


def test_the_canonical_field_of_half_precision_is_computed_in_single() -> None:
    generator = torch.Generator().manual_seed(0)
    field = (torch.randn(2, 2, 16, 16, generator=generator) + 30).bfloat16()
    options = {"channels": "u: velocity", "horizon": 0.5, "lengths": 1.0}
    model = PACE(nn.Identity(), Galilean(2), **options).eval()
    canonical = model.canonicalize(field)
    assert canonical.dtype == torch.bfloat16
    assert largest(canonical.float().mean(dim=(2, 3))) < 1e-3  # 0.03 if bfloat16 subtracts it


def test_each_sample_has_its_own_gradient() -> None:
    """A vmap over gradients of the weights, with the default frame."""
    operator = nn.Conv1d(1, 1, 5, padding=2).double()
    model = PACE(operator, Translation(1)).eval()
    field = random_field(FieldType.parse("a: scalar", 1), (32,)).values
    weights = dict(model.named_parameters())

    def loss(weights: dict[str, Tensor], sample: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (sample[None],)).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, field)
    alone = [torch.func.grad(loss)(weights, sample) for sample in field]
    for name, gradient in each.items():
        assert largest(gradient - torch.stack([one[name] for one in alone])) < 1e-10


# --- a frame that is not determined


def shear_flow(dtype: torch.dtype = torch.float32) -> Tensor:
    """Along x, the same everywhere along its axis; and one sample with a vortex, which is not."""
    x, y = 2 * math.pi * points((24, 24))
    flow = torch.stack([torch.sin(y) + 0.3 * torch.cos(2 * y), torch.zeros_like(y)])
    vortex = flow + 0.3 * torch.stack([torch.cos(x), torch.sin(x - 1)])
    return torch.stack([flow, vortex]).to(dtype)


def shear_model(**options: object) -> PACE:
    said = {"channels": "u: velocity", "horizon": 0.5, "lengths": 1.0} | options
    return PACE(nn.Identity(), Galilean(2), **said).eval()


def test_a_shear_flow_is_followed_across_its_axis_and_a_warning_names_the_other_once(
    dtype: torch.dtype,
) -> None:
    model, field = shear_model(), shear_flow(dtype)
    with pytest.warns(UndeterminedFrameWarning) as caught:
        model(field)
    message = str(caught[0].message)
    assert len(caught) == 1 and "1 of 2 samples is not determined: x." in message
    assert "on_undetermined='ignore'" in message
    assert caught[0].filename == __file__  # the line that called the model
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(field)  # said once
        model.rollout(field, 2)
    with pytest.warns(UndeterminedFrameWarning):
        shear_model()(field)  # once per model
    quality = model.frame_of(field).quality
    assert (quality > 0).tolist() == [[False, True, True, True], [True] * 4]
    along_y = torch.tensor([[0.0, 0.3, 0.4, -0.7]] * 2, dtype=torch.float64)
    xi = model.frame_of(field).xi
    moved = Galilean(2).act(Field(field, model.input), along_y).values
    expected = Galilean(2).compose(along_y, xi)
    off = Galilean(2).difference(model.frame_of(moved).xi, expected)
    assert largest(off) < (1e-5 if dtype == torch.float32 else 1e-12)


def test_another_coordinate_that_is_not_determined_is_named_when_it_happens() -> None:
    model = shear_model()
    with pytest.warns(UndeterminedFrameWarning, match="not determined: x\\."):
        model(shear_flow())
    with pytest.warns(UndeterminedFrameWarning, match="not determined: x, y"):
        model(torch.zeros_like(shear_flow()))


def test_an_undetermined_frame_can_be_an_error_or_ignored() -> None:
    with pytest.raises(FieldError, match="the frame of 1 of 2 samples is not determined: x"):
        shear_model(on_undetermined="raise")(shear_flow())
    with pytest.raises(FieldError, match="the frame of 1 of 2 samples is not determined: x"):
        shear_model(on_undetermined="raise").refine(shear_flow())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shear_model(on_undetermined="ignore")(shear_flow())
        shear_model().train()(shear_flow())  # in training nobody reads warnings
        shear_model()(shear_flow()[1:])
        shear_model().frame_of(shear_flow())  # one that looks itself need not be told


def test_a_field_that_repeats_itself_is_named_too() -> None:
    """Half a period on it is itself, but what a model with positions makes of it is not."""
    x = points((32,))[0]
    field = torch.cos(4 * math.pi * x)[None, None]
    with pytest.warns(UndeterminedFrameWarning, match="not determined: x"):
        PACE(Bend(), Translation(1)).eval()(field)
    with pytest.raises(FieldError, match="has several"):
        PACE(Bend(), Translation(1), on_undetermined="raise").eval()(field)


# --- what it wraps


class UNet(nn.Module):
    """A small circular U-Net that is told where it is."""

    def __init__(self, dim: int, channels: int, width: int = 8) -> None:
        super().__init__()
        convolution = {1: nn.Conv1d, 2: nn.Conv2d}[dim]

        def layer(a: int, b: int, stride: int = 1) -> nn.Module:
            return convolution(a, b, 3, stride=stride, padding=1, padding_mode="circular")

        self.enter, self.down = layer(channels + dim, width), layer(width, 2 * width, 2)
        self.deep, self.leave = layer(2 * width, 2 * width), layer(3 * width, channels)

    def forward(self, field: Tensor) -> Tensor:
        where = points(field.shape[2:], dtype=field.dtype)
        where = where.expand(len(field), -1, *field.shape[2:])
        top = torch.relu(self.enter(torch.cat([field, where], dim=1)))
        low = torch.relu(self.deep(torch.relu(self.down(top))))
        back = nn.functional.interpolate(low, size=field.shape[2:], mode="nearest")
        out: Tensor = self.leave(torch.cat([top, back], dim=1))
        return out


def neuraloperator(dim: int, channels: int) -> nn.Module:
    models = pytest.importorskip("neuralop.models")
    sizes = {"n_modes": (8,) * dim, "in_channels": channels, "out_channels": channels}
    network: nn.Module = models.FNO(**sizes, hidden_channels=8, n_layers=2)
    return network


OPERATORS: dict[str, Callable[[int, int], nn.Module]] = {
    "fno": lambda dim, channels: FNO(dim, channels, channels, 8, 5, positions="grid"),
    "unet": UNet,
    "neuraloperator": neuraloperator,
}


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.parametrize(
    "case",
    ["translation-1d", "translation-2d", "galilean-1d", "galilean-2d-diagonal", "galilean-2d"],
)
def test_any_operator_becomes_equivariant_by_wrapping_it(name: str, case: str) -> None:
    chosen = CASES[case]
    group = chosen.group
    torch.manual_seed(1)
    operator = OPERATORS[name](group.dim, chosen.type.size).eval()
    perturb(operator)
    field = smooth_fields(chosen, (64, 64)[: group.dim], torch.float32)
    model = wrapped(operator, chosen, horizon=0.5).eval()
    types = {"input": model.input, "output": model.output}
    before = equivariance_error(operator, group, field, **types)
    after = equivariance_error(model, group, field)
    assert float(before.mean()) > 2e-4
    assert float(after.max()) <= 1e-5
    assert float(after.max()) < 0.01 * float(before.mean())


def burgers_pairs(count: int) -> tuple[Tensor, Tensor]:
    """Canonical states of a smooth Burgers problem and their exact solutions at time 0.5."""
    generator = torch.Generator().manual_seed(7)
    raw = [gaussian_field((256,), generator, tau=5.0, gamma=3.0, cutoff=6) for _ in range(count)]
    initial = torch.stack([scale_to_rms(field, 0.5) for field in raw])[:, None]
    group, field = BURGERS.group, Field(initial, BURGERS.type)
    initial = group.inverse(field, AnalyticFrame(group)(field).xi).values
    final = burgers(initial[:, 0], nu=0.01, time=0.5)[:, None]
    return initial[..., ::4].float(), final[..., ::4].float()


def test_a_trained_operator_keeps_its_error_out_of_distribution_once_wrapped() -> None:
    torch.manual_seed(0)
    x, y = burgers_pairs(72)
    operator = FNO(1, 1, 1, 16, 8, layers=3, positions="grid", head=32)
    optimizer = torch.optim.Adam(operator.parameters(), lr=4e-3)
    for _ in range(150):
        loss = relative_l2(operator(x[:64]), y[:64]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    operator.eval()
    group, x, y = BURGERS.group, x[64:], y[64:]
    xi = group.sample([0.2, 0.4], [0.5, 1.0], len(x), torch.Generator().manual_seed(3))
    end = later(BURGERS.type, 0.5)
    moved = group.act(Field(x, BURGERS.type), xi).values
    target = group.act(Field(y, end), xi).values
    model = PACE(operator, group, channels="u: speed", horizon=0.5, lengths=1.0).eval()
    with torch.no_grad():
        plain_id, plain_ood = relative_l2(operator(x), y), relative_l2(operator(moved), target)
        back = group.inverse(Field(model(moved), end), xi).values
        assert float(plain_id.mean()) < 0.15
        assert float(plain_ood.mean()) > 4 * float(plain_id.mean())
        wrapped_ood = float(relative_l2(back, y).mean())
        assert wrapped_ood == pytest.approx(float(plain_id.mean()), rel=1e-3)
        assert torch.allclose(model(x), operator(x), atol=1e-5)  # on the slice nothing changes


class Told(nn.Module):
    """Needs more than the field: ``scale * field + offset``."""

    def forward(self, field: Tensor, scale: float, *, offset: Tensor | None = None) -> Tensor:
        return scale * field + (0.0 if offset is None else offset)


def test_further_arguments_reach_the_operator(dtype: torch.dtype) -> None:
    model = PACE(Told(), BURGERS.group, channels="u: speed", horizon=0.0).eval()
    field = smooth_fields(BURGERS, (64,), dtype)
    mean = field.mean(dim=2, keepdim=True)
    expected = 3.0 * (field - mean) + mean
    assert torch.allclose(model(field, 3.0), expected, atol=1e-5)
    offset = torch.tensor(0.5, dtype=dtype)
    assert torch.allclose(model(field, 3.0, offset=offset), expected + 0.5, atol=1e-5)
    xi = model.frame_of(field).xi
    assert torch.equal(model.at(field, xi, 3.0, offset=offset), model(field, 3.0, offset=offset))
    assert torch.equal(model.predict(field, 3.0).values, model(field, 3.0))
    assert model.rollout(field, 2, 3.0).shape == (6, 2, 1, 64)
    with pytest.raises(TypeError, match="scale"):
        model(field)


# --- the parts


@over_cases
def test_the_canonical_field_does_not_depend_on_the_motion_and_lies_on_the_slice(
    case: str, dtype: torch.dtype
) -> None:
    chosen = CASES[case]
    group = chosen.group
    model = wrapped(nn.Identity(), chosen)
    field = smooth_fields(chosen, GRIDS[group.dim][0], dtype)
    canonical = model.canonicalize(field)
    xi = random_elements(group, len(field), 0)
    moved = model.canonicalize(group.act(Field(field, chosen.type), xi).values)
    bound = 2e-5 if dtype == torch.float32 else 1e-9
    assert largest(canonical - moved) < bound
    assert largest(group.difference(model.frame_of(canonical).xi, group.identity(6))) < bound
    assert largest(canonical - field) > 0.05


def test_the_frame_is_a_return_value_and_never_state() -> None:
    model = wrapped_fno(BURGERS, "equivariant", torch.float32, perturbed=True)
    before = set(vars(model)), set(vars(model.frame)), set(model.state_dict())
    model(smooth_fields(BURGERS, (128,), torch.float32))
    assert before == (set(vars(model)), set(vars(model.frame)), set(model.state_dict()))
    copy.deepcopy(model)


@pytest.mark.parametrize("chosen", [PLANE, CASES["galilean-2d"]], ids=["speed", "velocity"])
def test_the_estimate_belongs_to_the_forward_pass(chosen: Example, dtype: torch.dtype) -> None:
    group = chosen.group
    model = wrapped_fno(chosen, "equivariant", dtype, perturbed=True)
    field = smooth_fields(chosen, (32, 32), dtype)
    found = model.frame_of(field)
    assert torch.equal(model(field), model.at(field, found.xi))
    assert torch.equal(model.predict(field).frame.xi, found.xi)
    assert bool((found.confidence > 0).all())
    by_hand = model.operator(group.inverse(Field(field, model.input), found.xi).values)
    pushed = group.act(Field(by_hand, model.output), found.xi).values
    assert torch.equal(model(field), pushed)
    now = Field(by_hand, model.output.at([0.0]))
    terminal = group.transport(found.xi, 1.0, now.lengths)
    assert largest(model(field) - group.act(now, terminal).values) < BOUND[dtype]


def test_the_true_element_undoes_the_true_motion(dtype: torch.dtype, tolerance: float) -> None:
    group, type = BURGERS.group, BURGERS.type
    field, xi = smooth_fields(BURGERS, (128,), dtype), random_elements(BURGERS.group, 6, 0)
    model = wrapped_fno(BURGERS, "analytic", dtype, perturbed=True)
    expected = group.act(Field(model.operator(field), model.output), xi).values
    moved = group.act(Field(field, type), xi).values
    assert largest(model.at(moved, xi) - expected) < 10 * tolerance


def test_the_trivial_group_is_the_operator_itself() -> None:
    operator = FNO(1, 1, 1, 8, 5, positions="grid").eval()
    field = smooth_fields(CASES["translation-1d"], (64,), torch.float32)
    for options in ({}, {"frame": IdentityFrame(Trivial(1)), "horizon": 3.0}):
        model = PACE(operator, Trivial(1), **options).eval()
        assert torch.equal(model(field), operator(field))


def test_a_prediction_does_not_depend_on_batch_mates(dtype: torch.dtype, tolerance: float) -> None:
    for chosen in (PLANE, CASES["galilean-2d"]):
        model = wrapped_fno(chosen, "equivariant", dtype, perturbed=True)
        field = smooth_fields(chosen, (32, 32), dtype)
        alone = torch.cat([model(field[i : i + 1]) for i in range(len(field))])
        assert largest(alone - model(field)) < 10 * tolerance


def test_the_prediction_on_a_finer_grid_is_the_same_function() -> None:
    torch.manual_seed(0)
    model = wrapped(nn.Identity(), BURGERS, "equivariant", horizon=0.3).double().eval()
    perturb(model)
    field = smooth_fields(BURGERS, (64,), torch.float64)
    fine = model(resample(field, (160,)))
    assert torch.allclose(resample(model(field), (160,)), fine, atol=1e-10)


def test_more_output_than_input_channels_are_pushed_out_together() -> None:
    group = Translation(2)
    model = PACE(FNO(2, 2, 5, 8, 4, positions="grid"), group).eval()
    field = torch.cat([smooth_fields(CASES["translation-2d"], (24, 24), torch.float32)] * 2, dim=1)
    assert model(field).shape == (6, 5, 24, 24)
    assert_equivariant(model, group, field)


def test_a_flow_may_give_another_quantity_of_it(dtype: torch.dtype) -> None:
    """Vorticity from velocity: other channels out than in, each acted on by its kind."""
    given_type = FieldType.parse("u: velocity", 2, lengths=TAU)
    told = FieldType.parse("w: pseudoscalar", 2, lengths=TAU, times=(0.5,))
    torch.manual_seed(0)
    operator = FNO(2, 2, 1, 8, 4, positions="grid").to(dtype)
    model = PACE(operator, Galilean(2), input=given_type, output=told).eval()
    field = incompressible((32, 32), dtype)
    assert model(field).shape == (4, 1, 32, 32)
    assert_equivariant(model, Galilean(2), field, tolerance=BOUND[dtype])


# --- several snapshots, and boxes of their own


def test_several_snapshots_are_each_carried_by_their_own_time(dtype: torch.dtype) -> None:
    """Two of a wave that is carried along, three predicted: at rest it is always the same."""
    length, step, v = 3.0, 0.5, 0.7
    type = FieldType.parse("u: speed", 1, times=(0, 1), lengths=length, step=step)
    output = type.at([2, 3, 7])

    def seen(times: list[float]) -> Tensor:
        x = places((48,), (length,))[0]
        shapes = [2 * math.pi * (x - v * step * time) / length for time in times]
        rows = [v + torch.cos(p) + 0.3 * torch.sin(3 * p) for p in shapes]
        return torch.stack(rows)[None].to(dtype)

    class Repeat(nn.Module):
        def forward(self, field: Tensor) -> Tensor:
            return field[:, -1:].expand(-1, 3, -1)

    model = PACE(Repeat(), Galilean(1), input=type, output=output).eval()
    bound = 1e-5 if dtype == torch.float32 else 1e-12
    assert largest(model(seen([0, 1])) - seen([2, 3, 7])) < bound
    wrong = PACE(Repeat(), Galilean(1), input=type, output=type.at([2, 2, 2])).eval()
    assert largest(wrong(seen([0, 1])) - seen([2, 3, 7])) > 0.1


class SeenBox(nn.Module):
    """Two snapshots as they are; remembers the box that it was told."""

    def forward(self, field: Tensor, box: Box) -> Tensor:
        self.box = box
        return field


@pytest.mark.parametrize("group", [Galilean(1), GalileanScaling()], ids=["boosts", "scaling"])
def test_samples_in_boxes_of_their_own_are_carried_by_their_own_lengths_and_steps(
    group: Group, dtype: torch.dtype
) -> None:
    type = FieldType.parse("u: speed", 1, times=(0, 1), lengths=3.0, step=0.5)
    box = Box(
        torch.tensor([[3.0], [2.4], [3.9]], dtype=torch.float64),
        torch.tensor([0.5, 0.6, 0.4], dtype=torch.float64),
    )
    v = torch.tensor([0.7, -1.1, 0.3], dtype=torch.float64)

    def seen(times: list[float]) -> Tensor:
        """A wave at rest in its own frame; one and the same in periods of the box."""
        moved = (v * box.step / box.lengths[:, 0])[:, None, None]
        phase = points((48,))[0] - moved * torch.tensor(times, dtype=torch.float64)[:, None]
        wave = torch.cos(2 * math.pi * phase) + 0.3 * torch.sin(6 * math.pi * phase)
        return (v[:, None, None] + wave).to(dtype)

    operator = SeenBox()
    model = PACE(operator, group, input=type, output=type.at([4, 7])).eval()
    bound = 1e-5 if dtype == torch.float32 else 1e-12
    assert largest(model(seen([0, 1]), box=box) - seen([4, 7])) < bound
    told = operator.box
    if isinstance(group, GalileanScaling):  # pulled back, every sample has the nominal step
        assert largest(told.step - 0.5) < 1e-12
        stretch = (box.step / 0.5) ** (1 / 3)
        assert largest(told.lengths[:, 0] * stretch - box.lengths[:, 0]) < 1e-12
    else:
        assert told is box
    nominal = Box(torch.full((3, 1), 3.0), torch.full((3,), 0.5))
    assert largest(model(seen([0, 1]), box=nominal) - seen([4, 7])) > 0.1


def test_an_operator_that_is_told_the_box_stays_equivariant_under_a_change_of_scale(
    dtype: torch.dtype,
) -> None:
    group = GalileanScaling()
    type = FieldType.parse("u: speed", 1, times=(0, 1), lengths=3.0, step=0.5)
    torch.manual_seed(0)
    network = FNO(1, 4, 2, 8, 5, positions="grid")
    operator = Conditioned(network, [3.0], step=0.5, variation=0.1)
    model = PACE(operator, group, input=type, output=type.at([2, 3])).to(dtype).eval()
    values = torch.cat([smooth_fields(BURGERS, (64,), dtype)] * 2, dim=1)
    rows = torch.linspace(0.9, 1.1, 6, dtype=torch.float64)
    box = Box(3 * rows[:, None], 0.5 * rows.flip(0))
    xi = random_elements(group, 6, 3) * torch.tensor([1.0, 1.0, 0.3])
    moved = group.act(Field(values, type, box), xi)
    with torch.no_grad():
        first = model(moved.values, box=moved.box)
        last = group.act(Field(model(values, box=box), model.output, box), xi).values
    assert float(relative_l2(first, last).max()) <= BOUND[dtype]


# --- rollouts


def test_a_rollout_follows_the_exact_solution_step_by_step() -> None:
    model = PACE(nn.Identity(), Galilean(2), **FLOW).eval()
    start = torch.stack([carried(velocity, 0.0) for velocity in VELOCITIES])
    found = model.rollout(start, steps=5)
    assert found.shape == (4, 5, 3, *GRID) and not found.requires_grad
    for step in range(5):
        end = torch.stack([carried(velocity, TIME * (step + 1)) for velocity in VELOCITIES])
        assert largest(found[:, step] - end) < 1e-11


def test_a_rollout_refuses_predictions_that_are_no_next_input() -> None:
    class First(nn.Module):
        """Predicts the first of three channels, of which the others are given."""

        def forward(self, field: Tensor) -> Tensor:
            return field[:, :1]

    model = PACE(First(), Translation(1)).eval()
    with pytest.raises(FieldError, match="is no next input: expected 3 channels"):
        model.rollout(random_field(FieldType.parse("", 1), (16,)).values[:, [0, 0, 1]], 2)
    with pytest.raises(FieldError, match=r"expected \(B, C, N\)"):
        model.rollout(torch.zeros(3, 16), 2)


def test_a_rollout_of_several_snapshots_keeps_its_window() -> None:
    """Three snapshots to two: the prediction joins, and the oldest two leave."""
    type = FieldType.parse("a: scalar", 1, times=(0, 1, 2))

    class Count(nn.Module):
        def forward(self, window: Tensor) -> Tensor:
            assert window.shape[1] == 3
            return torch.cat([window[:, -1:] + 1, window[:, -1:] + 2], dim=1)

    model = PACE(Count(), Trivial(1), input=type, output=type.at([3, 4])).eval()
    window = torch.tensor([0.0, 1.0, 2.0]).reshape(1, 3, 1).expand(1, 3, 8)
    assert model.rollout(window, 3)[0, :, :, 0].tolist() == [[3, 4], [5, 6], [7, 8]]


class Leak(nn.Module):
    """Loses a little of everything in each step."""

    def forward(self, field: Tensor) -> Tensor:
        return 0.9 * field - 0.05


@pytest.mark.parametrize(
    ("conserve", "kept"),
    [
        (False, ()),
        (True, (0, 1, 2)),
        (["h"], (0,)),
        (["m_y", "h"], (0, 2)),
        ([], ()),
        ("m_x", (1,)),
    ],
)
def test_a_rollout_conserves_the_means_it_is_asked_to(
    conserve: bool | str | list[str], kept: tuple[int, ...], dtype: torch.dtype
) -> None:
    chosen = CASES["galilean-2d-momentum"]
    options = {"channels": "h: scalar, m: momentum of h", "horizon": 0.1, "lengths": 1.0}
    model = PACE(Leak(), Trivial(2), **options).eval()
    field = smooth_fields(chosen, (16, 16), dtype, batch=2)
    found = model.rollout(field, 4, conserve=conserve)
    means, start = found.flatten(3).mean(dim=3), field.flatten(2).mean(dim=2)
    for channel in range(3):
        off = largest(means[:, :, channel] - start[:, None, channel])
        assert off < 1e-6 if channel in kept else off > 0.04
    spread = found.flatten(3).std(dim=3)[:, -1] / field.flatten(2).std(dim=2)
    assert torch.allclose(spread, torch.full_like(spread, 0.9**4), rtol=1e-4)  # means alone


def test_a_sample_that_stops_being_finite_is_lost_alone() -> None:
    class Burst(nn.Module):
        def forward(self, field: Tensor) -> Tensor:
            return torch.where(field.amax(dim=(1, 2), keepdim=True) > 3, math.nan, 2 * field)

    model = PACE(Burst(), Trivial(1)).eval()
    field = torch.tensor([[0.1], [1.0], [10.0]])[:, None].expand(3, 1, 8)
    found = model.rollout(field, 4)
    assert torch.isfinite(found).flatten(2).all(dim=2).tolist() == [
        [True] * 4,
        [True, True, False, False],
        [False] * 4,
    ]
    assert bool(torch.isinf(found[2]).all())


def test_a_rollout_that_makes_no_sense_is_refused() -> None:
    given_type = FieldType.parse("a: scalar", 1)
    other = FieldType.parse("b: scalar", 1, times=(1,))
    model = PACE(nn.Identity(), Trivial(1), input=given_type, output=other)
    with pytest.raises(FieldError, match="'b: scalar' cannot be the next input 'a: scalar'"):
        model.rollout(torch.zeros(1, 1, 8), 2)
    kinds = FieldType.parse("a: pseudoscalar", 1, times=(1,))
    model = PACE(nn.Identity(), Trivial(1), input=given_type, output=kinds)
    with pytest.raises(FieldError, match="both need the same channels"):
        model.rollout(torch.zeros(1, 1, 8), 2)
    model = PACE(nn.Identity(), Trivial(1), input=given_type.at([0, 1]), output=given_type.at([10]))
    with pytest.raises(FieldError, match=r"the window holds the snapshots \(1.0, 10.0\)"):
        model.rollout(torch.zeros(1, 2, 8), 2)
    model = PACE(nn.Identity(), Trivial(1), channels="a: scalar")
    with pytest.raises(FieldError, match="there is no channel 'mass' among"):
        model.rollout(torch.zeros(1, 1, 8), 2, conserve=["mass"])
    with pytest.raises(UsageError, match="expected at least one step, got 0"):
        model.rollout(torch.zeros(1, 1, 8), 0)


@pytest.mark.parametrize("channels", ["u: velocity", "h: scalar, m: momentum of h"])
def test_a_lost_sample_does_not_end_the_rollout_of_a_model_with_a_frame(channels: str) -> None:
    """A window of zeros has no frame, and no velocity: a lost sample keeps one that has."""

    class Burst(nn.Module):
        def forward(self, field: Tensor) -> Tensor:
            return torch.where(field.amax(dim=(1, 2), keepdim=True) > 50, math.nan, field)

    what = {"channels": channels, "horizon": 0.5, "lengths": 1.0}
    model = PACE(Burst(), Galilean(1), **what, on_undetermined="raise").eval()
    count = len(model.input.channels)
    field = 2 + torch.sin(TAU * torch.arange(32) / 32 + torch.arange(count)[:, None])
    both = torch.stack([field, 100 * field])
    found = torch.isfinite(model.rollout(both, 2)).flatten(2).all(dim=2)
    assert found.tolist() == [[True, True], [False, False]]


def test_input_and_output_lie_in_one_box() -> None:
    now = FieldType.parse("u: velocity", 2, lengths=6.2832, step=0.1)
    later = FieldType.parse("u: velocity", 2, times=[5])
    with pytest.raises(FieldError, match=r"lie in one box .* output=input.at"):
        PACE(nn.Identity(), Galilean(2), input=now, output=later)
    with pytest.raises(FieldError, match=r"step 0.1 and lengths \(6.2832, 6.2832\), step 1.0"):
        PACE(nn.Identity(), Galilean(2), input=now, output=replace(later, lengths=now.lengths))
    assert PACE(nn.Identity(), Galilean(2), input=now, output=now.at([5])).output.step == 0.1


def test_lengths_may_be_any_number() -> None:
    for lengths in (torch.tensor(2.5), 2.5, [2.5, 2.5], torch.tensor([2.5, 2.5])):
        assert FieldType.parse("u: velocity", 2, lengths=lengths).lengths == (2.5, 2.5)


def test_a_slice_is_no_frame_and_a_tuple_is_no_prediction() -> None:
    with pytest.raises(UsageError, match=r"PhaseSlice says what is canonical.*frame=slice.frame"):
        PACE(nn.Identity(), Translation(1), frame=PhaseSlice(Translation(1)))  # type: ignore[arg-type]

    class Two(nn.Module):
        def forward(self, field: Tensor) -> tuple[Tensor, Tensor]:
            return field, field

    with pytest.raises(UsageError, match=r"returned a tuple, expected one tensor.*Adapted"):
        PACE(Two(), Translation(1)).eval()(torch.randn(1, 1, 8))


def test_a_momentum_whose_density_is_not_positive_tells_no_velocity() -> None:
    """One dry point made the velocity infinite; the anomaly of a height gave any number."""
    what = {"channels": "h: scalar, m: momentum of h", "horizon": 0.5, "lengths": 1.0}
    model = PACE(nn.Identity(), Galilean(1), **what).eval()
    x = torch.arange(32) / 32
    field = torch.stack([2 + torch.cos(TAU * x), 1 + torch.sin(TAU * x)]).repeat(3, 1, 1)
    field[1, 0, 7] = 0.0  # a dry point
    field[2, 0] -= 2  # an anomaly
    found = model.frame_of(field)
    assert found.quality[:, 1].tolist() == [1.0, 0.0, 0.0]
    assert found.xi[1:, 1].tolist() == [0.0, 0.0] and abs(float(found.xi[0, 1])) > 0.1
    with pytest.warns(UndeterminedFrameWarning, match="density is not positive everywhere"):
        assert bool(torch.isfinite(model(field)).all())


# --- precision


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_in_is_half_precision_out_with_a_single_precision_operator(
    half: torch.dtype,
) -> None:
    model = wrapped_fno(BURGERS, "equivariant", torch.float32, perturbed=True)
    field = smooth_fields(BURGERS, (64,), torch.float32).to(half)
    out = model(field)
    assert out.dtype == model.canonicalize(field).dtype == half
    assert torch.allclose(out.float(), model(field.float()), atol=4 * torch.finfo(half).eps)


def test_a_half_precision_operator_gets_the_fields_it_can_take() -> None:
    operator = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular").bfloat16()
    model = wrapped(operator, BURGERS, horizon=0.5).eval()
    out = model(smooth_fields(BURGERS, (64,), torch.bfloat16))
    assert out.dtype == torch.bfloat16 and bool(torch.isfinite(out).all())


class Unit(nn.Module):
    """What an autocast network hands back: half precision."""

    def forward(self, field: Tensor) -> Tensor:
        return torch.ones_like(field, dtype=torch.bfloat16)


def test_an_operator_under_autocast_does_not_round_the_frame_or_the_boost() -> None:
    field = smooth_fields(BURGERS, (64,), torch.float32) + 0.123456
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = wrapped(Unit(), BURGERS, horizon=0.5).eval()(field)
    assert out.dtype == torch.float32
    expected = 1 + field.mean(dim=2, keepdim=True).expand_as(out)
    assert torch.allclose(out, expected, atol=1e-5)


# --- gradients and bad input


def test_gradients_flow_through_the_frame_the_operator_and_the_field() -> None:
    model = wrapped_fno(BURGERS, "equivariant", torch.float64, perturbed=True).train()
    field = smooth_fields(BURGERS, (64,), torch.float64).requires_grad_()
    relative_l2(model(field), torch.ones_like(field)).mean().backward()
    assert field.grad is not None and bool(torch.isfinite(field.grad).all())
    dead = [k for k, p in model.named_parameters() if p.grad is None or largest(p.grad) == 0]
    assert not dead


def test_a_field_without_a_frame_is_predicted_with_the_identity_and_finite_gradients(
    dtype: torch.dtype,
) -> None:
    group = BURGERS.group
    torch.manual_seed(5)
    frame = EquivariantFrame(group, BURGERS.type, slice=PhaseSlice(group))
    operator = FNO(1, 1, 1, 12, 6, positions="grid")
    options = {"channels": "u: speed", "horizon": 1.0, "lengths": 1.0, "on_undetermined": "ignore"}
    model = PACE(operator, group, frame=frame, **options).to(dtype).eval()
    perturb(model)
    wave = torch.cos(4 * math.pi * points((64,))[0])
    field = torch.stack([torch.zeros(64), torch.full((64,), 0.3), wave])[:, None].to(dtype)
    field.requires_grad_()
    out = model(field)
    velocity = field.mean(dim=2)
    xi = torch.cat([torch.zeros_like(velocity), velocity], dim=1)
    by_hand = model.operator(field - velocity[..., None])
    moved = group.act(Field(by_hand, model.output), xi).values
    assert torch.allclose(out, moved, atol=1e-5)
    out.sum().backward()
    assert field.grad is not None and bool(torch.isfinite(field.grad).all())
    slopes = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(bool(torch.isfinite(slope).all()) for slope in slopes)


def test_bad_input_is_refused_with_the_remedy() -> None:
    model = wrapped_fno(BURGERS, "analytic", torch.float32, perturbed=False)
    good = smooth_fields(BURGERS, (64,), torch.float32)
    bad = good.clone()
    bad[2, 0, 7] = torch.nan
    for call in (model, model.frame_of, model.canonicalize, model.refine):
        with pytest.raises(FieldError, match="add a batch axis"):
            call(good[0])
        with pytest.raises(FieldError, match="got \\(6, 1, 64, 1\\)"):
            call(good[..., None])
        with pytest.raises(FieldError, match="an axis is empty"):
            call(good[:0])
        with pytest.raises(FieldError, match="floating dtype"):
            call(good.long())
        with pytest.raises(FieldError, match=r"sample 2, channel 0, grid point \(7,\)"):
            call(bad)
        with pytest.raises(FieldError, match="channels, not 2"):
            call(torch.cat([good, good], dim=1))
    with pytest.raises(FieldError, match="one row per sample"):
        model.at(good, torch.zeros(6, 1))
    water = CASES["galilean-2d-momentum"]
    with pytest.raises(FieldError, match="give it 3 channels, not 1"):
        wrapped(nn.Identity(), water)(torch.zeros(1, 1, 8, 8))
    model.train()
    assert bool(torch.isnan(model(bad)[2]).all())  # in training the loss watches for it
