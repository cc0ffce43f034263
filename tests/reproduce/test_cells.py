"""Cells are computed once, kept at once, and what was interrupted goes on with what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfumato.report.curves import Curve, Plot
from sfumato.reproduce.run import as_markdown, run_table
from sfumato.reproduce.show import spread
from sfumato.reproduce.table import Cell, Done, Row, Table, Work

CALLS: list[tuple[Any, int]] = []
KILLED = [False]


def doubled(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    if KILLED[0] and len(CALLS) == 2:
        raise KeyboardInterrupt
    CALLS.append((settings["value"], seed))
    return {"doubled": 2 * settings["value"] + seed}


def _row(done: Sequence[Done]) -> Row:
    return {"row": done[0].cell.row, "doubled": spread([one.result["doubled"] for one in done])}


def _plots(done: Sequence[Done]) -> list[Plot]:
    ys = tuple(float(one.result["doubled"]) for one in done)
    return [Plot("doubled", "Doubled", "Round", "Doubled", (Curve("all", 0, tuple(map(float, range(len(ys)))), ys),))]


def _found(done: Sequence[Done]) -> list[str]:
    return [f"the sum is {sum(one.result['doubled'] for one in done)}"]


@pytest.fixture
def table() -> Table:
    CALLS.clear()
    KILLED[0] = False
    cells = [
        Cell(f"value {value}", {"value": value}, seed, Work("doubled", doubled))
        for value in (1, 2)
        for seed in range(2)
    ]
    return Table("twice", "Twice", "Nobody 2020", "quick", tuple(cells), _row, _plots, findings=_found)


def test_a_second_run_computes_nothing_and_says_the_same(table: Table, tmp_path: Path) -> None:
    first = run_table(table, tmp_path, lambda line: None)
    written = (tmp_path / "table.md").read_text()
    assert len(CALLS) == 4
    assert run_table(table, tmp_path, lambda line: None) == first
    assert len(CALLS) == 4
    assert (tmp_path / "table.md").read_text() == written
    assert "the sum is 14" in written and (tmp_path / "doubled.png").exists()


def test_a_table_that_was_killed_goes_on_with_what_is_missing(table: Table, tmp_path: Path) -> None:
    KILLED[0] = True
    with pytest.raises(KeyboardInterrupt):
        run_table(table, tmp_path, lambda line: None)
    assert "Not finished" in (tmp_path / "table.md").read_text()
    assert "the sum is" not in (tmp_path / "table.md").read_text()
    KILLED[0] = False
    run_table(table, tmp_path, lambda line: None)
    assert CALLS == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert json.loads((tmp_path / "table.json").read_text())["missing"] == 0


def test_a_broken_cell_and_a_changed_setting_are_computed_again(table: Table, tmp_path: Path) -> None:
    run_table(table, tmp_path, lambda line: None)
    (tmp_path / "cells" / f"{table.cells[0].name}.json").write_text('{"result": {"dou')
    run_table(table, tmp_path, lambda line: None)
    assert CALLS[4:] == [(1, 0)]
    changed = replace(table, cells=(replace(table.cells[0], settings={"value": 5}), *table.cells[1:]))
    run_table(changed, tmp_path, lambda line: None)
    assert CALLS[5:] == [(5, 0)]


def test_settings_that_differ_within_a_row_are_all_told(table: Table) -> None:
    cells = (replace(table.cells[0], row="both"), replace(table.cells[2], row="both"))
    done = [Done(cell, {"doubled": 0}, 0.0) for cell in cells]
    text = as_markdown(replace(table, cells=cells), done)
    assert "both: value 1 or 2" in text
