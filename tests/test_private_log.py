"""What an error says goes to a log that only its owner can read; messages have its type and name the log."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sfumato.errors import BadValue, CodeFailed
from sfumato.private_log import NAME, kept, log_folder, unforeseen, words_of

SECRET = "sEcReT-8731873"


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def test_an_error_that_was_not_foreseen_is_its_type_and_the_log_has_the_rest(tmp_path: Path) -> None:
    words = unforeseen(raised(ValueError(f"could not convert {SECRET}")), tmp_path / "errors")
    path = tmp_path / "errors" / NAME
    assert "ValueError" in words and str(path) in words and SECRET not in words
    assert SECRET in path.read_text() and "Traceback" in path.read_text()


def test_only_the_owner_can_read_the_log_also_where_the_folder_was_open(tmp_path: Path) -> None:
    folder = tmp_path / "errors"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    kept(ValueError(SECRET), folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600


def test_ours_say_what_they_say_and_what_code_raised_is_in_the_log_only(tmp_path: Path) -> None:
    assert words_of(BadValue("norm=-1")) == "norm=-1"
    assert not (tmp_path / NAME).exists()
    failed = raised(CodeFailed("client 3 could not be loaded: KeyError."), KeyError(SECRET))
    words = words_of(failed, tmp_path)
    assert words.startswith(str(failed)) and str(tmp_path / NAME) in words and SECRET not in words
    assert SECRET in (tmp_path / NAME).read_text()


def test_a_log_that_cannot_be_written_is_said_so() -> None:
    words = kept(ValueError(SECRET), Path("/dev/null/errors"))
    assert "/dev/null/errors" in words and "cannot be written" in words and SECRET not in words


def test_a_log_does_not_grow_without_end(tmp_path: Path) -> None:
    for _ in range(40):
        kept(ValueError("x" * 2**17), tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 3 * 2**20
    kept(ValueError(SECRET), tmp_path)
    assert SECRET in (tmp_path / NAME).read_text()


def test_it_lies_in_the_users_folder_for_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert log_folder() == tmp_path / "sfumato"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert log_folder() == Path.home() / ".local" / "state" / "sfumato"
