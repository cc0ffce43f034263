"""A log for the owner's eyes only: what an error says may hold a client's value, so no message repeats it.

A library quotes what it stumbles over ("could not convert string to float: ..."), and a user's own function may raise anything. So
a message has the type of such an error and names this log, which has the rest.
"""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from sfumato.errors import CodeFailed, SfumatoError
from sfumato.version import __version__

NAME = "errors.log"
_LARGEST = 2**20  # bytes; then it is begun anew, and the one before is kept
_LONGEST = 2**16  # characters of one error


def log_folder() -> Path:
    """Where the command line keeps the log: the user's folder for states."""
    given = os.environ.get("XDG_STATE_HOME")
    return (Path(given) if given else Path.home() / ".local" / "state") / "sfumato"


def kept(error: BaseException, folder: Path | None = None) -> str:
    """Write all that an error says into the log; a sentence that says where it is."""
    path = (log_folder() if folder is None else folder) / NAME
    try:
        _write(path, error)
    except OSError as refused:
        why = (refused.strerror or type(refused).__name__).lower()
        return f"What it says may hold data, and is lost: {path} cannot be written ({why})."
    return f"What it says may hold data: it is in {path}, which only you can read."


def unforeseen(error: BaseException, folder: Path | None = None) -> str:
    """The words about an error that nothing here expects: its type, and where the rest is."""
    return f"an error that we did not foresee: {type(error).__name__}. {kept(error, folder)}"


def words_of(error: BaseException, folder: Path | None = None) -> str:
    """What may be shown of any error: what one of ours says, of another its type; and where the rest is, if there is more."""
    if not isinstance(error, SfumatoError):
        return unforeseen(error, folder)
    if isinstance(error, CodeFailed) and error.__cause__ is not None:
        return f"{error} {kept(error.__cause__, folder)}"
    return str(error)


def _write(path: Path, error: BaseException) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    with suppress(FileNotFoundError):
        if path.stat().st_size > _LARGEST:
            os.replace(path, path.with_suffix(".old.log"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
        os.fchmod(descriptor, 0o600)
        said = "".join(traceback.format_exception(error))
        file.write(f"{datetime.now().isoformat(timespec='seconds')} sfumato {__version__}\n{said[-_LONGEST:]}\n")
