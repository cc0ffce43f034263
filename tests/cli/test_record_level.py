"""The record-level recipes from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command

SMALL = [
    "--clients", "8", "--records-per-client", "100", "--split", "shards:4", "--rounds", "3", "--seed", "1", "--quiet",
    "--evaluate-every", "2",
]  # fmt: skip
RECORD = ["--records", "75", "--steps", "4", "--batch", "fixed:5", "--lr", "0.01"]


def test_prifedsync_reports_records_and_personal_models_apart(sfumato: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    answer = sfumato("train", "prifedsync", *SMALL, *RECORD, "--clip", "0.5", "--noise-multiplier", "3", "--test-fraction",
                     "0.25", "--diagnostics", "--out", str(out))  # fmt: skip
    assert answer.status == 0, answer.err
    found = json.loads((out / "run.json").read_text())
    assert found["unit"] == "record" and found["relation"] == "replace"
    assert found["epsilon"] == found["epsilon_server"] > 0
    assert (found["noise_multiplier"], found["clip"], found["stddev"], found["sensitivity"]) == (3.0, 0.5, 1.5, 1.0)
    assert found["delta"] == 1e-5
    client = found["guarantees"]["client"]["world"]
    assert client["epsilon"] is None and "no proven guarantee" in client["headline"]
    lines = [json.loads(line) for line in (out / "diagnostics-not-private" / "rounds.jsonl").read_text().splitlines()]
    assert ["personal" in line for line in lines] == [False, True, True]
    assert lines[-1]["personal"]["clients"] == 8
    assert lines[-1]["personal"]["worst_decile"] <= lines[-1]["personal"]["mean"]
    assert "worst_decile" not in (out / "run.json").read_text() + (out / "metrics.jsonl").read_text()


@pytest.mark.parametrize("recipe", ["prifedsync", "perturb-model"])
def test_a_budget_finds_the_noise(sfumato: Command, tmp_path: Path, recipe: str) -> None:
    out = tmp_path / "run"
    more = RECORD if recipe == "prifedsync" else ["--steps", "4"]
    answer = sfumato("train", recipe, *SMALL, *more, "--epsilon", "4", "--delta", "1e-5", "--out", str(out))
    assert answer.status == 0, answer.err
    found = json.loads((out / "run.json").read_text())
    assert 3.99 < found["epsilon"] <= 4.0
    assert found["noise_multiplier"] not in (None, 2.0)


def test_without_personal_models_it_is_federated_averaging(sfumato: Command, tmp_path: Path) -> None:
    answer = sfumato("train", "prifedsync", *SMALL, *RECORD, "--helper-weight", "1", "--noise-multiplier", "2", "--batch",
                     "poisson:0.1", "--out", str(tmp_path / "run"))  # fmt: skip
    assert answer.status == 0, answer.err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["relation"] == "add_remove"


def test_mistakes_get_one_sentence(sfumato: Command, tmp_path: Path) -> None:
    shuffled = sfumato("train", "prifedsync", *SMALL, "--batch", "shuffle:16", "--out", str(tmp_path / "a"))
    assert shuffled.status == 2 and "batch='shuffle:16'" in shuffled.err
    few = sfumato("train", "prifedsync", *SMALL, "--noise-multiplier", "2", "--out", str(tmp_path / "b"))
    assert few.status == 2 and "100 records to train on, fewer than the 600 that are declared" in few.err


def test_explain_shows_ours_beside_the_papers(sfumato: Command) -> None:
    answer = sfumato("explain", "prifedsync", "--clients", "100", "--rounds", "194", "--delta", "1e-5")
    assert answer.status == 0
    for part in (
        "the cohort   22.28",
        "honestly       14.53",
        "mu 3.92",
        "false over several rounds",
        "--helper-weight 0.1",
    ):
        assert part in answer.out
