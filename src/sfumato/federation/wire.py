"""What travels between the server and the nodes, and what carries it.

A Letter is all that either side may say: a kind, a few public facts, and named tensors. Its bytes are a length, a JSON head and
a safetensors body; nothing in them is ever run or unpickled. A Wire asks nodes and gives back their replies, and knows nothing
of rounds.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import safetensors.torch
import torch

from sfumato.errors import SfumatoError

LARGEST = 2**30  # bytes of a letter
_LARGEST_HEAD = 2**22
_LENGTH = 4  # bytes that tell the length of the head
_KIND = re.compile(r"[a-z][a-z0-9._-]{0,63}")
_DTYPES = frozenset(
    [
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    ]
)


class BadLetter(SfumatoError, ValueError):
    """A letter that cannot be read, or must not be sent."""


class WireLost(SfumatoError):
    """The wire is broken, and no question in work on it will be answered."""


@dataclass(frozen=True, eq=False)
class Letter:
    """What travels either way: a kind, public facts, tensors. Whatever exists as a Letter can be sent, and arrives bit by bit.

    A kind says what is asked ("train", "keys"), or in a reply "ok" or why not ("refused.noise").

    >>> letter = Letter("train", {"round": 3, "rate": 0.1}, {"params": torch.tensor([1.0, -0.0])})
    >>> again = Letter.from_bytes(letter.to_bytes())
    >>> again.kind, again.facts, again.tensors["params"]
    ('train', {'rate': 0.1, 'round': 3}, tensor([1., -0.]))
    """

    kind: str
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not _KIND.fullmatch(self.kind):
            raise BadLetter(f"Letter(kind={self.kind!r:.80}): a kind is a short lower-case word such as 'train'.")
        for name, fact in self.facts.items():
            if not isinstance(name, str) or not _is_fact(fact):
                raise BadLetter(
                    f"Letter(facts={{{name!r:.80}: {fact!r:.80}}}): a fact is a text, a whole number of 64 bits or a finite "
                    "float, under a name. Send anything else as a tensor."
                )
        for name, tensor in self.tensors.items():
            if not isinstance(name, str) or tensor.dtype not in _DTYPES or tensor.layout != torch.strided:
                raise BadLetter(
                    f"Letter(tensors={name!r:.80}): {tensor.dtype} and {tensor.layout} cannot be sent. "
                    f"Use a dense tensor of {', '.join(sorted(str(dtype) for dtype in _DTYPES))}."
                )

    @property
    def digest(self) -> str:
        """What names it: all of it, to the last bit."""
        return hashlib.blake2b(self.to_bytes(), digest_size=32).hexdigest()

    def to_bytes(self) -> bytes:
        """The letter as bytes; the same letter has the same bytes."""
        return self.head() + self.body()

    def head(self) -> bytes:
        """The first part of its bytes: the kind and the facts, after their length."""
        head = json.dumps({"kind": self.kind, "facts": dict(self.facts)}, sort_keys=True, allow_nan=False).encode()
        if len(head) > _LARGEST_HEAD:
            raise BadLetter(
                f"{len(head):,} bytes of facts are too many: at most {_LARGEST_HEAD:,}. Send them as tensors."
            )
        return len(head).to_bytes(_LENGTH, "big") + head

    def body(self) -> bytes:
        """The rest of its bytes: the tensors. Letters that differ in facts only have the same body."""
        body = safetensors.torch.save(
            {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.tensors.items()}
        )
        if len(body) > LARGEST:
            raise BadLetter(
                f"{len(body):,} bytes of tensors are too many for a letter: at most {LARGEST:,}. Send it in parts."
            )
        return body

    @classmethod
    def from_bytes(cls, data: bytes) -> Letter:
        """The letter that these bytes are; raises BadLetter, and nothing else, for bytes that are none."""
        size = int.from_bytes(data[:_LENGTH], "big")
        split = _LENGTH + size
        if size > _LARGEST_HEAD or not split <= len(data) <= split + LARGEST:
            raise BadLetter(f"{len(data):,} bytes with a head of {size:,} are no letter. It was cut or altered.")
        kind, facts = _read_head(data[_LENGTH:split])
        return cls(kind, facts, _read_body(data[split:]))


@runtime_checkable
class Wire(Protocol):
    """Asks nodes, each of which holds one client; a client's number is its place in the registry."""

    def ask(self, letters: Mapping[int, Letter], deadline: float) -> Iterator[tuple[int, Letter]]:
        """Send each client its letter, and yield replies as they come until all have replied or `deadline` seconds have passed.

        At most one reply a client; a reply to another question, a late, a duplicated or a truncated one is dropped.
        """

    def restart(self) -> None:
        """Begin anew after `WireLost`; nodes come back by themselves."""

    def online(self) -> set[int]:
        """The clients whose nodes were heard of lately."""

    def close(self) -> None:
        """End everything that the wire has started."""


def _is_fact(fact: object) -> bool:
    if type(fact) is int:
        return -(2**63) <= fact < 2**63
    return type(fact) is str or (type(fact) is float and math.isfinite(fact))


def _read_head(head: bytes) -> tuple[str, dict[str, str | int | float]]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name twice")
        return dict(pairs)

    try:
        read = json.loads(head, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise BadLetter(f"the head of a letter is no JSON ({type(error).__name__}). It was cut or altered.") from error
    if not isinstance(read, dict) or read.keys() != {"kind", "facts"}:
        raise BadLetter(
            "the head of a letter has a kind and facts, and nothing else. It was written by something else."
        )
    kind, facts = read["kind"], read["facts"]
    if not isinstance(kind, str) or not isinstance(facts, dict) or not all(map(_is_fact, facts.values())):
        raise BadLetter(
            "the head of a letter has other facts than texts and numbers. It was written by something else."
        )
    return kind, facts


def _read_body(body: bytes) -> dict[str, torch.Tensor]:
    try:
        tensors = safetensors.torch.load(body)
    except Exception as error:  # whatever a stranger's bytes make of the reader, they are no letter
        raise BadLetter(
            f"the body of a letter is no safetensors ({type(error).__name__}). It was cut or altered."
        ) from error
    if any(tensor.dtype == torch.bool and bool((tensor.view(torch.uint8) > 1).any()) for tensor in tensors.values()):
        raise BadLetter("a truth value in a letter is neither 0 nor 1. It was altered.")
    return tensors
