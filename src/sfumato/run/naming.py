"""Errors of a user's own code, as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sfumato.errors import BadValue, CodeFailed, SfumatoError


@contextmanager
def naming(what: str, *, private: bool = False) -> Iterator[None]:
    """What a user's own code raises becomes a sentence that says whose code it was.

    Code that sees clients' data is `private`: the sentence then has the type of what it raised, and not its words.
    """
    try:
        yield
    except SfumatoError:
        raise
    except Exception as error:
        failed = f"{what} failed: {type(error).__name__}"
        if private:
            raise CodeFailed(f"{failed}. Fix the function, or its data, and try again.") from error
        raise BadValue(f"{failed}: {error}. Fix the function, and try again.") from error
