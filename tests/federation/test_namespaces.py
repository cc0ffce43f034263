"""The hosts of tests: removed whatever happens, and asked for in earnest where they are required."""

from __future__ import annotations

import subprocess

import pytest

from tests.federation import namespaces
from tests.federation.namespaces import REQUIRED, NotPermitted, hosts

pytestmark = pytest.mark.processes


def spaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def test_they_are_removed_after_a_failure() -> None:
    seen: list[str] = []

    def fail() -> None:
        with hosts("one", "two") as made:
            seen.append(made.mark)
            assert made.space("one") in spaces() and made.space("switch") in spaces()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen and seen[0] not in spaces()


def test_skipped_where_they_are_not_permitted_and_failed_where_they_are_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ip(*words: str) -> None:
        raise NotPermitted("no")

    monkeypatch.setattr(namespaces, "ip", ip)
    for required, how in (("", pytest.skip.Exception), ("1", pytest.fail.Exception)):
        monkeypatch.setenv(REQUIRED, required)
        with pytest.raises(how, match="no network namespaces|there are no"), hosts("one"):
            pass
