"""The tables of AE-DPFL: they run, every epsilon is the one that is claimed, and queries are never the clients' records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sfumato.reproduce import TABLES, make
from sfumato.reproduce.ae_dpfl import common
from sfumato.reproduce.ae_dpfl.settings import cost
from sfumato.reproduce.run import run_table
from sfumato.reproduce.table import SCALES

OURS = [name for name in TABLES if name.startswith("ae-dpfl")]


@pytest.mark.usefixtures("written_once")
@pytest.mark.parametrize("name", OURS)
def test_the_quick_table_runs(name: str, shelf: Path) -> None:
    table = make(name, "quick")
    done = run_table(table, shelf / name, lambda line: None)
    written = json.loads((shelf / name / "table.json").read_text())
    assert written["missing"] == 0 and len(written["rows"]) == len({one.cell.row for one in done})
    for one in done:
        if (target := one.cell.settings.get("epsilon")) is not None:
            assert 0.999 * target <= one.result["epsilon"]["client"] <= target


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_has_a_file_of_its_own(name: str, scale: str) -> None:
    table = make(name, scale)
    assert len({cell.name for cell in table.cells}) == len(table.cells)


def test_the_appendix_read_literally() -> None:
    found = {cell.row: cost(cell.settings, 0) for cell in make("ae-dpfl-settings", "default").cells}
    literal = next(value for row, value in found.items() if "one round" in row)
    assert literal["client"] == pytest.approx(169.2, abs=0.05)  # PRIVACY A4
    assert found["Digits, PATE-FL"]["client"] == pytest.approx(2.735, abs=6e-4)
    assert found["CelebA, PATE-FL, at most 4 attributes"] == pytest.approx(found["Digits, PATE-FL"])


def test_what_is_public_is_nobodys() -> None:
    ours, public, test = common.domains({**common.BASE, **common.QUICK}, 0)
    parts = [ours.pool.x, public.records.x, test.records.x]
    rows = [{tuple(row) for row in part.flatten(1).tolist()} for part in parts]
    assert not rows[0] & rows[1] and not rows[0] & rows[2] and not rows[1] & rows[2]
    assert torch.equal(public.records.x, common.domains({**common.BASE, **common.QUICK}, 0)[1].records.x)
