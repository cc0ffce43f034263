"""What the page is told: the numbers of the command line, and the truth about a run."""

from __future__ import annotations

import json
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.cli import run
from sfumato.ledger.ledger import Ledger
from sfumato.run.lock import Lock, is_held
from sfumato.ui import plan
from sfumato.ui.app import application
from sfumato.ui.folder import Runs
from tests.report.runs import TOML, lines, proven, summary
from tests.ui.asking import Asker
from tests.ui.conftest import ASKED

EVERYONE = {"population": 500, "rounds": 100}
SAMPLED = {"population": 1000, "rounds": 200, "rate": 0.05}


def _told(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*shlex.split(command)[1:], "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("asked", [EVERYONE, SAMPLED, {**SAMPLED, "delta": 1e-7}])
@pytest.mark.parametrize("noise", [0.7, 4.0])
def test_a_cost_is_the_one_that_account_prints(
    client: Asker, capsys: pytest.CaptureFixture[str], asked: dict[str, Any], noise: float
) -> None:
    found = client.get("/api/cost", params={**asked, "noise": noise}).json()
    told = _told(found["commands"]["account"], capsys)
    assert found["epsilon"] == told["epsilon"] and found["delta"] == told["delta"]
    assert run(shlex.split(found["commands"]["account"])[1:]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "epsilon" in first and found["epsilon_said"] in re.findall(r"[\d.e+-]*\d", first)


@pytest.mark.parametrize("asked", [EVERYONE, SAMPLED])
def test_the_noise_for_an_epsilon_is_the_one_that_plan_finds(
    client: Asker, capsys: pytest.CaptureFixture[str], asked: dict[str, Any]
) -> None:
    found = client.get("/api/cost", params={**asked, "epsilon": 2.0}).json()
    told = _told(found["commands"]["plan"], capsys)
    assert found["noise"] == told["noise_multiplier"] and found["epsilon"] == told["epsilon"] <= 2.0
    assert float(found["noise_said"]) >= found["noise"] and float(found["epsilon_said"]) >= found["epsilon"]


def test_the_run_that_it_shows_costs_what_it_says(folder: Path) -> None:
    trained, said = json.loads((folder / "real" / "run.json").read_text()), plan.cost(ASKED)
    event, price = (
        ASKED.setting.event(),
        Ledger(folder / "real" / "ledger.sqlite", None).price,
    )  # a shared ledger is adaptive
    assert trained["epsilon"] == price.epsilon(event, ASKED.delta) > said["epsilon"] and trained["delta"] == ASKED.delta


def test_the_curve_lies_just_under_the_one_that_curve_prints(client: Asker, capsys: pytest.CaptureFixture[str]) -> None:
    """Just under it, as lines are drawn between its points."""
    found = client.get("/api/attack", params={**SAMPLED, "noise": 1.0}).json()
    told = _told("sfumato curve --noise gaussian:1.0 --sample poisson:0.05 --rounds 200", capsys)["curves"][0]
    rates, theirs = np.array(told["false_positive_rate"]), np.array(told["false_negative_rate"])
    ours = np.interp(rates, found["false_alarms"], found["misses"])
    assert len(rates) > 80 and (ours <= theirs + 1e-12).all()
    assert (ours[:-2] >= theirs[2:] - 1e-9).all(), "each point takes the floor of the next, at most 0.02 further"
    best = max(
        (1 - rate - miss) / 2 + 0.5 for rate, miss in zip(rates, theirs, strict=True)
    )  # of the tests at these points
    assert best <= float(found["guess"].removesuffix("\xa0%")) / 100 <= best + 0.002
    assert float(found["found"].removesuffix("\xa0%")) / 100 >= 1 - theirs[1]  # at 0.01


def test_a_large_delta_has_a_caution_and_a_small_one_has_none(client: Asker) -> None:
    large = client.get("/api/cost", params={**EVERYONE, "noise": 5.0, "delta": 1 / 500}).json()["caution"]
    assert large.startswith("delta 0.002 is above 0.0002 = 1/(10 n) for n = 500 clients") and "--" not in large
    assert client.get("/api/cost", params={**EVERYONE, "noise": 5.0}).json()["caution"] == ""


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"noise": -1}, "must be positive"),
        ({"noise": "much"}, "noise much"),
        ({"noise": 1, "epsilon": 1}, "give the noise multiplier or the epsilon"),
        ({}, "give the noise multiplier or the epsilon"),
        ({"noise": 1, "rounds": 0}, "rounds"),
        ({"noise": 1, "rounds": 1.5}, "rounds 1.5"),
        ({"noise": 1, "population": 0}, "at least 1 client"),
        ({"noise": 1, "rate": 2}, "rate"),
        ({"noise": 1, "rate": 1e-300}, "rate 1e-300: at least 1e-12"),
        ({"noise": 1e100, "rounds": 100_000}, "noise 1e+100: at most 1e+12"),
        ({"noise": 1, "delta": 0}, "delta"),
        ({"epsilon": -1}, "epsilon"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(client: Asker, asked: dict[str, Any], words: str) -> None:
    for path in ("/api/cost", "/api/attack"):
        answer = client.get(path, params={**SAMPLED, **asked})
        assert answer.status_code == 200 and words in answer.json()["refused"]


def test_questions_that_cross_do_not_disturb_each_other() -> None:
    asked = [plan.Asked(1000, 50 + 10 * number, 0.05, noise=0.8) for number in range(4)]
    alone = [plan.attack.__wrapped__(one) for one in asked]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(plan.attack.__wrapped__, asked)) == alone


def test_what_is_served_names_no_other_place(client: Asker) -> None:
    served = ["/", "/report?run=first", "/report?run=first&run=group/second"]
    served += [f"/page/{name}" for name in re.findall(r'"(?:page|\.)/([\w.]+)"', client.get("/").text)]
    served += [f"/page/{name}.js" for name in ("ask", "chart", "plan", "runs", "compare", "ledgers")]
    assert len(served) == 13
    for path in served:
        answer = client.get(path)
        assert answer.status_code == 200
        assert "//" not in re.sub(r"(?m)(^|\s)//.*$|http://www.w3.org/2000/svg", "", answer.text), path


def test_a_finished_run_is_told_with_its_guarantee_and_its_audit(client: Asker) -> None:
    found = client.get("/api/run", params={"name": "first"}).json()
    assert found["state"] == "finished" and found["epsilon"] == "1.988" and found["accuracy"].startswith("90.")
    assert "differential privacy" in found["guarantee"] and "No contradiction" in found["audits"]
    assert found["curves"]["accuracy"]["xs"] == [float(round) for round in range(1, 41)]
    assert found["curves"]["epsilon"]["said"][-1] == "round 40: 1.988"
    second = client.get("/api/run", params={"name": "group/second"}).json()
    assert (
        second["epsilon"] == "none proven"
        and "Not private" in second["guarantee"]
        and second["curves"]["epsilon"] is None
    )


def test_a_run_is_told_as_it_is(tmp_path: Path) -> None:
    """Preparing, training, killed in the middle of a line, stopped, finished: each by its own name."""
    run = tmp_path / "mine"
    run.mkdir()
    (run / "run.toml").write_text(TOML)
    client, found = Asker(application(Runs.under(tmp_path))), [json.dumps(line) + "\n" for line in lines(40)]

    def told() -> tuple[str, int, str]:
        one = client.get("/api/run", params={"name": "mine"}).json()
        assert one["words"] and [row["state"] for row in client.get("/api/runs").json()["runs"]] == [one["state"]]
        return one["state"], one["round"], one["epsilon"]

    held = Lock(run)
    assert told() == ("preparing", 0, "–")
    (run / "metrics.jsonl").write_text("".join(found[:10]) + found[10][:20])
    assert told() == ("training", 10, "0.9939")
    assert client.get("/api/run", params={"name": "mine"}).json()["words"] == "Training: 30 rounds left."
    held.release()
    assert told() == ("unfinished", 10, "0.9939")
    (run / "run.json").write_text(json.dumps(summary(stopped="The budget is spent.", rounds=10)))
    assert told()[0] == "stopped"
    (run / "run.json").write_text(json.dumps(summary()))
    assert told() == ("finished", 10, "1.988")
    (run / "run.json").write_text("{")
    assert client.get("/api/runs").json()["runs"][0]["state"] == "unreadable"


def test_a_look_at_a_run_does_not_stop_it(tmp_path: Path) -> None:
    assert is_held(tmp_path) is False
    with ThreadPoolExecutor(2) as threads:
        looks = [threads.submit(lambda: [is_held(tmp_path) for _ in range(2000)]) for _ in range(2)]
        for _ in range(200):
            held = Lock(tmp_path)
            assert is_held(tmp_path) is True
            held.release()
    assert all(look.exception() is None for look in looks)


def test_a_config_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "run.toml").write_text(TOML)
    proven(tmp_path / "run")
    assert list(Runs.under(tmp_path).all()) == ["run"]


def test_a_ledger_is_told_in_the_words_of_the_command(
    client: Asker, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client.get("/api/ledgers").json() == ["shared: people.sqlite", "real"]
    for name, path, more in (("real", "real", {}), ("shared: people.sqlite", "people.sqlite", {"delta": 1e-4})):
        found = client.get("/api/ledger", params={"name": name, **more}).json()
        options = [word for option, value in more.items() for word in (f"--{option}", str(value))]
        assert run(["ledger", str(folder / path), *options]) == 0
        printed = capsys.readouterr().out
        assert all(one["text"] in printed for one in found["guarantees"]) and len(found["guarantees"]) == 3
        assert [f"run {run}: {words}" in printed for run, words in found["runs"]] == [True]
    unsaid = client.get("/api/ledger", params={"name": "shared: people.sqlite"}).json()
    assert "at which delta" in unsaid["refused"]
