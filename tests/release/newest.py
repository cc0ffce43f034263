"""`make newest`: the newest version of everything, without constraints.txt, on every supported Python that this machine has.

Each has an environment of its own: the library alone, its help and the run of `make run`; then what tests need, and the fast
tests; then Flower, which holds back other packages, and the fast tests of federations. Pythons that are not here are named.
`make newest PYTHONS="11 13"` tries these alone. Needs a package index, some gigabytes and, for each Python, half an hour.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from tests.release.contents import ROOT
from tests.release.pythons import environment, install, interpreters, missing, plain_environment, run

RUN = ["train", "--auto"]  # the command of `make run`
TESTS = ["-n", "2", "--dist", "loadfile"]
SHOWN = ("torch", "numpy", "scipy", "scikit-learn", "typer", "pandas", "cryptography", "pytest", "ray", "flwr")


def try_out(interpreter: str, folder: Path) -> None:
    """All of it on one Python; the first failure ends it."""
    python = environment(interpreter, folder / "environment")
    program = str(python.parent / "sfumato")
    _install(python, "")
    assert "train" in run([program, "--help"], folder)
    print(run([program, *RUN], folder).partition("\n\n")[2].strip(), flush=True)
    _install(python, "[test]")
    _tests(python, *TESTS)
    _install(python, "[flower,test]")
    _tests(python, *TESTS, "tests/federation")


def _install(python: Path, extras: str) -> None:
    began = time.monotonic()
    install(python, "--editable", f"{ROOT}{extras}")
    listed = json.loads(run([str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]))
    there = {one["name"]: one["version"] for one in listed}
    versions = ", ".join(f"{name} {there[name]}" for name in SHOWN if name in there)
    print(f"sfumato{extras} installed in {time.monotonic() - began:.0f} s: {versions}", flush=True)


def _tests(python: Path, *words: str) -> None:
    """Their dots as they come."""
    done = subprocess.run([str(python), "-m", "pytest", *words], cwd=ROOT, env=plain_environment())
    if done.returncode:
        raise SystemExit(f"pytest {' '.join(words)}: exit status {done.returncode}")


def main() -> None:
    """Every Python that is found, and what became of each; exit status 1 if one of them failed."""
    found, told = interpreters(), {}
    wanted = os.environ.get("PYTHONS", "").split()
    for minor, interpreter in found.items():
        if wanted and str(minor) not in wanted:
            continue
        print(f"\nPython 3.{minor}: {interpreter}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                try_out(interpreter, Path(folder))
            except SystemExit as failure:
                print(failure, flush=True)
                told[minor] = f"failed: {str(failure).partition(chr(10))[0]}"
            else:
                told[minor] = "passed"
    print()
    for minor, outcome in told.items():
        print(f"Python 3.{minor}: {outcome}")
    left = [*(f"3.{minor}" for minor in found if minor not in told), *missing(found)]
    print(f"not run: {', '.join(left)}" if left else "all supported Pythons were tried")
    raise SystemExit(any(outcome != "passed" for outcome in told.values()))


if __name__ == "__main__":
    main()
