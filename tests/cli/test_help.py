"""Help in terminals of any width: whole, and no wider than they are."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.patience import PATIENCE

COMMANDS = ("deploy", "server", "node", "node check", "node key")
OTHERS = (
    "train", "tune", "recipes", "explain", "evaluate", "audit", "report", "account", "plan", "curve", "ledger", "reproduce",
)  # fmt: skip


@pytest.mark.parametrize("columns", ["60", "80", "100"])
def test_help_of_all_other_commands_is_whole(columns: str) -> None:
    """In one process, as it takes long to begin."""
    code = f"from sfumato.cli import run\nfor one in {OTHERS}: assert run([one, '--help']) == 0"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "COLUMNS": columns},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "…" not in done.stdout and all(f"sfumato {one} " in done.stdout for one in OTHERS)
    assert max(map(len, done.stdout.splitlines())) <= int(columns)


@pytest.mark.parametrize("columns", ["40", "80"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal_and_is_whole(command: str, columns: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sfumato", *command.split(), "--help"],
        env={**os.environ, "COLUMNS": columns}, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0 and "…" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    assert "\\[" not in done.stdout  # what should not be shown of markup
    if command in ("deploy", "server"):
        assert "'flower'" in done.stdout  # in brackets it would be taken for markup, and be lost
