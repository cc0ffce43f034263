"""The page for people who come from a peer shows the scripts that were run, and the numbers that they gave."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "coming-from.md").read_text()
SCRIPTS = ROOT / "benchmarks" / "peers" / "coming_from"
PEERS = ("opacus", "tensorflow_privacy", "pfl", "flower")


def test_the_page_shows_the_scripts_as_they_are_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    shown = [block for block in blocks if "sfumato.steps(" not in block]
    assert shown == [(SCRIPTS / f"{peer}_{side}.py").read_text() for peer in PEERS for side in ("theirs", "ours")]


def test_its_numbers_are_those_of_the_last_run() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "coming_from.json").read_text())
    words = re.findall(r"\d+(?:\.\d+)?", PAGE)
    for row in found["proven"][1:]:  # the first agrees, and is not told
        assert f"{row['prints']:.4g}" in words and f"{row['proven']:.4g}" in words, row
    assert f"{found['attained']:.4g}" in words
    ratios = {name: seconds / found["steps"]["private"] for name, seconds in found["steps"].items()}
    assert ratios["recipe"] > 0.9
    assert f"{ratios['Opacus, hooks']:.1f}" in words and f"{ratios['Opacus, ghost clipping']:.1f}" in words


def test_our_side_runs_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SCRIPTS / "opacus_ours.py"), run_name="__main__")
    assert re.search(r"^epsilon (1\.99\d+|2\.0)$", capsys.readouterr().out, re.MULTILINE)
