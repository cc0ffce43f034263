"""An attack that is killed goes on to the same result; what it keeps is for its owner's eyes only."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sfumato.audit.attack import FOLDER, Keep
from sfumato.audit.attacks import attack_run
from sfumato.audit.membership import Lira
from sfumato.errors import BadValue
from tests.audit.runs import train

LIRA = Lira(shadows=6, most=40)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_what_was_computed_is_not_computed_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def compute() -> dict[str, torch.Tensor]:
        calls.append(1)
        return {"x": torch.arange(3.0) + len(calls)}

    with Keep(tmp_path / "audit", seed=0) as keep:
        first = keep.once("one", ("facts", 1), compute)
        assert torch.equal(keep.once("one", ("facts", 1), compute)["x"], first["x"]) and len(calls) == 1
        assert not torch.equal(keep.once("one", ("facts", 2), compute)["x"], first["x"])
        (tmp_path / "audit" / "kept" / "one.safetensors").write_bytes(b"torn")
        keep.once("one", ("facts", 2), compute)
        assert len(calls) == 3
    with Keep(tmp_path / "audit", seed=1) as keep:  # another secret: nothing that was drawn before is used
        keep.once("one", ("facts", 2), compute)
    assert len(calls) == 4


def test_the_secret_of_an_audit_is_its_own_and_stays(tmp_path: Path) -> None:
    keys = []
    for folder in ("a", "a", "b"):
        with Keep(tmp_path / folder) as keep:
            keys.append(keep.key.digest)
    assert keys[0] == keys[1] != keys[2]
    assert modes(tmp_path / "a")["secret.key"] == 0o600


def test_two_processes_do_not_attack_one_run_at_once(tmp_path: Path) -> None:
    with Keep(tmp_path / "audit"), pytest.raises(BadValue, match="another process attacks"):
        Keep(tmp_path / "audit")


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        run = train(tmp_path / "run", rounds=1, clients=10)
        attack_run(run, LIRA, lambda line: None, seed=0)
    finally:
        os.umask(before)
    private = run / FOLDER
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert {name: mode for name, mode in modes(private).items() if mode not in (0o600, 0o700)} == {}
    assert len(list(private.rglob("shadows-*"))) == 6


KILLED = """
import os, signal, sys
from pathlib import Path
from sfumato.audit.attacks import attack_run
from tests.audit.test_keep import LIRA

def tell(line):
    if line.startswith("shadow 3 "):
        os.kill(os.getpid(), signal.SIGKILL)

attack_run(Path(sys.argv[1]), LIRA, tell, seed=0)
"""


def test_an_attack_that_was_killed_goes_on_to_the_same_result(tmp_path: Path) -> None:
    run = train(tmp_path / "run", rounds=1, clients=10)
    whole = attack_run(shutil.copytree(run, tmp_path / "copy"), LIRA, lambda line: None, seed=0)
    done = subprocess.run([sys.executable, "-c", KILLED, str(run)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    lines: list[str] = []
    found = attack_run(run, LIRA, lines.append, seed=0)
    assert lines[0] == "3 of 6 shadows were trained before"
    assert found.numbers == whole.numbers and found.curves == whole.curves


def test_after_an_interruption_nothing_is_lost(tmp_path: Path) -> None:
    run = train(tmp_path / "run", rounds=1, clients=10)

    def interrupted(line: str) -> None:
        if line.startswith("shadow 2 "):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack_run(run, LIRA, interrupted, seed=0)
    lines: list[str] = []
    attack_run(run, LIRA, lines.append, seed=0)
    assert lines[0].startswith("2 of 6")
    attack_run(run, LIRA, lines.append, seed=0)
    assert lines[-1].startswith("6 of 6")
