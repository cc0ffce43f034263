"""Tests that need real data sets say so, and are skipped where `SFUMATO_DATA` names no folder."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("sfumato", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("sfumato")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "data: needs the real data sets in SFUMATO_DATA")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("SFUMATO_DATA"):
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason="SFUMATO_DATA names no folder with data sets"))
