"""The gate for fields and axes, the transforms, the Nyquist rule and resampling."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pacefno import grid
from pacefno.grid import (
    FieldError,
    band_limit,
    check_field,
    check_points,
    from_spectrum,
    resample,
    to_spectrum,
)
from pacefno.groups import shift

SHAPES = [(16,), (17,), (16, 16), (15, 15), (16, 11), (9, 12), (8, 6, 10), (7, 8, 5)]


def noise(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float64, batch: int = 2, channels: int = 3
) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(batch, channels, *shape, dtype=torch.float64, generator=generator).to(dtype)


def smooth(shape: tuple[int, ...], top: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random content in the modes up to ``top`` on every axis."""
    return resample(band_limit(noise((2 * top + 1,) * len(shape)), len(shape)), shape).to(dtype)


# --- check_field


@pytest.mark.parametrize("shape", SHAPES)
def test_a_good_field_passes_in_every_float_dtype(shape: tuple[int, ...]) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert check_field(noise(shape, dtype), channels=3, dim=len(shape)) is None
        assert check_field(noise(shape, dtype)) is None


@pytest.mark.parametrize(
    ("field", "expected", "got", "remedy"),
    [
        (torch.zeros(3, 8, 8), "(B, 3, N, M)", "(3, 8, 8)", "add a batch axis with field[None]"),
        (torch.zeros(8, 8), "(B, 3, N, M)", "(8, 8)", "layout is (batch, channel, *grid)"),
        (
            torch.zeros(2, 3, 8, 8, 8),
            "(B, 3, N, M)",
            "(2, 3, 8, 8, 8)",
            "layout is (batch, channel, *grid)",
        ),
        (torch.zeros(2, 1, 8, 8), "(B, 3, N, M)", "(2, 1, 8, 8)", "give it 3 channels"),
        (torch.zeros(2, 8, 8, 3), "(B, 3, N, M)", "(2, 8, 8, 3)", "give it 3 channels"),
        (torch.zeros(0, 3, 8, 8), "(B, 3, N, M)", "(0, 3, 8, 8)", "leave such a batch out"),
        (torch.zeros(2, 3, 0, 8), "(B, 3, N, M)", "(2, 3, 0, 8)", "leave such a batch out"),
        (torch.zeros(2, 3, 8, 8).int(), "floating dtype", "torch.int32", "field.float()"),
        (torch.zeros(2, 3, 8, 8).bool(), "floating dtype", "torch.bool", "field.float()"),
        (
            torch.zeros(2, 3, 8, 8, dtype=torch.complex64),
            "floating dtype",
            "torch.complex64",
            "field.float()",
        ),
        ([[0.0]], "torch.Tensor", "list", "torch.as_tensor"),
    ],
)
def test_a_bad_field_is_refused_with_what_was_expected_what_came_and_what_to_do(
    field: Tensor, expected: str, got: str, remedy: str
) -> None:
    with pytest.raises(FieldError) as error:
        check_field(field, channels=3, dim=2, name="input")
    message = str(error.value)
    assert message.startswith("input: ")
    assert all(part in message for part in (expected, got, remedy)), message


@pytest.mark.parametrize("shape", [(8,), (8,) * 2, (2, 8)])
def test_fewer_than_three_axes_are_refused_without_a_stated_dimension(
    shape: tuple[int, ...],
) -> None:
    with pytest.raises(FieldError, match=r"\(B, C, \*grid\)"):
        check_field(torch.zeros(shape))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [(0, 0, 0, 0), (1, 2, 3, 4), (1, 0, 7, 8)])
def test_one_bad_value_is_found_wherever_it_is(bad: float, where: tuple[int, ...]) -> None:
    field = noise((8, 9))
    field[where] = bad
    place = f"sample {where[0]}, channel {where[1]}, grid point {where[2:]}"
    with pytest.raises(FieldError) as error:
        check_field(field)
    assert (
        place in str(error.value)
        and f"1 of {field.numel()}" in str(error.value)
        and "repair" in str(error.value)
    )
    check_field(field, finite=False)


# --- check_points


@pytest.mark.parametrize("n", [2, 3, 64, 65, 2000, 3000, 20000])
def test_the_points_of_the_grid_are_accepted_whatever_their_rounding(
    n: int, dtype: torch.dtype
) -> None:
    assert check_points(grid.points((n,), dtype=dtype)[0]) is None
    assert check_points(torch.arange(n, dtype=dtype) / n * 3 - 1.5, length=3.0) is None


@pytest.mark.parametrize("n", [2, 3, 64, 65, 2000, 20000])
def test_a_repeated_end_point_is_recognised_at_every_length(n: int, dtype: torch.dtype) -> None:
    with pytest.raises(FieldError, match=r"listed twice; drop the last point"):
        check_points(torch.linspace(0, 1, n, dtype=dtype))


def test_uneven_points_are_refused_with_their_range_of_spacings() -> None:
    x = torch.arange(10) / 10
    x[4] += 0.02
    with pytest.raises(FieldError, match=r"varies from 0\.08 to 0\.12: resample evenly"):
        check_points(x)
    with pytest.raises(FieldError, match="resample"):
        check_points(torch.full((4,), math.nan))


@pytest.mark.parametrize("length", [0.5, 2.0, 2 * math.pi])
def test_another_length_is_named(length: float) -> None:
    x = torch.arange(64, dtype=torch.float64) / 64 * length
    with pytest.raises(FieldError, match=rf"period of {length:.6g}, expected 1: .*another length"):
        check_points(x)
    check_points(x, length=length)


@pytest.mark.parametrize("points", [torch.zeros(1), torch.zeros(3, 3), torch.tensor(0.0)])
def test_what_is_no_axis_is_refused(points: Tensor) -> None:
    with pytest.raises(FieldError, match="one axis of at least 2 points"):
        check_points(points)


# --- points, wavenumbers, transforms


def test_points_leave_out_the_end_point_and_come_in_axis_order() -> None:
    x, y = grid.points((4, 5))
    assert x[:, 0].tolist() == [0, 0.25, 0.5, 0.75] and y[0].tolist() == pytest.approx(
        [0, 0.2, 0.4, 0.6, 0.8]
    )


@pytest.mark.parametrize("n", [7, 8, 49, 98, 103, 196])
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_wavenumbers_are_whole_under_any_default_dtype(n: int, default: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        full, half = grid.frequencies(n), grid.frequencies(n, half=True)
    finally:
        torch.set_default_dtype(before)
    assert full.tolist() == [*range((n + 1) // 2), *range(-(n // 2), 0)]
    assert half.tolist() == list(range(n // 2 + 1))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_transform_and_back_is_the_identity_on_odd_lengths_too(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    field = noise(shape, dtype)
    spectrum = to_spectrum(field, len(shape))
    assert spectrum.shape[2:] == grid.wavenumbers(shape).shape[1:]
    back = from_spectrum(spectrum, shape)
    assert back.shape == field.shape and back.dtype == dtype
    torch.testing.assert_close(back, field, atol=tolerance, rtol=0)
    mean = spectrum.flatten(2)[..., 0].real
    torch.testing.assert_close(mean, field.flatten(2).mean(-1), atol=tolerance, rtol=0)


@pytest.mark.parametrize("shape", [*SHAPES, (1,), (2,), (4, 1), (3, 2)])
def test_parseval_holds_with_the_spectral_weights(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    field = noise(shape, dtype)
    power = to_spectrum(field, len(shape)).abs() ** 2 * grid.spectral_weights(shape, dtype=dtype)
    torch.testing.assert_close(
        power.flatten(2).sum(-1), field.square().flatten(2).mean(-1), atol=tolerance, rtol=tolerance
    )


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "act",
    [lambda u: resample(u, (20, 9)), lambda u: band_limit(u, 2, 3)],
    ids=["resample", "band_limit"],
)
def test_half_precision_comes_back_as_it_came(
    half: torch.dtype, act: Callable[[Tensor], Tensor]
) -> None:
    field = noise((12, 15)).to(half)
    assert to_spectrum(field, 2).dtype == torch.complex64
    result = act(field)
    assert result.dtype == half
    torch.testing.assert_close(result, act(field.float()).to(half), atol=0, rtol=0)


# --- the Nyquist rule


def phase_with_nyquist(n: int, distance: Tensor, *, half: bool) -> Tensor:
    """The broken rule: the Nyquist mode turned like any other."""
    angle = (
        -2 * math.pi * distance[..., None] * grid.frequencies(n, half=half, dtype=distance.dtype)
    )
    return torch.polar(torch.ones_like(angle), angle)


def lost_by_a_shift(n: int, phase: Callable[..., Tensor]) -> float:
    u = noise((n,))
    d = torch.tensor(0.3, dtype=torch.float64)
    there = from_spectrum(to_spectrum(u, 1) * phase(n, d, half=True), (n,))
    back = from_spectrum(to_spectrum(there, 1) * phase(n, -d, half=True), (n,))
    return float((back - u).abs().max())


@pytest.mark.parametrize("n", [15, 16])
def test_a_shift_of_white_noise_is_undone_exactly(n: int) -> None:
    assert lost_by_a_shift(n, grid.shift_phase) < 1e-14


def test_a_phase_on_the_nyquist_mode_would_lose_content() -> None:
    assert lost_by_a_shift(15, phase_with_nyquist) < 1e-14
    assert lost_by_a_shift(16, phase_with_nyquist) > 1e-2


@pytest.mark.parametrize("n", [8, 9])
@pytest.mark.parametrize("half", [True, False])
def test_phases_have_modulus_one_and_the_nyquist_phase_is_one(
    n: int, half: bool, dtype: torch.dtype
) -> None:
    phase = grid.shift_phase(n, torch.tensor([0.1, -0.7], dtype=dtype), half=half)
    assert phase.shape == (2, n // 2 + 1 if half else n)
    torch.testing.assert_close(phase.abs(), torch.ones_like(phase.abs()))
    assert torch.equal(phase[:, n // 2], torch.ones_like(phase[:, 0])) == (n % 2 == 0)


# --- resampling

PAIRS = [
    ((9,), (24,)),
    ((9,), (15,)),
    ((10,), (11,)),
    ((12, 12), (9, 9)),
    ((9, 12), (15, 20)),
    ((16, 10), (11, 25)),
    ((12, 9), (12, 14)),
    ((9, 10, 11), (12, 9, 16)),
]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_resampling_is_the_interpolant_and_comes_back(
    old: tuple[int, ...], new: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    coarse = smooth(old, 4, dtype)
    fine = resample(coarse, new)
    torch.testing.assert_close(fine, smooth(new, 4, dtype), atol=tolerance, rtol=0)
    torch.testing.assert_close(resample(fine, old), coarse, atol=tolerance, rtol=0)


def test_resampling_evaluates_a_known_function() -> None:
    def wave(shape: tuple[int, ...]) -> Tensor:
        x, y = grid.points(shape)
        return torch.cos(2 * math.pi * (2 * x - 3 * y) + 0.4)[None, None]

    torch.testing.assert_close(resample(wave((8, 9)), (15, 20)), wave((15, 20)), atol=1e-13, rtol=0)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_resampling_commutes_with_shifts(
    old: tuple[int, ...], new: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    field = smooth(old, 4, dtype)
    distance = torch.tensor([[0.31, -0.12, 0.45], [0.07, 0.5, -0.2]], dtype=dtype)[:, : len(old)]
    torch.testing.assert_close(
        shift(resample(field, new), distance),
        resample(shift(field, distance), new),
        atol=tolerance,
        rtol=0,
    )


def test_every_kth_point_is_no_resampling_and_does_not_commute_with_shifts() -> None:
    """The broken counterpart: taking points aliases, so it fails the law that resample passes."""
    field, distance = noise((16,)), torch.tensor([[0.03], [0.11]], dtype=torch.float64)
    spectral = (
        (shift(resample(field, (9,)), distance) - resample(shift(field, distance), (9,)))
        .abs()
        .max()
    )
    strided = (shift(field[..., ::2], distance) - shift(field, distance)[..., ::2]).abs().max()
    assert spectral < 1e-13 and strided > 0.1


@given(st.integers(3, 30), st.integers(3, 30))
def test_resampling_keeps_the_mean_and_never_adds_energy(old: int, new: int) -> None:
    field = noise((old,))
    result = resample(field, (new,))
    assert result.shape[-1] == new
    torch.testing.assert_close(result.mean(-1), field.mean(-1), atol=1e-14, rtol=0)
    assert bool((result.square().mean(-1) <= field.square().mean(-1) + 1e-14).all())


def test_resampling_to_one_point_is_the_mean() -> None:
    torch.testing.assert_close(resample(noise((8,)), (1,)), noise((8,)).mean(-1, keepdim=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_band_limit_removes_what_is_above_and_nothing_else(shape: tuple[int, ...]) -> None:
    dim, field = len(shape), noise(shape)
    limited = to_spectrum(band_limit(field, dim, 2), dim)
    high = (grid.wavenumbers(shape).abs() > 2).any(dim=0)
    assert float(limited[..., high].abs().max()) < 1e-15
    torch.testing.assert_close(limited[..., ~high], to_spectrum(field, dim)[..., ~high])
    torch.testing.assert_close(
        band_limit(smooth(shape, 2), dim), smooth(shape, 2), atol=1e-14, rtol=0
    )


# --- spectra


@pytest.mark.parametrize("shape", [(16,), (17,), (16, 16), (12, 15)])
def test_a_spectrum_finds_each_wave_and_sums_to_the_mean_square(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    x = torch.arange(shape[-1], dtype=dtype) / shape[-1]
    wave = (0.5 + 2 * torch.cos(2 * torch.pi * 3 * x)).expand(shape)
    fields = torch.stack([wave, 2 * wave]).expand(4, 2, *shape)
    energy = grid.energy_spectrum(fields)
    assert energy.shape == (2, min(shape) // 2 + 1)
    expected = torch.zeros_like(energy)
    expected[:, 0], expected[:, 3] = torch.tensor([0.25, 1.0]), torch.tensor([2.0, 8.0])
    assert torch.allclose(energy, expected, atol=1e-5)
    assert torch.allclose(
        energy.sum(1), fields.square().mean(dim=(0, *range(2, fields.ndim))), rtol=1e-5
    )


# --- precision of a shift


def phase_error(n: int, distance: Tensor, given: torch.dtype) -> float:
    """How far float32 phases are from exact ones, for a distance kept in ``given``."""
    exact = grid.shift_phase(n, distance, half=True)
    rounded = grid.shift_phase(n, distance.to(given), half=True, dtype=torch.float32)
    assert rounded.dtype == torch.complex64
    return float((rounded - exact).abs().max())


def test_a_distance_in_float64_costs_high_wavenumbers_no_digits() -> None:
    distance = torch.tensor([0.123456789, -0.49, 37.2], dtype=torch.float64)
    assert phase_error(4096, distance, torch.float64) < 5e-7
    assert phase_error(4096, distance, torch.float32) > 1e-4  # what rounding it first would cost


@pytest.mark.parametrize("shape", [(12,), (12, 8), (8, 4, 8)])
def test_every_kth_point_is_a_grid_again(shape: tuple[int, ...]) -> None:
    field = grid.points(shape)[None]
    assert torch.equal(grid.coarsen(field, 4), grid.points([n // 4 for n in shape])[None])


def test_tables_of_a_transform_are_not_kept_for_later() -> None:
    """Those made inside nested transforms of torch.func belong to them, and to nobody after."""
    kept = grid.Kept(lambda n: torch.arange(n).cos())

    def energy(values: Tensor) -> Tensor:
        return (values * kept(5)).square().sum()

    values = noise((5,), channels=1)
    torch.func.jvp(torch.func.grad(energy), (values,), (values,))
    expected = 2 * values * torch.arange(5).cos().square()
    for derivative in (torch.func.grad(energy)(values), torch.func.grad(energy)(values)):
        assert torch.allclose(derivative, expected)
    assert not kept.store and torch.equal(kept(5), torch.arange(5).cos()) and len(kept.store) == 1
