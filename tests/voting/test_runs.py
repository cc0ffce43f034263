"""Voting from the command line: two recipes, what they print and write, and a run that is killed between its questions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from sfumato import Majority, Student
from sfumato.commands.app import app
from sfumato.data.record_map import batched
from sfumato.engine.checkpoint import Checkpoint
from sfumato.features import Features
from sfumato.recipes.voting import knn_fl, pate_fl
from tests.engine.crash import Kill, reservations, train

FEW = ["--public-records", "300", "--clients", "8", "--queries", "40", "--stddev", "3", "--rounds", "2", "--quiet"]
SERVE = "sfumato.engine.simulation:Simulation._serve"


def run(words: list[str], folder: Path) -> dict:
    found = CliRunner().invoke(app, ["train", *words, "--out", str(folder)])
    assert found.exit_code == 0, found.output
    summary: dict = json.loads((folder / "run.json").read_text())
    return summary


@pytest.mark.parametrize("recipe", ["knn-fl", "pate-fl"])
def test_a_run_tells_what_was_asked(recipe: str, tmp_path: Path) -> None:
    summary = run([recipe, *FEW, "--order", "uncertain"], tmp_path / "run")
    votes = summary["votes"]
    assert votes["asked"] == votes["answered"] == sum(votes["classes"]) == 80
    assert len(votes["shown"]) == 24 and votes["shown"][0]["png"] and 0 < votes["agreement"] <= 1
    record = summary["guarantees"]["record"]["world"]["epsilon"]
    assert record < summary["epsilon"] if recipe == "knn-fl" else record > summary["epsilon"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "80 queries were asked, and 80 answered" in page and page.count("data:image/png;base64,") == 24
    assert any("digits/public are public" in said for said in summary["assumptions"])


def test_each_core_has_a_client_of_its_own_and_features_stay_on_one(tmp_path: Path) -> None:
    """Threads that share out steps as small as these wait for each other, on a busy machine for most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        summary = run(["pate-fl", *FEW[:-1], "--features", "hog:2", "--json"], tmp_path / "run")
        assert (
            summary["engine"] == {"path": "loop", "block": 1, "workers": 2, "shards": 1}
            and torch.get_num_threads() == 2
        )
        seen: list[int] = []
        watched = batched(lambda x: seen.append(torch.get_num_threads()) or x)  # type: ignore[func-returns-value]
        Features((watched,))(torch.zeros(40, 3))
        assert seen == [1, 1] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("when", "reserved"), [("before", 2), ("after", 2)])
def test_a_killed_run_asks_the_same_teachers(when: str, reserved: int, tmp_path: Path) -> None:
    """Killed around the server's half of the second round: the same answers as the whole run, and no round counted less."""
    words = ["pate-fl", *FEW, "--epochs", "2", "--seed", "4", "--out", "run"]
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    whole.mkdir()
    assert train(words, whole, Kill("before", "sfumato.ledger.ledger:Ledger.reserve")) == -9
    shutil.copytree(whole, torn)
    assert train(["--resume", "run", "--quiet"], whole) == 0
    assert train(["--resume", "run", "--quiet"], torn, Kill(when, SERVE, 2)) == -9
    assert reservations(torn / "run") == reserved
    assert train(["--resume", "run", "--quiet"], torn) == 0
    one, other = (Checkpoint.read(place / "run") for place in (whole, torn))
    assert one is not None and other is not None and "votes" in one.state
    assert torch.equal(one.params, other.params)
    assert all(torch.equal(value, other.state[name]) for name, value in one.state.items())
    assert reservations(torn / "run") == reservations(whole / "run") == 2


def test_a_killed_run_keeps_its_plan_though_the_ledger_has_moved_on(tmp_path: Path) -> None:
    """Client 0 stops after one round, by what the ledger held before the first: the run that goes on must not plan anew."""
    words = ["knn-fl", *FEW, "--ledger", "shared.sqlite", "--out"]
    assert train([*words, "first"], tmp_path) == 0
    lines = "[default]\nepsilon = 600\ndelta = 1e-3\n[[own]]\nclients = [0]\nepsilon = 23\n"
    (tmp_path / "budgets.toml").write_text(lines)
    told = ["ledger", str(tmp_path / "shared.sqlite"), "--budgets", str(tmp_path / "budgets.toml")]
    assert CliRunner().invoke(app, told).exit_code == 0
    assert train([*words, "second"], tmp_path, Kill("before", SERVE, 2)) == -9
    assert "rounds=1" in (tmp_path / "second" / "run.toml").read_text()
    assert train(["--resume", "second", "--quiet"], tmp_path) == 0 and reservations(tmp_path / "second") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["knn-fl"], "--public NAME, beside a table --public FILE.csv, or --public-records"),
        (["knn-fl", *FEW, "--student", "oracle"], "student='oracle'"),
        (["pate-fl", *FEW, "--adapt", "magic"], "adapt='magic'"),
        (["knn-fl", *FEW, "--model", "mlp"], "one linear layer"),
        (["knn-fl", *FEW, "--queries", "301"], "Ask fewer"),
        (["knn-fl", *FEW, "--stddev-of", "pixels"], "stddev_of='pixels'"),
        (["knn-fl", *FEW, "--shares", "--relation", "add_remove"], "add/remove"),
        (["knn-fl", *FEW, "--attributes", "2"], "votes are on 10 attributes"),
        (["pate-fl", *FEW, "--attributes", "11"], "Teacher(attributes=11): there are 10"),
        (["pate-fl", *FEW, "--queries", "0"], "at least 1 query"),
        (["knn-fl", *FEW, "--noise-multiplier", "2"], "exclude each other"),
        (["knn-fl", *FEW[:6], "--stddev-of", "neighbours"], "no --stddev is given"),
        (["knn-fl", *FEW[:6], "--noise-multiplier", "0"], "never released without noise"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_what_does_not_fit_is_refused_before_anything_is_spent(words: list[str], said: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["train", *words, "--out", str(tmp_path / "run")])
    assert found.exit_code != 0
    assert said in f"{found.output} {found.exception}" and not (tmp_path / "run").exists()


def test_attributes_are_held_by_half_of_those_who_are_asked() -> None:
    """Of a cohort of 20 nobody has the votes of half of all 100 clients."""
    for build, options in ((pate_fl, {}), (knn_fl, {"k": 3})):
        student = build(100, attributes=2, classes=5, sample="fixed:20", **options).optimizer
        assert isinstance(student, Student) and student.labels == Majority(20.0)
