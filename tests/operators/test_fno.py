"""The Fourier neural operator: the spectral layer against FFTs, then the whole network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from spectral_reference import spectral_convolution_fft
from torch import Tensor, nn

from pacefno.grid import FieldError, points
from pacefno.operators import FNO
from pacefno.operators.fno import FourierLayer, pairs, products
from pacefno.operators.spectral import band_shape, dft_pair, spectral_convolution

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
# grid, modes: even, odd, non-square, and the smallest grids that hold the band (2 m - 1 points)
CASES = [
    ((16,), (5,)),
    ((17,), (9,)),
    ((12, 9), (3, 5)),
    ((9, 14), (5, 4)),
    ((8, 8), (4, 4)),
    ((6, 7, 10), (2, 4, 3)),
    ((5, 5, 5), (3, 3, 3)),
]
SHAPES = {1: (21,), 2: (12, 15), 3: (8, 9, 10)}


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def distance(a: Tensor, b: Tensor) -> float:
    return ((a - b).detach().norm() / b.detach().norm()).item()


def small(dim: int, **options: object) -> FNO:
    torch.manual_seed(0)
    sizes = {"dim": dim, "in_channels": 2, "out_channels": 3, "width": 6, "modes": 3, "layers": 3}
    return FNO(**({"head": 10} | sizes | options))


def strengthen(model: nn.Module) -> nn.Module:
    """Spectral weights start tiny (1 / width^2): make them as important as the pointwise ones."""
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, FourierLayer):
                layer.weight.normal_(0, 0.3)
    return model


# --- the spectral layer


def layer_inputs(
    grid: Sequence[int], modes: Sequence[int], dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    v = random(*reversed(grid), 2, 3, dtype=dtype).requires_grad_()
    weight = random(*band_shape(modes), 3, 2, 4, dtype=dtype, seed=1).requires_grad_()
    return v, weight, random(*reversed(grid), 2, 4, dtype=dtype, seed=2)


@pytest.mark.parametrize(("grid", "modes"), CASES)
def test_matrix_products_and_ffts_give_the_same_values_and_gradients(
    grid: tuple[int, ...], modes: tuple[int, ...], dtype: torch.dtype
) -> None:
    v, weight, cotangent = layer_inputs(grid, modes, dtype)
    ours = spectral_convolution(v, weight, modes, base=torch.zeros_like(cotangent))
    reference = spectral_convolution_fft(v, weight, modes)
    assert ours.dtype == dtype
    assert distance(ours, reference) < TOLERANCE[dtype]
    gradients = torch.autograd.grad(ours, [v, weight], cotangent)
    expected = torch.autograd.grad(reference, [v, weight], cotangent)
    for got, want in zip(gradients, expected, strict=True):
        assert distance(got, want) < TOLERANCE[dtype]


def test_a_layer_with_conjugated_weights_is_told_from_the_right_one() -> None:
    v, weight, cotangent = layer_inputs((9, 14), (5, 4), torch.float64)
    broken = weight * torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None]
    ours = spectral_convolution(v, broken, (5, 4), base=torch.zeros_like(cotangent))
    assert distance(ours, spectral_convolution_fft(v, weight, (5, 4))) > 0.1


@pytest.mark.parametrize(("grid", "modes"), CASES)
def test_unit_weights_keep_the_band(
    grid: tuple[int, ...], modes: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = points(grid, dtype=torch.float64)
    k = [m - 1 for m in modes]
    inside = torch.cos(2 * math.pi * sum(n * axis for n, axis in zip(k, x, strict=True)) + 0.4).to(
        dtype
    )
    v = inside.permute(*reversed(range(len(grid))))[..., None, None].contiguous()
    weight = torch.zeros(*band_shape(modes), 1, 2, 1, dtype=dtype)
    weight[..., 0, :] = 1
    out = spectral_convolution(v, weight, modes, base=torch.zeros_like(v))
    assert distance(out, v) < TOLERANCE[dtype]


def test_the_base_is_added_once(dtype: torch.dtype) -> None:
    v, weight, base = layer_inputs((12, 9), (3, 5), dtype)
    alone = spectral_convolution(v, weight, (3, 5), base=torch.zeros_like(base))
    assert (
        distance(spectral_convolution(v, weight, (3, 5), base=base), alone + base)
        < TOLERANCE[dtype]
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_the_band_is_symmetric_under_reflections(axis: int) -> None:
    modes, v = (3, 4), random(14, 9, 2, 1)
    weight = torch.zeros(*band_shape(modes), 1, 2, 1, dtype=torch.float64)
    weight[..., 0, :] = 1
    mirrored = torch.roll(v.flip(axis), 1, axis)  # x -> -x on a periodic axis keeps point 0
    out = spectral_convolution(v, weight, modes, base=torch.zeros_like(v))
    reflected = spectral_convolution(mirrored, weight, modes, base=torch.zeros_like(v))
    assert distance(reflected, torch.roll(out.flip(axis), 1, axis)) < 1e-12


@pytest.mark.parametrize(
    ("grid", "modes"), [((17,), (5,)), ((12, 10), (3, 4)), ((6, 8, 9), (2, 3, 4))]
)
def test_the_layer_agrees_with_neuraloperator(
    grid: tuple[int, ...], modes: tuple[int, ...]
) -> None:
    pytest.importorskip("neuralop", reason="the optional peer neuraloperator is not installed")
    from neuralop.layers.spectral_convolution import SpectralConv

    dim = len(grid)
    # It keeps n // 2 + 1 wavenumbers on the last axis and a centred band on the others: 2 m - 1 is
    # ours exactly. Only the last axis may be odd: on the others version 2.0.0 undoes fftshift by
    # fftshift, right for even lengths.
    peer = SpectralConv(3, 4, (*(2 * m - 1 for m in modes[:-1]), 2 * modes[-1] - 2), bias=False)
    field, weight = (
        random(2, 3, *grid, dtype=torch.float32),
        random(*band_shape(modes), 3, 2, 4, dtype=torch.float32),
    )
    with torch.no_grad():
        complex_weight = torch.complex(*weight.unbind(-2))  # (k_d, ..., k_1, in, out)
        peer.weight.tensor.copy_(complex_weight.permute(dim, dim + 1, *reversed(range(dim))))
        expected = peer(field)
    v = field.permute(*range(dim + 1, 1, -1), 0, 1)
    ours = spectral_convolution(v, weight, modes, base=v.new_zeros(*v.shape[:-1], 4))
    assert distance(ours.permute(-2, -1, *reversed(range(dim))), expected) < 1e-5


def test_matrices_made_in_inference_mode_serve_training_afterwards() -> None:
    dft_pair.store.clear()
    model = small(1)
    with torch.inference_mode():
        model(random(1, 2, 23, dtype=torch.float32))
    model(random(1, 2, 23, dtype=torch.float32)).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


# --- the whole network


@pytest.mark.parametrize("dim", SHAPES)
@pytest.mark.parametrize("positions", [None, "grid"])
def test_the_output_has_the_grid_and_dtype_of_the_input(
    dim: int, dtype: torch.dtype, positions: str | None
) -> None:
    model = small(dim, positions=positions).to(dtype)
    for shape in (SHAPES[dim], tuple(n + 3 for n in SHAPES[dim])):
        out = model(random(4, 2, *shape, dtype=dtype))
        assert out.shape == (4, 3, *shape)
        assert out.dtype == dtype
        assert bool(out.isfinite().all())


@pytest.mark.parametrize("dim", SHAPES)
def test_all_parameters_are_real_and_the_state_holds_nothing_else(dim: int) -> None:
    model = small(dim)
    model(random(1, 2, *SHAPES[dim], dtype=torch.float32))
    assert not any(tensor.is_complex() for tensor in model.state_dict().values())
    assert set(model.state_dict()) == {key for key, _ in model.named_parameters()}


def unmoved_by(model: nn.Module, field: Tensor) -> list[str]:
    """Names of the parameter tensors whose perturbation leaves the output as it was."""
    with torch.no_grad():
        before = model(field)
        names = []
        for name, parameter in model.named_parameters():
            kept = parameter.clone()
            parameter.add_(random(*kept.shape, dtype=kept.dtype, seed=3))
            if distance(model(field), before) < 1e-6:
                names.append(name)
            parameter.copy_(kept)
    return names


@pytest.mark.parametrize("dim", SHAPES)
@pytest.mark.parametrize("positions", [None, "grid"])
def test_every_parameter_moves_the_output_and_receives_a_gradient(
    dim: int, positions: str | None
) -> None:
    model, field = strengthen(small(dim, positions=positions)).double(), random(2, 2, *SHAPES[dim])
    assert unmoved_by(model, field) == []
    model(field).square().sum().backward()
    assert all(p.grad is not None and p.grad.norm() > 1e-8 for p in model.parameters())


def test_a_parameter_that_is_never_used_is_found() -> None:
    model = small(1).double()
    model.forgotten = nn.Parameter(torch.ones(3, dtype=torch.float64))
    assert unmoved_by(model, random(2, 2, 21)) == ["forgotten"]


def shift_defect(model: nn.Module, field: Tensor, dim: int) -> float:
    cells, axes = (3, 5, 2)[:dim], tuple(range(2, 2 + dim))
    return distance(model(field.roll(cells, axes)), model(field).roll(cells, axes))


@pytest.mark.parametrize("dim", SHAPES)
def test_without_positions_shifts_by_whole_cells_commute(dim: int, dtype: torch.dtype) -> None:
    model, field = strengthen(small(dim)).to(dtype), random(2, 2, *SHAPES[dim], dtype=dtype)
    assert shift_defect(model, field, dim) < TOLERANCE[dtype]


@pytest.mark.parametrize("dim", SHAPES)
def test_with_positions_shifts_do_not_commute(dim: int) -> None:
    model = strengthen(small(dim, positions="grid")).double()
    assert shift_defect(model, random(2, 2, *SHAPES[dim]), dim) > 1e-2


def waves(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A smooth field ``(1, 2, *shape)`` of wavenumbers up to 2, the same function on every grid."""
    x = 2 * math.pi * points(shape, dtype=torch.float64)
    phase = sum((i + 1) * axis for i, axis in enumerate(x))
    return torch.stack([torch.sin(x[0]) + 0.5, torch.cos(phase - x[-1]) - 0.2])[None].to(dtype)


def refinement_defect(layer: nn.Module, n: int, dim: int, dtype: torch.dtype) -> float:
    coarse, fine = (layer(waves((size,) * dim, dtype)) for size in (n, 2 * n))
    return distance(fine[(..., *(slice(None, None, 2),) * dim)], coarse)


def linear(model: nn.Module, scale_with_points: bool = False) -> nn.Module:
    """Just the lifting and one Fourier layer, where nothing aliases.

    ``scale_with_points`` breaks the normalisation.
    """

    class Linear(nn.Module):
        def forward(self, field: Tensor) -> Tensor:
            v = model.lifting(field.permute(*range(field.ndim - 1, 1, -1), 0, 1))
            layer = model.layers[0]
            factor = v[..., 0, 0].numel() if scale_with_points else 1
            v = spectral_convolution(v, factor * layer.weight, layer.modes, base=layer.pointwise(v))
            return v.permute(-2, -1, *range(v.ndim - 3, -1, -1))

    return Linear()


@pytest.mark.parametrize("dim", [1, 2])
def test_a_fourier_layer_is_the_same_map_at_twice_the_resolution(
    dim: int, dtype: torch.dtype
) -> None:
    model = strengthen(small(dim)).to(dtype)
    assert refinement_defect(linear(model), 64 if dim == 1 else 16, dim, dtype) < TOLERANCE[dtype]


def test_a_layer_that_forgets_to_normalise_depends_on_the_resolution() -> None:
    model = strengthen(small(1)).double()
    assert refinement_defect(linear(model, scale_with_points=True), 64, 1, torch.float64) > 0.1


@pytest.mark.parametrize("dim", [1, 2])
def test_the_whole_operator_changes_with_resolution_only_by_aliasing(dim: int) -> None:
    """GELU creates all wavenumbers, so two grids differ by what folds back, which soon vanishes."""
    model = strengthen(small(dim)).double()
    coarse, middle, fine = (refinement_defect(model, n, dim, torch.float64) for n in (8, 16, 32))
    assert 1e-6 < coarse < 1e-3
    assert middle < 1e-3 * coarse
    assert fine < 1e-12


# --- projection in pieces, precision, derivatives


def test_cutting_the_projection_into_pieces_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, field = small(2).double(), random(3, 2, 12, 15)
    whole = model(field)
    monkeypatch.setattr(
        "pacefno.operators.fno.HEAD_ENTRIES", 70
    )  # 7 points a piece, the last one shorter
    assert distance(model(field), whole) < 1e-14


@pytest.mark.parametrize("dim", SHAPES)
def test_autocast_reaches_the_pointwise_maps_but_never_a_transform(
    dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[torch.dtype] = set()
    original = dft_pair

    def spy(
        n: int, m: int, half: bool, dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        assert not torch.is_autocast_enabled("cpu")
        seen.add(dtype)
        return original(n, m, half, dtype, device)

    monkeypatch.setattr("pacefno.operators.spectral.dft_pair", spy)
    model, field = strengthen(small(dim)), random(2, 2, *SHAPES[dim], dtype=torch.float32)
    exact = model(field)
    # Some virtual machines announce matrix instructions that they cannot run: stay off that path.
    with torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", torch.bfloat16):
            out = model(field)
        out.sum().backward()
    assert seen == {torch.float32}
    assert out.dtype == torch.float32
    assert 1e-6 < distance(out, exact) < 5e-2


def test_forward_derivatives_and_vmap_work() -> None:
    dft_pair.store.clear()  # matrices first made inside a transform must serve afterwards too
    model, field, tangent = (
        strengthen(small(2)).double(),
        random(3, 2, 12, 15),
        random(3, 2, 12, 15, seed=5),
    )
    value, derivative = torch.func.jvp(model, (field,), (tangent,))
    assert distance(value, model(field)) < 1e-14
    step = 1e-5
    difference = (model(field + step * tangent) - model(field - step * tangent)) / (2 * step)
    assert distance(derivative, difference) < 1e-8
    dft_pair.store.clear()
    one_by_one = torch.func.vmap(lambda sample: model(sample[None])[0])(field)
    assert distance(one_by_one, model(field)) < 1e-12


def test_double_backward_is_correct() -> None:
    model = strengthen(small(1, width=3, layers=2, head=4)).double()
    assert torch.autograd.gradgradcheck(model, random(1, 2, 7).requires_grad_())


# --- refusals


def test_a_grid_too_coarse_for_the_modes_is_refused_with_both_sizes() -> None:
    model = small(2, modes=(3, 6))
    with pytest.raises(FieldError, match=r"at least \(5, 11\) points, got \(5, 10\): resample"):
        model(random(1, 2, 5, 10, dtype=torch.float32))
    assert model(random(1, 2, 5, 11, dtype=torch.float32)).shape == (1, 3, 5, 11)


@pytest.mark.parametrize(
    ("weights", "field"), [(torch.float32, torch.float64), (torch.float64, torch.float32)]
)
def test_a_field_of_another_dtype_is_refused(weights: torch.dtype, field: torch.dtype) -> None:
    with pytest.raises(FieldError, match=rf"expected {weights}.*got {field}.*convert"):
        small(1).to(weights)(random(1, 2, 21, dtype=field))


def test_wrong_channels_and_dimensions_are_refused() -> None:
    with pytest.raises(FieldError, match=r"expected \(B, 2, N\), got \(1, 5, 21\)"):
        small(1)(random(1, 5, 21, dtype=torch.float32))
    with pytest.raises(FieldError, match="add a batch axis"):
        small(2)(random(2, 12, 15, dtype=torch.float32))


def test_nan_is_refused_in_evaluation_only() -> None:
    model, field = small(1), torch.full((1, 2, 21), math.nan)
    assert bool(model(field).isnan().all())
    with pytest.raises(FieldError, match="NaN"):
        model.eval()(field)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 4}, "dim: expected 1, 2 or 3, got 4"),
        ({"width": 0}, "width: expected a positive integer, got 0"),
        ({"modes": (3, 3, 3)}, r"modes: .* got \(3, 3, 3\)"),
        ({"modes": 0}, "modes: .* got 0"),
        ({"positions": "sine"}, "positions: expected None or 'grid', got 'sine'"),
    ],
)
def test_impossible_sizes_are_refused_when_building(
    options: dict[str, object], message: str
) -> None:
    sizes: dict[str, object] = {
        "dim": 2,
        "in_channels": 1,
        "out_channels": 1,
        "width": 4,
        "modes": 3,
    }
    with pytest.raises(ValueError, match=message):
        FNO(**(sizes | options))


def test_products_of_channels_stand_beside_gelu(dtype: torch.dtype) -> None:
    v = torch.randn(5, 2, 8, dtype=dtype, generator=torch.Generator().manual_seed(0))
    found = products(v)
    assert torch.equal(found[..., :4], torch.nn.functional.gelu(v[..., :4]))
    assert torch.equal(found[..., 4:6], v[..., 4:6] * v[..., 6:])
    assert torch.equal(found[..., 6:], v[..., 4:6])
    assert torch.equal(pairs(v), torch.cat([v[..., :4] * v[..., 4:], v[..., :4]], dim=-1))


def test_a_network_of_pairs_is_a_polynomial() -> None:
    """Of degree four with two layers: the product before the last layer and the one in the head."""
    torch.manual_seed(0)
    network = FNO(1, 1, 1, 8, 3, layers=2, head=8, activation="polynomial").double()
    field = torch.randn(2, 1, 9, dtype=torch.float64)
    sizes = torch.arange(6, dtype=torch.float64)
    values = torch.stack([network(size * field) for size in sizes]).detach()
    fifth = torch.tensor([-1.0, 5, -10, 10, -5, 1], dtype=torch.float64)
    fourth = torch.tensor([1.0, -4, 6, -4, 1, 0], dtype=torch.float64)
    scale = float(values.abs().max())
    assert float(torch.einsum("s,sbcx->bcx", fifth, values).abs().max()) < 1e-12 * scale
    assert float(torch.einsum("s,sbcx->bcx", fourth, values).abs().max()) > 1e-6 * scale


def test_a_network_with_products_learns_a_square_that_gelu_does_not(dtype: torch.dtype) -> None:
    def error_after_training(activation: str) -> float:
        torch.manual_seed(0)
        network = FNO(1, 1, 1, 8, 3, layers=2, head=8, activation=activation).to(dtype)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
        generator = torch.Generator().manual_seed(1)
        for _ in range(200):
            field = torch.randn(16, 1, 8, dtype=dtype, generator=generator)
            loss = (network(field) - field.square()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    gelu = error_after_training("gelu")
    assert error_after_training("products") < 0.2 * gelu
    assert error_after_training("polynomial") < 0.2 * gelu


def test_an_activation_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="expected gelu, products, polynomial, got 'relu'"):
        FNO(1, 1, 1, 8, 3, activation="relu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="multiples of 4, got 6 and 128"):
        FNO(1, 1, 1, 6, 3, activation="products")
