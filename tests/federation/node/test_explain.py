"""`sfumato node check`, and what `sfumato ledger` says of a promise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfumato.account.event import Unit
from sfumato.cli import run
from sfumato.federation.node.books import Books
from sfumato.federation.node.explain import explain, would
from sfumato.guarantee import rounded_up
from sfumato.ledger.ledger import Budget
from tests.federation.node.helpers import ledger_of, letter_of, node_of, policy_of, store_records, terms_of

TOML = """
[node]
client = 1
data = "records.pt"
name = "set"

[records]
task = "classification"
outputs = 3
input_shape = [6]

[allow]
recipes = ["dp-fedavg"]
smallest_noise = 0.5
smallest_cohort = 2
promise = "suffices"

[allow.data.set]
epsilon = 30.0
delta = 1e-5
"""


def said(folder: Path, **changed: Any) -> str:
    policy = policy_of(folder, **changed)
    with Books.opened(policy, make=False) as books:
        return explain(policy, books)


def codes(folder: Path, terms: Any, **changed: Any) -> list[str]:
    policy = policy_of(folder, **changed)
    with Books.opened(policy, make=False) as books:
        found = would(policy, terms, books)
    assert all(words for _, words in found)
    return [code for code, _ in found]


def test_what_is_allowed_in_words(tmp_path: Path) -> None:
    bare = said(tmp_path, recipes=(), budgets={}, promise="refused", models=())
    assert "recipes: none, so everything is refused until" in bare
    assert "budget: none stated, so everything is refused until node.toml has [allow.data.set]" in bare
    assert "does not suffice" in bare and "models: none" in bare
    full = said(
        tmp_path,
        models=("library", "mine:net"),
        features=("hog",),
        smallest_noise=1.5,
        smallest_cohort=7,
        rounds_per_day=3,
        unproven=True,
        nonprivate=True,
        shared_keys=True,
        total=Budget(3.0, 1e-6),
    )
    for words in (
        "recipes: any",
        "models: the library's own, mine:net",
        "features: hog",
        "at least 1.5",
        "at least 7",
        "3 in 24 hours",
        "suffices; nothing is proven against one that",
        "runs that prove nothing: allowed",
        "runs that hide nothing: allowed",
        "for tests only",
        "no limit; 0 reservations",
        "epsilon 3 at delta 1e-06 for each client, of which 0 was spent",
    ):
        assert words in full, words
    assert not list(tmp_path.iterdir()), "to look changes nothing"


def test_what_was_spent_in_words(tmp_path: Path) -> None:
    limits = {"budgets": {"set": Budget(50.0, 1e-5)}}
    assert node_of(tmp_path, **limits)(letter_of(terms_of(rounds=2))).kind == "ok"
    cost = ledger_of(tmp_path).spent(Unit.CLIENT)
    assert cost is not None
    spent = rounded_up(Budget(50.0, 1e-5).spent(cost.world, by=ledger_of(tmp_path).price), 4)
    assert f"of which {spent} was spent in 1 reservations" in said(tmp_path, **limits)
    assert node_of(tmp_path, nonprivate=True)(letter_of(terms_of("fedavg", run="b"))).kind == "ok"
    assert "what is not proven was spent, so nothing is left" in said(tmp_path, **limits)


def test_everything_that_would_be_refused(tmp_path: Path) -> None:
    terms = terms_of(options={"noise_multiplier": 0.5})
    assert codes(tmp_path, terms) == []
    strict: dict[str, Any] = {"smallest_noise": 0.6, "smallest_cohort": 3, "promise": "refused"}
    assert codes(tmp_path, terms, **strict) == ["refused.noise", "refused.cohort", "refused.promise"]
    assert codes(tmp_path, replace(terms, model="a:b", keys="shared"), recipes=()) == [
        "refused.recipe",
        "refused.model",
        "refused.keys",
    ]
    assert codes(tmp_path, terms, budgets={"set": Budget(0.1, 1e-5)}) == ["refused.epsilon"]
    assert codes(tmp_path, terms, total=Budget(0.1, 1e-5)) == ["refused.total"]
    assert codes(tmp_path, terms, budgets={}) == ["refused.epsilon"]
    assert codes(tmp_path, replace(terms, round="Round(")) == ["refused.round"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "node.toml"
    config.write_text(TOML)
    assert run(["node", "check", "--config", str(config)]) == 0
    assert "client 1, with the data set 'set': not found." in capsys.readouterr().out
    store_records(tmp_path)
    assert run(["node", "check", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    assert (
        f"client 1, with the data set 'set': {tmp_path / 'records.pt'}, 8 records\n" in out
        and "epsilon 30 at delta 1e-05" in out
    )
    terms = tmp_path / "terms.json"
    terms.write_text(terms_of().text)
    words = ["node", "check", "--config", str(config), "--terms", str(terms)]
    assert run(words) == 0 and capsys.readouterr().out == "allowed\n"
    terms.write_text(terms_of(options={"noise_multiplier": 0.4}).text)
    assert run(words) == 3
    assert capsys.readouterr().out == "refused.noise: a noise multiplier of 0.4, below 0.5.\n"
    assert run([*words, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["refused"][0]["code"] == "refused.noise"
    assert run(["node", "check", "--config", str(tmp_path / "none.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert run([*words[:-1], str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
    terms.write_text("[]")
    assert run(words) == 2 and "terms of a run" in capsys.readouterr().err


def test_a_ledger_says_what_was_promised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = node_of(tmp_path, budgets={"set": Budget(90.0, 1e-5)})
    assert node(letter_of(terms_of("perturb-model", run="own"))).kind == "ok"
    assert run(["ledger", str(tmp_path / "set")]) == 0
    assert "promise" not in capsys.readouterr().out
    assert node(letter_of(terms_of(rounds=7, run="hospital"))).kind == "ok"
    assert run(["ledger", str(tmp_path / "set")]) == 0
    out = capsys.readouterr().out
    assert "run own: 1 round;" in out
    assert "run hospital: 7 rounds promised by its server" in out
    assert "servers have drawn cohorts in secret, added the noise" in out
    assert "No proven guarantee for each client, against the server: it sees the messages" in out
