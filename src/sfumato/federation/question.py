"""What a server asks of a client in a round, and the client's answer: as letters, and back from them.

A question holds public values only: the terms, the parameters that were released, what all clients of the round share. Nothing
of the server's randomness can be computed from it. Keys of clients are in it for tests alone, where all share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from sfumato.data.population import PublicData, Records
from sfumato.engine.clients import Start, Total
from sfumato.engine.slots import Opening
from sfumato.federation.wire import BadLetter, Letter
from sfumato.key import Key

TRAIN, RELEASED, CHECK, END = "train", "released", "check", "end"  # kinds of questions
OK, FAILED = "ok", "failed"
_SIZE = 32  # bytes of a key


@dataclass(frozen=True)
class Question:
    """A round, as one client is asked to take part in it.

    `planned` is how many rounds the server's ledger will hold when the run ends, as far as is known: at least the rounds of the
    terms, and one more for each that was begun again. `since` is the round at which the server was started or resumed.
    """

    terms: str
    hash: str
    client: int
    attempt: int
    since: int
    planned: int
    params: torch.Tensor
    opening: Opening
    public: PublicData | None = None
    shared_keys: tuple[Key, Key] | None = None  # of the clients in this round, and for the whole run: for tests

    def letter(self, kind: str = TRAIN) -> Letter:
        facts: dict[str, str | int | float] = {
            "terms": self.terms,
            "hash": self.hash,
            "client": self.client,
            "attempt": self.attempt,
            "since": self.since,
            "planned": self.planned,
            "round": self.opening.number,
            "key": _hex(self.opening.key),
        }
        tensors = {"params": self.params}
        tensors |= {f"kept.{name}": value for name, value in self.opening.kept.items()}
        tensors |= {f"prepared.{nth}": value for nth, value in self.opening.prepared.items()}
        if self.opening.local is not None:
            tensors["local"] = self.opening.local
        if self.public is not None:
            facts["public"] = self.public.name
            tensors |= {"public.x": self.public.records.x, "public.y": self.public.records.y}
        if self.shared_keys is not None:
            facts |= {"clients_key": _hex(self.shared_keys[0]), "lasting_key": _hex(self.shared_keys[1])}
        return Letter(kind, facts, tensors)

    @staticmethod
    def read(letter: Letter) -> Question:
        """The question in a letter; raises BadLetter, and nothing else, for one that holds none."""
        facts, tensors = letter.facts, dict(letter.tensors)
        number, key = _fact(letter, "round", int), _key(letter, "key")
        kept = {name.removeprefix("kept."): tensor for name, tensor in tensors.items() if name.startswith("kept.")}
        try:
            prepared = {
                int(name.removeprefix("prepared.")): tensor
                for name, tensor in tensors.items()
                if name.startswith("prepared.")
            }
            public, shared = None, None
            if "public" in facts:
                public = PublicData(_fact(letter, "public", str), Records(tensors["public.x"], tensors["public.y"]))
            if "clients_key" in facts:
                shared = _key(letter, "clients_key"), _key(letter, "lasting_key")
            params = tensors["params"]
        except BadLetter:
            raise
        except Exception:
            raise BadLetter("a question lacks tensors, or has some of another shape.") from None
        if params.dtype != torch.float32 or params.dim() != 1 or number < 0:
            raise BadLetter("a question has no row of parameters, or no round.")
        opening = Opening(number, key, kept, prepared, tensors.get("local"))
        return Question(
            terms=_fact(letter, "terms", str),
            hash=_fact(letter, "hash", str),
            client=_fact(letter, "client", int),
            attempt=_fact(letter, "attempt", int),
            since=_fact(letter, "since", int),
            planned=_fact(letter, "planned", int),
            params=params,
            opening=opening,
            public=public,
            shared_keys=shared,
        )

    def start(self, clients: Key, lasting: Key, memory: dict[str, torch.Tensor] | None = None) -> Start:
        """Where this client begins, with keys that are its own."""
        held = {} if memory is None else {self.client: memory}
        return Start(self.params, self.opening, clients, held, lasting)


def answer_of(total: Total) -> Letter:
    """A client's message, weighed as its aggregate says."""
    return Letter(OK, {"weight": float(total.weight)}, {"row": total.rows.reshape(-1)})


def _fact(letter: Letter, name: str, kind: type[Any]) -> Any:
    value = letter.facts.get(name)
    if type(value) is not kind:
        raise BadLetter(f"a letter of kind {letter.kind} lacks {name}, or has another kind of it.")
    return value


def _hex(key: Key) -> str:
    return key.to_bytes().hex()


def _key(letter: Letter, name: str) -> Key:
    try:
        found = bytes.fromhex(_fact(letter, name, str))
    except ValueError:
        found = b""
    if len(found) != _SIZE:
        raise BadLetter(f"a letter of kind {letter.kind} has a {name} that is no key.")
    return Key(found)
