"""`kill -9` at any moment: the run goes on to the same bits, within the same budget, and the ledger never says less."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from tests.engine.crash import Kill, metrics, reservations, stored, train

ROUNDS = 5
BUDGET = 4.0
WORDS = ["--rounds", str(ROUNDS), "--epsilon", str(BUDGET), "--clients", "40", "--epochs", "1", "--quiet"]
WORDS += ["--server-optimizer", "adam", "--sample", "poisson:0.25", "--clip", "1"]
RESERVE, SETTLE = "sfumato.ledger.ledger:Ledger.reserve", "sfumato.ledger.ledger:Ledger.settle"
CHECKPOINT, LINE = "sfumato.engine.simulation:Checkpoint.write", "sfumato.run.folder:Line.to_json"
COMPUTE, RENAME = "sfumato.engine.simulation:Simulation._serve", "os:replace"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed before its first round: its secret and its plan are fixed, and nothing is spent."""
    place = tmp_path_factory.mktemp("begun")
    assert train([*WORDS, "--out", "run"], place, Kill("before", RESERVE)) == -9
    assert reservations(place / "run") == 0
    return place / "run"


@pytest.fixture(scope="module")
def whole(begun: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, uninterrupted."""
    folder = copied(begun, tmp_path_factory.mktemp("whole"))
    assert train(["--resume", "run", "--quiet"], folder.parent) == 0
    assert reservations(folder) == ROUNDS
    return folder


def copied(begun: Path, place: Path) -> Path:
    return Path(shutil.copytree(begun, place / "run"))


def assert_same(folder: Path, whole: Path, rounds: int = ROUNDS) -> None:
    for name in ("params.safetensors", "checkpoint.safetensors"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    assert [line["round"] for line in metrics(folder)] == list(range(1, rounds + 1))
    assert metrics(folder) == metrics(whole)
    assert reservations(folder) == rounds
    summary = json.loads((folder / "run.json").read_text())
    assert summary["epsilon"] == json.loads((whole / "run.json").read_text())["epsilon"] <= BUDGET


@pytest.mark.parametrize(
    ("kill", "reserved", "kept"),
    [
        (Kill("before", RESERVE, 3), 2, 2),
        (Kill("after", RESERVE, 3), 3, 2),
        (Kill("after", COMPUTE, 2), 2, 1),
        (Kill("before", CHECKPOINT, 2), 2, 1),
        (Kill("before", RENAME, 3), 2, 1),  # the first is run.toml's; the others are one checkpoint each
        (Kill("after", RENAME, 3), 2, 2),
        (Kill("before", SETTLE, 4), 4, 4),
        (Kill("before", LINE, 1), 1, 1),
        (Kill("after", LINE, ROUNDS), ROUNDS, ROUNDS),
        (Kill("before", "sfumato.run.run:Run.finish"), ROUNDS, ROUNDS),
        (Kill("after", "sfumato.run.run:Run.finish"), ROUNDS, ROUNDS),
    ],
    ids=lambda value: (
        f"{value.when} {value.function.rpartition(':')[2]} {value.call}" if isinstance(value, Kill) else ""
    ),
)
def test_killed_at_each_stage(kill: Kill, reserved: int, kept: int, begun: Path, whole: Path, tmp_path: Path) -> None:
    folder = copied(begun, tmp_path)
    assert train(["--resume", "run", "--quiet"], tmp_path, kill) == -9
    assert (reservations(folder), stored(folder)) == (reserved, kept)
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert_same(folder, whole)


def test_killed_again_and_again_at_random(tmp_path: Path) -> None:
    kills, furthest, chosen = 7, 8, random.Random(7)
    rounds = (
        kills * furthest + 4
    )  # each kill comes in the round that its call is counted in, so some are left after all
    words = [*WORDS, "--rounds", str(rounds), "--noise-multiplier", "4", "--evaluate-every", "10"]
    assert train([*words, "--out", "run"], tmp_path, Kill("before", RESERVE), threads=2) == -9
    (tmp_path / "whole").mkdir()
    whole = copied(tmp_path / "run", tmp_path / "whole")
    assert train(["--resume", "run", "--quiet"], whole.parent, threads=2) == 0
    folder, before = tmp_path / "run", 0
    for _ in range(kills):
        stage = chosen.choice([RESERVE, COMPUTE, CHECKPOINT, RENAME, SETTLE, LINE])
        kill = Kill(chosen.choice(["before", "after"]), stage, chosen.randint(3, furthest))
        assert train(["--resume", "run", "--quiet"], tmp_path, kill, threads=2) == -9
        assert reservations(folder) >= max(before, stored(folder))
        before = reservations(folder)
    assert kills <= before < rounds, "every kill came in the middle"
    assert train(["--resume", "run", "--quiet"], tmp_path, threads=2) == 0
    assert_same(folder, whole, rounds)


def test_killed_runs_keep_every_clients_own_budget(tmp_path: Path) -> None:
    """In the middle of the last round of a client that stops early: that round is paid once, and the next goes without it."""
    own = '[[own]]\nclients = ["0-4"]\nepsilon = 1.0\n[[own]]\nclients = [7]\nepsilon = 2.5\nby = "rounds"\n'
    (tmp_path / "budgets.toml").write_text(f"[default]\nepsilon = {BUDGET}\ndelta = 1e-3\n{own}")
    words = [word for word in WORDS if word not in ("--epsilon", str(BUDGET))]
    assert train([*words, "--budgets", "budgets.toml", "--out", "run"], tmp_path, Kill("before", RESERVE)) == -9
    (tmp_path / "whole").mkdir()
    whole, folder = copied(tmp_path / "run", tmp_path / "whole"), tmp_path / "run"
    assert train(["--resume", "run", "--quiet"], whole.parent) == 0
    spent = json.loads((whole / "run.json").read_text())["budgets"]
    (last,) = [line["last_round"] for line in spent if line["last_round"] is not None]
    assert 1 <= last < ROUNDS and all(line["spent"] <= line["epsilon"] for line in spent)
    assert train(["--resume", "run", "--quiet"], tmp_path, Kill("after", COMPUTE, last)) == -9
    assert (reservations(folder), stored(folder)) == (last, last - 1)
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert_same(folder, whole)
    assert json.loads((folder / "run.json").read_text())["budgets"] == spent


def test_a_torn_line_is_written_again(begun: Path, whole: Path, tmp_path: Path) -> None:
    folder = copied(begun, tmp_path)
    assert train(["--resume", "run", "--quiet"], tmp_path, Kill("after", SETTLE, 3)) == -9
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "epsi')
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert_same(folder, whole)


@pytest.mark.parametrize(
    "kill",
    [
        Kill("after", RENAME, 1),  # run.toml
        Kill("after", RENAME, 2),  # secret.key
        Kill("after", "sfumato.engine.simulate:Ledger"),
        Kill("before", RENAME, 3),  # the first checkpoint
        Kill("after", RENAME, 3),
    ],
    ids=lambda kill: f"{kill.when} {kill.function.rpartition(':')[2]} {kill.call}",
)
def test_killed_while_it_is_set_up(kill: Kill, tmp_path: Path) -> None:
    assert train([*WORDS, "--out", "run"], tmp_path, kill) == -9
    assert train([*WORDS, "--out", "run"], tmp_path) == 2, "an existing folder is never overwritten"
    assert train(["--resume", "run", "--quiet"], tmp_path) == 0
    assert [line["round"] for line in metrics(tmp_path / "run")] == list(range(1, ROUNDS + 1))
    assert reservations(tmp_path / "run") == ROUNDS


def test_data_that_may_have_changed_are_paid_for_again_and_stop_at_the_budget(tmp_path: Path) -> None:
    (tmp_path / "hers.py").write_text(
        "import torch\ndef client(number):\n    return torch.full((3, 4), float(number)), torch.tensor([0, 1, 0])\n"
    )
    words = ["--data", "hers:client", "--outputs", "2", "--clients", "30", "--rounds", "3", "--epsilon", "3", "--quiet"]
    assert train([*words, "--out", "run"], tmp_path, Kill("after", COMPUTE, 2)) == -9
    assert train(["--resume", "run", "--quiet"], tmp_path) == 3
    folder = tmp_path / "run"
    assert [line["round"] for line in metrics(folder)] == [1, 2]
    assert reservations(folder) == 3
    summary = json.loads((folder / "run.json").read_text())
    assert summary["rounds"] == 2 and summary["stopped"]
    assert metrics(folder)[-1]["epsilon"] == summary["epsilon"] <= 3


def test_a_ledger_that_lost_rounds_is_refused(begun: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = copied(begun, tmp_path)
    assert train(["--resume", "run", "--quiet"], tmp_path, Kill("before", RESERVE, 3)) == -9
    for file in folder.glob("ledger.sqlite*"):
        file.unlink()
    assert train(["--resume", "run", "--quiet"], tmp_path) == 2
    assert stored(folder) == 2
