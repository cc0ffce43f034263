"""Processes of torchrun give the bits of this one, also when a worker dies and all begin again."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import Everyone, Population, classification
from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.on_gloo import gloo_workers
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.ledger.ledger import Ledger
from tests.engine.far_people import Deadly
from tests.engine.gloo_run import PLAN
from tests.helpers import dp_round, linear
from tests.patience import PATIENCE

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parent.parent.parent


def torchrun(*words: str) -> subprocess.CompletedProcess[str]:
    """The output of three processes; none is left, whatever comes of them."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(start, cwd=ROOT, start_new_session=True, **pipes) as run:
        try:
            out, err = run.communicate(timeout=PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(start, run.returncode, out, err)


def test_the_example_gives_what_one_process_gives(capsys: pytest.CaptureFixture[str]) -> None:
    example = ROOT / "examples" / "torchrun.py"
    runpy.run_path(str(example), run_name="__main__")
    done = torchrun(str(example))
    assert done.returncode == 0 and done.stdout == capsys.readouterr().out, done.stderr


def test_a_worker_that_is_killed_ends_all_and_they_go_on_to_the_same_bits(tmp_path: Path) -> None:
    folder, marker = tmp_path / "run", tmp_path / "died"
    done = torchrun("--max-restarts", "1", "-m", "tests.engine.gloo_run", str(folder), str(marker))
    assert done.returncode == 0 and marker.exists(), done.stderr
    people = Population.from_import("tests.engine.far_people:people")
    round = dp_round(sample=Everyone(), local=Deadly(str(marker)))
    *_, here = simulate(round, people, linear(), classification(3), rounds=3, seed=0, plan=PLAN)
    stored, ledger = Checkpoint.read(folder), Ledger(folder / "ledger.sqlite", None)
    assert stored is not None and torch.equal(stored.params, here.params)
    assert [(one.round, one.attempt) for one in ledger.entries()] == [(number, 0) for number in range(3)]


def test_without_torchrun_there_are_no_workers() -> None:
    with pytest.raises(BadValue, match="there are no workers: start at least two processes, e.g. torchrun"):
        gloo_workers()
