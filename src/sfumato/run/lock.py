"""Who trains a run: one process at a time holds its folder."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from sfumato.errors import BadValue

_TRIES, _PAUSE = 3, 0.02  # a look holds a folder for less than a millisecond


class Lock:
    """Holds a run's folder for this process: two that went on with one run would write its files in turns.

    The system lets go of it when the process ends, however it ends. Where it has no such locks, there is none.
    """

    NAME = "run.lock"

    def __init__(self, folder: Path, made: bool = False, busy: str = "another process is training the run in") -> None:
        self.folder, self.made = folder, made  # whether the folder itself is new
        self._file: int | None = None
        self._released = False
        try:
            import fcntl
        except ImportError:  # Windows
            return
        self._file = os.open(folder / self.NAME, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            for tries in range(_TRIES):
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if tries == _TRIES - 1:
                        raise
                    time.sleep(_PAUSE)  # somebody may only have looked
        except BlockingIOError:
            self.release()
            raise BadValue(f"{busy} {folder}. Wait for it, or stop it first.") from None
        except OSError:  # a file system without locks
            self.release()
            return
        for left in folder.glob(".*.tmp"):  # half written by one that was killed
            left.unlink()

    def forget_run(self) -> None:
        """Remove what a refused run left in its new folder."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self.made:
            self.folder.rmdir()

    @property
    def is_released(self) -> bool:
        """Whether another process may have the folder."""
        return self._released

    def release(self) -> None:
        self._released = True
        if self._file is not None:
            os.close(self._file)
            self._file = None


def is_held(folder: Path) -> bool | None:
    """Whether a process trains the run in a folder; None where that cannot be told. Looking changes nothing.

    It takes a lock that others who look can have too, and lets go of it at once.
    """
    try:
        import fcntl

        file = os.open(folder / Lock.NAME, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(file)
    return False
