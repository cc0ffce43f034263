"""One self-contained page about a run, or about several side by side: released values only, no torch."""

from __future__ import annotations

from sfumato.report.write import write_page, write_pictures, write_report

__all__ = ["write_page", "write_pictures", "write_report"]
