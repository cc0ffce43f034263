"""Each client's own budget from the command line and from Python: run.json, the page, a killed run, a shared ledger."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sfumato import Ledger, Plan, Unit, classification, simulate
from sfumato.account.event import ByClient
from sfumato.budget.words import in_words
from sfumato.ledger.ledger import Budget
from sfumato.report import parts
from sfumato.report.read import Record
from sfumato.run.request import Request, resolved
from tests.cli.conftest import Command
from tests.helpers import dp_round, linear, made_up_population

FILE = """
[default]
epsilon = 3.0
delta = 1e-3

[[own]]
clients = ["0-4"]
epsilon = 1.0

[[own]]
clients = [7]
epsilon = 2.5
by = "rounds"
"""
SMALL = ["--clients", "40", "--sample", "poisson:0.25", "--epochs", "1", "--clip", "1", "--rounds", "6", "--quiet"]
WAYS = [{"default": (3.0, 1e-3), 0: (1.0, 1e-3)}, {0: (1.0, 1e-3), (1, 2, 3, 4, 5): (3.0, 1e-3)}]


@pytest.fixture
def budgets(tmp_path: Path) -> str:
    path = tmp_path / "budgets.toml"
    path.write_text(FILE)
    return str(path)


def test_a_run_shows_what_each_client_spent(sfumato: Command, budgets: str) -> None:
    answer = sfumato("train", *SMALL[:-1], "--budgets", budgets, "--out", "run")
    assert answer.status == 0, answer.err
    found = json.loads(Path("run/run.json").read_text())
    usual, strict, early = found["budgets"]
    assert (usual["clients"], usual["count"]) == ("all others", 34)
    assert (strict["clients"], early["clients"]) == (["0-4"], [7])
    for line in found["budgets"]:
        assert line["spent"] <= line["epsilon"]
    assert usual["spent"] > 2.99 and strict["spent"] > 0.99 and strict["clip"] < usual["clip"] == 1.0
    assert early["last_round"] < 6 and usual["last_round"] is None
    assert found["delta"] == 1e-3  # the largest: what is said of all holds there
    assert found["epsilon"] == pytest.approx(max(usual["spent"], strict["spent"]))
    assert "budget and settings are public" in found["guarantee"]
    page = Path("run/report.html").read_text()
    assert "Each client&#x27;s own budget" in page and "all others (34)" in page
    assert "0-4" in answer.out and "to round" in answer.out
    assert parts.budgets(Record("run", {"budgets": [{**usual, "delta": 0.00123441}]}, (), "")).count(">0.00124<") == 1
    assert "  0.00124  " in in_words([{**usual, "delta": 0.00123441}])[1]  # up, as every delta
    assert sfumato("report", "run").status == 0
    ledger = Ledger(Path("run/ledger.sqlite"), None)
    spent = ledger.spent(Unit.CLIENT)
    assert spent is not None and any(isinstance(part, ByClient) for part in spent.world.walk())


def test_a_killed_run_keeps_its_budgets(sfumato: Command, budgets: str) -> None:
    assert sfumato("train", *SMALL, "--seed", "4", "--budgets", budgets, "--out", "whole").status == 0
    shutil.copytree("whole", "again")
    for name in ("run.json", "params.safetensors", "report.html"):
        (Path("again") / name).unlink()
    Path(budgets).unlink()  # what a run needs is in its folder
    answer = sfumato("train", "--resume", "again", "--quiet")
    assert answer.status == 0, answer.err
    whole, again = (json.loads(Path(name, "run.json").read_text()) for name in ("whole", "again"))
    assert whole["budgets"] == again["budgets"]
    assert Path("whole/params.safetensors").read_bytes() == Path("again/params.safetensors").read_bytes()
    longer = sfumato("train", "--resume", "whole", "--rounds", "9")
    assert longer.status == 3 and "over the budget of" in longer.err and "The run stops after 6 rounds" in longer.err
    assert sfumato("evaluate", "again").status == 0
    config = sfumato("train", "--config", "again/run.toml", "--out", "third", "--quiet")
    assert config.status == 0, config.err
    assert resolved(Path("third/run.toml"))["round"] == resolved(Path("again/run.toml"))["round"]
    assert Request.from_toml(Path("third/run.toml")).budgets["own"][0] == {"clients": ["0-4"], "epsilon": 1.0}


def test_mistakes_get_one_sentence(sfumato: Command, budgets: str) -> None:
    both = sfumato("train", *SMALL, "--budgets", budgets, "--epsilon", "2", "--out", "a")
    assert both.status == 2 and "exclude each other" in both.err
    few = sfumato("train", "--clients", "5", "--budgets", budgets, "--out", "b")
    assert few.status == 2 and "budget for client 7, but clients are 0 to 4" in few.err
    fixed = sfumato("train", *SMALL, "--sample", "fixed:4", "--budgets", budgets, "--out", "c")
    assert fixed.status == 2 and "would change everybody else's chance" in fixed.err
    missing = sfumato("train", *SMALL, "--budgets", "nothing.toml", "--out", "d")
    assert missing.status == 2 and "cannot be read" in missing.err


@pytest.mark.parametrize("given", WAYS, ids=["default", "everyone named"])
def test_python_runs_have_budgets_too(tmp_path: Path, given: dict[Any, Any]) -> None:
    population, folder = made_up_population([9, 12, 8, 10, 9, 11]), tmp_path / "run"
    settings: dict[str, Any] = {"rounds": 3, "budgets": given, "folder": folder, "plan": Plan(), "seed": 2}
    *_, last = simulate(dp_round(), population, linear(), classification(3), **settings)
    found = json.loads((folder / "run.json").read_text())
    assert [line["spent"] <= line["epsilon"] for line in found["budgets"]] == [True, True]
    assert last.guarantee(1e-3, client=0).epsilon == pytest.approx(1.0, rel=1e-3)
    assert last.epsilon(1e-3) == pytest.approx(3.0, rel=1e-3) == last.guarantee(1e-3, client=5).epsilon
    again = simulate(dp_round(), population, linear(), classification(3), resume=True, **settings)
    assert again.start.round == 3
    again.close()


def test_a_client_stops_by_its_own_line_of_a_shared_ledger(sfumato: Command, budgets: str) -> None:
    common = [*SMALL, "--noise-multiplier", "2.5", "--ledger", "people.sqlite"]
    assert sfumato("train", *common, "--out", "one").status == 0
    shown = sfumato("ledger", "people.sqlite", "--budgets", budgets)
    assert shown.status == 0, shown.err
    assert "own budget of clients 0, 1, 2, 3, 4: epsilon 1 at delta 0.001, of which epsilon 0." in shown.out
    assert sfumato("train", *common, "--out", "two").status == 0
    second = resolved(Path("two/run.toml"))["round"]
    assert "PoissonPerClient" in second and "Presence(rate=0.25, rounds=" in second
    book = Ledger(Path("people.sqlite"), None)
    spent = book.spent(Unit.CLIENT)
    assert spent is not None
    for line in book.own_budgets:
        assert line.spent(spent.world, by=book.price) <= line.epsilon
    assert [line.spent(spent.world, by=book.price) > 0.8 * line.epsilon for line in book.own_budgets] == [
        False,
        True,
        False,
    ]
    fixed = sfumato("train", *common, "--sample", "fixed:5", "--relation", "add_remove", "--out", "three")
    assert fixed.status == 3 and "common budget of clients 0, 1, 2, 3, 4" in fixed.err  # the whole run, there
    book.set_own_budgets([Budget(1e-3, 1e-5)])
    none = sfumato("train", *common, "--out", "four")
    assert none.status == 3 and "anything left of its own budget" in none.err


def test_explain_shows_the_plan(sfumato: Command, budgets: str) -> None:
    for recipe, way in (("dp-fedavg", "clip 0."), ("prifedsync", "noise ")):
        answer = sfumato(
            "explain", recipe, "--clients", "50", "--rounds", "20", "--delta", "1e-3", "--budgets", budgets
        )
        assert answer.status == 0, answer.err
        assert "all others (44)" in answer.out and way in answer.out
