"""`make release`: build wheel and sdist, install each where nothing is, and train there.

Every supported Python that this machine has is tried with the wheel; those that it lacks are named. Versions of what is installed
are those of constraints.txt. Needs a package index, and some minutes: torch is installed anew for each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.release.contents import ROOT, of_package, of_sdist, of_wheel

DIST = ROOT / "dist"
MINORS = (11, 12, 13)  # pyproject.toml claims them
LINES = 8


def build() -> tuple[Path, Path]:
    """The wheel and the sdist, in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        python = _environment(sys.executable, folder)
        _run([python, "-m", "pip", "install", "--quiet", "build"])
        _run([python, "-m", "build", "--outdir", str(DIST), str(ROOT)])
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    assert of_package() <= of_wheel(wheel)
    assert {f"src/{name}" for name in of_package()} | {"LICENSE", "README.md", "pyproject.toml"} <= of_sdist(sdist)
    return wheel, sdist


def interpreters() -> dict[int, str]:
    """The supported Pythons of this machine, by their second number."""
    found = {sys.version_info.minor: sys.executable}
    for minor in MINORS:
        path = os.environ.get(f"PYTHON3{minor}") or shutil.which(f"python3.{minor}")
        if path and minor not in found and _runs(path, minor):
            found[minor] = path
    return found


def try_out(artifact: Path, interpreter: str) -> None:
    """An empty environment, the artifact in it, and a short run in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        python = _environment(interpreter, folder)
        _run([python, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(artifact)])
        program = str(Path(python).parent / "sfumato")
        version = _run([program, "--version"], folder).strip()
        said = _run([program, "train", "--rounds", "3", "--out", "runs/first"], folder)
        report = Path(folder, "runs", "first", "report.html").read_text()
        assert "differential privacy" in said and "--paper" in report, said
        print(f"{artifact.name} on {_run([python, '--version']).strip()}: {version} trains", flush=True)


def _environment(interpreter: str, folder: str) -> str:
    _run([interpreter, "-m", "venv", f"{folder}/environment"])
    return f"{folder}/environment/bin/python"


def _runs(path: str, minor: int) -> bool:
    asked = [path, "-c", "import sys, venv; print(sys.version_info.minor)"]
    done = subprocess.run(asked, capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.strip() == str(minor)


def _run(command: list[str], folder: str | None = None) -> str:
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True)
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-LINES:])
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{last}")
    return done.stdout


def main() -> None:
    """All of it; the first failure ends it."""
    wheel, sdist = build()
    found = interpreters()
    for minor, interpreter in sorted(found.items()):
        try_out(wheel, interpreter)
    try_out(sdist, sys.executable)
    missing = [f"3.{minor}" for minor in MINORS if minor not in found]
    print(f"not tried, since it is not here: {', '.join(missing)}" if missing else "all supported Pythons were tried")


if __name__ == "__main__":
    main()
