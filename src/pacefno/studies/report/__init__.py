"""The report: tables, figures and one HTML page, all rendered from the result files."""

from __future__ import annotations

from pacefno.studies.report.collect import Table, Tables, collect
from pacefno.studies.report.documents import stale_tables, update_tables
from pacefno.studies.report.sweep import shift_sweep
from pacefno.studies.report.write import write_report

__all__ = ["Table", "Tables", "collect", "shift_sweep", "stale_tables", "update_tables", "write_report"]
