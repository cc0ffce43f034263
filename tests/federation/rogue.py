"""A node of the registry that speaks to SuperLink itself, and says what it should not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from sfumato.federation.flower.parcel import Arrival, Packer, letter_in
from sfumato.federation.wire import Letter
from tests.federation.network import Network


def fleet(server: str, authority: Path, private: Path) -> tuple[FleetHttpClient, bytes]:
    """Flower's own client for nodes, with a node's key."""
    key = load_ssh_private_key(private.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    signing = NodeAuthHttpInterceptor(key, key.public_key())
    client = FleetHttpClient.from_server_address(server, False, authority.read_bytes(), [signing])
    return client, public_key_to_bytes(key.public_key())


class Rogue:
    """Receives questions as a SuperNode does, and pushes any reply any number of times."""

    def __init__(self, network: Network, number: int) -> None:
        self.client, key = fleet(
            f"localhost:{network.port}", network.certificate.authority, network.keys[number].private
        )
        activated = self.client.ActivateNode(ActivateNodeRequest(public_key=key, heartbeat_interval=30))
        self.node = Node(node_id=activated.node_id)

    def receive(self) -> tuple[Message, bytes, Letter]:
        """The next question: its header, its number and its letter."""
        while not (pulled := self.client.PullMessages(PullMessagesRequest(node=self.node))).messages_list:
            time.sleep(0.02)
        header = message_from_proto(pulled.messages_list[0])
        arrival = Arrival(pulled.message_object_trees[0])

        def pull(name: str) -> bytes | None:
            request = PullObjectRequest(node=self.node, run_id=header.metadata.run_id, object_id=name)
            found = self.client.PullObject(request)
            return found.object_content if found.object_available else None

        while not arrival.step(pull):
            time.sleep(0.02)
        return header, *letter_in(arrival.message())

    def push(self, reply: Message, objects: int | None = None) -> None:
        """Push a reply and its objects, or only the first so many of them."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        everything = get_all_nested_objects(reply)
        bare = Message(metadata=reply.metadata, content=RecordDict())  # type: ignore[call-overload]
        pushed = self.client.PushMessages(
            PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(bare)],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.1],
            )
        )
        for name in list(pushed.objects_to_push)[:objects]:
            self.client.PushObject(
                PushObjectRequest(
                    node=self.node,
                    run_id=reply.metadata.run_id,
                    object_id=name,
                    object_content=everything[name].deflate(),
                    session_id=pushed.session_id,
                )
            )


def reply_to(header: Message, number: bytes, letter: Letter, **other: Any) -> Message:
    """A reply as an honest node makes it, with other metadata if they are given."""
    message = Message(Packer()._content(letter, number), reply_to=header)
    message.metadata.__dict__.update({f"_{name}": value for name, value in other.items()})
    return message
