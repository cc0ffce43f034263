"""Which Pythons `make release` and `make newest` find, and that they run what is written elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.release import newest, pythons
from tests.release.contents import ROOT


def fake(path: Path, answer: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return path


def test_a_python_is_named_or_on_the_path_or_of_pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", type("Version", (), {"minor": 11}))
    monkeypatch.setenv("PYTHON312", str(fake(tmp_path / "own", "echo 12")))
    on_path = fake(tmp_path / "bin" / "python3.13", "echo 13")
    monkeypatch.setenv("PATH", str(on_path.parent), prepend=":")
    fake(on_path.parent / "python3.14", "exit 127")  # as pyenv's stand-in for one that is not chosen
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    of_pyenv = fake(tmp_path / "versions" / "3.14.2" / "bin" / "python3.14", "echo 14")
    found = pythons.interpreters()
    assert found == {11: sys.executable, 12: str(tmp_path / "own"), 13: str(on_path), 14: str(of_pyenv)}
    assert pythons.missing(found) == []


def test_one_that_is_not_here_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "PYENV_ROOT", *(f"PYTHON3{minor}" for minor in pythons.MINORS)):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    found = pythons.interpreters()
    assert found == {sys.version_info.minor: sys.executable}
    assert pythons.missing(found) == [f"3.{minor}" for minor in pythons.MINORS if minor != sys.version_info.minor]


def test_it_runs_what_make_run_does() -> None:
    assert f"\nrun: $(READY)\n\t$(BIN)/sfumato {' '.join(newest.RUN)}\n" in (ROOT / "Makefile").read_text()


def test_every_supported_python_is_claimed() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert all(f'"Programming Language :: Python :: 3.{minor}"' in project for minor in pythons.MINORS)
    assert len(pythons.MINORS) == project.count("Programming Language :: Python :: 3.")
