"""The files that `sfumato deploy` writes, and what it refuses; `sfumato node key`."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="sfumato[flower] is not installed")

from sfumato.cli import run
from sfumato.federation.certificates import private_folder
from sfumato.federation.settings import read_registry
from sfumato.federation.terms import Terms
from sfumato.run.folder import Lock

pytestmark = pytest.mark.processes

OWN = ["--data", "patients", "--input-shape", "30", "--outputs", "2", "--rounds", "4", "--delta", "1e-5"]
RECORDS = ["dp-fedsgd", "--records", "230", "--batch", "everyone", "--clip", "1", "--epsilon", "2"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_node_would_take_part_in_the_run_that_was_deployed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", *RECORDS, "--nodes", "2", *OWN, "--host", "10.1.2.3"]) == 0
    home = here / "federation" / "node-2"
    assert {path.name for path in home.iterdir()} == {
        "authority.pem", "data", "node.key", "node.signs", "node.toml", "registry.toml", "terms.json"
    }  # fmt: skip
    assert tomllib.loads((home / "node.toml").read_text())["server"]["address"] == "10.1.2.3:9092"
    assert tomllib.loads((home / "node.toml").read_text())["records"] == {
        "task": "classification", "outputs": 2, "input_shape": [30], "input_type": "float32", "target_shape": [],
        "target_type": "int64",
    }  # fmt: skip
    capsys.readouterr()
    assert run(["node", "check", "--config", str(home / "node.toml"), "--terms", str(home / "terms.json")]) == 0
    assert capsys.readouterr().out == "allowed\n"
    assert Terms.read((home / "terms.json").read_text()).clients == 2
    text = (here / "federation" / "README.md").read_text()
    assert "sfumato node --config node-2/node.toml" in text and "sfumato server --config server/run.toml" in text
    for path in (here / "federation", home, home / "node.key", home / "node.signs", home.parent / "authority"):
        assert not path.stat().st_mode & 0o077, path


def test_a_budget_that_is_too_small_is_said_in_one_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", *RECORDS, "--nodes", "2", *OWN]) == 0
    home = here / "federation" / "node-1"
    config = home / "node.toml"
    config.write_text(config.read_text().replace("epsilon = 2.0", "epsilon = 0.5"))
    capsys.readouterr()
    words = ["node", "check", "--config", str(config), "--terms", str(home / "terms.json")]
    assert run(words) == 3
    out = capsys.readouterr().out
    assert out.startswith("refused.epsilon: ") and out.endswith(".\n") and ".." not in out
    assert run([*words, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["refused"][0]["code"] == "refused.epsilon"


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (["--nodes", "1", *OWN], "at least 2 nodes"),
        (["--nodes", "2", "--local", "2"], "give --nodes N"),
        (["--nodes", "2", "--data", "patients"], "--input-shape 30"),
        (["--nodes", "2", "--data", "patients", "--input-shape", "30"], "Give --outputs"),
        (["dp-sgd", "--nodes", "3"], "one trusted holder"),
        (["--nodes", "3", "--power", "lazy"], "follows the protocol"),
        (["udp-fl", "--shuffle", "--nodes", "3"], "a shuffler is simulated only"),
        (["dp-fedavg-shares", "--nodes", "4", "--sample", "everyone"], "Add --secure"),
        (
            ["dp-fedavg-shares", "--secure", "--nodes", "4", "--sample", "fixed:2", "--power", "active"],
            "--sample everyone",
        ),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], because: str
) -> None:
    assert run(["deploy", *words]) == 2
    assert because in capsys.readouterr().err
    assert not list(here.iterdir())


def test_a_folder_with_something_in_it_is_never_overwritten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "federation").mkdir()
    (here / "federation" / "kept").write_text("mine")
    assert run(["deploy", "--nodes", "2", *OWN]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert os.listdir(here / "federation") == ["kept"]


def test_keys_of_an_owner_are_a_table_of_the_registry(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["node", "key", "node.key", "--name", "clinic"]) == 0
    (here / "registry.toml").write_text(capsys.readouterr().out)
    (member,) = read_registry(here / "registry.toml")
    assert member.name == "clinic" and len(member.signs) == 64
    (here / "node.key").unlink()
    assert run(["node", "key", "node.key"]) == 2  # the other half is there still
    assert "node.signs is there already" in capsys.readouterr().err
    assert run(["node", "key"]) == 2
    assert "e.g. node.key" in capsys.readouterr().err


def test_two_processes_cannot_be_the_same_node(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", *RECORDS, "--nodes", "2", *OWN]) == 0
    home = here / "federation" / "node-1"
    held = Lock(private_folder(home / "flower"))
    assert run(["node", "--config", str(home / "node.toml")]) == 2
    assert "another sfumato node is running in" in capsys.readouterr().err
    held.release()
