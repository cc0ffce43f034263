"""Errors of a user's own code, as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sfumato.errors import BadValue, SfumatoError


@contextmanager
def naming(what: str) -> Iterator[None]:
    """What a user's own code raises becomes a sentence that says whose code it was."""
    try:
        yield
    except SfumatoError:
        raise
    except Exception as error:
        raise BadValue(f"{what} failed: {type(error).__name__}: {error}. Mend the function, and try again.") from error
