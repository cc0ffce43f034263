"""Tables take cells from folders beside their own, so each test gets a folder without neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    alone = tmp_path / "table"
    alone.mkdir()
    return alone
