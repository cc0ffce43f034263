"""Random small rounds of the library's own pieces; many of them are refused, as they should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from sfumato import (
    AdaptiveClip,
    AddNoise,
    Clip,
    ClipPerLayer,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    HelperBlend,
    LaplacianSmoothing,
    Mean,
    NoiseShare,
    OneHolder,
    Plain,
    Poisson,
    PostProcess,
    RealisedMean,
    Relation,
    Round,
    SecureSum,
    SharedMask,
    Shuffler,
    TopK,
    Unit,
    WeightByExamples,
    secure,
)  # fmt: skip
from tests.attacks.search import Shape
from tests.attacks.semantics import Chosen


@dataclass(frozen=True)
class Case:
    """A round that is not built yet, and where it runs."""

    build: Callable[[], Round]
    population: int
    shape: Shape
    rounds: int


def draw(random: Random) -> Case:
    """Any round that fits together in form."""
    population, rounds = random.randint(2, 6), random.choice((1, 1, 2, 3))
    sample = _sampler(random, population)
    private_steps = random.random() < 0.15
    local: Callable[[], Any] = _dp_sgd(random) if private_steps else Chosen
    at_client = not private_steps and random.random() < 0.5
    shape = random.choice((Shape((1,)), Shape((2,)), Shape((2, 1))))
    if at_client and random.random() < 0.5:
        shape = Shape(shape.layers, idle=10_000)
    size = min(getattr(sample, "size", population), population)
    smallest = (random.randint(1, size), max(1, size - 1))
    channel = random.choice((Plain(), OneHolder(), Shuffler(), SecureSum(), *map(SecureSum, smallest)))
    slots: dict[str, Any] = {
        "sample": sample,
        "client": () if private_steps else _client(random, shape, at_client, _honest(sample, channel, population)),
        "channel": channel,
        "aggregate": random.choice((Mean(over=random.choice((1.0, 2.0, 3.5))), RealisedMean(random.choice(_BY)))),
        "server": _server(random, not at_client and not private_steps),
        "personal": HelperBlend(0.5) if random.random() < 0.1 else None,
        "unit": random.choice(list(Unit)),
    }
    exact: Callable[[Round], Round] = secure if random.random() < 0.15 else lambda round: round
    return Case(lambda: exact(Round(local=local(), **slots)), population, shape, rounds)


_BY = ("clients", "clients", "examples")
_NOISE = (0.6, 1.0, 2.0, 4.0)


def _sampler(random: Random, population: int) -> Any:
    relation = random.choice(list(Relation))
    return random.choice(
        (
            lambda: Poisson(random.choice((0.1, 0.3, 0.5, 0.8, 1.0)), relation),
            lambda: FixedSize(random.randint(1, population), relation, random.choice((0, 1, 1, 2))),
            lambda: Everyone(relation),
        )
    )()


def _dp_sgd(random: Random) -> Callable[[], DpSgd]:
    records, relation = random.randint(1, 6), random.choice((Relation.ADD_REMOVE, Relation.REPLACE))
    batch = random.choice(
        (
            Poisson(random.choice((0.1, 0.3, 0.5, 1.0)), relation),
            FixedSize(random.randint(1, records), relation),
            Everyone(relation),
        )
    )
    facts = (random.choice((1, 1, 2, 3)), batch, records, random.choice((0.5, 1.0)), Gaussian(random.choice(_NOISE)))
    return lambda: DpSgd(*facts)


def _honest(sample: Any, channel: Any, population: int) -> int:
    """How many shares of the noise are sure to arrive, if clients may drop out and curious ones know their own."""
    replies = getattr(channel, "smallest", 0) or getattr(sample, "size", population)
    return max(1, replies - getattr(sample, "curious", 1))


def _client(random: Random, shape: Shape, noisy: bool, honest: int) -> tuple[Any, ...]:
    """A clip, something before it, something after it, and perhaps noise at the end."""
    before = (None, None, WeightByExamples(), TopK(0.5), SharedMask(0.5), Clip(2.0))
    clips = (Clip(1.0), Clip(0.3), ClipPerLayer((1.0,) if len(shape.layers) == 1 else (0.6, 0.8)), _adaptive(random))
    after = (None, None, None, WeightByExamples(cap=random.choice((1, 50))), TopK(0.5), SharedMask(0.5), Clip(0.7))
    law = Gaussian(random.choice(_NOISE))
    noises = (AddNoise(law), NoiseShare(law, honest), NoiseShare(law, honest), NoiseShare(law, honest + 1))
    chosen = [
        random.choice(before),
        random.choice(clips),
        random.choice(after),
        random.choice(noises) if noisy else None,
    ]
    return tuple(piece for piece in chosen if piece is not None)


def _adaptive(random: Random) -> AdaptiveClip:
    return AdaptiveClip(0.3, bit_weight=random.choice((0.1, 1.0)))


def _server(random: Random, noisy: bool) -> tuple[Any, ...]:
    free = random.choice(((), (), (LaplacianSmoothing(1.0),), (PostProcess(torch.neg),)))
    if not noisy:
        return free
    before = random.choice(((), (), (LaplacianSmoothing(0.5),)))
    return (*before, AddNoise(Gaussian(random.choice(_NOISE))), *free)
