"""The wheel has the whole package and nothing else. `make release` also installs it where nothing is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sfumato
from tests.release.contents import ROOT, metadata, of_package, of_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend that is installed here; no index is asked."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel, and is not installed")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir"]
    done = subprocess.run([*command, str(folder), str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_has_the_whole_package_and_nothing_else(wheel: Path) -> None:
    files = {name for name in of_wheel(wheel) if ".dist-info/" not in name}
    assert files == of_package()
    assert {"sfumato/py.typed", "sfumato/report/style.css"} <= files


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    said = metadata(wheel)
    assert f"\nVersion: {sfumato.__version__}\n" in said
    assert "License-Expression: Apache-2.0" in said and any(name.endswith("/LICENSE") for name in of_wheel(wheel))
    assert any(name.endswith("entry_points.txt") for name in of_wheel(wheel))
    assert re.search(r"Requires-Python: <3\.15,>=3\.11", said)


def test_the_version_is_the_newest_of_the_changes() -> None:
    found = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found and found[1] == sfumato.__version__
