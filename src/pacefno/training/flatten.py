"""A nested state (of an optimizer, a scheduler, ...) as named tensors plus one JSON document, and back, bit for bit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from pacefno.training.manifest import CheckpointError


def flatten_state(state: object) -> tuple[dict[str, Tensor], Any]:
    """Split a state into its tensors (not copied) and a document that says where each belongs.

    JSON has text keys only and no tuples, so containers are tagged: ``{0: 1.5}`` becomes ``{"dict": [[0, 1.5]]}``.
    """
    tensors: dict[str, Tensor] = {}
    document = _flatten(state, "state", tensors)
    return tensors, document


def unflatten_state(tensors: Mapping[str, Tensor], document: Any) -> Any:
    """Undo :func:`flatten_state`."""
    try:
        return _unflatten(document, tensors)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"does not fit its tensors ({type(error).__name__}: {str(error)[:200]}): do not use this checkpoint"
        raise CheckpointError(Path("state"), reason) from error


def _flatten(node: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, Tensor):
        name = f"{len(tensors)}:{place}"  # numbered, because 0 and "0" are different keys with equal text
        tensors[name] = node
        return {"tensor": name}
    if type(node) in (dict, OrderedDict):  # other kinds of dict would come back without what makes them special
        return {"dict": [[_checked_key(key, place), _flatten(node[key], f"{place}.{key}", tensors)] for key in node]}
    if type(node) in (list, tuple):
        items = [_flatten(item, f"{place}.{i}", tensors) for i, item in enumerate(node)]
        return {type(node).__name__: items}
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise TypeError(
        f"{place}: expected tensors, numbers, text, None, and dicts, lists or tuples of them, "
        f"got {type(node).__name__}: convert it before saving"
    )


def _checked_key(key: object, place: str) -> int | str:
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise TypeError(f"{place}: expected int or str keys, got {key!r}: convert it before saving")
    return key


def _unflatten(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if not isinstance(node, dict) or len(node) != 1:
        raise ValueError(f"expected one tagged container, got {type(node).__name__} of {len(node)}")
    ((kind, content),) = node.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {_checked_key(key, "state"): _unflatten(value, tensors) for key, value in content}
    if kind in ("list", "tuple"):
        items = [_unflatten(item, tensors) for item in content]
        return items if kind == "list" else tuple(items)
    raise ValueError(f"unknown kind {str(kind)[:20]!r}")
