"""`make release`: build wheel and sdist, install each where nothing is, and train there.

Every supported Python that this machine has is tried with the wheel; those that it lacks are named. What is installed are the
newest versions, as anyone gets them who does not know of constraints.txt. Needs a package index, and some minutes: torch is
installed anew for each.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.release.contents import ROOT, of_package, of_sdist, of_wheel
from tests.release.pythons import environment, install, interpreters, missing, run

DIST = ROOT / "dist"


def build() -> tuple[Path, Path]:
    """The wheel and the sdist, in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        python = environment(sys.executable, Path(folder))
        install(python, "build")
        run([str(python), "-m", "build", "--outdir", str(DIST), str(ROOT)])
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    assert of_package() <= of_wheel(wheel)
    assert {f"src/{name}" for name in of_package()} | {"LICENSE", "README.md", "pyproject.toml"} <= of_sdist(sdist)
    return wheel, sdist


def try_out(artifact: Path, interpreter: str) -> None:
    """An empty environment, the artifact in it, and a short run in an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = environment(interpreter, folder / "environment")
        install(python, str(artifact))
        program = str(python.parent / "sfumato")
        version = run([program, "--version"], folder).strip()
        said = run([program, "train", "--rounds", "3", "--out", "runs/first"], folder)
        report = (folder / "runs" / "first" / "report.html").read_text()
        assert "differential privacy" in said and "--paper" in report, said
        print(f"{artifact.name} on {run([str(python), '--version']).strip()}: {version} trains", flush=True)


def main() -> None:
    """All of it; the first failure ends it."""
    wheel, sdist = build()
    found = interpreters()
    for interpreter in found.values():
        try_out(wheel, interpreter)
    try_out(sdist, sys.executable)
    lacking = ", ".join(missing(found))
    print(f"not tried, since it is not here: {lacking}" if lacking else "all supported Pythons were tried")


if __name__ == "__main__":
    main()
