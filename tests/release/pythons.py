"""The supported Pythons of this machine, and empty environments of theirs: for `make release` and `make newest`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.release.contents import ROOT

_LINES = 30  # of the output of a command that failed
_OWN = ("PYTHON", "VIRTUAL_ENV", "PIP_CONSTRAINT")  # of whoever calls: they would leak into the environments


def supported(project: str) -> list[int]:
    """The second numbers of the Pythons that a pyproject.toml claims.

    >>> supported('requires-python = ">=3.11,<3.15"')
    [11, 12, 13, 14]
    """
    found = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', project)
    assert found, "pyproject.toml names no range of Pythons"
    return list(range(int(found[1]), int(found[2])))


MINORS = supported((ROOT / "pyproject.toml").read_text())


def interpreters() -> dict[int, str]:
    """The supported Pythons that are here, by their second number: named by PYTHON3xx, on the path, or of pyenv."""
    found = {sys.version_info.minor: sys.executable}
    for minor in MINORS:
        first = next((path for path in _places(minor) if minor not in found and _runs(path, minor)), None)
        if first is not None:
            found[minor] = first
    return dict(sorted(found.items()))


def missing(found: dict[int, str]) -> list[str]:
    """The supported Pythons that are not here."""
    return [f"3.{minor}" for minor in MINORS if minor not in found]


def environment(interpreter: str, folder: Path) -> Path:
    """An empty environment; its python."""
    run([interpreter, "-m", "venv", str(folder)])
    return folder / "bin" / "python"


def install(python: Path, *what: str) -> None:
    """Install packages: the newest versions that fit together."""
    run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", *what])


def run(command: list[str], folder: Path | None = None) -> str:
    """What a command prints; the end of it all, and of its own words, if it fails."""
    done = subprocess.run(command, cwd=folder, env=plain_environment(), capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-_LINES:])
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{last}")
    return done.stdout


def plain_environment() -> dict[str, str]:
    """The variables of this process without those that speak of its own Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}


def _places(minor: int) -> Iterator[str]:
    yield os.environ.get(f"PYTHON3{minor}", "")
    yield shutil.which(f"python3.{minor}") or ""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(root.glob(f"versions/3.{minor}.*/bin/python3.{minor}"), reverse=True))


def _runs(path: str, minor: int) -> bool:
    if not path or not Path(path).exists():
        return False
    done = subprocess.run(
        [path, "-c", "import sys, venv; print(sys.version_info.minor)"], capture_output=True, text=True
    )
    return done.returncode == 0 and done.stdout.strip() == str(minor)
