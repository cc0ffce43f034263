"""Flower's SuperNode, only quicker: `python -m sfumato.federation.flower.supernode POLL OPTIONS`.

It is the stock `flower-supernode`, whose waits are constants in its source; they are changed here, in memory, because together
they are what a round of stock Flower takes (seconds, of which a client works milliseconds):

- it looks for a message every 3 s, and for the app's reply to it every 0.5 s: here every POLL s;
- a message that is announced before it has been sent whole is tried again after 1, 2, 4 ... 10 s: here after POLL to 1 s;
- a lost connection is tried again after at most 20 s: here 2 s;
- a handshake that breaks off, as when the server is killed in it or is too busy, is taken for a wrong certificate, and tried
  never again: here it is tried again, and only a wrong certificate is not;
- it gives a sign of life every 20 s and counts as online for 60 s after the last: here every 4 s, and 20 s, the least that
  SuperLink takes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx

from sfumato.federation.flower.tether import tether

_RETRY = 2
_HEARTBEAT = 10


def main() -> None:
    """SuperNode, until the parent ends."""
    tether()
    poll = float(sys.argv.pop(1))
    from flwr.supercore import heartbeat
    from flwr.supercore.inflatable.inflatable_utils import pull_objects
    from flwr.supercore.retry import http_retry
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    quick = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, poll)))
    _set(start_client_internal, "time", quick)
    _set(start_client_internal, "pull_objects", partial(pull_objects, initial_backoff=poll, backoff_cap=1.0))
    _set(http_retry, "MAX_RETRY_DELAY", _RETRY)
    _set(fleet_http_connection, "make_simple_http_retry_invoker", patient(http_retry.make_simple_http_retry_invoker))
    _set(heartbeat, "HEARTBEAT_DEFAULT_INTERVAL", _HEARTBEAT)
    _set(fleet_http_connection, "HEARTBEAT_DEFAULT_INTERVAL", _HEARTBEAT)
    flower_supernode()


def patient(make: Callable[[], Any]) -> Callable[[], Any]:
    """Makes what tries again, and gives up on fewer errors of a connection: those that speak of a certificate."""

    def made() -> Any:
        invoker = make()
        gives_up = invoker.should_giveup

        def should_giveup(error: Exception) -> bool:
            broken_off = isinstance(error, httpx.TransportError) and "certificate" not in str(error).lower()
            return not broken_off and bool(gives_up(error))

        invoker.should_giveup = should_giveup
        return invoker

    return made


def _set(module: ModuleType, name: str, value: object) -> None:
    """Only what is there: another Flower would silently be as slow as it likes."""
    if not hasattr(module, name):
        raise SystemExit(
            f"{module.__name__} has no {name}: this is not a Flower that Sfumato was written for (1.40 to 1.42)."
        )
    setattr(module, name, value)


if __name__ == "__main__":
    main()
