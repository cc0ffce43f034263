"""run.json: the keys that every finished run has, and how it is read back. Whoever shows a run reads it from here.

`guarantees` holds, for each unit and each view (`world`, `server`), the facts of a guarantee and the sentence that they
make; what is data is read from these and never from a sentence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sfumato.errors import DataError, refused_by_system

SCHEMA = 2
_ALWAYS = (
    *("recipe", "data", "model", "input_shape", "outputs", "population", "rounds"),
    *("epsilon", "delta", "unit", "relation", "primary", "metrics", "guarantee", "guarantees", "assumptions"),
)


def read_summary(folder: Path) -> dict[str, Any]:
    """run.json of a finished run, with the keys that every run has."""
    path = folder / "run.json"
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such run folder. Give one that sfumato train wrote, e.g. runs/first.")
    content = read_text(path)
    if content is None:
        if (folder / "run.toml").exists():
            raise DataError(f"{folder} holds an unfinished run. Finish it first: sfumato train --resume {folder}")
        raise DataError(f"{folder} holds no run: run.json is missing. Give the folder that sfumato train wrote.")
    try:
        found = json.loads(content)
    except (json.JSONDecodeError, RecursionError):
        raise DataError(f"{path} is not JSON, so the run cannot be read. Restore the file, or train again.") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no table of values, so it describes no run. Restore the file, or train again.")
    if found.get("schema") != SCHEMA:
        other = found.get("schema")
        raise DataError(
            f"{path} has schema {other!r}, not {SCHEMA}: another version of Sfumato wrote it. Use that one."
        )
    if missing := [key for key in _ALWAYS if key not in found]:
        raise DataError(
            f"{path} lacks {', '.join(missing)}, so it does not describe a whole run. Restore the file, or train again."
        )
    return found


def read_text(path: Path) -> str | None:
    """The text of a file; None if it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused_by_system(error) from None
