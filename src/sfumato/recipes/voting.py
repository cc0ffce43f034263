"""Voting: clients label public records, and the server trains a student on the noisy counts. No gradient leaves a client."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sfumato
from sfumato.errors import BadValue, nearest
from sfumato.pieces.sampler import parse_sampler
from sfumato.recipes import usual

if TYPE_CHECKING:
    from sfumato.data.population import PublicData
    from sfumato.round import Round

_LEARNERS: dict[str, Callable[[], Any]] = {
    "ridge": lambda: sfumato.Ridge(),
    "fit": lambda: sfumato.Fit(),
    "vat": lambda: sfumato.VirtualAdversarial(),
}
_ADAPTATIONS: dict[str, Callable[[PublicData | None], Any]] = {
    "none": lambda public: None,
    "coral": lambda public: sfumato.Coral(public),
    "adversarial": lambda public: sfumato.Adversarial(public),
}


def pate_fl(
    population: int,
    public: PublicData | None = None,
    *,
    queries: int = usual.QUERIES,
    classes: int = usual.CLASSES,
    stddev: float = usual.STDDEV,
    noise_multiplier: float = 0.0,
    sample: str = usual.VOTERS,
    relation: str = usual.OWN_RELATION,
    shares: bool = False,
    teacher: str = "logistic",
    adapt: str = "none",
    attributes: int = 0,
    lr: float = 0.01,
    epochs: int = 10,
    batch_size: int = 60,
    momentum: float = 0.9,
    weight_decay: float = 0.1,
    student: str = usual.STUDENT,
    order: str = usual.ORDER,
) -> Round:
    """Each client trains a teacher of its own, and teachers vote (AE-DPFL, Zhu et al. 2020)."""
    training = sfumato.Sgd(lr, epochs, batch_size=batch_size, momentum=momentum, weight_decay=weight_decay)
    adapts, scale = _one(_ADAPTATIONS, "adapt", adapt)(public), sfumato.Standardised(public)
    voter = sfumato.Teacher(training, teacher, attributes=attributes, adapt=adapts, scale=scale)
    votes = sfumato.Votes(voter, sfumato.Queries(public, queries), classes)
    noise = noise_multiplier or stddev / _norm(votes)
    return _voting(population, votes, noise, sample, relation, shares, attributes, student, order)


def knn_fl(
    population: int,
    public: PublicData | None = None,
    *,
    queries: int = usual.QUERIES,
    classes: int = usual.CLASSES,
    k: int = 5,
    stddev: float = usual.STDDEV,
    stddev_of: str = "clients",
    noise_multiplier: float = 0.0,
    sample: str = usual.VOTERS,
    relation: str = usual.OWN_RELATION,
    shares: bool = False,
    attributes: int = 0,
    student: str = usual.STUDENT,
    order: str = usual.ORDER,
) -> Round:
    """Each client answers with the labels of its k nearest records, so that one of them moves little (Private-kNN-FL)."""
    unit = _one({"clients": 1, "neighbours": k}, "stddev_of", stddev_of)
    votes = sfumato.Votes(sfumato.Neighbours(k, attributes=attributes), sfumato.Queries(public, queries), classes)
    noise = noise_multiplier or stddev / unit / _norm(votes)
    return _voting(population, votes, noise, sample, relation, shares, attributes, student, order)


def _norm(votes: sfumato.Votes) -> float:
    """The norm that bounds a row, of which noise is a multiple."""
    return votes.voter.bounds(votes.classes).norm.l2 * math.sqrt(votes.queries.count)


def _voting(
    population: int,
    votes: sfumato.Votes,
    noise: float,
    sample: str,
    relation: str,
    shares: bool,
    attributes: int,
    student: str,
    order: str,
) -> Round:
    """Votes are added, and noise with them: by the server, or in shares by the clients themselves, in a secure sum."""
    sampler = parse_sampler(sample, relation or ("zero_out" if shares else ""))
    voters = sampler.expected(population)
    law, labels = sfumato.Gaussian(noise), sfumato.Majority(voters) if attributes else sfumato.Argmax()
    honest = max(1, int(voters) - 1)
    return sfumato.Round(
        sample=sampler,
        local=votes,
        client=(sfumato.NoiseShare(law, honest),) if shares else (),
        channel=sfumato.SecureSum() if shares else sfumato.Plain(),
        aggregate=sfumato.Sum(),
        server=() if shares else (sfumato.AddNoise(law),),
        optimizer=sfumato.Student(votes.queries, _one(_LEARNERS, "student", student)(), labels, order),
    )


def _one(known: dict[str, Any], option: str, name: str) -> Any:
    if name not in known:
        raise BadValue(f"{option}={name!r}: there is no such choice. {nearest(name, known)}")
    return known[name]
