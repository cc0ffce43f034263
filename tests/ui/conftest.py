"""A folder of runs: one that was trained by the command that the planner shows, and some that were only written down."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sfumato.cli import run
from sfumato.ui.app import application
from sfumato.ui.folder import Runs
from sfumato.ui.guard import Guard
from sfumato.ui.plan import Asked
from tests.report.runs import baseline, proven
from tests.ui.asking import Asker

PORT, TOKEN = 8642, "a-token-of-the-tests"
ASKED = Asked(population=200, rounds=3, rate=0.25, noise=2.0, delta=1e-3)
MARK = "this-must-never-be-served"
VERDICT = {
    "unit": "client", "relation": "add_remove", "view": "world", "delta": 1e-3, "rounds": 40, "claimed": 1.98761, "proven": True,
    "confidence": 0.95, "runs": 500, "bounds": {"family": 1.25, "clopper_pearson": 0.5}, "broken": False, "best": 1.25,
    "sentence": "Proven: epsilon at most 1.988. Measured: at least 1.25. No contradiction.", "schema": 1,
}  # fmt: skip


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs `real`, `first` (audited), `group/second`, and what must not be seen of them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("ui") / "runs"
    words = shlex.split(ASKED.commands["train"].replace("YOUR_DATA", "digits"))[1:]
    where = ["--out", str(root / "real"), "--ledger", str(root / "people.sqlite"), "--diagnostics", "--quiet"]
    assert run([*words, *where]) == 0
    torch.set_num_threads(threads)
    (proven(root / "first") / "audit.json").write_text(json.dumps(VERDICT))
    baseline(root / "group" / "second")
    for name in (
        "diagnostics-not-private/rounds.jsonl",
        "audit-not-private/rmia.json",
        "personal-1.safetensors",
        "notes.txt",
    ):
        path = root / "first" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"round": 1, "found": MARK}))
    (root.parent / "outside.txt").write_text(MARK)
    (proven(root.parent / "elsewhere", recipe=MARK) / "notes.txt").write_text(MARK)
    return root


@pytest.fixture
def stranger(folder: Path) -> Asker:
    """A browser that has not opened the address with its token."""
    return Asker(Guard(application(Runs.under(folder)), PORT, TOKEN), f"127.0.0.1:{PORT}")


@pytest.fixture
def client(stranger: Asker) -> Asker:
    """One that has."""
    welcome = stranger.get("/", {"token": TOKEN})
    return replace(stranger, cookie=welcome.headers["set-cookie"].partition(";")[0])
