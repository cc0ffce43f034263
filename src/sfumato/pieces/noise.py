"""Adding noise: at the server, at the client, or as a share of what a sum will carry. What is drawn is what is accounted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from sfumato.claim import Claim, LawOfNoise, text
from sfumato.errors import BadValue, UnsoundRound
from sfumato.key import Key
from sfumato.pieces.context import Context
from sfumato.pieces.exact import DiscreteGaussian, ExactLaw, RoundedGaussian, SharesOf
from sfumato.pieces.law import Gaussian, Law
from sfumato.pieces.payment import check_honest, pay_at_client, pay_at_server
from sfumato.pieces.protocol import ClientPiece, ServerPiece
from sfumato.shapes import Row, Rows, Value


def _drawn(law: Law, stddev: float, size: int, claim: Claim, key: Key) -> Row:
    """Noise of this standard deviation; in steps of the grid, where there is one. Its step is a power of 2, so that is exact."""
    step = claim.grid or 1.0
    return law.sample((size,), stddev / step, key).mul_(step)


def for_each_row(rows: Rows, draw: Callable[[Key], Row], keys: Sequence[Key]) -> Rows:
    """A row of float64 noise for each row, drawn by its own key."""
    return torch.cat([torch.empty(0), *map(draw, keys)]).reshape(rows.shape).to(rows.device)


def _with_own_noise(rows: Rows, law: Law, stddev: float, claim: Claim, keys: Sequence[Key]) -> Rows:
    """Each row with noise from its own key, in float64."""
    return rows.double() + for_each_row(rows, lambda key: _drawn(law, stddev, rows.shape[1], claim, key), keys)


@dataclass(frozen=True)
class AddNoise(ClientPiece, ServerPiece):
    """Add noise to every coordinate: of the aggregate at the server, or of each message at the client.

    States, at the server: the world pays the sampler's amplified event; the server saw the rows before the noise, so
    nothing is proven against it. At the client: both views pay the unsampled event of one message whenever the client takes
    part (a mixture over participation), never the amplified one, and only where the client's presence is not itself hidden.
    """

    law: Law
    keeps_distances: ClassVar[bool] = True

    @property
    def keeps_grid(self) -> bool:
        """Exact noise is a whole number of steps."""
        return isinstance(self.law, ExactLaw)

    def __call__(self, value: Value, context: Context) -> Value:
        stddev = self.law.stddev(context.claim)
        if not math.isfinite(stddev):
            raise UnsoundRound(f"{text(self)}: nothing bounds a row: its noise is infinite.", "put a Clip before it.")
        self._check_dimension(value.shape[-1], stddev, context.claim)
        if not context.claim.aggregated:
            keys = [key.child("message") for key in context.keys]
            return _with_own_noise(value, self.law, stddev, context.claim, keys).to(value.dtype)
        noise = _drawn(self.law, stddev, len(value), context.claim, context.key).to(value.device)
        return noise.add_(value.double()).to(value.dtype)

    def _check_dimension(self, came: int, stddev: float, claim: Claim) -> None:
        """Refuse a value of another length than was derived, where the law then costs something else."""
        if came == claim.dimension:
            return
        derived, here = (self.law.event(stddev, reach) for reach in (claim.row, replace(claim.row, dimension=came)))
        if derived == here:
            return
        raise UnsoundRound(
            f"{text(self)}: what it costs was derived for {claim.dimension} coordinates, and {came} came.",
            "use Gaussian noise, or a SharedMask whose coordinates are drawn at random.",
        )

    def noise_and_norm(self) -> tuple[float, None]:
        return self.law.noise_multiplier, None

    def with_noise(self, noise_multiplier: float) -> AddNoise:
        return replace(self, law=self.law.with_noise(noise_multiplier))

    def carry(self, claim: Claim) -> Claim:
        if claim.paid and math.isfinite(self.law.stddev(claim)):
            return claim  # more noise is free, and a piece before this one has paid
        if claim.paid:
            raise UnsoundRound(
                f"{text(self)} is a multiple of the norm that bounds a row, and nothing bounds one, so it would be infinite.",
                "put Clip(norm) into the client slot, before the noise.",
            )
        return pay_at_server(claim, self.law, self) if claim.aggregated else pay_at_client(claim, self.law, self)

    def unproven(self, claim: Claim) -> Claim:
        """How a round without a guarantee goes on: the noise is drawn all the same."""
        return replace(claim, stddev=self.law.stddev(claim))


@dataclass(frozen=True)
class NoiseShare(ClientPiece):
    """Each client adds noise of its own, so that any `clients` honest ones together have the law's deviation.

    The law is Gaussian or, on a grid, DiscreteGaussian. `clients` is the smallest cohort that may reply, minus those who are
    curious and would subtract their own share. States: nothing yet; the sum pays (PRIVACY R3), and only where the number of
    shares in it does not depend on the client that is to be hidden.
    """

    law: Gaussian
    clients: int
    keeps_grid: ClassVar[bool] = True
    keeps_distances: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise BadValue(f"NoiseShare(clients={self.clients}): at least one honest client must add its share.")

    def _deviation(self, claim: Claim) -> float:
        return self.law.stddev(claim) / math.sqrt(self.clients)

    def __call__(self, rows: Rows, context: Context) -> Rows:
        keys = [key.child("share") for key in context.keys]
        noisy = _with_own_noise(rows, self.law, self._deviation(context.claim), context.claim, keys)
        return noisy if isinstance(self.law, DiscreteGaussian) else noisy.to(rows.dtype)  # whole steps stay whole

    def _law(self, claim: Claim) -> LawOfNoise:
        """The law of the sum: shares of a Gaussian make up a Gaussian, those of a discrete one nearly a discrete one."""
        if not isinstance(self.law, DiscreteGaussian):
            return self.law
        assert claim.grid is not None, "the law's own deviation needs a grid"
        return SharesOf(self.law, self._deviation(claim), claim.grid, claim.dimension)

    def noise_and_norm(self) -> tuple[float, None]:
        return self.law.noise_multiplier, None

    def with_noise(self, noise_multiplier: float) -> NoiseShare:
        return replace(self, law=self.law.with_noise(noise_multiplier))

    def carry(self, claim: Claim) -> Claim:
        if claim.at_client(self).paid:
            raise UnsoundRound(f"{text(self)} comes after noise that is already paid for.", "use one of the two.")
        if math.isinf(claim.l2):
            raise UnsoundRound(
                f"{text(self)} comes before anything bounds a row, so no amount of noise hides a client.",
                "put Clip(norm) into the client slot, before the shares.",
            )
        if isinstance(self.law, RoundedGaussian):
            raise UnsoundRound(
                f"{text(self)}: a sum of rounded Gaussians is no rounded Gaussian, so nothing is proven of it.",
                "use NoiseShare(DiscreteGaussian(noise_multiplier), clients).",
            )
        check_honest(self, self.clients, claim)
        assert claim.sampling is not None, "the sampler comes first"
        larger = replace(claim, population=claim.population + 1)
        if claim.presence_is_hidden and claim.sampling.cohort_size(larger) != claim.sampling.cohort_size(claim):
            raise UnsoundRound(
                f"{text(self)}: under add/remove a client that is not there adds no share, so the noise in the sum changes with "
                "the very client that is to be hidden.",
                "use FixedSize(size), or relation='replace' with Everyone(), or AddNoise in the server slot.",
            )
        return self.unproven(claim)

    def unproven(self, claim: Claim) -> Claim:
        """How a round without a guarantee goes on: the share is drawn all the same."""
        return replace(
            claim,
            share=self._deviation(claim),
            share_law=self._law(claim),
            share_count=self.clients,
            stddev=self.law.stddev(claim),
            noise_sensitivity=self.law.distance(claim.reach()),
        )
