"""`--secure` from the command line: trains, goes on, is counted, and says what it no longer assumes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sfumato import Plan, calibrate, classification, secure, simulate
from sfumato.calibration import noise_and_clip
from sfumato.errors import BadValue
from sfumato.pieces.payment import ARITHMETIC
from sfumato.recipes import build
from tests.cli.conftest import ROUND, SMALL, Command
from tests.helpers import linear, made_up_population


def summary(folder: str) -> dict[str, Any]:
    return json.loads((Path(folder) / "run.json").read_text())  # type: ignore[no-any-return]


def test_the_guarantee_assumes_nothing_of_arithmetic(sfumato: Command) -> None:
    answer = sfumato("train", "dp-fedavg", "--secure", *SMALL, "--out", "exact")
    assert answer.status == 0 and "assumptions\n  - the server is trusted\n" in answer.out
    assert sfumato("train", "dp-fedavg", *SMALL, "--out", "usual").status == 0
    exact, usual = summary("exact"), summary("usual")
    assert exact["epsilon"] == usual["epsilon"]
    assert set(exact["assumptions"]) == set(usual["assumptions"]) - {ARITHMETIC}
    assert ARITHMETIC in usual["assumptions"]
    written = tomllib.loads(Path("exact/run.toml").read_text())
    assert written["secure"] is True and written["resolved"]["divisor"] == 10.0
    assert written["resolved"]["engine"].startswith("Plan(path='loop'")
    assert [step["piece"] for step in exact["derivation"]][3] == "Grid()"
    assert "RoundedGaussian" in Path("exact/report.html").read_text()
    assert sfumato("evaluate", "exact").status == 0


def test_a_run_that_goes_on_is_the_run_that_was_asked_for_at_once(sfumato: Command) -> None:
    words = ["--secure", *ROUND, "--seed", "4", "--quiet", "--ledger", "shared.sqlite", "--force-ledger"]
    assert sfumato("train", "--rounds", "4", *words, "--out", "whole").status == 0
    assert sfumato("train", "--rounds", "2", *words[:-3], "--out", "longer").status == 0
    assert sfumato("train", "--resume", "longer", "--rounds", "4", "--quiet").status == 0
    whole, longer = (load_file(f"{name}/params.safetensors") for name in ("whole", "longer"))
    assert all(torch.equal(whole[name], longer[name]) for name in whole)
    assert sfumato("ledger", "shared.sqlite", "--delta", "0.01").status == 0


def test_a_budget_finds_exact_noise(sfumato: Command) -> None:
    words = ["--secure", "--clients", "40", "--rounds", "2", "--epsilon", "3", "--delta", "0.01", "--quiet"]
    assert sfumato("train", "dp-fed-ls", *words, "--out", "run").status == 0
    found = summary("run")
    round = secure(build("dp-fed-ls", 40, {}))
    noise, _ = noise_and_clip(calibrate(round, epsilon=3.0, delta=0.01, rounds=2, population=40))
    assert found["noise_multiplier"] == noise and 2.99 < found["epsilon"] <= 3.0


def test_shares_are_discrete_and_priced_by_renyi(sfumato: Command) -> None:
    words = [
        "--secure",
        "--clients",
        "40",
        "--sample",
        "fixed:10",
        "--rounds",
        "2",
        "--epsilon",
        "6",
        "--delta",
        "0.01",
    ]
    assert sfumato("train", "dp-fedavg-shares", *words, "--quiet", "--out", "run").status == 0
    found = summary("run")
    assert found["accountant"] == "rdp" and 5.9 < found["epsilon"] <= 6.0 and found["epsilon_server"] is not None
    assert "in 9 shares" in found["guarantee"] and ARITHMETIC not in found["assumptions"]


@pytest.mark.parametrize("recipe", ["dp-fedavg", "dp-fedavg-adaptive", "fed-smp", "prifedsync", "perturb-model"])
def test_explain_shows_the_exact_derivation(recipe: str, sfumato: Command) -> None:
    answer = sfumato("explain", recipe, "--secure")
    assert answer.status == 0 and "RoundedGaussian" in answer.out and ARITHMETIC not in answer.out
    assert ("in whole steps of" in answer.out) == (recipe != "prifedsync")


def test_what_proves_nothing_cannot_be_secure(sfumato: Command) -> None:
    answer = sfumato("train", "fedavg", "--secure", "--out", "run")
    assert answer.status == 2 and "proves nothing" in answer.err and not Path("run").exists()


def test_clients_are_computed_alone() -> None:
    population = made_up_population([5] * 8)
    with pytest.raises(BadValue, match="path='loop'"):
        simulate(
            secure(build("dp-fedavg", 8, {})),
            population,
            linear(),
            classification(3),
            rounds=1,
            plan=Plan("stacked", 4),
        )


@pytest.mark.parametrize("recipe", ["dp-fedavg", "dp-fedavg-shares"])
def test_the_number_of_workers_changes_no_bit(recipe: str) -> None:
    options = {"sample": "fixed:4"} if recipe == "dp-fedavg-shares" else {}
    round, population = secure(build(recipe, 8, options)), made_up_population([5] * 8)
    found = []
    for plan in (Plan(), Plan(workers=2)):
        run = simulate(round, population, linear(), classification(3), rounds=3, seed=1, plan=plan)
        found.append([progress.params for progress in run][-1])
    assert torch.equal(*found)
