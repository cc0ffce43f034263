"""A round with exact noise in place of floating point's: what is stated then holds for the numbers that are really added."""

from __future__ import annotations

from dataclasses import replace

from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.exact import DiscreteGaussian, RoundedGaussian
from sfumato.pieces.grid import Grid
from sfumato.pieces.law import Gaussian
from sfumato.pieces.mean import Divide, Mean, Sum
from sfumato.pieces.noise import AddNoise, NoiseShare
from sfumato.pieces.protocol import Aggregate, MessageAggregate, ServerPiece
from sfumato.round import Round


def secure(round: Round, bits: int = 20) -> Round:
    """The same round, with rows cut off at a grid before the noise, exact noise on it, and any division after it.

    Noise at the server or on each message becomes `RoundedGaussian`, shares of noise become `DiscreteGaussian`. The derivation
    of the new round says whether every step between the grid and the noise keeps to it, and refuses it otherwise.
    """
    if round.nonprivate or round.unproven:
        raise BadValue(
            "secure: this round proves nothing that exact noise could keep true. Use a recipe with a guarantee."
        )
    if round.local.noise_and_norm() is not None:
        raise UnsoundRound(
            "secure: the noise of local training is added to sums of gradients that are clipped and added in floating point, many "
            "at a time: how such a sum was rounded depends on the record that is to be hidden.",
            "leave --secure out; or use a recipe whose noise is added to whole updates, such as dp-fedavg or perturb-model.",
        )
    aggregate, divided = _summed(round)
    for place, piece in enumerate(round.client):
        if isinstance(piece, AddNoise | NoiseShare):
            exact = replace(piece, law=_exact(piece))
            client = (*round.client[:place], Grid(bits), exact, *round.client[place + 1 :])
            if isinstance(piece, AddNoise):  # what leaves the client is private already
                return replace(round, client=client)
            return replace(round, client=client, aggregate=aggregate, server=(*divided, *round.server))
    for place, noise in enumerate(round.server):
        if isinstance(noise, AddNoise):
            server = (*round.server[:place], replace(noise, law=_exact(noise)), *divided, *round.server[place + 1 :])
            return replace(round, client=(*round.client, Grid(bits)), aggregate=aggregate, server=server)
    raise BadValue("secure: the round adds no noise that could be exact. Give it AddNoise(Gaussian(1.0)).")


def _exact(piece: AddNoise | NoiseShare) -> RoundedGaussian | DiscreteGaussian:
    if type(piece.law) is not Gaussian:
        raise UnsoundRound(
            f"secure: exact draws are there for Gaussian noise, and {piece.law} is other noise, or exact already.",
            "use Gaussian(noise_multiplier).",
        )
    exact = DiscreteGaussian if isinstance(piece, NoiseShare) else RoundedGaussian
    return exact(piece.law.noise_multiplier)


def _summed(round: Round) -> tuple[Aggregate | MessageAggregate, tuple[ServerPiece, ...]]:
    """The aggregate without its division, and the division, for after the noise."""
    mean = round.aggregate
    return (Sum(), (Divide(mean.over),)) if isinstance(mean, Mean) else (mean, ())
