"""The errors that the command line shows as one line, with the code that it then exits with.

All others are bugs and are shown with their traceback.
"""

from __future__ import annotations

import importlib
from typing import Any


class UsageError(ValueError):
    """Input that cannot be used: the message says what was expected, what came, what to do."""

    exit_code = 2


class Failure(RuntimeError):
    """Something that did not work out although the input can be used; the message says what."""

    exit_code = 1


def require(package: str, extra: str, what: str) -> Any:
    """An optional package, imported; if it is missing, which command brings it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise UsageError(
            f"{what} needs the package {package}: pip install 'pacefno[{extra}]'"
        ) from None
