"""What an audited round hands out: the noise of its releases, its cohorts, and how far a canary moves its sum.

No client's data have a part in it: all updates are zero, or those of the canaries. A release minus its noiseless sum is
the noise, so the piece that adds the noise is watched, before and after. Cohorts are drawn from the whole population.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.account.event import (
    DiscreteGaussianEvent,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceBallEvent,
    LaplaceEvent,
    Mixture,
    PoissonSampled,
    Relation,
    Unit,
)
from sfumato.audit.again import Again, Layers, silent
from sfumato.audit.asked import Asked
from sfumato.audit.canaries import Canaries, WatchedSteps
from sfumato.audit.record_worlds import linear
from sfumato.claim import Claim
from sfumato.data.population import Population
from sfumato.engine.keys import Keys
from sfumato.errors import SfumatoError
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.objective import Objective
from sfumato.pieces.context import Context
from sfumato.pieces.protocol import ClientPiece, ServerPiece, Turn
from sfumato.pieces.sampler import Everyone, FixedSize
from sfumato.pieces.staircase import Staircase
from sfumato.pieces.wrapper import forward_hooks

Values = NDArray[np.float64]
_NUMBERS = 1_000_000  # of noise that are drawn, where fewer than `_RELEASES` releases have as many
_RELEASES, _FEWEST = 200, 2
_LONGEST = 16_000_000  # coordinates of all messages of a round; more are cut off
_CANARIES = 80_000  # the same where canaries are sent, many times
_COHORTS, _FEWEST_COHORTS, _DRAWN = 1000, 60, 20_000_000
_ROUNDS = 10  # of a run
_RUNS = 400  # for as many releases as are wanted
_HUGE = 1e6
_EXACT = 1e-9  # what a norm in float64 may be off by
_ROUNDED = 1e-6  # what a sum of float32 updates may be off by


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


@dataclass(frozen=True)
class ObservedCohorts:
    """Who was drawn [runs, rounds, population], and what is stated: the rate, and whether clients are independent (Poisson).

    `strays` counts the drawn numbers that are not of different clients of the population.
    """

    drawn: NDArray[np.bool_] = field(repr=False)
    rate: float
    independent: bool
    strays: int
    of: str = "clients"


@dataclass(frozen=True)
class CanaryMoves:
    """How far canaries reach over what is stated, each by its name: 1 at most if the statement is true."""

    lengths: dict[str, float]
    sums: dict[str, float]


@dataclass(frozen=True)
class Observation:
    """What one round handed out; None where nothing is stated, or no piece is known that could be watched."""

    noise: ObservedNoise | None
    cohorts: tuple[ObservedCohorts, ...]
    moves: CanaryMoves | None


@dataclass(frozen=True)
@forward_hooks
class NoiseWatcher(ClientPiece, ServerPiece):
    """A piece that adds noise, with its values before and after."""

    inner: Any
    seen: list[tuple[Tensor, Tensor]] = field(repr=False, compare=False)

    def __call__(self, value: Tensor, context: Context) -> Tensor:
        before = value.double().clone()
        found = self.inner(value, context)
        self.seen.append((before, found.double()))
        return found  # type: ignore[no-any-return]

    def carry(self, claim: Claim) -> Claim:
        return self.inner.carry(claim)  # type: ignore[no-any-return]


def observe(asked: Asked, key: Key) -> Observation:
    """Run the round with silent clients and with canaries, and draw cohorts."""
    if asked.proof.every != 1 or asked.round.sample.named:
        return Observation(None, (), None)  # a draw lasts for several rounds, or clients differ
    noise = (
        _record_noise(asked, key.child("noise")) if asked.payment.slot == "local" else _noise(asked, key.child("noise"))
    )
    moves = None if asked.payment.slot == "local" else _moves(asked, key.child("moves"))
    return Observation(noise, tuple(_cohorts(asked, key.child("cohorts"))), moves)


# --- noise -----------------------------------------------------------------------------------------------------------------


def _family(asked: Asked) -> tuple[str, Staircase | None] | None:
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


def _noise(asked: Asked, key: Key) -> ObservedNoise | None:
    found = _family(asked)
    if found is None or asked.proof.stddev is None:
        return None
    small = _simplest(asked)
    watched = _watch(small, [None] * small.population, rounds=min(asked.rounds, _ROUNDS))
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
    rows: list[tuple[Tensor, Tensor]], stddev: float, grid: float | None, found: tuple[str, Staircase | None], asked: Asked,
    small: Asked,
) -> ObservedNoise | None:  # fmt: skip
    if len(rows) < 2:
        return None
    width = min(len(after) for _, after in rows)
    before, after = (torch.stack([pair[place][:width] for pair in rows]).numpy() for place in (0, 1))
    slack = (_ROUNDED * np.abs(after) + (grid or 0.0)) / stddev
    cut = asked.dimension if small.dimension < asked.dimension else 0
    return ObservedNoise((after - before) / stddev, slack, *found, cut=cut)


def _record_noise(asked: Asked, key: Key) -> ObservedNoise | None:
    """The noise of private local steps on records without a gradient."""
    local, found = asked.round.local, _family(asked)
    if not isinstance(local, DpSgd) or found is None or asked.proof.stddev is None:
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
    world = Again.of(round, proof, population, module, min(asked.rounds, _ROUNDS), Objective(linear))
    wanted = _releases(dimension)
    for run in range(_RUNS):
        for _ in world.run(key.child("run", number=run)):
            pass
        if len(steps) >= wanted:
            break
    stddev = local.unproven(replace(asked.proof.before[1], dimension=dimension)).stddev
    assert stddev is not None, "it adds noise"
    rows = [(torch.zeros(dimension), one * local.divisor) for one in steps[:wanted]]
    return _standardised(rows, stddev, None, found, asked, replace(asked, dimension=dimension))


@dataclass(frozen=True)
class _WatchedRound:
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


def _watch(asked: Asked, updates: list[Tensor | None], size: int | None = None, rounds: int = 1) -> _WatchedRound:
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
    return _WatchedRound(world if size is None else replace(world, size=size), seen)


def _noisy(pieces: list[Any]) -> int:
    return next(nth for nth, piece in enumerate(pieces) if piece.noise_and_norm() is not None)


def _simplest(asked: Asked, longest: int = _LONGEST) -> Asked:
    """The same noise with few clients who all take part, where it is the same; and with no more coordinates than fit."""
    sample = Everyone(asked.round.sample.relation)
    few = replace(asked, round=replace(asked.round, sample=sample), population=4)
    found = few if _same_noise(few, asked) else asked
    length = max(4, asked.layers, longest // found.population)
    shorter = replace(found, dimension=min(found.dimension, length))
    return shorter if shorter.dimension == found.dimension or _same_noise(shorter, asked) else found


def _same_noise(one: Asked, other: Asked) -> bool:
    try:
        same = one.proof.stddev == other.proof.stddev and one.payment.claim.share == other.payment.claim.share
        return same and one.payment.slot == other.payment.slot
    except SfumatoError:
        return False


# --- canaries --------------------------------------------------------------------------------------------------------------


def canaries(length: int, last: int) -> dict[str, Tensor]:
    """Updates that a clip has to bound, longer than any norm; `last` is the length of the last layer."""
    alternating = torch.ones(length)
    alternating[1::2] = -1.0
    single, end, layer = torch.zeros(length), torch.zeros(length), torch.zeros(length)
    single[0], end[-1], layer[-last:] = _HUGE, _HUGE, _HUGE
    return {
        "all coordinates alike": torch.full((length,), _HUGE),
        "the first coordinate": single,
        "the last coordinate": end,
        "the last layer": layer,
        "alternating signs": _HUGE * alternating,
        "a NaN": torch.where(single > 0, torch.nan, 1.0),
        "an infinite coordinate": torch.where(end > 0, torch.inf, 1.0),
        "infinite coordinates": torch.full((length,), -torch.inf),
        "the largest numbers": torch.full((length,), torch.finfo(torch.float32).max),
        **{
            f"random numbers ({place})": (10.0 ** (place - 4)) * Key.from_seed(place).normal(length).float()
            for place in range(8)
        },
    }


def _moves(asked: Asked, key: Key) -> CanaryMoves | None:
    """Canaries through the client pieces, alone and among others. Only where clients may send any update."""
    small = _simplest(asked, _CANARIES)
    if math.isfinite(small.proof.before[2].l2) or small.proof.sensitivity is None or asked.proof.sensitivity is None:
        return None
    length = small.proof.before[2].dimension
    sent = canaries(length, max(1, length // max(small.layers, 10)))
    return CanaryMoves(_lengths(small, sent), _sums(asked, small, sent, key))


def _lengths(asked: Asked, sent: dict[str, Tensor]) -> dict[str, float]:
    """The norm of each canary's message over the stated one, in L2 and in L1."""
    slots = _watch(asked, [None] * asked.population).world.slots
    client = slots.round.client
    upto = next((nth for nth, piece in enumerate(client) if piece.noise_and_norm() is not None), len(client))
    claim = slots.proof.before[2 + upto]
    if not math.isfinite(claim.l2):
        return {}
    before = (*slots.proof.before[: 2 + upto], *slots.proof.before[2 + len(client) :])
    quiet = replace(
        slots,
        round=replace(slots.round, client=client[:upto], nonprivate=True),
        proof=replace(slots.proof, before=before),
    )
    rows = torch.stack(list(sent.values()))
    keys = [Key.from_seed(number) for number in range(len(rows))]
    opening = slots.open(0, Key.from_seed(0))
    messages = quiet.messages(rows, torch.full((len(rows),), 5), keys, opening, range(len(rows))).double()
    over = torch.maximum(messages.norm(dim=1) / claim.l2 - _EXACT, messages.abs().sum(1) / claim.l1 - _ROUNDED)
    return dict(zip(sent, over.tolist(), strict=True))


def _sums(asked: Asked, small: Asked, sent: dict[str, Tensor], key: Key) -> dict[str, float]:
    """How far each canary moves the sum to which noise is added, over the stated sensitivity, beside ordinary clients.

    Against a sum without it (add/remove, zero-out), or with the opposite one in its place (replace; also where it displaces another
    in a cohort of a fixed size).
    """
    relation, size = small.proof.relation, asked.round.sample.cohort_size(asked.proof.before[1])
    fixed = size is not None and size < asked.population
    if asked.unit is Unit.RECORD and asked.payment.claim.moved.l2 < asked.payment.claim.rows_apart.l2:
        return {}
    opposite = relation is Relation.REPLACE or asked.unit is Unit.RECORD or (fixed and relation is Relation.ADD_REMOVE)
    order = getattr(
        getattr(asked.payment.piece, "law", None), "order", 2
    )  # of the norm that the noise is a multiple of
    stated = asked.proof.sensitivity
    assert stated is not None, "it was looked at"
    others: list[Tensor | None] = [0.1 * torch.ones(small.proof.before[2].dimension)] * (small.population - 1)
    found = {}
    for name, update in sent.items():
        present = _watch(small, [*others, update])
        if opposite:
            absent = _watch(small, [*others, -update])
        elif isinstance(small.round.sample, Everyone):
            absent = _watch(small, [*others, None], size=small.population - 1)
        else:
            continue  # one client less draws another cohort
        one, two = (_sum(world.seen_in(key)) for world in (present, absent))
        if one is None or two is None or one.shape != two.shape:
            continue
        found[name] = float(torch.linalg.vector_norm(one - two, order)) / stated - _ROUNDED
    return found


def _sum(rows: list[tuple[Tensor, Tensor]]) -> Tensor | None:
    return torch.stack([before for before, _ in rows]).sum(0) if rows else None


# --- cohorts ---------------------------------------------------------------------------------------------------------------


def _cohorts(asked: Asked, key: Key) -> Iterator[ObservedCohorts]:
    """The cohorts of runs as the engine draws them; and of private local steps the batches of their sampler."""
    event, local, at_records = asked.proof.world, asked.round.local, asked.payment.slot == "local"
    outer: Event | None = event
    if at_records:
        outer = event if isinstance(event, Mixture) else None
    stated = None if outer is None else _stated(outer)
    sampler = asked.round.sample
    if stated is not None:
        independent = isinstance(stated, PoissonSampled) or (
            isinstance(stated, Mixture) and sampler.cohort_size(asked.proof.before[1]) is None
        )
        rounds = min(asked.rounds, _ROUNDS)

        def turn(run: int, number: int) -> Turn:
            return Keys.of(key.child("run", number=run)).turn(number)

        yield _drawn(
            asked.population,
            rounds,
            lambda run, number: sampler.cohort(asked.population, turn(run, number)),
            stated,
            independent,
        )
    if at_records and isinstance(local, DpSgd):
        inner = _stated(event.event if isinstance(event, Mixture) else event)
        if isinstance(inner, PoissonSampled | FixedSizeSampled):
            batch, records = local.batch, local.records

            def draw(run: int, number: int) -> NDArray[np.int64]:
                return batch.draw(records, key.child("batch", run=run, number=number))

            yield _drawn(records, min(local.steps, _ROUNDS), draw, inner, isinstance(inner, PoissonSampled), "records")


def _stated(event: Event) -> PoissonSampled | FixedSizeSampled | Mixture | None:
    return next((part for part in event.walk() if isinstance(part, PoissonSampled | FixedSizeSampled | Mixture)), None)


def _drawn(
    population: int, rounds: int, draw: Any, stated: PoissonSampled | FixedSizeSampled | Mixture, independent: bool,
    of: str = "clients",
) -> ObservedCohorts:  # fmt: skip
    rate = float(stated.probability if isinstance(stated, Mixture) else stated.rate)
    count = min(_COHORTS, max(_FEWEST_COHORTS, _DRAWN // population))
    runs, strays = max(2, count // rounds), 0
    drawn = np.zeros((runs, rounds, population), bool)
    for run in range(runs):
        for number in range(rounds):
            ids = np.asarray(draw(run, number))
            inside = ids[(ids >= 0) & (ids < population)]
            drawn[run, number, inside] = True
            strays += len(ids) - int(drawn[run, number].sum())
    return ObservedCohorts(drawn, rate, independent, strays, of)
