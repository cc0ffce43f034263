"""A finished run gets more rounds: the same run, with the noise that it had, within the budget that it had."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sfumato.ledger.ledger import Ledger
from tests.cli.conftest import ROUND, SMALL, Command


def summary(folder: str) -> dict[str, Any]:
    return json.loads((Path(folder) / "run.json").read_text())  # type: ignore[no-any-return]


def request(folder: str) -> dict[str, Any]:
    return tomllib.loads((Path(folder) / "run.toml").read_text())


def test_a_longer_run_is_the_run_that_was_asked_for_at_once(sfumato: Command) -> None:
    words = [*ROUND, "--seed", "4", "--quiet"]
    assert sfumato("train", "--rounds", "5", *words, "--out", "whole").status == 0
    assert sfumato("train", "--rounds", "3", *words, "--out", "longer").status == 0
    assert sfumato("train", "--resume", "longer", "--rounds", "5", "--quiet") == (0, "", "")
    whole, longer = (load_file(f"{name}/params.safetensors") for name in ("whole", "longer"))
    assert all(torch.equal(whole[name], longer[name]) for name in whole)
    assert summary("longer")["rounds"] == 5 == request("longer")["rounds"]
    assert summary("longer")["epsilon"] == summary("whole")["epsilon"]
    assert len(Path("longer/metrics.jsonl").read_text().splitlines()) == 5
    assert sfumato("train", "--resume", "longer", "--quiet").status == 0 and summary("longer")["rounds"] == 5
    refused = sfumato("train", "--resume", "longer", "--rounds", "4")
    assert refused.status == 2 and "longer has 5 rounds behind it" in refused.err
    assert request("longer")["rounds"] == 5 and summary("longer")["rounds"] == 5


@pytest.mark.parametrize("given", [["--epsilon", "3"], ["--epsilon", "1.5", "--noise-multiplier", "2"]])
def test_it_keeps_its_noise_and_stops_at_its_budget(given: list[str], sfumato: Command) -> None:
    words = ["--clients", "40", "--sample", "poisson:0.25", "--epochs", "1", "--delta", "0.01", *given]
    assert sfumato("train", "--rounds", "4", *words, "--quiet", "--out", "run").status == 0
    first = summary("run")
    status, _, err = sfumato("train", "--resume", "run", "--rounds", "400", "--quiet")
    found = summary("run")
    assert status == 3 and "over the budget" in err and found["stopped"] in err
    assert found["noise_multiplier"] == first["noise_multiplier"] == request("run")["resolved"]["noise_multiplier"]
    assert first["rounds"] <= found["rounds"] < 400 and found["epsilon"] <= float(given[1])
    assert ("--noise-multiplier" in given) is (found["rounds"] > first["rounds"]), (
        "a budget that was used up is used up"
    )
    assert Ledger(Path("run/ledger.sqlite"), None).count == found["rounds"]


def test_noise_that_is_not_the_runs_own_is_another_run(sfumato: Command) -> None:
    words = ["--clients", "40", "--epsilon", "3", "--delta", "0.01"]
    assert sfumato("train", "--rounds", "2", *words, "--quiet", "--out", "run").status == 0
    toml = Path("run/run.toml")
    noise = request("run")["resolved"]["noise_multiplier"]
    toml.write_text(toml.read_text().replace(f"noise_multiplier = {noise}", "noise_multiplier = 0.5"))
    refused = sfumato("train", "--resume", "run", "--rounds", "4")
    assert refused.status == 2 and "holds another run" in refused.err
    assert Ledger(Path("run/ledger.sqlite"), None).count == 2


def test_the_ledger_is_read_at_the_runs_delta(sfumato: Command) -> None:
    assert sfumato("train", *SMALL, "--quiet", "--out", "run").status == 0
    for path in ("run", "run/ledger.sqlite"):
        found = json.loads(sfumato("ledger", path, "--json").out)
        assert found["delta"] == summary("run")["delta"]
        assert found["spent"]["client"]["world"]["epsilon"] == summary("run")["epsilon"]
    assert json.loads(sfumato("ledger", "run", "--json", "--delta", "1e-4").out)["delta"] == 1e-4
    assert sfumato("train", *SMALL, "--quiet", "--ledger", "people.sqlite", "--out", "other").status == 0
    refused = sfumato("ledger", "people.sqlite")
    assert refused.status == 2 and "--delta" in refused.err
    assert sfumato("ledger", "people.sqlite", "--check").status == 0
