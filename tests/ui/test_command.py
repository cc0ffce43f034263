"""The command: where it listens, and what it says when it cannot."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from sfumato.cli import run
from tests.patience import PATIENCE
from tests.ui.serving import served


def test_it_listens_on_this_machine_only_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    with served(tmp_path) as address:
        assert address.startswith("http://127.0.0.1:")
        port = int(address.split(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
            pass
        with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), timeout=PATIENCE):
            pass
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "70000"], "--port 70000: from 1 to 65535"),
        (["nowhere"], "nowhere: there is no such folder"),
        (["--ledger", "nothing.sqlite"], "--ledger nothing.sqlite: there is no such file"),
        (["--host", "0.0.0.0"], "there is no option --host"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ui", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_port_in_use_is_an_error_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["ui", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"--port {port}: address already in use. Give another, or 0" in said


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_missing_extra_is_named(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert run(["ui"]) == 2
    assert "pip install 'sfumato[ui]'" in capsys.readouterr().err


def test_help_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ui", "--help"]) == 0
    said = capsys.readouterr().out
    assert (
        "…" not in said and "127.0.0.1" in said and "'ui'" in said
    )  # in brackets it would be taken for markup, and be lost
