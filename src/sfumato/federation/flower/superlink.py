"""Flower's SuperLink behind a gate: `python -m sfumato.federation.flower.superlink OPTIONS`, with the secret on its standard input.

It is the stock `flower-superlink` with three changes, made in memory:

- Flower 1.41 serves three interfaces on one port: the one for nodes, which knows them by their keys, and two for the operator
  (register a node, start or stop a run, read logs, act as the server of a run), which without an account plugin let everybody
  in. Here whatever is not for nodes needs the secret that the parent gave, and no request may be longer than one object of a
  message.
- Flower takes from a node whatever message it pushes: in another's name, or one that replies to nothing, which is a question in
  the server's name to another node. Here a node pushes replies of its own, of as many objects as a letter has at most.
- Flower refuses a node that comes back before its last sign of life is a minute old, as one that was killed does. Whoever
  proves to hold the node's key is let in at once, in place of the one that was.
"""

from __future__ import annotations

import hmac
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from sfumato.federation.flower.tether import tether

SECRET = "sfumato-secret"  # the header
FOR_NODES = "/v1/fleet/"
LONGEST = 2**24  # bytes of a request
MOST_OBJECTS = 132  # of a message that holds a letter


class Gate:
    """Lets nodes through to what is for nodes, and whoever knows the secret to the rest."""

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self.app, self.secret = app, secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (status := self._refused(scope)):
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        if scope["type"] in ("http", "lifespan"):
            await self.app(scope, receive, send)

    def _refused(self, scope: Scope) -> int:
        headers = dict(scope["headers"])
        known = hmac.compare_digest(headers.get(SECRET.encode(), b""), self.secret)
        if not known and not scope["path"].startswith(FOR_NODES):
            return 404
        if b"transfer-encoding" in headers:
            return 411
        length = headers.get(b"content-length", b"0")
        return 0 if length.isdigit() and int(length) <= LONGEST else 413


def _let_return(state: Any) -> None:
    activate = state.activate_node

    def activate_anew(self: Any, node_id: int, heartbeat_interval: float) -> Any:
        self.deactivate_node(node_id)
        return activate(self, node_id, heartbeat_interval)

    state.activate_node = activate_anew


def _only_own_replies(handlers: Any) -> None:
    push = handlers.push_messages

    def push_own(request: Any, state: Any) -> Any:
        node, trees = request.node.node_id, request.message_object_trees
        for metadata in (message.metadata for message in request.messages_list):
            if not metadata.reply_to_message_id or metadata.src_node_id != node:
                raise HTTPException(403)
        if len(request.messages_list) != 1 or len(trees) != 1 or _objects(trees[0]) > MOST_OBJECTS:
            raise HTTPException(413)
        return push(request=request, state=state)

    handlers.push_messages = push_own


def _objects(tree: Any) -> int:
    """How many objects there are in a tree, or that there are too many."""
    found, left = 0, [tree]
    while left and found <= MOST_OBJECTS:
        found, left = found + 1, [*left[1:], *left[0].children]
    return found


def main() -> None:
    """SuperLink, until the parent ends."""
    secret = tether()
    from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from flwr.superlink.servicer.fleet import fleet_handlers

    if not secret:
        raise SystemExit("SuperLink needs a secret on its standard input: it is started by FlowerWire.")
    extensions.get_middleware = lambda: (Middleware(Gate, secret=secret),)
    _let_return(InMemoryLinkState)
    _only_own_replies(fleet_handlers)
    flower_superlink()


if __name__ == "__main__":
    main()
