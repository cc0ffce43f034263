"""`kill -9` at any moment: what was shown stays, every round that was begun counts, and the budget holds.

A seeded run, which is a simulation, continues to the same bits. Any other draws fresh noise: at most the one round in which it was
killed is begun, and counted, again.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from sfumato.engine.checkpoint import Checkpoint
from sfumato.ledger.ledger import Ledger
from tests.engine.crash import Kill, metrics, reservations, stored, train

ROUNDS = 5
BUDGET = 4.0
WORDS = ["--rounds", str(ROUNDS), "--epsilon", str(BUDGET), "--clients", "40", "--epochs", "1", "--quiet"]
WORDS += ["--server-optimizer", "adam", "--sample", "poisson:0.25", "--clip", "1"]
SEEDED = [*WORDS, "--seed", "3"]
RESERVE, SETTLE = "sfumato.ledger.ledger:Ledger.reserve", "sfumato.ledger.ledger:Ledger.settle"
STORE, LINE = "sfumato.engine.simulation:Checkpoint.write", "sfumato.run.folder:Line.to_json"
COMPUTE, FINISH = "sfumato.engine.simulation:Simulation._serve", "sfumato.run.run:Run.finish"
INTERRUPTED = "what interrupted the run"  # begins the assumption that a run with interrupted rounds makes


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed before its first round: its noise and its plan are fixed, and nothing is spent."""
    place = tmp_path_factory.mktemp("begun")
    assert train([*WORDS, "--out", "run"], place, Kill("before", RESERVE)) == -9
    assert reservations(place / "run") == 0
    return place / "run"


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for a simulation."""
    place = tmp_path_factory.mktemp("seeded")
    assert train([*SEEDED, "--out", "run"], place, Kill("before", RESERVE)) == -9
    return place / "run"


@pytest.fixture(scope="module")
def whole(seeded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That simulation, uninterrupted."""
    folder = copied(seeded, tmp_path_factory.mktemp("whole"))
    assert train(["--resume", "run", "--quiet"], folder.parent) == 0
    assert reservations(folder) == ROUNDS
    return folder


def copied(begun: Path, place: Path) -> Path:
    return Path(shutil.copytree(begun, place / "run"))


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run.json").read_text()))


def assert_same(folder: Path, whole: Path, rounds: int = ROUNDS) -> None:
    """To the bit, with one reservation for each round."""
    assert (folder / "params.safetensors").read_bytes() == (whole / "params.safetensors").read_bytes()
    one, other = Checkpoint.read(folder), Checkpoint.read(whole)
    assert one is not None and other is not None and one.params.equal(other.params)
    assert (
        all(one.state[name].equal(value) for name, value in other.state.items())
        and one.state.keys() == other.state.keys()
    )
    assert [line["round"] for line in metrics(folder)] == list(range(1, rounds + 1))
    assert metrics(folder) == metrics(whole)
    assert reservations(folder) == rounds
    assert summary(folder)["epsilon"] == summary(whole)["epsilon"] <= BUDGET


def assert_sound(folder: Path, shown: list[dict[str, Any]], interrupted: int, rounds: int = ROUNDS) -> None:
    """What was shown before stands; all rounds that were begun are in an unbroken ledger and within the budget."""
    found, ledger = summary(folder), Ledger(folder / "ledger.sqlite", None)
    assert metrics(folder)[: len(shown)] == shown
    assert [line["round"] for line in metrics(folder)] == list(range(1, rounds - interrupted + 1))
    assert ledger.rounds == rounds and ledger.damage() == []
    assert found["epsilon"] <= BUDGET and found["rounds"] == rounds - interrupted == stored(folder)
    assert bool(found["stopped"]) == bool(interrupted)
    assert any(INTERRUPTED in one for one in found["assumptions"]) == bool(interrupted)


STAGES = [
    (Kill("before", RESERVE, 3), 2, 2),
    (Kill("after", RESERVE, 3), 3, 2),
    (Kill("after", COMPUTE, 2), 2, 1),
    (Kill("before", STORE, 2), 2, 1),
    (Kill("before", SETTLE, 4), 4, 3),
    (Kill("after", SETTLE, 4), 4, 4),
    (Kill("before", LINE, 1), 1, 1),
    (Kill("after", LINE, ROUNDS), ROUNDS, ROUNDS),
    (Kill("before", FINISH), ROUNDS, ROUNDS),
    (Kill("after", FINISH), ROUNDS, ROUNDS),
]


def named(value: object) -> str:
    return f"{value.when} {value.function.rpartition(':')[2]} {value.call}" if isinstance(value, Kill) else ""


@pytest.mark.parametrize(("kill", "reserved", "kept"), STAGES, ids=named)
def test_killed_at_each_stage(kill: Kill, reserved: int, kept: int, begun: Path, tmp_path: Path) -> None:
    folder = copied(begun, tmp_path)
    assert train(["--resume", "run", "--quiet"], tmp_path, kill) == -9
    assert (reservations(folder), stored(folder)) == (reserved, kept)
    shown = metrics(folder) if (folder / "metrics.jsonl").exists() else []
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert_sound(folder, shown, reserved - kept)


@pytest.mark.parametrize(("kill", "reserved", "kept"), STAGES[1:5], ids=named)
def test_a_simulation_that_is_killed_continues_to_the_same_bits(
    kill: Kill, reserved: int, kept: int, seeded: Path, whole: Path, tmp_path: Path
) -> None:
    folder = copied(seeded, tmp_path)
    assert train(["--resume", "run", "--quiet"], tmp_path, kill) == -9
    assert (reservations(folder), stored(folder)) == (reserved, kept)
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert_same(folder, whole)


def test_planned_restarts_leave_room_for_interruptions(tmp_path: Path) -> None:
    assert train([*WORDS, "--restarts", "2", "--out", "run"], tmp_path, Kill("after", COMPUTE, 2)) == -9
    assert train(["--resume", "run", "--quiet"], tmp_path, Kill("after", COMPUTE, 2)) == -9
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    found = summary(tmp_path / "run")
    assert (found["rounds"], found["stopped"]) == (ROUNDS, "") and found["epsilon"] <= BUDGET
    assert reservations(tmp_path / "run") == ROUNDS + 2
    assert found["epsilon"] > 0.99 * BUDGET, "no room is left over"


def test_killed_again_and_again_at_random(tmp_path: Path) -> None:
    kills, furthest, chosen = 7, 8, random.Random(7)
    rounds = (
        kills * furthest + 4
    )  # each kill comes in the round that its call is counted in, so some are left after all
    words = [*WORDS, "--rounds", str(rounds), "--noise-multiplier", "9", "--evaluate-every", "10"]
    assert train([*words, "--out", "run"], tmp_path, Kill("before", RESERVE), threads=2) == -9
    folder, before, shown = tmp_path / "run", 0, list[dict[str, Any]]()
    for _ in range(kills):
        stage = chosen.choice([RESERVE, COMPUTE, STORE, SETTLE, LINE])
        kill = Kill(chosen.choice(["before", "after"]), stage, chosen.randint(3, furthest))
        assert train(["--resume", "run", "--quiet"], tmp_path, kill, threads=2) == -9
        assert reservations(folder) >= max(before, stored(folder))
        before = reservations(folder)
        assert metrics(folder)[: len(shown)] == shown
        shown = metrics(folder)
    assert kills <= before < rounds, "every kill came in the middle"
    assert train(["--resume", "run", "--quiet"], tmp_path, threads=2) == 0
    assert metrics(folder)[: len(shown)] == shown and len(metrics(folder)) == rounds
    assert rounds <= reservations(folder) <= rounds + kills, "at most one round for each kill"
    assert Ledger(folder / "ledger.sqlite", None).damage() == [] and summary(folder)["epsilon"] <= BUDGET


def test_killed_runs_keep_every_clients_own_budget(tmp_path: Path) -> None:
    """In the middle of the last round of a client that stops early: that round counts twice, and no budget is passed."""
    own = '[[own]]\nclients = ["0-4"]\nepsilon = 1.0\n[[own]]\nclients = [7]\nepsilon = 2.5\nby = "rounds"\n'
    (tmp_path / "budgets.toml").write_text(f"[default]\nepsilon = {BUDGET}\ndelta = 1e-3\n{own}")
    words = [word for word in WORDS if word not in ("--epsilon", str(BUDGET))]
    assert train([*words, "--budgets", "budgets.toml", "--out", "run"], tmp_path, Kill("before", RESERVE)) == -9
    (tmp_path / "whole").mkdir()
    whole, folder = copied(tmp_path / "run", tmp_path / "whole"), tmp_path / "run"
    assert train(["--resume", "run", "--quiet"], whole.parent) == 0
    spent = summary(whole)["budgets"]
    (last,) = [line["last_round"] for line in spent if line["last_round"] is not None]
    assert 1 <= last < ROUNDS and all(line["spent"] <= line["epsilon"] for line in spent)
    assert train(["--resume", "run", "--quiet"], tmp_path, Kill("after", COMPUTE, last)) == -9
    assert (reservations(folder), stored(folder)) == (last, last - 1)
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert summary(folder)["stopped"] and all(line["spent"] <= line["epsilon"] for line in summary(folder)["budgets"])


def test_a_torn_line_is_written_again(seeded: Path, whole: Path, tmp_path: Path) -> None:
    folder = copied(seeded, tmp_path)
    assert train(["--resume", "run", "--quiet"], tmp_path, Kill("after", SETTLE, 3)) == -9
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "epsi')
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert_same(folder, whole)


@pytest.mark.parametrize(
    "kill",
    [
        Kill("after", "os:replace", 1),  # run.toml
        Kill("after", "sfumato.engine.simulate:Ledger"),
        Kill("before", STORE, 1),  # the first checkpoint, of no round
        Kill("after", STORE, 1),
        Kill("before", "os:replace", 2),  # run.toml, with what was found
    ],
    ids=named,
)
def test_killed_while_it_is_set_up(kill: Kill, tmp_path: Path) -> None:
    assert train([*WORDS, "--out", "run"], tmp_path, kill) == -9
    assert train([*WORDS, "--out", "run"], tmp_path) == 2, "an existing folder is never overwritten"
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert [line["round"] for line in metrics(tmp_path / "run")] == list(range(1, ROUNDS + 1))
    assert reservations(tmp_path / "run") == ROUNDS


@pytest.mark.parametrize("lost", ["ledger.sqlite", "an older copy"])
def test_a_ledger_that_lost_rounds_is_refused(lost: str, begun: Path, tmp_path: Path) -> None:
    folder = copied(begun, tmp_path)
    assert train(["--resume", "run", "--quiet"], tmp_path, Kill("before", RESERVE, 3)) == -9
    for file in folder.glob("ledger.sqlite*"):
        file.unlink()
    if lost == "an older copy":
        shutil.copy(begun / "ledger.sqlite", folder)
    for _ in range(2):
        assert train(["--resume", "run", "--quiet"], tmp_path) == 2
        assert len(metrics(folder)) == 2
