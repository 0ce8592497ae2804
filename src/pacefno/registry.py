"""Parts by name: what a saved model is made of, and how code outside the package adds to it.

A part is a kind of channel, a group, a slice, a frame, an operator or a format of files. Its class
is registered under a name, ``@register("operator", "unet")``, and from then on it can be chosen in
settings, stored with a run and rebuilt from there. The arguments of its constructor are recorded
when it is built, so a class needs no code of its own to describe itself; they must be plain values,
tensors or other parts. The arguments ``group`` and ``type`` of slices and frames are not recorded:
they come from the model that the part belongs to.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from pacefno.errors import UsageError

T = TypeVar("T")
Spec: TypeAlias = dict[str, Any]  # {"part": "operator", "name": "fno", ...settings}

HOMES = {
    "kind": "pacefno.fields",
    "group": "pacefno.groups",
    "slice": "pacefno.frames",
    "frame": "pacefno.frames",
    "operator": "pacefno.operators",
    "format": "pacefno.data.formats",
}
FROM_CONTEXT = {"slice": ("group", "type"), "frame": ("group", "type")}  # by part, not recorded
NAMELESS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # *args, **kwargs
FOREIGN = "foreign"  # stands for an object that cannot be rebuilt from its description

_CLASSES: dict[str, dict[str, type[Any]]] = {part: {} for part in HOMES}


def registered(part: str) -> Mapping[str, type[Any]]:
    """All classes of one part by name; a live view, so what is registered later appears in it."""
    return MappingProxyType(_classes(part))


def _classes(part: str) -> dict[str, type[Any]]:
    if part not in _CLASSES:
        raise UsageError(unknown("part", part, HOMES))
    return _CLASSES[part]


def import_named(text: str) -> Any:
    """What ``module:attribute`` names, in a module of the working folder or on the path."""
    where, _, name = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not where.startswith(error.name):
            raise  # something that it imports itself
        raise UsageError(f"{text}: there is no module {where!r} here or on the path") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{text}: the module {where} has no {name!r}")
        found = getattr(found, part)
    return found


def _origin(cls: type[Any]) -> str:
    """Where a class was defined: the same when a module or a notebook's cell is run again."""
    return f"{cls.__module__}.{cls.__qualname__}"


def register(part: str, name: str) -> Callable[[type[T]], type[T]]:
    """A class decorator: from now on the class can be named, stored and rebuilt."""

    def mark(cls: type[T]) -> type[T]:
        other = _classes(part).get(name)
        if other is not None and _origin(other) != _origin(cls):
            raise UsageError(f"{part} {name!r} is registered already, as {_origin(other)}")
        initialise = cls.__init__
        signature = inspect.signature(initialise)

        @functools.wraps(initialise)
        def recording(self: T, *args: Any, **kwargs: Any) -> None:
            if type(self) is cls:  # not for a subclass that calls the constructor of its base
                given = signature.bind(self, *args, **kwargs)
                given.apply_defaults()
                settings = {
                    key: describe(value)
                    for key, value in list(given.arguments.items())[1:]
                    if key not in FROM_CONTEXT.get(part, ())
                    and not (signature.parameters[key].kind in NAMELESS and not value)
                }
                object.__setattr__(self, "_spec", {"part": part, "name": name, **settings})
            initialise(self, *args, **kwargs)

        setattr(cls, "__init__", recording)  # noqa: B010  (mypy does not allow the assignment)
        _CLASSES[part][name] = cls
        return cls

    return mark


def lookup(part: str, name: str) -> type[Any]:
    """The class of a name, or an error that lists the names there are and suggests one."""
    known = _classes(part)
    if name not in known:
        importlib.import_module(HOMES[part])  # the parts of the package register themselves there
    if name not in known:
        raise UsageError(unknown(part, name, known))
    return known[name]


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The text of an error about a name that does not exist: a suggestion, then all that do."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {name!r}.{hint} Expected one of {', '.join(names)}."


def describe(value: Any) -> Any:
    """A value as plain data that JSON can hold: parts become their specification."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [describe(item) for item in value]
    spec = getattr(value, "_spec", None)
    if spec is not None:
        return spec
    tolist = getattr(value, "tolist", None)  # a tensor or an array
    return tolist() if callable(tolist) else {FOREIGN: type(value).__qualname__}


def spec_of(part: object) -> Spec:
    """What rebuilds a registered part; an error for anything else."""
    spec = describe(part)
    if not isinstance(spec, dict) or "part" not in spec:
        raise UsageError(
            f"{type(part).__qualname__} is not registered: decorate its class with "
            "@pacefno.registry.register(part, name)"
        )
    return spec


def foreign_parts(spec: Any) -> list[str]:
    """The class names of everything in a specification that cannot be rebuilt from it."""
    if isinstance(spec, Mapping):
        if FOREIGN in spec:
            return [str(spec[FOREIGN])]
        return [name for item in spec.values() for name in foreign_parts(item)]
    return [name for item in spec for name in foreign_parts(item)] if isinstance(spec, list) else []


def build(spec: Spec, **context: Any) -> Any:
    """The part that a specification describes, with fresh weights.

    ``context`` gives the arguments ``group`` and ``type`` to the parts that take them.
    """
    if foreign := foreign_parts(spec):
        raise UsageError(
            f"{foreign[0]} is not a registered part, so it cannot be rebuilt from its description: "
            "build it yourself and hand it over"
        )
    cls = lookup(spec["part"], spec["name"])
    wanted = inspect.signature(cls.__init__).parameters
    settings = {
        key: _built(value, context) for key, value in spec.items() if key not in ("part", "name")
    }
    given = {key: value for key, value in context.items() if key in wanted and key not in settings}
    fits = False
    try:
        inspect.signature(cls).bind(**given, **settings)
        fits = True
        return cls(**given, **settings)
    except TypeError as error:
        if fits and cls.__module__.partition(".")[0] != __package__:
            raise  # inside a class from elsewhere, whose author needs the traceback
        raise UsageError(f"{spec['part']} {spec['name']!r}: {error}") from error


@contextmanager
def refusals_named(spec: Spec) -> Iterator[None]:
    """Sizes that a part refuses were chosen by the user: a ValueError becomes a UsageError."""
    try:
        yield
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{spec['part']} {spec['name']!r}: {error}") from error


def _built(value: Any, context: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        if "part" in value:
            return build(dict(value), **context)
        return {key: _built(item, context) for key, item in value.items()}
    return [_built(item, context) for item in value] if isinstance(value, list) else value
