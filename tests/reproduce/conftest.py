"""Tables take cells from folders beside their own, so each test gets a folder without neighbours, unless it asks for them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    alone = tmp_path / "table"
    alone.mkdir()
    return alone


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tables of one paper lie beside each other."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture
def written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written and drawn before all cells are there."""
    monkeypatch.setattr("sfumato.reproduce.run._SECONDS_BETWEEN_WRITES", math.inf)
