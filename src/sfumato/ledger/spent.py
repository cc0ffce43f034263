"""What a list of reservations adds up to: a pure function, for each unit and each view."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from sfumato.account.event import Event, Relation, Repeated, Unit, compose, from_json
from sfumato.account.inside import costs_nothing


@dataclass(frozen=True)
class Cost:
    """What happened to one unit, under its relation, in each view; None: nothing is proven there.

    `swapped` is the same under replace, as it was derived, where the relation is another and there is a proof.
    """

    relation: Relation
    world: Event
    server: Event | None
    swapped: Cost | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether no data were touched, in everyone's view and, where that is proven, in the server's."""
        return costs_nothing(self.world) and (self.server is None or costs_nothing(self.server))

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        server = None if self.server is None else self.server.to_json()
        swapped = None if self.swapped is None else self.swapped.to_json()
        return {"relation": str(self.relation), "world": self.world.to_json(), "server": server, "swapped": swapped}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Cost:
        """What `to_json` wrote."""
        server = None if value["server"] is None else from_json(value["server"])
        swapped = None if value["swapped"] is None else Cost.from_json(value["swapped"])
        return Cost(Relation(value["relation"]), from_json(value["world"]), server, swapped)


@dataclass(frozen=True)
class Costs:
    """What one reservation costs each unit for which something is proven. A ledger stores the text once, under its digest.

    >>> Costs({}).text, Costs.read(Costs({}).text) == Costs({})
    ('{}', True)
    """

    by_unit: Mapping[Unit, Cost]

    @cached_property
    def text(self) -> str:
        return json.dumps({str(unit): cost.to_json() for unit, cost in self.by_unit.items()}, sort_keys=True)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.text)

    @cached_property
    def is_nothing(self) -> bool:
        """Whether no unit's data were touched in any view that is proven."""
        return all(cost.is_nothing for cost in self.by_unit.values())

    @staticmethod
    @lru_cache(maxsize=256)
    def read(text: str) -> Costs:
        """What `text` says; a pure function of it, so what was read once is not parsed again."""
        return Costs({Unit(unit): Cost.from_json(cost) for unit, cost in json.loads(text).items()})


def digest_of(text: str) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def total(costs: Iterable[tuple[Costs, int]], unit: Unit) -> Cost | None:
    """Everything that happened to one unit, from costs and how often each occurred; None if some of it is not proven.

    Where relations differ, all are stated under replace, which every one of them has; they do not add up otherwise.
    """
    found = [(one.by_unit.get(unit), times) for one, times in costs]
    known = [(cost, times) for cost, times in found if cost is not None]
    if not known or len(known) < len(found):
        return None
    drawn = {part.relation for cost, _ in known for part in cost.world.walk() if hasattr(part, "relation")}
    if len({cost.relation for cost, _ in known}) > 1 or len(drawn) > 1:
        replaced = [(cost if cost.relation is Relation.REPLACE else cost.swapped, times) for cost, times in known]
        known = [(cost, times) for cost, times in replaced if cost is not None]
        if len(known) < len(replaced):
            return None
    world = compose(*(Repeated(cost.world, times) for cost, times in known))
    servers = [(cost.server, times) for cost, times in known]
    server = None
    if all(event is not None for event, _ in servers):
        server = compose(*(Repeated(event, times) for event, times in servers if event is not None))
    return Cost(known[0][0].relation, world, server)
