"""Runs between machines: terms, questions, the owner's node and the server's cohort; Flower carries the letters."""

from __future__ import annotations

from sfumato.errors import BadValue


def needs_flower() -> None:
    """Refuse, in words, where the extra is not installed."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise BadValue("runs between machines need Flower: pip install 'sfumato[flower]'.") from None
