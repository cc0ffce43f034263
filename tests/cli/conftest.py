"""The command line inside this process, in a folder of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from sfumato.cli import run

ROUND = ["--clients", "40", "--sample", "poisson:0.25", "--epochs", "1", "--clip", "1", "--noise-multiplier", "2"]
SMALL = ["--rounds", "3", *ROUND]


class Answer(NamedTuple):
    status: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Several tests share the cores, and small models are no faster on two of them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def sfumato(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls a command in an empty working folder; gives back exit status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Answer:
        capsys.readouterr()
        status = run(list(words))
        return Answer(status, *capsys.readouterr())

    return call


@pytest.fixture
def hers(sfumato: Command, request: pytest.FixtureRequest) -> Iterator[Command]:
    """The command line in a folder with the user's module, which Python finds there too."""
    Path("hers.py").write_text(request.module.MODULE)
    sys.modules.pop("hers", None)
    yield sfumato
    sys.modules.pop("hers", None)


@pytest.fixture(scope="session")
def finished(_one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without a seed, with diagnostics."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    assert run(["train", *SMALL, "--diagnostics", "--quiet", "--out", str(folder)]) == 0
    return folder
