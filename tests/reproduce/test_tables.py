"""Tables that are run again: cells are pure, cached and resumable, and what is written can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato.cli import run
from sfumato.errors import BadValue
from sfumato.report.curves import Curve, Plot
from sfumato.reproduce import TABLES, client_level, make
from sfumato.reproduce.ae_dpfl import common as ae_dpfl
from sfumato.reproduce.ae_dpfl.digits import taught
from sfumato.reproduce.ae_dpfl.settings import cost
from sfumato.reproduce.audit_recipes import bounds
from sfumato.reproduce.dp_fed_ls.table_2 import columns
from sfumato.reproduce.frontier.costs import cost as frontier_cost
from sfumato.reproduce.frontier.ours import ours
from sfumato.reproduce.prifedsync import common as prifedsync
from sfumato.reproduce.run import aligned, run_table
from sfumato.reproduce.show import spread
from sfumato.reproduce.table import SCALES, Cell, Done, Row, Table, Work
from sfumato.reproduce.udp_fl import common as udp_fl
from sfumato.reproduce.udp_fl.figure_5 import naive
from sfumato.reproduce.udp_fl.figure_6 import shuffled
from sfumato.reproduce.udp_fl.table_5 import search
from sfumato.reproduce.udp_fl.table_6 import attacked
from sfumato.reproduce.udp_fl.table_7 import inverted
from sfumato.reproduce.udp_fl.table_8 import inferred
from sfumato.reproduce.udp_fl.table_9 import rebuilt


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


CALLS: list[tuple[int, int]] = []


def squares(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    CALLS.append((settings["side"], seed))
    if settings["side"] < 0:
        raise KeyboardInterrupt
    return {"area": settings["side"] ** 2 + seed}


SQUARES = Work("squares", squares)


def row(done: Sequence[Done]) -> Row:
    areas = [one.result["area"] for one in done]
    return {"side": str(done[0].cell.settings["side"]), "paper": str(done[0].cell.paper["area"]), "ours": spread(areas)}


def plots(done: Sequence[Done]) -> list[Plot]:
    xs = tuple(float(number) for number in range(len(done)))
    curve = Curve("area", 0, xs, tuple(float(one.result["area"]) for one in done))
    return [Plot("areas", "Areas", "Cell", "Area", (curve,))]


def table(*sides: int) -> Table:
    cells = [Cell(f"side {s}", {"side": s}, seed, SQUARES, {"area": s * s}) for s in sides for seed in range(2)]
    return Table("squares", "Squares", "Euclid", "default", tuple(cells), row, plots, "Small ones only.", ("A note.",))


def test_cells_are_kept_and_a_table_goes_on(tmp_path: Path) -> None:
    CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        run_table(table(2, -1), tmp_path, lambda line: None)
    assert CALLS == [(2, 0), (2, 1), (-1, 0)]
    assert "Not finished: " in (tmp_path / "table.md").read_text()
    said: list[str] = []
    done = run_table(table(2, 3), tmp_path, said.append)
    assert CALLS[3:] == [(3, 0), (3, 1)]  # the others were known
    assert [one.result["area"] for one in done] == [4, 5, 9, 10]
    assert sum("cell" in line for line in said) == 2


def test_several_processes_share_the_cells(tmp_path: Path) -> None:
    said: list[str] = []
    together = run_table(table(2, 3), tmp_path / "a" / "together", said.append, jobs=2)
    alone = run_table(table(2, 3), tmp_path / "b" / "alone", lambda line: None)
    assert [(one.cell, one.result) for one in together] == [(one.cell, one.result) for one in alone]
    assert [line.split(":")[0] for line in said] == ["1/4", "2/4", "3/4", "4/4"]


def test_tables_that_lie_beside_each_other_share_their_cells(tmp_path: Path) -> None:
    CALLS.clear()
    first = run_table(table(2), tmp_path / "one", lambda line: None)
    cells = tuple(replace(cell, row=f"the same, {cell.row}") for cell in table(2, 3).cells)
    second = run_table(replace(table(2, 3), cells=cells), tmp_path / "two", lambda line: None)
    assert CALLS == [(2, 0), (2, 1), (3, 0), (3, 1)]
    assert [one.result for one in second[:2]] == [one.result for one in first]
    assert len(list((tmp_path / "two" / "cells").iterdir())) == 4


def test_another_setting_seed_or_work_is_another_cell() -> None:
    cell = table(2).cells[0]
    others = [
        replace(cell, settings={"side": 5}), replace(cell, seed=7), replace(cell, work=prifedsync.TRAIN),
    ]  # fmt: skip
    assert len({cell.name, *(other.name for other in others)}) == 4
    assert replace(cell, paper={"area": 0}).name == cell.name


def test_a_function_that_moves_keeps_its_cells() -> None:
    cell, moved = table(2).cells[0], Work("squares", lambda settings, seed: squares(settings, seed))
    assert replace(cell, work=moved).name == cell.name
    # the names under which results were stored; with another one they would all be computed again
    used = {cell.work for name in TABLES for cell in make(name, "quick").cells}
    assert {work.name.removeprefix("sfumato.reproduce."): work.function for work in used} == {
        "prifedsync.train": prifedsync.train,
        "client_level.train": client_level.train,
        "dp_fed_ls_table_2.columns": columns,
        "udp_fl.train": udp_fl.train,
        "udp_fl.naive": naive,
        "udp_fl.shuffled": shuffled,
        "udp_fl.search": search,
        "udp_fl.membership": attacked,
        "udp_fl.inverted": inverted,
        "udp_fl.inferred": inferred,
        "udp_fl.rebuilt": rebuilt,
        "audit_recipes.bounds": bounds,
        "ae_dpfl.train": ae_dpfl.train,
        "ae_dpfl.taught": taught,
        "ae_dpfl.cost": cost,
        "frontier.cost": frontier_cost,
        "frontier.ours": ours,
    }


def test_a_stored_cell_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.reproduce.table.__version__", "0.1.0")
    assert make("dp-fed-ls-table-2", "default").cells[0].name == "uniform-z-1-5-seed-0-471602dcc94d"
    assert make("prifedsync-table-1", "default").cells[0].name == "p-1-sigma-1-seed-0-2a88e825473c"


def test_a_broken_file_is_computed_again(tmp_path: Path) -> None:
    run_table(table(2), tmp_path, lambda line: None)
    broken = next((tmp_path / "cells").iterdir())
    broken.write_text('{"result": ')
    CALLS.clear()
    run_table(table(2), tmp_path, lambda line: None)
    assert len(CALLS) == 1
    assert json.loads(broken.read_text())["result"]["area"] in (4, 5)


def test_what_is_written(tmp_path: Path) -> None:
    run_table(table(2, 3), tmp_path, lambda line: None)
    words = (tmp_path / "table.md").read_text()
    for part in (
        "# Squares",
        "Euclid.",
        "Small ones only.",
        "A note.",
        "Seeds: 0, 1.",
        "![areas](areas.png)",
        "4.5 ± 0.707",
    ):
        assert part in words
    found = json.loads((tmp_path / "table.json").read_text())
    assert found["missing"] == 0 and [cell["seed"] for cell in found["cells"]] == [0, 1, 0, 1]
    assert found["rows"][1] == {"side": "3", "paper": "9", "ours": "9.5 ± 0.707"}
    assert (tmp_path / "areas.png").read_bytes().startswith(b"\x89PNG")


def test_columns_stand_under_each_other() -> None:
    lines = aligned([{"a": "1", "long name": "x"}, {"a": "22"}])
    assert lines == ["| a  | long name |", "|----|-----------|", "| 1  | x         |", "| 22 |           |"]


def test_the_list_and_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce"]) == 0
    assert capsys.readouterr().out.split()[0] == "prifedsync-table-1"
    assert run(["reproduce", "prifedsync-table-4"]) == 2
    assert "Did you mean 'prifedsync-table-" in capsys.readouterr().err
    assert run(["reproduce", "prifedsync-table-1", "--full", "--quick"]) == 2
    with pytest.raises(BadValue):
        make("nothing", "quick")


@pytest.mark.parametrize("name", [name for name in TABLES if name.startswith("prifedsync")])
@pytest.mark.parametrize("scale", SCALES)
def test_every_table_says_how_it_is_scaled(name: str, scale: str) -> None:
    made = make(name, scale)
    assert made.name == name and made.scale == scale
    assert bool(made.scaled) == (scale != "full")
    assert len({cell.name for cell in made.cells}) == len(made.cells)
    json.dumps([dict(cell.settings) for cell in made.cells])


def test_full_is_the_papers_setting() -> None:
    cells = make("prifedsync-table-1", "full").cells
    private = {(c.settings["rate"], c.settings["sigma"]) for c in cells if c.settings["sigma"] is not None}
    assert len(private) == 9
    for cell in cells:
        used = cell.settings
        assert (used["clients"], used["records"], used["test_part"], used["batch"]) == (100, 600, 200, 16)
        assert (used["steps"], used["lr"], used["helper_weight"], used["split"]) == (38, 0.001, 0.1, "shards:4")


def test_the_papers_mu_comes_out_of_its_settings() -> None:
    for name in ("prifedsync-table-1", "prifedsync-table-2", "prifedsync-table-3"):
        for cell in make(name, "full").cells:
            if "mu" in cell.paper:
                found = prifedsync.published(cell.paper["settings"], cell.paper["rounds"]).mu
                assert found == pytest.approx(cell.paper["mu"], abs=0.0051), cell.row


def test_a_quick_table_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(prifedsync.QUICK, "rounds", 3)
    assert run(["reproduce", "prifedsync-table-1", "--quick", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "says nothing about the paper's numbers" in told.replace("\n", " ")
    found = json.loads((tmp_path / "table.json").read_text())
    assert [line["rounds, paper"] for line in found["rows"]] == ["93", "93", "64", "386"]
    first, free = found["rows"][0], found["rows"][1]
    assert (first["mu, paper"], first["epsilon (every round), paper's rounds"]) == ("2.71", "13.88")
    assert found["rows"][3]["epsilon (p), paper's rounds"] == "14.62"
    assert float(free["accuracy, ours"]) > float(first["accuracy, ours"])
    assert (tmp_path / "accuracy.png").is_file()


def test_a_cell_is_a_pure_function_that_learns() -> None:
    settings = {**prifedsync.MNIST, **prifedsync.QUICK, "target": None, "global": True, "rounds": 4, "clients": 5}
    first, again = (prifedsync.train(settings, 1) for _ in range(2))
    assert first == again
    assert first["curve"][-1][1] > first["curve"][0][1] + 0.05
    assert first["curve"][-1][1] > first["curve"][-1][4]  # personal against global
    reached = prifedsync.train({**settings, "target": first["curve"][2][1] - 1e-9}, 1)
    assert reached["reached"] <= 3 and reached["curve"] == first["curve"][: reached["reached"]]
