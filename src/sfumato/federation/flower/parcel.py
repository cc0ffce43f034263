"""A letter as one Flower message, and back.

A message's content is a record with the number of the question and the letter's head, and records with pieces of its body.
Flower moves each record as an object named by its hash: a body that goes to many nodes is sent to SuperLink once, and a piece
fits into one request. (Flower's arrays would do too, with two more objects a message, each a request on every leg of the way.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from sfumato.federation.wire import LARGEST, BadLetter, Letter, split_of

_PIECE = 2**23
_MOST_OBJECTS = LARGEST // _PIECE + 4
_KIND = "train"  # Flower wants one of its own words


@dataclass(frozen=True)
class Parcel:
    """A message without its objects, the tree of their names, and the objects' bytes by name."""

    message: MessageProto
    tree: ObjectTree
    objects: dict[str, bytes]

    @property
    def name(self) -> str:
        """By which a reply says what it replies to."""
        return self.tree.object_id


def content_of(letter: Letter, question: bytes) -> RecordDict:
    """A letter as Flower's records, marked with the question it asks or answers."""
    data = letter.to_bytes()
    split = split_of(data)
    head = ConfigRecord({"question": question, "head": data[:split]})
    starts = range(split, len(data), _PIECE)
    pieces = {str(place): ConfigRecord({"piece": data[start : start + _PIECE]}) for place, start in enumerate(starts)}
    return RecordDict({"head": head, **pieces})


def letter_in(content: RecordDict) -> tuple[bytes, Letter]:
    """The question and the letter in such records; anything else is a BadLetter."""
    try:
        head: dict[str, Any] = dict(content["head"])
        pieces: list[dict[str, Any]] = [dict(content[str(place)]) for place in range(len(content) - 1)]
        question, parts = head.pop("question"), [head.pop("head"), *(piece.pop("piece") for piece in pieces)]
    except KeyError as error:
        raise BadLetter(f"a message without {error} holds no letter.") from error
    if head or any(pieces) or not all(isinstance(part, bytes) for part in [question, *parts]):
        raise BadLetter("a message with other records than a letter's holds no letter.")
    return question, Letter.from_bytes(b"".join(parts))


def question_parcel(letter: Letter, question: bytes, run: int, node: int, seconds: float) -> Parcel:
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
    return _parcel(make_message(metadata=metadata, content=content_of(letter, question)))


def reply_parcel(letter: Letter, question: bytes, to: Message) -> Parcel:
    """A reply to a question."""
    return _parcel(Message(content_of(letter, question), reply_to=to))


class Arrival:
    """A message of which only the tree is known so far; its objects come one by one.

    Their names are hashes of their contents, which Flower checks: a message that was cut or altered never becomes complete.
    """

    def __init__(self, tree: ObjectTree) -> None:
        names = list(dict.fromkeys(node.object_id for node in iterate_object_tree(tree)))
        if len(names) > _MOST_OBJECTS:
            raise BadLetter(
                f"a message of {len(names):,} objects is too large for a letter: at most {_MOST_OBJECTS:,}."
            )
        self.name: str = tree.object_id
        self._missing = names
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
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = {name: thing.deflate() for name, thing in get_all_nested_objects(message).items()}
        return Parcel(message_to_proto(remove_content_from_message(message)), get_object_tree(message), objects)
