"""A letter as one Flower message, and back.

A message's content is a record with the number of the question and the letter's head, and records with pieces of its body.
Flower moves each record as an object named by its hash: a body that goes to many nodes is sent to SuperLink once, and a piece
fits into one request. (Flower's arrays would do too, with two more objects a message, each a request on every leg of the way.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    InflatableObject,
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from sfumato.federation.wire import LARGEST, BadLetter, Letter

_PIECE = 2**23
_MOST_OBJECTS = LARGEST // _PIECE + 4
_KIND = "train"  # Flower wants one of its own words


@dataclass(frozen=True)
class Parcel:
    """A message without its objects, the tree of their names, and the objects by name."""

    message: MessageProto
    tree: ObjectTree
    objects: Mapping[str, InflatableObject]

    @property
    def name(self) -> str:
        """By which a reply says what it replies to."""
        return self.tree.object_id


@contextmanager
def packing() -> Iterator[Packer]:
    """A Packer, while Flower takes the hashes that it has computed for granted."""
    with no_object_id_recompute():
        yield Packer()


class Packer:
    """Makes parcels of letters; a body that several letters in a row share is written, cut and hashed once."""

    def __init__(self) -> None:
        self._shared: dict[str, torch.Tensor] = {}
        self._pieces: list[ConfigRecord] = []

    def question(self, letter: Letter, number: bytes, run: int, node: int, seconds: float) -> Parcel:
        """A question to a node, which is void after so many seconds."""
        metadata = Metadata(
            run_id=run,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=node,
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=seconds,
            message_type=_KIND,
        )
        return _parcel(make_message(metadata=metadata, content=self._content(letter, number)))

    def reply(self, letter: Letter, number: bytes, to: Message) -> Parcel:
        """A reply to the question of this number."""
        return _parcel(Message(self._content(letter, number), reply_to=to))

    def _content(self, letter: Letter, number: bytes) -> RecordDict:
        if not self._pieces or not _same(letter.tensors, self._shared):
            body = letter.body()
            self._pieces = [
                ConfigRecord({"piece": body[start : start + _PIECE]}) for start in range(0, len(body), _PIECE)
            ]
            self._shared = dict(letter.tensors)
        head = ConfigRecord({"number": number, "head": letter.head()})
        return RecordDict({"head": head, **{str(place): piece for place, piece in enumerate(self._pieces)}})


def letter_in(message: Message) -> tuple[bytes, Letter]:
    """The number of the question and the letter in a message; anything else is a BadLetter."""
    content = message.content
    try:
        head: dict[str, Any] = dict(content["head"])
        pieces: list[dict[str, Any]] = [dict(content[str(place)]) for place in range(len(content) - 1)]
        number, parts = head.pop("number"), [head.pop("head"), *(piece.pop("piece") for piece in pieces)]
    except KeyError as error:
        raise BadLetter(f"a message without {error} holds no letter.") from error
    if head or any(pieces) or not all(isinstance(part, bytes) for part in [number, *parts]):
        raise BadLetter("a message with other records than a letter's holds no letter.")
    return number, Letter.from_bytes(b"".join(parts))


class Arrival:
    """A message of which only the tree is known so far; its objects come one by one.

    Their names are hashes of their contents, which Flower checks: a message that was cut or altered never becomes complete.
    One of more objects than any letter has is not pulled at all, and cannot be read.
    """

    def __init__(self, tree: ObjectTree) -> None:
        names = list(dict.fromkeys(node.object_id for node in iterate_object_tree(tree)))
        self.name: str = tree.object_id
        self._missing = names if len(names) <= _MOST_OBJECTS else []
        self._contents: dict[str, bytes] = {}

    def step(self, pull: Callable[[str], bytes | None]) -> bool:
        """Pull what is there; whether that was all of it."""
        while self._missing:
            if (content := pull(self._missing[-1])) is None:
                return False
            self._contents[self._missing.pop()] = content
        return True

    def message(self) -> Message:
        """The message, once it is complete; raises BadLetter if it is none that could hold a letter."""
        try:
            message = inflate_object_from_contents(self.name, self._contents)
        except Exception as error:  # whatever a stranger's bytes make of Flower's reader, they are no letter
            raise BadLetter(f"a message cannot be read ({type(error).__name__}).") from error
        if not isinstance(message, Message) or not message.has_content():
            raise BadLetter("a message holds an error instead of a letter.")
        message.metadata.__dict__["_message_id"] = self.name
        return message


def _parcel(message: Message) -> Parcel:
    message.metadata.__dict__["_message_id"] = message.object_id
    header = message_to_proto(remove_content_from_message(message))
    return Parcel(header, get_object_tree(message), get_all_nested_objects(message))


def _same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(left[name] is right[name] for name in left)
