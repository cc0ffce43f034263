"""Everything that Sfumato refuses, in words for the person who reads them: what is wrong, the value, what to do.

SfumatoError
├── BadValue        an argument, option or file that cannot be meant
├── DataError       data that are missing, broken or of the wrong shape
│   ├── CodeFailed  a user's function, or local training, that raised something else on clients' data
│   └── NotFinite   parameters that training drove out of all bounds
├── UnsoundRound    a round whose privacy cannot be proven: the reason, its fix, and how far the proof went
├── CannotAccount   an event for which no bound is known, or none can be computed at this precision
├── BudgetExceeded  the next round would pass the budget (exit status 3)
└── LedgerError     a ledger that must not be written: another population, a newer schema, shared noise
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable


class SfumatoError(Exception):
    """A mistake that the user can mend; the command line prints it as one sentence."""


class BadValue(SfumatoError, ValueError):
    """An argument, option or file that cannot be meant."""


class DataError(SfumatoError):
    """Data that are missing, broken or of the wrong shape."""


class CodeFailed(DataError):
    """Code that failed on clients' data. What it raised may hold a client's value: it is in `__cause__`, and in no message."""


class NotFinite(DataError):
    """Parameters that training drove out of all bounds."""


class CannotAccount(SfumatoError):
    """An event for which no bound is known, or none can be computed."""


class BudgetExceeded(SfumatoError):
    """The next round would pass the budget."""


class LedgerError(SfumatoError):
    """A ledger that must not be written."""


class UnsoundRound(SfumatoError):
    """A round whose privacy cannot be proven."""

    def __init__(self, reason: str, fix: str, so_far: str = "") -> None:
        self.reason, self.fix, self.so_far = reason, fix, so_far
        super().__init__(reason + f"\n  fix: {fix}" + (f"\n  so far:\n{so_far}" if so_far else ""))


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def refused_by_system(error: OSError) -> DataError:
    """A file or folder that the system does not let us use, as a sentence.

    >>> str(refused_by_system(PermissionError(13, "Permission denied", "/sys/run")))
    '/sys/run cannot be read or written: permission denied. Give another path, or mend its permissions.'
    """
    reason = (error.strerror or type(error).__name__).lower()
    if error.errno in FULL:
        where = f" for {error.filename}" if error.filename else ""
        return DataError(
            f"the disk is full{where}: {reason}. Make room, and go on with --resume: what was spent is recorded."
        )
    return DataError(
        f"{error.filename} cannot be read or written: {reason}. Give another path, or mend its permissions."
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the near one if there is any, else all of them.

    >>> nearest("minst", ["mnist", "digits"])
    "Did you mean 'mnist'?"
    """
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known)}."
