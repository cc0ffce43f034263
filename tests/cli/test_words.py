"""What commands print: the headline first, words whole at any width, a name in the wrong place told where it belongs."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer

from sfumato.commands import paragraphs
from sfumato.commands.app import app
from sfumato.commands.paragraphs import wrapped
from sfumato.guarantee import PUBLIC
from sfumato.recipes import RECIPES
from sfumato.recipes.sentences import SENTENCES
from tests.cli.conftest import ROUND, SMALL, Command
from tests.patience import PATIENCE

HEAD = f"for each client, add/remove, against {PUBLIC}, but not who took part in them"


class Terminal:
    """Standard error, or output, is a terminal, a real one; what it was sent can be read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ours, theirs = os.openpty()
        self.stream, self._text = os.fdopen(theirs, "w"), ""
        threading.Thread(
            target=self._read, daemon=True
        ).start()  # who writes would wait for a terminal that nobody reads
        self._patch = monkeypatch

    def begin(self, name: str = "stderr") -> None:
        """Called in the test itself: before it begins, pytest puts its own streams in place."""
        self._patch.setattr(sys, name, self.stream)
        self._patch.setenv("TERM", "xterm")
        self._patch.setenv("COLUMNS", "200")

    def _read(self) -> None:
        with suppress(OSError):  # the other end was closed
            while found := os.read(self.ours, 4096):
                self._text += found.decode(errors="replace")

    def said(self) -> str:
        """All that it was sent since the last time."""
        print("<end>", file=self.stream, flush=True)
        deadline = time.monotonic() + PATIENCE
        while "<end>" not in self._text and time.monotonic() < deadline:
            time.sleep(0.01)
        said, _, self._text = self._text.partition("<end>")
        return said.lstrip("\r\n")


@pytest.fixture
def terminal(sfumato: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    found = Terminal(monkeypatch)
    yield found
    found.stream.close()


def test_a_run_ends_with_its_headline_and_then_what_it_means(sfumato: Command) -> None:
    answer = sfumato("train", *SMALL, "--delta", "1e-3", "--out", "run")
    after = answer.out.splitlines()
    facts = json.loads(Path("run/run.json").read_text())
    world = facts["guarantees"]["client"]["world"]
    assert after[1].startswith("accuracy ") and after[2] == world["headline"] and after[3] == ""
    assert after[2].startswith("epsilon = 0.") and after[2].endswith(HEAD)
    assert "\n".join(after[4:]).startswith(facts["guarantee"] + "\n\n" + facts["guarantee_server"] + "\n\n")
    inside = facts["guarantees"]["record"]["world"]
    assert inside["whole_client"] and inside["epsilon"] > world["epsilon"]
    assert after[-2].startswith("The replace bound of a whole client also bounds any change inside it")


def test_two_views_that_are_alike_are_told_once(sfumato: Command) -> None:
    words = ["--rounds", "1", "--records", "5", "--records-per-client", "5", "--batch", "fixed:2", "--clients", "20"]
    answer = sfumato("train", "prifedsync", *words, "--noise-multiplier", "2")
    assert answer.out.count("differential privacy") == 1
    assert answer.out.count(f"against {PUBLIC}, the server included, but not which records were drawn") == 1
    baseline = sfumato("train", "fedavg", "--rounds", "1", "--clients", "20")
    assert baseline.out.count("this is the baseline without privacy") == 1


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_word_is_broken_and_no_line_is_too_long(
    sfumato: Command, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    words = ["account", "--noise", "gaussian:1", "--sample", "poisson:0.05", "--rounds", "20", "--delta", "1e-5"]
    monkeypatch.setenv("COLUMNS", str(width))
    whole = sfumato(*words).out
    assert max(map(len, whole.splitlines())) > 100, "what is no terminal has no width"
    terminal.begin("stdout")
    monkeypatch.setenv("COLUMNS", str(width))
    sfumato(*words)
    shown = terminal.said()
    assert max(map(len, shown.splitlines())) <= width
    assert shown.split() == whole.split()


def test_what_hangs_over_stands_under_its_column() -> None:
    assert (
        wrapped("  unit   one client of those that there are", 30)
        == "  unit   one client of those\n         that there are"
    )
    assert wrapped("a/very/long/path/that/has/no/end/at/all", 20) == "a/very/long/path/that/has/no/end/at/all"
    assert paragraphs.columns(False) is None


ERASED = "preparing ...\r\x1b[K"


def test_preparing_is_said_at_once_and_taken_back(sfumato: Command, terminal: Terminal) -> None:
    terminal.begin()
    answer = sfumato("train", *SMALL, "--out", "run")
    said = terminal.said()
    assert said.startswith(ERASED) and said.count(ERASED) == said.count("preparing") == 2
    assert "3/3" in said and "preparing" not in answer.out
    for silent in ("--quiet", "--json"):
        assert sfumato("train", *SMALL, silent, "--out", silent).status == 0
    assert terminal.said() == ""


def test_preparing_is_taken_back_before_a_refusal(
    sfumato: Command, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.begin()
    sfumato("train", "--epsilon", "-1")
    assert terminal.said().startswith(f"{ERASED}sfumato: epsilon=-1")
    monkeypatch.setenv("TERM", "dumb")  # it cannot erase, so it gets a line
    sfumato("train", "--epsilon", "-1")
    assert terminal.said().startswith("preparing ...\r\nsfumato: epsilon=-1")


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("train mnist", "--data mnist"),
        ("train minst", "--data mnist"),
        ("train cnn-mnist", "--model cnn-mnist"),
        ("train char-lstm:64", "--model char-lstm:64"),
        ("train hers:clients", "--data hers:clients"),
        ("train dp-fedavgg", "'dp-fedavg'"),
        ("train --data dp-fedavg", "sfumato train dp-fedavg"),
        ("train --data cnn-mnist", "--model cnn-mnist"),
        ("train --model mnist", "--data mnist"),
        ("train --model fedavg", "sfumato train fedavg"),
        ("explain mnist", "--data mnist"),
        ("dp-fedavg", "'sfumato train dp-fedavg'"),
        ("tran", "'train'"),
        ("train --eps 2", "'--epsilon'"),
        ("train --noise_multiplier 2", "'--noise-multiplier'"),
        ("plan --bogus", "no option --bogus. See"),
        ("explain dp-fedavg --keep 0.5", "no option --keep"),
    ],
)
def test_a_name_in_the_wrong_place_is_told_where_it_belongs(sfumato: Command, words: str, instead: str) -> None:
    answer = sfumato(*words.split())
    assert answer.status == 2 and instead in answer.err, answer.err
    assert not Path("runs").exists()


def _commands(command: Any, path: str = "sfumato") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")


def test_every_option_of_every_command_has_a_sentence() -> None:
    found = list(_commands(typer.main.get_command(app)))
    assert len(found) > 15
    for path, command in found:
        assert command.help, path
        for option in command.params:
            words = str(getattr(option, "help", None) or "")
            assert option.name == "help" or (" " in words and words.endswith(".")), f"{path} {option.opts}: {words!r}"


def test_every_option_of_every_recipe_has_a_sentence_and_no_sentence_is_left_over() -> None:
    names = {name for recipe in RECIPES.values() for name in recipe.options}
    assert names == set(SENTENCES)
    assert all(words.endswith(".") and len(words.split()) > 2 for words in SENTENCES.values())


def test_explain_and_train_and_account_say_the_same(sfumato: Command) -> None:
    options = [*ROUND, "--rounds", "3", "--delta", "1e-3"]
    explained = json.loads(sfumato("explain", "dp-fedavg", *options, "--json").out)
    trained = json.loads(sfumato("train", "dp-fedavg", *options, "--json").out)
    words = "account --noise gaussian:2 --sample poisson:0.25 --rounds 3 --delta 1e-3 --json"
    account = json.loads(sfumato(*words.split()).out)
    assert explained["guarantees"]["client"]["world"]["epsilon"] == trained["epsilon"] == account["epsilon"]
    for unit in ("client", "record"):
        ours, theirs = (found["guarantees"][unit]["world"]["epsilon"] for found in (explained, trained))
        assert ours == theirs
    for name in ("derivation", "assumptions", "sensitivity", "stddev", "noise_multiplier", "clip", "relation", "unit"):
        assert explained[name] == trained[name], name
    assert explained["events"]["world"]["event"]["type"] == "PoissonSampled" and explained["events"]["server"] is None
    other = json.loads(
        sfumato("explain", "dp-fedavg", *options, "--clip", "9", "--noise-multiplier", "1", "--json").out
    )
    assert other["guarantees"]["client"]["world"]["epsilon"] > trained["epsilon"], "options are used"


def test_explain_finds_the_noise_that_train_finds(sfumato: Command) -> None:
    options = [
        "--clients",
        "40",
        "--sample",
        "everyone",
        "--rounds",
        "3",
        "--delta",
        "1e-3",
        "--epsilon",
        "1.5",
        "--json",
    ]
    explained = json.loads(sfumato("explain", "dp-fedavg", *options).out)
    trained = json.loads(sfumato("train", "dp-fedavg", *options).out)
    assert explained["noise_multiplier"] == trained["noise_multiplier"]
    assert explained["guarantees"]["client"]["world"]["epsilon"] == trained["epsilon"]
    assert explained["options"]["noise_multiplier"]["value"] == trained["noise_multiplier"]
    refused = sfumato("explain", "dp-fedavg", "--epsilon", "1", "--noise-multiplier", "1", "--json")
    assert refused.status == 2 and "exclude each other" in json.loads(refused.out)["refused"]
    assert "nothing is proven" in sfumato("explain", "fedavg", "--epsilon", "1").err


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_what_explain_says_to_programs_is_what_it_says_to_people(sfumato: Command, recipe: str) -> None:
    found, shown = (
        json.loads(sfumato("explain", recipe, "--rounds", "2", "--json").out),
        sfumato("explain", recipe, "--rounds", "2"),
    )
    assert found["headline"] in shown.out
    assert all(step["piece"] in shown.out and step["states"] in shown.out for step in found["derivation"])
    assert all(one["help"] in shown.out for one in found["options"].values())
