"""The one base of all errors that a user can mend; the command line shows these as one line."""

from __future__ import annotations


class UsageError(ValueError):
    """Input that cannot be used: the message says what was expected, what came, what to do."""
