"""The membership attack of every audit: as good as it gets within a given time."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from sfumato.audit.attack import Found, Keep, Subject, Tell
from sfumato.audit.membership import OfRun, Rmia, Threshold
from sfumato.audit.round_world import RoundWorld
from sfumato.audit.run_world import world_of
from sfumato.audit.shadows import name_of
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.key import Key

_MOST, _FEWEST = 16, 4
_REHEARSAL = 2.0  # seconds


@dataclass(frozen=True)
class Membership:
    """RMIA, which needs few shadows, with as many of them as can be trained in about so many seconds; where these are too few,
    one threshold for everybody.
    """

    name: ClassVar[str] = "membership"
    summary: ClassVar[str] = "rmia with as many shadows as time allows, else one threshold"
    seconds: float = 30.0
    unit: str = "record"
    most: int = OfRun.most

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise BadValue(f"seconds={self.seconds}: a positive time, e.g. 30.")

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        world = world_of(subject, self.unit, self.most, 1, keep.key.child("units"))
        name, facts = f"enough-{name_of(world)[:8]}", (world, self.seconds)
        kept = keep.once(name, facts, lambda: {"shadows": self._affordable(world)})
        shadows = int(kept["shadows"])
        attack = Rmia(shadows, self.unit, self.most) if shadows else Threshold(0, self.unit, self.most)
        found = attack(subject, keep, tell)
        said = f"{shadows} shadows were trained" if shadows else "No shadow was trained"
        why = f"{said}: as many as {self.seconds:g} s are enough for, up to {_MOST}. For more, ask for lira or rmia."
        return replace(found, notes=(*found.notes, why))

    def _affordable(self, world: RoundWorld) -> torch.Tensor:
        many = int(self.seconds / max(_rehearsed(world), 1e-9))
        many = min(_MOST, many - many % 2)
        return torch.tensor(many if many >= _FEWEST else 0)


def _rehearsed(world: RoundWorld) -> float:
    """About how many seconds a run takes, from its first rounds."""
    started, rounds = time.perf_counter(), 0
    given = world.round, world.population, world.module, world.objective
    seed = int(Key.from_system().integers(1)[0])
    for progress in simulate(*given, rounds=world.rounds, seed=seed, plan=world.engine, device=world.device):
        rounds = progress.round
        if time.perf_counter() - started > _REHEARSAL:
            break
    return (time.perf_counter() - started) / rounds * world.rounds
