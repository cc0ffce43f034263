"""Who may write to a run's folder, and what a refused run leaves behind."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from sfumato.errors import BadValue, DataError
from sfumato.run.folder import Lock, locked_folder
from sfumato.run.prepare import Prepared, prepare
from sfumato.run.request import Request
from sfumato.run.run import Run

fcntl = pytest.importorskip("fcntl")


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    request = Request(rounds=2, seed=5).with_value("data.clients", 10)
    return prepare(request.with_value("options.noise_multiplier", 2.0))


def contents(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_folder_that_another_process_has_just_begun_is_left_alone(tmp_path: Path, prepared: Prepared) -> None:
    other = locked_folder(tmp_path / "run", resume=False)
    with pytest.raises(BadValue, match="another process is training"):
        Run(prepared, tmp_path / "run")
    (tmp_path / "run" / "run.toml").write_text("theirs")
    with pytest.raises(BadValue, match="never overwritten"):
        Run(prepared, tmp_path / "run")
    other.release()
    with pytest.raises(BadValue, match="never overwritten"):
        Run(prepared, tmp_path / "run")
    assert (tmp_path / "run" / "run.toml").read_text() == "theirs"


@pytest.mark.parametrize("there", [False, True])
def test_a_refused_run_leaves_nothing(
    tmp_path: Path, prepared: Prepared, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    if there:
        folder.mkdir()

    def refused(*args: object, **options: object) -> None:
        raise BadValue("no")

    with monkeypatch.context() as patch:
        patch.setattr("sfumato.run.run.simulate", refused)
        with pytest.raises(BadValue, match="no"):
            Run(prepared, folder)
    assert (folder.exists() and not contents(folder)) if there else not folder.exists()
    assert [line.round for line in Run(prepared, folder)] == [1, 2]


def test_an_interrupted_start_can_be_resumed_in_the_same_process(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sfumato.run.run.PersonalScores", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Run(prepared, tmp_path / "run")
    run = Run(prepared, tmp_path / "run", resume=True)
    with pytest.raises(BadValue, match="another process"):
        Run(prepared, tmp_path / "run", resume=True)
    for _ in run:
        break
    assert [line.round for line in Run(prepared, tmp_path / "run", resume=True)] == [2]


def test_there_is_nothing_to_go_on_with(tmp_path: Path, prepared: Prepared) -> None:
    with pytest.raises(DataError, match="no run to go on with"):
        Run(prepared, tmp_path / "nowhere", resume=True)


def test_what_a_killed_process_left_half_written_is_removed_by_whoever_holds_the_folder(tmp_path: Path) -> None:
    half = tmp_path / ".params.safetensors.4711.tmp"
    held = Lock(tmp_path)
    half.touch()
    with pytest.raises(BadValue, match="another process"):
        Lock(tmp_path)
    assert half.exists()
    held.release()
    Lock(tmp_path).release()
    assert not half.exists()


def test_a_file_system_without_locks_still_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*args: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", unable)
    Lock(tmp_path).release()
    Lock(tmp_path).release()
