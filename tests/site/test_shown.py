"""What pages show beside their Python is what it prints, and the table that explains epsilon is computed."""

from __future__ import annotations

import contextlib
import io
import math
import re
from pathlib import Path

import numpy as np
import pytest

from sfumato import accountant
from sfumato.account.convert import tradeoff_from_profile
from sfumato.account.event import GaussianEvent, Repeated
from tests.site.notebooks import alike

DOCS = Path(__file__).parent.parent.parent / "docs"
PART = {"engine.md", "models.md"}  # pages whose blocks go on from one to the next
SLOW = {"budgets.md"}  # tests/budget has it
DELTA = 1e-5


def _shown() -> list[tuple[Path, str, str]]:
    pairs = re.compile(r"```python\n([^`]*)```\n\n```text\n(.*?)```", re.DOTALL)
    pages = [page for page in sorted(DOCS.glob("*.md")) if page.name not in PART | SLOW]
    return [(page, code, output) for page in pages for code, output in pairs.findall(page.read_text())]


@pytest.mark.parametrize(("page", "code", "output"), _shown(), ids=lambda value: getattr(value, "name", ""))
def test_python_prints_what_the_page_shows(page: Path, code: str, output: str) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(compile(code, page.name, "exec"), {"__name__": "page"})
        except Exception as refusal:
            said.write(f"{type(refusal).__name__}: {refusal}")
    assert alike(output, said.getvalue()), said.getvalue()


def _allowed(epsilon: float, delta: float) -> float:
    """The best guess of the worst mechanism with this pair: where its two lines meet."""
    rate = (1 - delta) / (1 + math.exp(epsilon))
    return 1 - (rate + tradeoff_from_profile(np.array([epsilon]), np.array([delta]), rate)) / 2


def _missed(epsilon: float, rate: float) -> float:
    return tradeoff_from_profile(np.array([epsilon]), np.array([DELTA]), rate)


def _after(epsilon: float, before: float) -> float:
    return math.exp(epsilon) * before / (math.exp(epsilon) * before + 1 - before)


def test_the_table_of_guesses_is_computed() -> None:
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.,]+) \| (.*) \|$", (DOCS / "explain-it.md").read_text(), re.MULTILINE)
    assert [row[0] for row in rows] == ["0.1", "0.5", "1", "2", "4", "8"]
    for first, factor, rest in rows:
        epsilon = float(first)
        after, right = [_after(epsilon, before) for before in (0.5, 0.01)], _allowed(epsilon, DELTA)
        found = 1 - _missed(epsilon, 0.01)
        computed = [math.exp(epsilon), *(100 * share for share in (*after, right, found))]
        for cell, value in zip([factor, *rest.split(" | ")], computed, strict=True):
            _is_rounded_up(cell.removesuffix(" %"), value)


def _is_rounded_up(shown: str, value: float) -> None:
    """What is said to be "at most" is at least the value, and in its last digit at most one more."""
    digits = len(shown.partition(".")[2])
    assert 0 <= float(shown.replace(",", "")) - value < 10**-digits + 1e-9, (shown, value)


def test_what_the_page_says_of_the_first_run_is_computed() -> None:
    said = " ".join((DOCS / "explain-it.md").read_text().split())
    run, price = Repeated(GaussianEvent(19.9382), 100), accountant()
    pair = 1 - tradeoff_from_profile(np.array([2.0]), np.array([DELTA]), 0.01)
    right = 1 - min((rate + price.tradeoff(run, rate)) / 2 for rate in np.linspace(0.3, 0.5, 201))
    found = re.search(r"it catches ([\d.]+) % at most, where the pair would allow ([\d.]+) %", said)
    guessed = re.search(r"right about ([\d.]+) of 100 at most, on average, where the pair would allow ([\d.]+)\.", said)
    assert found and guessed
    _is_rounded_up(found[1], 100 * (1 - price.tradeoff(run, 0.01)))
    _is_rounded_up(found[2], 100 * pair)
    _is_rounded_up(guessed[1], 100 * right)
    _is_rounded_up(guessed[2], 100 * _allowed(2.0, DELTA))
    for alarms, missed in re.findall(r"(\d+)% false alarms: at least ([\d.]+)% of", said):
        assert float(missed) <= 100 * price.tradeoff(run, float(alarms) / 100)
