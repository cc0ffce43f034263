"""Hosts that are hosts: a network namespace for each, with an address of its own, joined by a bridge in one more namespace.

Nothing is sent outside of them: none has a route to anywhere else. Names are made up for each test run, and all is removed at its
end. Everything is done with iproute2 (`ip`); where that is not permitted, there are no such hosts.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

REQUIRED = "SFUMATO_REQUIRE_NAMESPACES"


class NotPermitted(Exception):
    """This system makes no network namespaces for us."""


def ip(*words: str) -> None:
    """Run `ip`; whatever goes wrong says why."""
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotPermitted(f"ip cannot be run: {error.strerror}") from None
    if done.returncode:
        raise NotPermitted(f"ip {' '.join(words)}: {done.stderr.strip()}")


@dataclass
class Hosts:
    """Namespaces by the names of hosts: each has a link to a switch, which is a bridge in a namespace of its own."""

    names: Sequence[str]
    mark: str = field(default_factory=lambda: f"sf{uuid.uuid4().hex[:6]}")

    def address(self, name: str) -> str:
        """In a network that is kept for documents and tests (RFC 5737)."""
        return f"192.0.2.{1 + list(self.names).index(name)}"

    def space(self, name: str) -> str:
        return f"{self.mark}-{name}"

    def enter(self, name: str) -> list[str]:
        """What stands before a command that runs on a host."""
        return ["ip", "netns", "exec", self.space(name)]

    def make(self) -> None:
        switch = self.space("switch")
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for nth, name in enumerate(self.names):
            space, port = self.space(name), f"port{nth}"
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", port, "netns", switch)
            ip("-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", switch, "link", "set", port, "master", "bridge")
            ip("-n", switch, "link", "set", port, "up")

    def cut(self, name: str) -> None:
        """Pull the plug of a host, at the switch: the host itself is not told."""
        ip("-n", self.space("switch"), "link", "set", f"port{list(self.names).index(name)}", "down")

    def mend(self, name: str) -> None:
        ip("-n", self.space("switch"), "link", "set", f"port{list(self.names).index(name)}", "up")

    def remove(self) -> None:
        """Links go with their namespaces."""
        for name in (*self.names, "switch"):
            with suppress(NotPermitted):
                ip("netns", "delete", self.space(name))


@contextmanager
def hosts(*names: str) -> Iterator[Hosts]:
    """Hosts for as long as a test needs them; skipped where they are not permitted, which fails where they are required."""
    made = Hosts(names)
    try:
        try:
            made.make()
        except NotPermitted as error:
            if os.environ.get(REQUIRED):
                pytest.fail(f"{REQUIRED} is set, and there are no network namespaces: {error}")
            pytest.skip(f"no network namespaces: {error}")
        yield made
    finally:
        made.remove()
