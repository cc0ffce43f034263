"""A page on this machine: plan a budget, watch a run, compare runs, read ledgers and audits. It reads and never writes.

What it shows is what reports show: released values only. Every number comes from the functions that the command line calls.
"""

from __future__ import annotations

from sfumato.errors import BadValue


def needs_server() -> None:
    """Refuse, in words, where the extra is not installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise BadValue("the page needs a small server: pip install 'sfumato[ui]'.") from None
