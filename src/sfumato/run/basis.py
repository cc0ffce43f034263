"""A basis of clients' own records: one round of the run, priced before the first, whose release the features are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from sfumato.account import accountant, calibrate_noise
from sfumato.account.event import Event, GaussianEvent, Unit
from sfumato.calibration import with_noise
from sfumato.derive import UnitDerivation
from sfumato.errors import BadValue, BudgetExceeded, UnsoundRound
from sfumato.features import Features, Parted, PrivatePCA, PrivateWord, Unlearnt, parse_features
from sfumato.local.second_moments import SecondMoments, unpacked
from sfumato.pieces.channel import OneHolder, Plain
from sfumato.pieces.keep_release import KeepRelease
from sfumato.pieces.law import Gaussian
from sfumato.pieces.mean import Sum
from sfumato.pieces.noise import AddNoise
from sfumato.pieces.sampler import Everyone
from sfumato.round import Round
from sfumato.run.mapped_source import with_steps
from sfumato.run.naming import naming
from sfumato.run.request import Request
from sfumato.run.source import Source

STEP = "basis"  # what the step is called in a run's folder and in its keys
FILE = "basis.safetensors"
_SHARE = 0.4  # of the budget's mu: the noise of training is then 9 % larger than without a basis
_MOST_NUMBERS = 1500  # of a record; a matrix of their moments has 1,125,750


@dataclass(frozen=True)
class Basis:
    """What a run does before its first round: the round that releases moments, and what is made of its release."""

    word: PrivateWord
    noise: float  # over how far one unit moves the moments
    round: Round
    proof: UnitDerivation
    source: Source  # records before the basis
    shape: tuple[int, ...]  # of these
    after: Features
    learnt: PrivatePCA | None = None

    @property
    def event(self) -> Event:
        """What it costs against anyone who sees the released models."""
        return self.proof.world

    @property
    def mapped(self) -> Source:
        """Records as the model sees them; as zeros, while the basis is not learnt."""
        step = self.learnt or Unlearnt(self.word.dimension)
        with naming("the features behind private-pca"):
            return with_steps(self.source, Features((step, *self.after.steps)))

    def learn(self, release: Tensor) -> Basis:
        """With the basis of what was released."""
        local = self.round.local
        assert isinstance(local, SecondMoments) and self.proof.stddev is not None, "its own round"
        moments = unpacked(release.double(), local.numbers)
        return replace(self, learnt=PrivatePCA.learn(moments, self.proof.stddev, self.word, self.shape))


def basis_round(trained: Round, population: int, numbers: int, noise_multiplier: float, records: int = 0) -> Round:
    """The round that releases the moments of what `trained` trains on: everyone's, with noise in their sum.

    It hides the same unit under the same relation, so that both add up. `records` are declared where those are hidden.
    """
    relation = trained.derive(population=population, dimension=1000).primary.relation
    clients = trained.unit is Unit.CLIENT
    return Round(
        sample=Everyone(relation=relation) if clients else Everyone(),
        local=SecondMoments(numbers) if clients else SecondMoments(numbers, records, relation),
        channel=trained.channel,
        aggregate=Sum(),
        server=(AddNoise(Gaussian(noise_multiplier)),),
        optimizer=KeepRelease(),
        unit=trained.unit,
    )


def basis_of(
    request: Request,
    parted: Parted,
    trained: Round,
    source: Source,
    shape: tuple[int, ...],
    found: Mapping[str, Any],
    folder: Path | None,
) -> Basis:
    """The basis that a request asks for, with its noise; learnt, if the run in the folder has learnt it."""
    word = parted.word
    assert word is not None, "it is asked for"
    _check_trusted(request, trained, source)
    numbers = math.prod(shape)
    if word.dimension > numbers:
        raise BadValue(
            f"private-pca:{word.dimension}: a record has {numbers} numbers before it, so there are as many directions at most. Use "
            f"private-pca:{numbers} or fewer."
        )
    if numbers > _MOST_NUMBERS:
        raise BadValue(
            f"private-pca:{word.dimension}: a record has {numbers} numbers before it, and every client would send a matrix of "
            f"{numbers * (numbers + 1) // 2:,}. Bring it to {_MOST_NUMBERS} or fewer first, e.g. with resize:16, hog:7 or pca."
        )
    with naming("the features behind private-pca"):
        after = Features(()) if parted.after is None else parse_features(parted.after)
    population, records = request.data.clients, int(request.options["records"]) if request.central else 0
    round = basis_round(trained, population, numbers, 1.0, records)
    one = round.derive(population=population, dimension=1).primary.world
    assert isinstance(one, GaussianEvent), "everyone takes part, and the noise is Gaussian"
    noise = found.get("basis_noise_multiplier") or word.noise or _shared_noise(request)
    round = with_noise(round, noise / one.ratio)
    proof = round.derive(population=population, dimension=numbers * (numbers + 1) // 2).primary
    basis = Basis(word=word, noise=noise, round=round, proof=proof, source=source, shape=shape, after=after)
    _check_affordable(request, basis)
    path = None if folder is None else folder / FILE
    return replace(basis, learnt=PrivatePCA.read(path)) if path is not None and path.exists() else basis


def _shared_noise(request: Request) -> float:
    """So much that the basis takes its share of the budget's mu, as one Gaussian release would have it (Dong et al. 2022)."""
    if request.epsilon is None or request.noise_is_given:
        raise BadValue(
            "private-pca: without a budget that finds all noise, nobody knows how much of it the basis needs. Write it behind the "
            "whitening, as a multiple of how far one client moves the moments (one record, where those are hidden): "
            "private-pca:50:0.5:10, say; or give --epsilon and no --noise-multiplier."
        )
    return calibrate_noise(GaussianEvent, request.epsilon, request.chosen_delta) / _SHARE


def _check_affordable(request: Request, basis: Basis) -> None:
    if request.epsilon is None:
        return
    alone = accountant("auto").epsilon(basis.event, request.chosen_delta)
    if alone >= request.epsilon:
        raise BudgetExceeded(
            f"private-pca: the basis alone would cost epsilon {alone:.4g}, and the budget is {request.epsilon:g} at delta "
            f"{request.chosen_delta:g}. Nothing is drawn: give it more noise (private-pca:50:0.5:NOISE), or a larger budget."
        )


def _check_trusted(request: Request, trained: Round, source: Source) -> None:
    """Refuse runs in which nobody may see moments without noise, or whose own promises a basis would break."""
    asked = (
        ("--budgets", bool(request.budgets), "each client has its own budget, and the basis costs all the same"),
        ("--secure", request.secure, "its moments are added in floating point, of which exact noise assumes nothing"),
        ("--unproven", request.unproven, "nothing is proven there, so nothing can be paid for"),
    )
    for option, is_given, why in asked:
        if is_given:
            raise BadValue(f"{option} with private-pca: {why}. Leave one of them out, or use pca with --public.")
    central = isinstance(trained.channel, OneHolder)
    at_server = any(isinstance(piece, AddNoise) for piece in trained.server)
    usual = trained.unit is Unit.CLIENT and isinstance(trained.channel, Plain) and at_server and not trained.nonprivate
    if request.pieces is not None or source.public is not None or not (central or usual):
        who = request.recipe or "this round"
        raise UnsoundRound(
            f"private-pca in {who}: a basis needs somebody who is trusted to see all moments before the noise is in them, as the "
            f"server of dp-fedavg or the holder of dp-sgd is, and {who} is of another kind.",
            "use dp-fedavg or its kind, where the server is trusted, or dp-sgd; or pca with public records (--public).",
        )
