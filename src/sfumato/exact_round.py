"""A round with exact noise in place of floating point's: what is stated then holds for the numbers that are really added."""

from __future__ import annotations

from dataclasses import replace

from sfumato.account.event import Unit
from sfumato.claim import text
from sfumato.errors import BadValue, UnsoundRound
from sfumato.local.dp_sgd import DpSgd
from sfumato.local.per_client import PerClient
from sfumato.pieces.exact import DiscreteGaussian, RoundedGaussian
from sfumato.pieces.grid import Grid
from sfumato.pieces.law import Gaussian
from sfumato.pieces.mean import Divide, Mean, Sum
from sfumato.pieces.noise import AddNoise, NoiseShare
from sfumato.pieces.protocol import Aggregate, LocalPiece, MessageAggregate, ServerPiece
from sfumato.round import Round


def secure(round: Round, bits: int = 20) -> Round:
    """The same round, with rows cut off at a grid before the noise, exact noise on it, and any division after it.

    Noise at the server, on each message or in local steps becomes `RoundedGaussian`, shares of noise become `DiscreteGaussian`.
    The derivation of the new round says whether every step between the grid and the noise keeps to it, and refuses it
    otherwise.
    """
    if round.nonprivate or round.unproven:
        raise BadValue(
            "secure: this round proves nothing that exact noise could keep true. Use a recipe with a guarantee."
        )
    if round.unit is Unit.RECORD and round.local.noise_and_norm() is not None:
        return replace(round, local=_exact_local(round.local))
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


def _exact_local(local: LocalPiece) -> LocalPiece:
    if isinstance(local, PerClient):
        return PerClient(_exact_local(local.default), tuple((who, _exact_local(own)) for who, own in local.own))
    if isinstance(local, DpSgd):
        return replace(local, law=_exact(local))
    raise UnsoundRound(
        f"secure: how {text(local)} adds up records and rounds their sum is not known, and may depend on the one that is to be "
        "hidden.",
        "use DpSgd, which forms each record's gradient alone.",
    )


def _exact(piece: AddNoise | NoiseShare | DpSgd) -> RoundedGaussian | DiscreteGaussian:
    if type(piece.law) is not Gaussian:
        raise UnsoundRound(
            f"secure: exact draws are there for Gaussian noise, and {text(piece.law)} is other noise, or exact already.",
            "use Gaussian(noise_multiplier).",
        )
    exact = DiscreteGaussian if isinstance(piece, NoiseShare) else RoundedGaussian
    return exact(piece.law.noise_multiplier)


def _summed(round: Round) -> tuple[Aggregate | MessageAggregate, tuple[ServerPiece, ...]]:
    """The aggregate without its division, and the division, for after the noise."""
    mean = round.aggregate
    return (Sum(), (Divide(mean.over),)) if isinstance(mean, Mean) else (mean, ())
