"""Parts by name: registered, described, and rebuilt from their description."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from group_examples import EXAMPLES
from pacefno import registry
from pacefno.errors import UsageError
from pacefno.fields import Field, FieldType, Kind
from pacefno.frames import FRAMES, SLICES, CanonicalSlice, Estimate, Frame
from pacefno.groups import GROUPS, Group, PointGroup, Translation
from pacefno.operators import FNO, OPERATORS, GroupFNO
from pacefno.pace import PACE
from pacefno.registry import (
    build,
    describe,
    foreign_parts,
    lookup,
    register,
    registered,
    spec_of,
)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = {part: dict(classes) for part, classes in registry._CLASSES.items()}
    yield
    for part, classes in registry._CLASSES.items():
        classes.clear()
        classes.update(before[part])


# --- names


def test_the_registries_are_live_views_of_all_parts() -> None:
    views = {"group": GROUPS, "frame": FRAMES, "slice": SLICES, "operator": OPERATORS}
    for part, view in views.items():
        assert dict(view) == dict(registered(part)) and len(view) > 0
    register("operator", "nothing")(type("Nothing", (nn.Module,), {}))
    assert "nothing" in OPERATORS


def test_a_name_cannot_be_taken_twice() -> None:
    taken = "operator 'fno' is registered already, as pacefno.operators.fno.FNO"
    for name in ("Mine", "FNO"):  # a class of the same name elsewhere is another one
        with pytest.raises(ValueError, match=taken):
            register("operator", "fno")(type(name, (nn.Module,), {}))


@pytest.mark.parametrize(
    ("part", "name", "sentence"),
    [
        ("group", "gallilean", "unknown group 'gallilean'. Did you mean 'galilean'"),
        ("operator", "zzz", "unknown operator 'zzz'. Expected one of adapted, fno"),
        (
            "optic",
            "fno",
            "unknown part 'optic'. Expected one of kind, group, slice, frame, operator",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_those_there_are(
    part: str, name: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        lookup(part, name)


# --- descriptions


def test_a_description_is_plain_data_and_leaves_out_what_the_model_gives() -> None:
    group = Translation(2)
    frame = lookup("frame", "equivariant")(
        group, FieldType.parse("p: scalar", 2), slice=lookup("slice", "phase")(group, channel=1)
    )
    spec = spec_of(frame)
    assert json.loads(json.dumps(spec)) == spec
    assert "group" not in spec and "type" not in spec
    assert spec["slice"] == {"part": "slice", "name": "phase", "channel": 1}
    assert spec["aligned"] is True and spec["width"] == 16


def test_values_are_described_one_by_one() -> None:
    assert describe({"a": (1, 2.5, None), "b": torch.tensor([1.0, 2.0])}) == {
        "a": [1, 2.5, None],
        "b": [1.0, 2.0],
    }
    assert describe(nn.Identity()) == {"foreign": "Identity"}
    assert foreign_parts(describe([{"x": nn.Identity()}, nn.ReLU()])) == ["Identity", "ReLU"]


def test_a_subclass_is_not_mistaken_for_its_registered_base() -> None:
    class Faster(Translation):
        pass

    with pytest.raises(ValueError, match=r"Faster is not registered: decorate its class"):
        spec_of(Faster(2))


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_every_group_is_rebuilt_from_its_description(name: str) -> None:
    group = EXAMPLES[name].group
    again = build(spec_of(group))
    assert type(again) is type(group)
    assert (again.dim, again.coordinates) == (group.dim, group.coordinates)


@pytest.mark.parametrize("name", list(SLICES))
def test_every_slice_is_rebuilt_for_the_group_of_its_model(name: str) -> None:
    group = lookup("group", "euclidean")()
    part = SLICES[name](group)
    again = build(spec_of(part), group=group, type=FieldType.parse("w: pseudoscalar", 2))
    assert type(again) is type(part) and again.group is group


FRAME_OPTIONS = {
    "seam": lambda group: {"slice": lookup("slice", "quarter")(group)},
    "partial": lambda group: {"inner": lookup("frame", "analytic")(group), "keep": 2},
}


@pytest.mark.parametrize("name", list(FRAMES))
def test_every_frame_is_rebuilt_with_its_weights(name: str) -> None:
    group, type_ = lookup("group", "euclidean")(), FieldType.parse("w: pseudoscalar", 2)
    options = FRAME_OPTIONS.get(name, lambda group: {})(group)
    torch.manual_seed(0)
    wanted = {"group": group, "type": type_}
    signature = FRAMES[name].__init__.__wrapped__.__code__.co_varnames
    context = {key: value for key, value in wanted.items() if key in signature}
    frame = FRAMES[name](**context, **options)
    again = build(spec_of(frame), **wanted)
    again.load_state_dict(frame.state_dict())
    field = Field(torch.randn(2, 1, 24, 24, generator=torch.Generator().manual_seed(1)), type_)
    assert torch.equal(frame(field).xi, again(field).xi)


def test_an_operator_keeps_its_own_point_group_whatever_the_group_of_the_model() -> None:
    operator = GroupFNO(2, 1, 1, 3, 3, "p4m")
    again = build(spec_of(operator), group=Translation(2), type=FieldType.parse("p: scalar", 2))
    assert isinstance(again.group, PointGroup) and again.group.which == "p4m"


def test_what_cannot_be_rebuilt_is_named() -> None:
    spec = spec_of(lookup("operator", "recurrent")(nn.Identity(), 3))
    with pytest.raises(ValueError, match="Identity is not a registered part"):
        build(spec)
    with pytest.raises(ValueError, match=r"operator 'fno'.*'depth'"):
        build(spec_of(FNO(1, 1, 1, 4, 3)) | {"depth": 3})
    with pytest.raises(UsageError, match="group 'galilean': .*'str' and 'int'"):
        build({"part": "group", "name": "galilean", "dim": "1"})


class Broken(nn.Module):
    """An operator whose author has made a mistake."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width + "1"  # type: ignore[operator]


def test_a_mistake_in_a_class_from_elsewhere_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry._CLASSES["operator"], "broken", Broken)
    with pytest.raises(TypeError, match="unsupported operand") as mistake:
        build({"part": "operator", "name": "broken", "width": 3})
    assert mistake.traceback[-1].name == "__init__"
    with pytest.raises(UsageError, match="operator 'broken': .*'depth'"):
        build({"part": "operator", "name": "broken", "width": 3, "depth": 1})


# --- from outside the package: one class and one line for each


class HalfBoosted(Kind):
    """Changes by half the velocity of a boost; made up."""

    carries = "any direction"
    vector = True

    def boost(self, value: Tensor, velocity: Tensor, density: Tensor | None) -> Tensor:
        return value + 0.5 * velocity.to(value.dtype)

    def background(self, value: Tensor, density: Tensor | None) -> Tensor:
        return 2 * value.transpose(1, 2).flatten(2).mean(dim=2, dtype=torch.float64)


class Shifted(Translation):
    """Translations by thirds of what they say: a group of one's own."""

    name = "thirds"

    def act(self, field: Field, xi: Tensor) -> Field:
        return super().act(field, xi / 3)

    def inverse(self, field: Field, xi: Tensor) -> Field:
        return super().act(field, -xi / 3)


class Nowhere(CanonicalSlice):
    threshold = 0.1

    def __init__(self, group: Group) -> None:
        self.group = group

    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        zero = field.values.new_zeros(len(field), self.group.spatial)
        return zero, zero


class Told(Frame):
    """The hint, or nothing."""

    def __init__(self, group: Group, slice: CanonicalSlice, size: float = 1.0) -> None:
        super().__init__()
        self.group, self.slice, self.size = group, slice, size

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        xi = self.group.identity(len(field)) if hint is None else self.size * hint
        return Estimate(xi, torch.ones_like(xi))


class Doubled(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, field: Tensor) -> Tensor:
        return self.factor * field


OUTSIDE = [
    ("kind", "half-boosted", HalfBoosted),
    ("group", "thirds", Shifted),
    ("slice", "nowhere", Nowhere),
    ("frame", "told", Told),
    ("operator", "doubled", Doubled),
]


def test_a_part_of_each_kind_from_outside_the_package_is_described_rebuilt_and_run() -> None:
    for part, name, cls in OUTSIDE:
        assert register(part, name)(cls) is lookup(part, name)
    group = Shifted(1)
    frame = Told(group, Nowhere(group), size=0.5)
    model = PACE(Doubled(3.0), group, channels="u: half-boosted", frame=frame)
    parts = json.loads(json.dumps([spec_of(part) for part in (group, frame, model.operator)]))
    built_group = build(parts[0])
    built_frame = build(parts[1], group=built_group, type=model.input)
    built = PACE(build(parts[2]), built_group, channels="u: half-boosted", frame=built_frame)
    field = torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(0))
    hint = torch.tensor([[0.3], [0.1]], dtype=torch.float64)
    assert torch.equal(model.predict(field, hint=hint).frame.xi, 0.5 * hint)
    assert torch.allclose(built(field), 3 * field, atol=1e-5)
    assert torch.equal(built(field), model(field))
