"""The gate before SuperLink, and the return of a node that was killed, without processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("flwr", reason="sfumato[flower] is not installed")

from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.superlink.federation import NoOpFederationManager

from sfumato.federation.flower.superlink import LONGEST, SECRET, Gate, _let_return


def through(path: str, headers: dict[str, str], kind: str = "http") -> int:
    """The status that a request gets; 200 if it came through."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": kind, "path": path, "headers": [(key.encode(), word.encode()) for key, word in headers.items()]}
    asyncio.run(Gate(app, "the secret")(scope, None, send))  # type: ignore[arg-type]
    return int(sent[0]["status"]) if sent else 0


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/fleet/pull-messages", {}, 200),
        ("/v1/fleet", {}, 404),
        ("/v1/fleeting", {}, 404),
        ("/V1/FLEET/pull-messages", {}, 404),
        ("//v1/fleet/pull-messages", {}, 404),
        ("/v1/control/start-run", {}, 404),
        ("/v1/control/start-run", {SECRET: "another"}, 404),
        ("/v1/control/start-run", {SECRET: ""}, 404),
        ("/v1/control/start-run", {SECRET: "the secret"}, 200),
        ("/v1/fleet/push-object", {"content-length": str(LONGEST)}, 200),
        ("/v1/fleet/push-object", {"content-length": str(LONGEST + 1)}, 413),
        ("/v1/fleet/push-object", {"content-length": "-1"}, 413),
        ("/v1/fleet/push-object", {"content-length": "many"}, 413),
        ("/v1/fleet/push-object", {"transfer-encoding": "chunked"}, 411),
    ],
)
def test_the_gate(path: str, headers: dict[str, str], status: int) -> None:
    assert through(path, headers) == status


def test_nothing_but_requests_and_the_servers_own_life_comes_through() -> None:
    assert through("/v1/fleet/pull-messages", {}, "lifespan") == 200
    assert through("/v1/fleet/pull-messages", {SECRET: "the secret"}, "websocket") == 0


def test_a_node_that_was_killed_is_let_in_at_once() -> None:
    class Returning(InMemoryLinkState):
        pass

    _let_return(Returning)
    for kind, again in ((InMemoryLinkState, False), (Returning, True)):
        state = kind(NoOpFederationManager(), InMemoryObjectStore())
        node = state.create_node("owner", "owner", b"key", 30)
        assert state.activate_node(node, 30)
        assert state.activate_node(node, 30) is again
        assert not state.activate_node(node + 1, 30)
