"""Data that come with clients of their own, from the command line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.data.files import play, write_play

WORDS = ["--data", "shakespeare", "--data-dir", "data", "--clients", "6", "--sample", "poisson:0.5", "--rounds", "2"]
SMALL = [*WORDS, "--model", "char-lstm:8x1", "--records-per-client", "20", "--epochs", "1", "--noise-multiplier", "1"]


@pytest.fixture
def here(sfumato: Command, tmp_path: Path) -> Command:
    write_play(tmp_path / "data", play())
    return sfumato


def test_roles_are_the_clients_by_default(here: Command) -> None:
    answer = here("train", *SMALL, "--out", "run")
    assert answer.status == 0, answer.err
    summary = json.loads(Path("run/run.json").read_text())
    assert summary["data"] == "shakespeare/natural/6x20" and (summary["input_shape"], summary["outputs"]) == ([80], 80)
    assert set(summary["metrics"]) == {"loss", "accuracy"} and 0 <= summary["accuracy"] <= 1
    asked = tomllib.loads(Path("run/run.toml").read_text())["data"]
    assert (asked["split"], asked["task"]) == ("natural", "next-character")
    again = here("evaluate", "run", "--json")
    assert json.loads(again.out)["accuracy"] == pytest.approx(summary["accuracy"])


def test_other_splits_can_be_asked_for(here: Command) -> None:
    answer = here("train", *SMALL, "--split", "iid", "--out", "run")
    assert answer.status == 0, answer.err
    assert json.loads(Path("run/run.json").read_text())["data"] == "shakespeare/iid/6x20"


def test_more_clients_than_roles_are_refused(here: Command) -> None:
    answer = here("train", *SMALL, "--clients", "9", "--out", "run")
    assert answer.status != 0 and "8 of its own" in answer.err and not Path("run").exists()


def test_a_model_of_pictures_is_refused(here: Command) -> None:
    answer = here("train", *SMALL, "--model", "cnn-mnist", "--out", "run")
    assert answer.status != 0 and "cnn-mnist takes images" in answer.err
