"""Small rounds that together have every piece of the library, and who takes part in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from sfumato import (
    Adam,
    AdaptiveClip,
    AddNoise,
    Adversarial,
    Argmax,
    Averaged,
    Clip,
    ClipPerClient,
    ClipPerLayer,
    ControlVariates,
    Coral,
    Divide,
    DpSgd,
    Everyone,
    Fit,
    FixedSize,
    Gaussian,
    GeometricMedian,
    HelperBlend,
    Laplace,
    LaplacianSmoothing,
    MeanThenPublic,
    Median,
    ModeConnectivity,
    Momentum,
    Neighbours,
    NoiseShare,
    PerClient,
    Poisson,
    PostProcess,
    PublicData,
    Queries,
    RealisedMean,
    Relation,
    Ridge,
    Round,
    Screened,
    SecureSum,
    Sgd,
    SharedMask,
    SharpnessAware,
    Shuffler,
    Staircase,
    Standardised,
    Student,
    Sum,
    Teacher,
    TopK,
    TowardWeakest,
    TrimmedMean,
    Unit,
    VirtualAdversarial,
    Votes,
    WeightByExamples,
    secure,
)  # fmt: skip
from sfumato.local.dp_sgd import PlainSteps
from sfumato.local.nbafl import NbaflNoise, WithinBall
from sfumato.local.penalty import NormPenalty
from sfumato.local.second_moments import SecondMoments
from sfumato.pieces.as_published import AsPublished, PerCoordinateStaircase
from sfumato.pieces.keep_release import KeepRelease
from sfumato.pieces.mask import PreviousTopK, PublicTopK
from sfumato.pieces.presence import PoissonPerClient, Presence
from sfumato.tuning.score import Score
from tests.helpers import dp_round, linear, made_up_population

PEOPLE = made_up_population([7, 5, 9, 12])
HOLDER = made_up_population([31])
PUBLIC = PublicData("public", made_up_population([20], seed=5).client(0).train)

_REPLACE, _NOBODY = Everyone(Relation.REPLACE), Poisson(0.01, Relation.REPLACE)
_AT_CLIENT = (Clip(1.0), AddNoise(Gaussian(2.0)))
_SHARES = {
    "sample": FixedSize(3),
    "client": (Clip(1.0), NoiseShare(Gaussian(1.0), 2)),
    "channel": SecureSum(),
    "server": (),
}
_L1 = (Clip(1.0, order=1), AddNoise(Laplace(9.0)))
_DP_SGD = DpSgd(steps=2, batch=Poisson(0.5), records=5)
_TEACHER = Sgd(lr=0.1, epochs=2, batch_size=4)


def noised(*server: Any, **changed: Any) -> Round:
    return dp_round(server=(AddNoise(Gaussian(1.0)), *server), **changed)


def steps(**changed: Any) -> Round:
    return dp_round(local=Sgd(**{"lr": 0.1, "epochs": 2, "batch_size": 4, **changed}))


def of_messages(aggregate: Any, sample: Any = _REPLACE) -> Round:
    return dp_round(sample=sample, client=_AT_CLIENT, aggregate=aggregate, server=())


def of_records(local: Any = _DP_SGD, **changed: Any) -> Round:
    slots: dict[str, Any] = {
        "client": (),
        "aggregate": RealisedMean(),
        "server": (),
        "sample": Everyone(),
        "unit": Unit.RECORD,
    }
    return dp_round(**{**slots, "local": local, **changed})


def released(local: Any) -> Round:
    return dp_round(sample=_REPLACE, local=local, client=(), aggregate=Sum(), optimizer=KeepRelease())


def of_votes(voter: Any, learner: Any, order: str = "in-order", labels: Any = None, **changed: Any) -> Round:
    queries = Queries(PUBLIC, 4)
    slots: dict[str, Any] = {"sample": Everyone(), "client": (), "aggregate": Sum(), "local": Votes(voter, queries, 3)}
    return noised(**{**slots, "optimizer": Student(queries, learner, labels or Argmax(), order), **changed})


def screened() -> Round:
    votes = of_votes(Neighbours(3), Ridge())
    return dataclasses.replace(votes, server=(Screened(1.0, 1.0, Gaussian(1.0), 3),))


def nbafl() -> Round:
    local = WithinBall(Sgd(lr=0.1, epochs=1), 20.0)
    return dp_round(local=local, client=(NbaflNoise(0.5),), server=(NbaflNoise(0.1),), unproven=True)


ROUNDS: dict[str, Callable[[], Round]] = {
    "dp-fedavg": dp_round,
    "nobody is drawn": lambda: dp_round(sample=Poisson(0.01)),
    "fixed size": lambda: dp_round(sample=FixedSize(2), client=(Clip(1.0, order=1),), server=(AddNoise(Laplace(1.0)),)),
    "Laplace in L2": lambda: dp_round(server=(AddNoise(Laplace(1.0, order=2)),)),
    "staircase": lambda: dp_round(client=(Clip(1.0, order=1),), server=(AddNoise(Staircase(1.0)),)),
    "as published": lambda: dp_round(server=(AddNoise(AsPublished(PerCoordinateStaircase(1.0))),), unproven=True),
    "exact": lambda: secure(dp_round(sample=_REPLACE)),
    "shares": lambda: dp_round(**_SHARES),
    "exact shares": lambda: secure(dp_round(**_SHARES)),
    "divided later": lambda: noised(Divide(5.0), aggregate=Sum()),
    "adaptive": lambda: dp_round(client=(AdaptiveClip(0.3),)),
    "per layer": lambda: dp_round(client=(ClipPerLayer((0.3, 0.4)),)),
    "per client": lambda: dp_round(client=(ClipPerClient(Clip(1.0), {3: Clip(0.2)}),)),
    "presence per client": lambda: dp_round(sample=PoissonPerClient(Presence(0.5), {1: Presence(0.2)})),
    "sparse": lambda: dp_round(client=(WeightByExamples(), TopK(0.4), Clip(1.0), WeightByExamples(cap=5))),
    "random mask": lambda: dp_round(client=(SharedMask(0.4), Clip(1.0))),
    "previous mask": lambda: dp_round(client=(SharedMask(0.4, PreviousTopK()), Clip(1.0))),
    "public mask": lambda: dp_round(client=(SharedMask(0.4, PublicTopK(PUBLIC)), Clip(1.0))),
    "shuffled": lambda: dp_round(sample=_REPLACE, client=_L1, channel=Shuffler(), server=()),
    "median": lambda: of_messages(Median()),
    "nobody's median": lambda: of_messages(Median(), _NOBODY),
    "trimmed mean": lambda: of_messages(TrimmedMean(0.2)),
    "geometric median": lambda: of_messages(GeometricMedian()),
    "toward the weakest": lambda: of_messages(TowardWeakest(Median(), {client: 1.0 + client for client in range(4)})),
    "mode connectivity": lambda: of_messages(ModeConnectivity(PUBLIC, steps=3)),
    "mean, then public": lambda: of_messages(MeanThenPublic(PUBLIC, steps=3)),
    "smoothing": lambda: noised(LaplacianSmoothing(1.0), PostProcess(lambda value: value / 2)),
    "smoothing per layer": lambda: noised(LaplacianSmoothing(1.0, per_layer=True)),
    "adam": lambda: dp_round(optimizer=Averaged(Adam())),
    "momentum": lambda: dp_round(optimizer=Momentum()),
    "sharpness": lambda: steps(momentum=0.5, weight_decay=0.1, gradient=SharpnessAware(0.5), project=1.0),
    "adaptive sharpness": lambda: steps(gradient=SharpnessAware(0.5, adaptive=True), penalties=(NormPenalty(0.1),)),
    "span": lambda: steps(epochs=15),
    "records": of_records,
    "records one by one": lambda: secure(of_records()),
    "records in L1": lambda: of_records(DpSgd(2, FixedSize(3), 5, law=Laplace(1.0), order=1, proximal=0.1, optimizer=Adam())),
    "per client's records": lambda: of_records(PerClient(_DP_SGD, {2: DpSgd(1, Poisson(0.3), 5, weight_decay=0.1)})),
    "plain steps": lambda: dp_round(local=PlainSteps(2, Poisson(0.5))),
    "helper models": lambda: of_records(personal=HelperBlend(0.3)),
    "control variates": lambda: dataclasses.replace(steps(epochs=None, steps=3), personal=ControlVariates()),
    "nbafl": nbafl,
    "second moments": lambda: released(SecondMoments(6)),
    "score": lambda: released(Score()),
    "neighbours": lambda: of_votes(Neighbours(3), Ridge(), "uncertain"),
    "neighbours by a network": lambda: of_votes(Neighbours(3, features=linear().eval()), Ridge(), "balanced"),
    "teachers": lambda: of_votes(Teacher(_TEACHER, soft=True), Fit(steps=4), "balanced"),
    "teachers toward public records": lambda: of_votes(
        Teacher(_TEACHER, adapt=Coral(PUBLIC), scale=Standardised(PUBLIC)), VirtualAdversarial(Fit(steps=4))
    ),
    "teachers against a head": lambda: of_votes(Teacher(_TEACHER, linear(), adapt=Adversarial(PUBLIC)), Fit(steps=4)),
    "screened": screened,
}  # fmt: skip


def parts(value: Any) -> Iterator[Any]:
    """A round and everything that it is made of."""
    yield value
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from parts(one)
