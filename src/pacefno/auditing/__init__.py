"""How wrong is a model, ours or anybody's, under each symmetry; and what wrapping would do."""

from __future__ import annotations

from pacefno.auditing.measure import audit, wrap
from pacefno.auditing.result import Audit

__all__ = ["Audit", "audit", "wrap"]
