"""What the engine does in a round, in plain numpy: who is drawn, what a row becomes, what is summed, divided and noised.

Nothing here reads a claim. The one number that comes from the derivation is the standard deviation, since the engine draws
that very one; `test_semantics.py` holds all of this against the engine. A piece of one's own is made known by registering
it with `cohorts`, `sent` or `divisor`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import combinations
from typing import Any

import numpy as np
import torch

from sfumato import (
    AdaptiveClip,
    AddNoise,
    Clip,
    ClipPerLayer,
    Divide,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    Grid,
    LaplacianSmoothing,
    Mean,
    NoiseShare,
    OneHolder,
    Plain,
    Poisson,
    PostProcess,
    RealisedMean,
    Round,
    SecureSum,
    SharedMask,
    Shuffler,
    Sum,
    TopK,
    WeightByExamples,
)  # fmt: skip
from sfumato.claim import Claim
from sfumato.local.task import Task
from sfumato.pieces.mask import RandomMask
from sfumato.pieces.protocol import LocalPiece
from tests.attacks.losses import Array

SHRINK = 1.0 + 2.0**-20


class Unmodelled(Exception):
    """A round that the library may accept, but whose releases are no mixture of Gaussians that we can write down."""


@dataclass(frozen=True)
class Chosen(LocalPiece):
    """Local training whose row is whatever its data say: the first record of a client is its row. States nothing."""

    def train(self, task: Task) -> torch.Tensor:
        """The rows that the clients chose."""
        return torch.stack([records.x[0] for records in task.clients])

    def carry(self, claim: Claim) -> Claim:
        """Nothing is bounded."""
        return claim


Cohorts = list[tuple[float, tuple[int, ...]]]


@singledispatch
def cohorts(sampler: Any, population: int) -> Cohorts:
    """Every cohort with its chance."""
    raise Unmodelled(f"how {sampler} draws")


@cohorts.register
def _(sampler: Poisson, population: int) -> Cohorts:
    sizes = range(population + 1)
    chances = {size: sampler.rate**size * (1.0 - sampler.rate) ** (population - size) for size in sizes}
    return [(chances[size], who) for size in sizes for who in combinations(range(population), size) if chances[size]]


@cohorts.register
def _(sampler: FixedSize, population: int) -> Cohorts:
    if sampler.size > population:
        raise Unmodelled("a cohort larger than the population")
    everybody = list(combinations(range(population), sampler.size))
    return [(1.0 / len(everybody), who) for who in everybody]


@cohorts.register
def _(sampler: Everyone, population: int) -> Cohorts:
    return [(1.0, tuple(range(population)))]


@dataclass(frozen=True)
class Message:
    """A row on its way: values on a few coordinates, in layers (None once it is no whole row), and how many more are zero.

    The zero ones belong to the first layer.
    """

    values: Array
    records: int
    layers: tuple[int, ...] | None
    idle: int = 0

    def parts(self) -> Iterator[tuple[slice, int]]:
        """Each layer's place among the values, and how many coordinates it has with those that are zero."""
        if self.layers is None:
            raise Unmodelled("layers of what is no whole row any more")
        start = 0
        for nth, size in enumerate(self.layers):
            yield slice(start, start + size), size + (self.idle if nth == 0 else 0)
            start += size

    def of(self, values: Array) -> Message:
        """The same with other values."""
        return replace(self, values=values)


def _clipped(values: Array, norm: float) -> Array:
    length = float(np.linalg.norm(values)) * SHRINK
    return values * (norm / length) if length > norm else values


@singledispatch
def sent(piece: Any, message: Message) -> Message:
    """What a client piece makes of a row."""
    raise Unmodelled(f"what {piece} does to a row")


@sent.register
def _(piece: Clip, message: Message) -> Message:
    return message.of(_clipped(message.values, piece.norm))


@sent.register
def _(piece: ClipPerLayer, message: Message) -> Message:
    layers = list(message.parts())
    if len(layers) != len(piece.norms):
        raise Unmodelled("norms that are not one for each layer")
    clipped = [_clipped(message.values[place], norm) for (place, _), norm in zip(layers, piece.norms, strict=True)]
    return message.of(np.concatenate(clipped))


@sent.register
def _(piece: AdaptiveClip, message: Message) -> Message:
    norm = piece.start_norm
    bit = piece.bit_weight if np.linalg.norm(message.values) <= norm else -piece.bit_weight
    values = _clipped(_clipped(message.values, norm) / norm, 1.0)
    return replace(message, values=np.append(values, bit), layers=None)


@sent.register
def _(piece: Grid, message: Message) -> Message:
    """It cuts off a millionth of the norm: too little for an attack to tell."""
    return message


@sent.register
def _(piece: WeightByExamples, message: Message) -> Message:
    records = message.records
    return message.of(message.values * (records if piece.cap is None else min(records, piece.cap) / piece.cap))


@sent.register
def _(piece: TopK, message: Message) -> Message:
    values = message.values.copy()
    for place, size in message.parts():
        kept = max(1, round(piece.keep * size))
        order = np.argsort(-np.abs(values[place]), kind="stable")
        values[place][order[kept:]] = 0.0
    return message.of(values)


@sent.register
def _(piece: SharedMask, message: Message) -> Message:
    """A mask is public and drawn before any data is seen, so a guarantee holds for each: here it keeps the first ones."""
    if message.layers is None or not isinstance(piece.by, RandomMask):
        raise Unmodelled("a mask of what is no whole row")
    kept = max(1, round(piece.keep * (len(message.values) + message.idle)))
    short = message.values[:kept]
    return replace(message, values=short, layers=None, idle=kept - len(short))


@singledispatch
def divisor(aggregate: Any) -> float | None:
    """What the sum of the messages is divided by; None for the weight of those who replied."""
    raise Unmodelled(f"how {aggregate} adds")


@divisor.register
def _(aggregate: Mean) -> float | None:
    return aggregate.over


@divisor.register
def _(aggregate: Sum) -> float | None:
    return 1.0


@divisor.register
def _(aggregate: RealisedMean) -> float | None:
    return None


@dataclass(frozen=True)
class Semantics:
    """A round as it runs: from rows to messages, and from the messages of a cohort to what is seen."""

    sample: Any
    client: tuple[Any, ...]  # up to the noise
    message_stddev: float  # of the noise in one message
    sums: bool  # whether the server sees the sum only
    smallest: int  # below so many replies a cohort whose noise is shared is given up; 0: everybody replies
    over: float | None  # None: the realised weight
    by_examples: bool
    smoothing: tuple[LaplacianSmoothing, ...]  # before the server's noise
    server_stddev: float
    curious: int

    @staticmethod
    def of(round: Round, stddev: float | None) -> Semantics:
        """What runs; `stddev` is that of the first noise, as the derivation states it and the engine draws it."""
        before, message = _client_noise(round, stddev)
        smoothing, server = _server_noise(round, stddev, message)
        if not isinstance(
            round.channel, Plain | OneHolder | SecureSum | Shuffler
        ):  # Gaussian messages gain nothing from a shuffler
            raise Unmodelled(f"what {round.channel} shows")
        sums = isinstance(round.channel, SecureSum)
        shared = any(isinstance(piece, NoiseShare) for piece in round.client)
        return Semantics(
            round.sample,
            before,
            message,
            sums,
            round.channel.smallest if shared and isinstance(round.channel, SecureSum) else 0,
            divisor(round.aggregate),
            getattr(round.aggregate, "by", "") == "examples",
            smoothing,
            server,
            getattr(round.sample, "curious", 1),  # clients see the model, so one at least looks on
        )

    def message(self, message: Message) -> Message:
        """What a client sends, but for the noise."""
        for piece in self.client:
            message = sent(piece, message)
        return message

    def smoothed(self, values: Array) -> Array:
        """The aggregate before the server's noise."""
        for piece in self.smoothing:
            ring = np.eye(len(values))
            laplacian = 2 * ring - np.roll(ring, 1, axis=0) - np.roll(ring, -1, axis=0)
            values = np.linalg.solve(ring + piece.strength * laplacian, values)
        return values


def _client_noise(round: Round, stddev: float | None) -> tuple[tuple[Any, ...], float]:
    """The client pieces before the noise, and its standard deviation in one message."""
    if isinstance(round.local, DpSgd):
        if round.client:
            raise Unmodelled("pieces after DpSgd")
        return (), round.local.law.noise_multiplier * round.local.clip * math.sqrt(round.local.steps)
    for nth, piece in enumerate(round.client):
        if isinstance(piece, AddNoise | NoiseShare):
            _check_gaussian(piece)
            assert stddev is not None
            if nth < len(round.client) - 1:
                raise Unmodelled("pieces after the noise of a message")
            return round.client[:nth], stddev / math.sqrt(getattr(piece, "clients", 1))
    return round.client, 0.0


def _server_noise(round: Round, stddev: float | None, message: float) -> tuple[tuple[LaplacianSmoothing, ...], float]:
    """What smooths the aggregate before the server's noise, and its standard deviation. What comes after is undone at will."""
    noises = [nth for nth, piece in enumerate(round.server) if isinstance(piece, AddNoise)]
    free = round.server if not noises else round.server[noises[-1] + 1 :]
    for piece in free:
        if not isinstance(piece, LaplacianSmoothing | Divide) and not _can_be_undone(piece):
            raise Unmodelled(f"what {piece} leaves to see")
    if not noises:
        return (), 0.0
    if message or len(noises) > 1 or isinstance(round.local, DpSgd):
        raise Unmodelled("noise upon noise")
    assert stddev is not None
    _check_gaussian(round.server[noises[0]])
    before = round.server[: noises[0]]
    if not all(isinstance(piece, LaplacianSmoothing) and not piece.per_layer for piece in before):
        raise Unmodelled("what stands before the noise")
    return before, stddev


def _check_gaussian(piece: Any) -> None:
    if not isinstance(piece.law, Gaussian):
        raise Unmodelled(f"the law of {piece}")


def _can_be_undone(piece: Any) -> bool:
    return isinstance(piece, PostProcess) and piece.function is torch.neg
