"""The noise of an audited round: a release minus its noiseless sum, in a round whose clients are silent.

No client's data have a part in it. The piece that adds the noise is watched, before and after; for private local steps, whose
records have no gradient here, the noise is all that a step shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.account.event import (
    DiscreteGaussianEvent,
    GaussianEvent,
    LaplaceBallEvent,
    LaplaceEvent,
)
from sfumato.audit.again import Again, Layers, silent
from sfumato.audit.asked import Asked
from sfumato.audit.canaries import Canaries, NoiseWatcher, WatchedSteps
from sfumato.audit.record_worlds import linear
from sfumato.data.population import Population
from sfumato.errors import SfumatoError
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.objective import Objective
from sfumato.pieces.exact import BITS, ExactLaw
from sfumato.pieces.sampler import Everyone, FixedSize
from sfumato.pieces.staircase import Staircase

Values: TypeAlias = NDArray[np.float64]
Family: TypeAlias = tuple[str, Staircase | None]  # normal, laplace or staircase, which has its steps
ROUNDED = 1e-6  # what a sum of float32 updates may be off by
ROUNDS = 10  # of a run
_NUMBERS = 1_000_000  # of noise that are drawn, where fewer than `_RELEASES` releases have as many
_RELEASES, _FEWEST = 200, 2
_LONGEST = 16_000_000  # coordinates of all messages of a round; more are cut off
_RUNS = 400  # for as many releases as are wanted


@dataclass(frozen=True)
class ObservedNoise:
    """The noise of releases, in stated standard deviations [releases, coordinates].

    `slack` is how far rounding may have moved each number. `family` is the stated distribution: normal, laplace or staircase, of
    which `law` has the steps.
    """

    values: Values = field(repr=False)
    slack: Values = field(repr=False)
    family: str
    law: Staircase | None = None
    cut: int = 0  # the number of coordinates of a message, where fewer were drawn


def family_of(asked: Asked) -> Family | None:
    """The distribution of the noise that the event states on each coordinate; None where it names none."""
    law = getattr(asked.payment.piece, "law", None)
    kinds = [type(part) for part in asked.proof.world.walk()]
    if isinstance(law, Staircase):
        return "staircase", law
    if LaplaceEvent in kinds or LaplaceBallEvent in kinds:
        return "laplace", None
    if GaussianEvent in kinds or DiscreteGaussianEvent in kinds:
        return "normal", None
    return None


def _releases(dimension: int) -> int:
    return min(_RELEASES, max(_FEWEST, _NUMBERS // dimension))


def observed_noise(asked: Asked, key: Key) -> ObservedNoise | None:
    """The noise of as many releases as are quickly drawn; None where no known distribution and scale are stated."""
    found = family_of(asked)
    if found is None or asked.proof.stddev is None:
        return None
    return _of_steps(asked, found, key) if asked.payment.slot == "local" else _of_releases(asked, found, key)


def _of_releases(asked: Asked, found: Family, key: Key) -> ObservedNoise | None:
    """The noise of sums at the server, or of each message at the clients."""
    small = simplest(asked)
    watched = watch(small, [None] * small.population, rounds=min(asked.rounds, ROUNDS))
    stddev = small.payment.claim.share if small.payment.slot == "channel" else small.proof.stddev
    if stddev is None:
        return None
    rows: list[tuple[Tensor, Tensor]] = []
    wanted = _releases(small.dimension)
    for run in range(_RUNS):
        rows += watched.seen_in(key.child("run", number=run))
        if len(rows) >= wanted:
            break
    return _standardised(rows[:wanted], stddev, small.payment.claim.grid, found, asked, small)


def _standardised(
    rows: list[tuple[Tensor, Tensor]], stddev: float, grid: float | None, found: Family, asked: Asked,
    small: Asked,
) -> ObservedNoise | None:  # fmt: skip
    if len(rows) < 2:
        return None
    width = min(len(after) for _, after in rows)
    before, after = (torch.stack([pair[place][:width] for pair in rows]).numpy() for place in (0, 1))
    slack = (ROUNDED * np.abs(after) + (grid or 0.0)) / stddev
    cut = asked.dimension if small.dimension < asked.dimension else 0
    return ObservedNoise((after - before) / stddev, slack, *found, cut=cut)


def _of_steps(asked: Asked, found: Family, key: Key) -> ObservedNoise | None:
    """The noise of private local steps on records without a gradient."""
    local = asked.round.local
    if not isinstance(local, DpSgd):
        return None
    fixed = isinstance(local.batch, FixedSize)
    count = local.records if fixed else 2
    dimension = min(asked.dimension, max(4, _LONGEST // count))
    steps: list[Tensor] = []
    watched = replace(local, optimizer=WatchedSteps(steps), weight_decay=0.0, proximal=0.0, lr_decay=1.0)
    module = nn.Linear(dimension, 1, bias=False)
    nn.init.zeros_(module.weight)
    # the one client always takes part: who does has no part in the noise of its steps
    everyone = Everyone(asked.round.sample.relation)
    round = replace(asked.round, sample=everyone, local=Canaries(watched, 1, torch.zeros(1, dimension)), personal=None)
    records = torch.zeros(1, dimension).expand(count, -1), torch.ones(count)
    try:
        proof = round.derive(population=2, dimension=dimension).units[asked.unit]
    except (SfumatoError, KeyError):
        return None
    population = Population("silent", 2, lambda client: records)
    world = Again.of(round, proof, population, module, min(asked.rounds, ROUNDS), Objective(linear))
    wanted = _releases(dimension)
    for run in range(_RUNS):
        for _ in world.run(key.child("run", number=run)):
            pass
        if len(steps) >= wanted:
            break
    stddev = local.unproven(replace(asked.proof.before[1], dimension=dimension)).stddev
    assert stddev is not None, "it adds noise"
    grid = local.clip * 2.0**-BITS if isinstance(local.law, ExactLaw) else None
    rows = [(torch.zeros(dimension), one * local.divisor) for one in steps[:wanted]]
    return _standardised(rows, stddev, grid, found, asked, replace(asked, dimension=dimension))


@dataclass(frozen=True)
class WatchedRound:
    """A round whose noise is watched, its clients' updates given."""

    world: Again
    seen: list[tuple[Tensor, Tensor]]

    def seen_in(self, key: Key) -> list[tuple[Tensor, Tensor]]:
        """The vectors before and after noise of one run: sums at the server, single messages at the clients."""
        self.seen.clear()
        for _ in self.world.run(key):
            pass
        return [
            (one, two)
            for before, after in self.seen
            for one, two in ([(before, after)] if before.ndim == 1 else zip(before, after, strict=True))
        ]


def watch(asked: Asked, updates: list[Tensor | None], size: int | None = None, rounds: int = 1) -> WatchedRound:
    """The round with these updates of its last clients, None for zeros; of the first `size` clients, where that is given."""
    round, payment, seen = asked.round, asked.payment, list[tuple[Tensor, Tensor]]()
    slot = "client" if payment.slot in ("client", "channel") else "server"
    pieces: list[Any] = list(getattr(round, slot))
    nth = _noisy(pieces) if payment.slot == "channel" else payment.nth
    pieces[nth] = NoiseWatcher(pieces[nth], seen)
    length = asked.proof.before[2].dimension
    rows = torch.zeros(len(updates), length)
    for place, update in enumerate(updates):
        if update is not None:
            rows[place] = update
    changed: dict[str, Any] = {slot: tuple(pieces), "local": Canaries(round.local, 0, rows)}
    watched = replace(round, **changed)
    proof = watched.derive(population=asked.population, dimension=asked.dimension).units[asked.unit]
    sizes = max([5, *(getattr(piece, "cap", None) or 1 for piece in round.client)])
    module = Layers(asked.dimension, asked.layers)
    world = Again.of(watched, proof, silent(asked.population, sizes), module, rounds, None)
    return WatchedRound(world if size is None else replace(world, size=size), seen)


def _noisy(pieces: list[Any]) -> int:
    return next(nth for nth, piece in enumerate(pieces) if piece.noise_and_norm() is not None)


def simplest(asked: Asked) -> Asked:
    """The same noise with few clients who all take part, where it is the same; and with no more coordinates than fit."""
    sample = Everyone(asked.round.sample.relation)
    few = replace(asked, round=replace(asked.round, sample=sample), population=4)
    found = few if _same_noise(few, asked) else asked
    shorter = cut(found, _LONGEST)
    return shorter if _same_noise(shorter, found) else found


def cut(asked: Asked, longest: int) -> Asked:
    """The same with so few coordinates that all messages of a round have at most `longest`."""
    return replace(asked, dimension=min(asked.dimension, max(4, asked.layers, longest // asked.population)))


def _same_noise(one: Asked, other: Asked) -> bool:
    try:
        same = one.proof.stddev == other.proof.stddev and one.payment.claim.share == other.payment.claim.share
        return same and one.payment.slot == other.payment.slot
    except SfumatoError:
        return False
