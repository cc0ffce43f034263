"""Tests that need real data sets say so: without `SFUMATO_DATA` they are skipped, and where data are required that fails."""

from __future__ import annotations

import os
import shutil
import tempfile

# Two test processes on two cores: threads inside each would wait for each other. Child processes inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

from tests import checker

# No deadline, and no complaint of slow examples: neither may depend on how fast a machine is.
_SLOW = [HealthCheck.too_slow]
settings.register_profile("sfumato", derandomize=True, deadline=None, max_examples=50, suppress_health_check=_SLOW)
settings.load_profile("sfumato")

_REQUIRED = bool(os.environ.get("SFUMATO_REQUIRE_DATA"))
_skipped: list[str] = []
_STATE = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="sfumato-state-")  # where errors are logged


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "data: needs the real data sets in SFUMATO_DATA")
    config.addinivalue_line("markers", "processes: whole federations and clusters, which `make processes` runs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("SFUMATO_DATA"):
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason="SFUMATO_DATA names no folder with data sets"))


def pytest_runtest_setup() -> None:
    checker.begin()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if _REQUIRED and report.skipped and "data" in report.keywords:
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    shutil.rmtree(_STATE, ignore_errors=True)
    if _skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name in _skipped:
        terminalreporter.write_line(f"data are required, but this was skipped: {name}", red=True)
