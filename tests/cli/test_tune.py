"""`sfumato tune`: both kinds from the command line to a folder that every other command reads, and what is refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sfumato.cli import run
from sfumato.run.folder import load
from tests.cli.conftest import Command
from tests.data.test_usps_and_domains import write_libsvm

COMMON = ["--epsilon", "4", "--clients", "30", "--rounds", "2", "--features", "resize:8,pixels,unit-norm:3"]
PAY = ["tune", "--pay", *COMMON]

MODULE = """
import torch
from sfumato import PublicData, Population, Records

def client(number):
    x = torch.randn(6, 64, generator=torch.Generator().manual_seed(number)).reshape(6, 1, 8, 8)
    return x, (x.flatten(1).sum(1) > 0).long()

def numbers(number):
    x, y = client(number)
    return x, y.float().unsqueeze(1)
"""


def read(folder: Path | str, name: str) -> Any:
    text = (Path(folder) / name).read_text()
    return tomllib.loads(text) if name.endswith("toml") else json.loads(text)


@pytest.fixture(scope="module")
def paid(_one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The best of a secret number of runs, without a seed."""
    folder = tmp_path_factory.mktemp("runs") / "paid"
    assert run([*PAY, "--quiet", "--out", str(folder)]) == 0
    return folder


def test_the_best_of_a_secret_number_of_runs(sfumato: Command) -> None:
    answer = sfumato(*PAY, "--vary", "options.server_lr=0.5,2", "--runs", "3", "--out", "run")
    assert answer.status == 0, answer.err
    assert answer.err == "a secret number of runs, 3 on average; nothing is shown before the end\n"
    told, summary = read("run", "tune.json"), read("run", "run.json")
    assert answer.out.startswith("auto: ")
    assert f"\nbest of 2 settings, by a noisy score of {told['score']:.4f}: server_lr " in answer.out
    assert told["runs_on_average"] == pytest.approx(3.0) and told["settings"] in told["candidates"]
    assert f"accuracy {summary['accuracy']:.4f} on public test data after 2 rounds" in answer.out
    world = summary["guarantees"]["client"]["world"]
    assert "(4, 1e-05)-differential privacy" in answer.out and world["text"] in answer.out
    assert "the best of a random number of runs (3 on average), each: Gaussian noise" in world["mechanism"]
    assert any("not how many, nor how long they took" in one for one in world["assumptions"])
    assert world["observer"].endswith("but not any run other than the best") and "No proven guarantee for" in answer.out
    assert 3.996 <= summary["epsilon"] <= 4.0 and summary["epsilon_server"] is None
    asked = read("run", "run.toml")
    assert asked["options"]["server_lr"] == told["settings"]["options.server_lr"]
    assert asked["resolved"]["noise_multiplier"] == summary["noise_multiplier"]
    assert "noise_multiplier" not in asked["options"]


def test_what_it_leaves_is_a_run_like_any_other(paid: Path, sfumato: Command) -> None:
    summary = read(paid, "run.json")
    answer = sfumato("evaluate", str(paid), "--json")
    assert answer.status == 0 and json.loads(answer.out)["accuracy"] == pytest.approx(summary["accuracy"])
    assert "the best of a random number of runs" in str(load(paid).guarantee)
    answer = sfumato("report", str(paid))
    assert answer.status == 0 and "the best of a random number of runs" in (paid / "report.html").read_text()
    answer = sfumato("ledger", str(paid), "--json")
    (reservation,) = json.loads(answer.out)["reservations"]
    assert reservation["settled"] and not reservation["seeded"]
    assert json.loads(answer.out)["spent"]["client"]["world"]["epsilon"] == pytest.approx(summary["epsilon"])
    assert "1 round recorded, 0 interrupted" in sfumato("ledger", str(paid), "--check").out


def test_it_is_not_gone_on_with_but_its_settings_are(paid: Path, sfumato: Command) -> None:
    answer = sfumato("train", "--resume", str(paid))
    assert answer.status == 2 and "it holds the best of a secret number of runs" in answer.err
    assert f"sfumato train --config {paid / 'run.toml'}" in answer.err
    assert sfumato("train", "--resume", str(paid), "--rounds", "9").status == 2
    answer = sfumato("train", "--config", str(paid / "run.toml"), "--quiet", "--out", "again")
    assert answer.status == 0 and read("again", "run.json")["epsilon"] <= 4.0
    noise = [read(folder, "run.json")["noise_multiplier"] for folder in ("again", paid)]
    assert noise[0] < noise[1], "one run needs less of it"


def test_quiet_and_json(sfumato: Command, paid: Path) -> None:
    answer = sfumato(*PAY, "--vary", "options.server_lr=1", "--json", "--seed", "3", "--out", "one")
    assert answer.status == 0 and answer.err == "" and json.loads(answer.out) == read("one", "run.json")
    answer = sfumato(*PAY, "--vary", "options.server_lr=1", "--quiet", "--seed", "3", "--out", "two")
    assert answer == (0, "", "") and read("two", "tune.json") == read("one", "tune.json")
    assert "tune.json" not in (paid / "report.html").read_text()


def test_on_a_proxy(sfumato: Command, tmp_path: Path) -> None:
    write_libsvm(tmp_path / "usps")
    words = [
        "tune",
        "--proxy",
        "usps",
        "--data-dir",
        str(tmp_path),
        *COMMON,
        "--records-per-client",
        "2",
        "--seed",
        "0",
    ]
    answer = sfumato(*words, "--vary", "options.server_lr=0.01,2", "--vary", "rounds=2,3", "--out", "run")
    assert answer.status == 0, answer.err
    tried = [line for line in answer.err.splitlines() if " on usps: server_lr " in line]
    assert len(tried) == 4
    best = max(tried, key=lambda line: float(line.split()[0])).partition(": ")[2]
    assert f"best on usps, which cost nothing: {best}\n" in answer.out
    asked, summary = read("run", "run.toml"), read("run", "run.json")
    assert best == f"server_lr {asked['options']['server_lr']}, rounds {asked['rounds']}"
    assert asked["data"]["name"] == "digits" and asked["data"]["clients"] == 30 and not Path("run/tune.json").exists()
    assert summary["epsilon"] <= 4.0 and "random number of runs" not in summary["guarantee"], "the choice was free"
    answer = sfumato("train", "--resume", "run", "--rounds", "4", "--quiet")
    assert answer.status == 3, "the budget is spent"
    as_json = sfumato(*words, "--vary", "options.server_lr=2", "--json", "--out", "json")
    assert as_json.status == 0 and as_json.err == "" and json.loads(as_json.out)["epsilon"] <= 4.0
    quiet = sfumato(*words, "--vary", "options.server_lr=2", "--quiet", "--out", "quiet")
    assert quiet == (0, "", "")


def test_own_data_on_a_proxy(hers: Command) -> None:
    words = ["tune", "--epsilon", "4", "--data", "hers:client", "--outputs", "10", "--clients", "40", "--rounds", "2"]
    words += ["--seed", "0", "--vary", "options.server_lr=0.1,1"]
    answer = hers(*words, "--proxy", "digits", "--out", "run")
    assert answer.status == 0 and "best on digits, which cost nothing" in answer.out, answer.err
    answer = hers(*words, "--pay", "--quiet", "--out", "paid")
    assert answer.status == 0 and read("paid", "run.json")["accuracy"] is None, answer.err


def test_targets_that_are_no_classes(hers: Command) -> None:
    words = [
        "tune",
        "--epsilon",
        "4",
        "--data",
        "hers:numbers",
        "--outputs",
        "1",
        "--task",
        "regression",
        "--clients",
        "9",
    ]
    words += ["--ledger", "all.sqlite", "--out", "run"]
    answer = hers(*words, "--pay", "--vary", "options.server_lr=1")
    assert answer.status == 2 and "are no classes, so there is no share of right answers to choose by" in answer.err
    assert not Path("run").exists() and not Path("all.sqlite").exists()
    answer = hers(*words, "--pay")
    assert answer.status == 2 and "has no options.server_lr to vary. Say what to try" in answer.err
    answer = hers(*words, "--proxy", "digits", "--vary", "options.server_lr=1")
    assert (
        answer.status == 2
        and "--proxy digits has 10 classes for classification; the clients' records have 1 for" in answer.err
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--epsilon 4", "costs privacy. Give --proxy NAME, to choose on a public data set for free, or --pay"),
        ("--epsilon 4 --proxy usps --pay", "one of them, not both"),
        ("--epsilon 4 --proxy usps --runs 3", "--runs 3: with --proxy every setting is tried once"),
        ("--epsilon 4 --pay --runs 1", "1 runs on average: more than 1 is needed"),
        ("--epsilon 4 --proxy digits", "--proxy digits: clients of digits hold the same records"),
        ("--epsilon 4 --proxy digitz", "--proxy digitz: there is no such data set. Did you mean 'digits'?"),
        ("--epsilon 4 --pay --vary data.name=mnist", "--vary data.name=mnist: write rounds=30,60 or an option"),
        ("--epsilon 4 --pay --vary rounds=2,3", "must all cost the same"),
        ("--epsilon 4 --pay --vary options.noise_multiplier=1", "finds the noise that the whole selection needs"),
        ("--epsilon 4 --pay --noise-multiplier 1", "Give --epsilon, and no --noise-multiplier"),
        (
            "--epsilon 4 --pay --secure",
            "with --budgets, private-pca, --secure or --diagnostics nothing is built for it",
        ),
        (
            "--epsilon 4 --pay --diagnostics",
            "with --budgets, private-pca, --secure or --diagnostics nothing is built for it",
        ),
        ("dp-fedavg-shares --epsilon 4 --pay", "whoever adds up the rows sees every run, so it must be trusted"),
        ("dp-fedsgd --epsilon 4 --pay --vary options.lr=1,2", "whoever adds up the rows sees every run, so it must be"),
        ("fedavg --pay --vary options.lr=1,2", "Give --epsilon, and no --noise-multiplier"),
        ("--noise-multiplier 1 --pay --vary options.lr=1,2", "Give --epsilon"),
        ("--epsilon 4 --pay --seed 1 --ledger all.sqlite", "its noise comes from a seed"),
        ("--epsilon 4 --pay --budgets b.toml", "there is no option --budgets."),
        ("--epsilon 4 --pay --resume runs/a", "there is no option --resume."),
        ("--epsilon 4 --pay --auto", "there is no option --auto."),
    ],
)
def test_refusals_are_sentences_and_leave_nothing(words: str, said: str, sfumato: Command) -> None:
    common = ["--clients", "30", "--rounds", "2", "--features", "pixels,unit-norm:3"]
    answer = sfumato("tune", *words.split(), *common, "--out", "run")
    assert answer.status == 2 and said in answer.err and answer.out == "", answer.err
    assert not Path("run").exists()


def test_a_refusal_is_an_answer_for_programs_too(sfumato: Command) -> None:
    answer = sfumato("tune", "--epsilon", "4", "--json")
    assert answer.status == 2 and "costs privacy. Give --proxy NAME" in json.loads(answer.out)["refused"]


def test_a_shared_budget_stops_it_with_status_3(sfumato: Command) -> None:
    words = [*PAY, "--vary", "options.server_lr=1", "--quiet", "--ledger", "all.sqlite", "--out"]
    assert sfumato(*words, "one").status == 0
    assert sfumato("ledger", "all.sqlite", "--budget", "5", "--delta", "1e-5").status == 0
    answer = sfumato(*words, "two")
    assert answer.status == 3 and "budget" in answer.err and not Path("two").exists()


def test_help(sfumato: Command) -> None:
    answer = sfumato("tune", "--help")
    assert answer.status == 0
    for word in ("--proxy", "--pay", "--runs", "--vary", "--epsilon", "Choose"):
        assert word in answer.out
    for word in ("--resume", "--config", "--budgets"):
        assert word not in answer.out
    assert "tune" in sfumato("--help").out
