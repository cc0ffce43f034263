"""What a replay of a round must have in common with it: names that do not reveal what they name.

| what goes on                                  | its noise            | what is counted                                |
|-----------------------------------------------|----------------------|------------------------------------------------|
| the run, or a copy of its folder, same inputs | the same             | one event, as the output is the same           |
| the run, or a copy of its folder, other data  | new                  | both; each copy's own ledger has its own rounds |
| data without a fingerprint                    | new in every process | both                                           |

What copies spent together is known to a ledger that they share, and to no other.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass

from sfumato.data.population import Population
from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.plan import Plan
from sfumato.facts import digest
from sfumato.key import Key
from sfumato.ledger.ledger import Ledger


@dataclass(frozen=True)
class Inputs:
    """Names for what a round is computed from, keyed so that only the holder of the root can test a guess at it.

    `replay` is everything that a replay must have in common, to the bit. `data` is the part that stands in the path of the
    run's keys, so that the same noise never falls on inputs that may differ: all of it, but for a seeded run, which is a
    simulation, the data alone, so that it gives the same noise with any plan and on any machine.
    """

    replay: str
    data: str

    @staticmethod
    def of(root: Key, population: Population, plan: Plan, kernels: tuple[object, ...], seeded: bool) -> Inputs:
        """Data without a fingerprint may have changed, so they get a name that no other process will give them."""
        data = population.fingerprint or os.urandom(32)
        replay = _keyed(root, data, plan, *kernels)
        return Inputs(replay, _keyed(root, data) if seeded else replay)


def _keyed(root: Key, *things: object) -> str:
    return hmac.new(root.child("inputs").stream(32), digest(*things).encode(), hashlib.sha256).hexdigest()


def attempt_of(ledger: Ledger, found: Checkpoint, replay: str, ahead: bool = False) -> int:
    """The attempt to go on with: a new one if noise was drawn after the checkpoint for inputs that may have been others.

    The checkpoint may be that of a step `ahead` of the first round.
    """
    later = ledger.after(found.round - ahead)
    if any(inputs != replay for _, inputs in later):
        return max(attempt for attempt, _ in later) + 1
    return max([found.attempt, *(attempt for attempt, _ in later)])
