"""Help of the commands of a federation, in terminals of any width."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMANDS = ("deploy", "server", "node", "node check", "node key")


@pytest.mark.parametrize("columns", ["40", "80"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal_and_is_whole(command: str, columns: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sfumato", *command.split(), "--help"],
        env={**os.environ, "COLUMNS": columns}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0 and "…" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    assert "\\[" not in done.stdout  # what should not be shown of markup
    if command in ("deploy", "server"):
        assert "'flower'" in done.stdout  # in brackets it would be taken for markup, and be lost
