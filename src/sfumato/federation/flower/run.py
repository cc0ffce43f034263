"""A run of SuperLink whose server is this process: its nodes are registered, and its only task, the ServerApp's, is taken by us.

Flower wants an app for a run. Ours has no file but its description: there is nothing in it to unpack or to run, and our nodes
would not.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import NodeStatus, TaskType

from sfumato.federation.certificates import public_pem
from sfumato.federation.flower.calls import call, control, runtime
from sfumato.federation.flower.parcel import Parcel

_APP = """\
[project]
name = "sfumato"
version = "1.0.0"
[tool.flwr.app]
publisher = "sfumato"
[tool.flwr.app.components]
serverapp = "nothing:app"
clientapp = "nothing:app"
"""


@dataclass(frozen=True)
class Reply:
    """That something came back for the question of this name: a reply, or SuperLink's word that there will be none."""

    to: str
    tree: ObjectTree


class Run:
    """What the server asks of SuperLink, in few words. Every method may raise CallFailed."""

    def __init__(self, address: str, certificate: Path, headers: Mapping[str, str]) -> None:
        self._to = (address, certificate, headers)
        self._operator, self._server = control(*self._to), runtime(*self._to)
        self.nodes: list[int] = []
        self.number = 0

    def open(self, registry: Sequence[str]) -> None:
        """Register the nodes, start the run, and take its task."""
        for line in registry:
            registered = call(self._operator.RegisterNode, RegisterNodeRequest(public_key=public_pem(line)))
            self.nodes.append(int(registered.node_id))
        self.number = int(call(self._operator.StartRun, StartRunRequest(fab=Fab(content=_app()))).run_id)
        taken = call(self._server.AcquireTask, AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
        self._server.close()
        self._server = runtime(*self._to, taken.token)
        call(self._server.PullTaskInput, PullTaskInputRequest())

    def close(self) -> None:
        self._operator.close()
        self._server.close()

    def heartbeat(self) -> None:
        """Say that the run goes on: after a minute without, SuperLink ends it."""
        call(self._server.SendTaskHeartbeat, SendTaskHeartbeatRequest())

    def online(self) -> set[int]:
        """The numbers of clients whose nodes count as online."""
        listed = call(self._operator.ListNodes, ListNodesRequest()).nodes_info
        status = {int(node.node_id): node.status for node in listed}
        return {client for client, node in enumerate(self.nodes) if status.get(node) == NodeStatus.ONLINE}

    def post(self, parcel: Parcel) -> bool:
        """Send a question; whether SuperLink took it. Objects that it has are not sent again."""
        request = PushAppMessagesRequest(messages_list=[parcel.message], message_object_trees=[parcel.tree])
        answer = call(self._server.PushMessages, request)
        for name in answer.objects_to_push:
            push = PushObjectRequest(
                node=_SELF,
                run_id=self.number,
                object_id=name,
                object_content=parcel.objects[name].deflate(),
                session_id=answer.session_id,
            )
            call(self._server.PushObject, push)
        return list(answer.message_ids) == [parcel.name]

    def replies(self, questions: Sequence[str]) -> list[Reply]:
        """Which questions have been replied to since the last look; each is told once."""
        found = call(self._server.PullMessages, PullAppMessagesRequest(message_ids=questions))
        return [
            Reply(message.metadata.reply_to_message_id, tree)
            for message, tree in zip(found.messages_list, found.message_object_trees, strict=True)
        ]

    def pull(self, name: str) -> bytes | None:
        """An object of a reply, or None if it is still on its way; raises LookupError if it is not coming."""
        found = call(self._server.PullObject, PullObjectRequest(node=_SELF, run_id=self.number, object_id=name))
        if not found.object_found:
            raise LookupError(name)
        return bytes(found.object_content) if found.object_available else None

    def forget(self, name: str) -> None:
        """Delete a message's objects: a reply that was read, or a question that nobody shall answer any more."""
        request = ConfirmMessageReceivedRequest(node=_SELF, run_id=self.number, message_object_id=name)
        call(self._server.ConfirmMessageReceived, request)


_SELF = Node(node_id=SUPERLINK_NODE_ID)


def _app() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("pyproject.toml", _APP)
    return buffer.getvalue()
