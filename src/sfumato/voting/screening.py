"""Paid screening: answers only for queries whose plurality is large, where looking for it is paid for too."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from sfumato.account.event import Event, GaussianEvent, PoissonSampled, Relation
from sfumato.claim import Claim, Reach, text
from sfumato.errors import BadValue, UnsoundRound
from sfumato.pieces.context import Context
from sfumato.pieces.law import Gaussian
from sfumato.pieces.payment import pay_at_server
from sfumato.pieces.protocol import ServerPiece
from sfumato.shapes import Row


@dataclass(frozen=True)
class _Both(Gaussian):
    """Both noises as one: `looks` and `answers` are the squares of how far they move a row, in units of its reach and of the
    answers' noise."""

    looks: float = 0.0
    answers: float = 1.0

    def distance(self, reach: Reach) -> float:
        return reach.l2 * math.sqrt(self.looks + self.answers)

    def event(self, stddev: float, reach: Reach) -> Event:
        return GaussianEvent(stddev / self.distance(reach))


@dataclass(frozen=True)
class Screened(ServerPiece):
    """A query is answered if its largest count, with noise of deviation `screen`, is above `threshold`: the first `most` that are.

    Both are in votes, as the aggregate has them. Answers have the noise of `answer`; the others come out as zeros. Queries are the
    parts of a row (`claim.parts`).

    States: one Gaussian event of mu^2 = parts s^2 / screen^2 + most s^2 / answer^2, with s how far one unit moves one part. The
    largest count of a part moves by no more than the part does, in the largest coordinate and so in L2. All noisy largest counts
    together are a Gaussian release of distance sqrt(parts) s. They decide which queries are answered, and whatever they
    decide, at most `most` parts are then released with fresh noise, a Gaussian release of distance sqrt(most) s. So the second is
    mu2-GDP for every outcome of the first, which is mu1-GDP, and both in a row are sqrt(mu1^2 + mu2^2)-GDP (Dong, Roth, Su
    2022, Theorem 3.2 and Corollary 3.3, where later mechanisms may depend on earlier outcomes). What comes out is a function of
    the two. Every query that is looked at pays, answered or not, and the cap is a constant (PRIVACY R10).

    The sampler then turns that pair into a round's. Where it mixes the two worlds (add/remove, a cohort that is seen) or compares
    cohorts pair by pair (a fixed size), a pair that dominates before sampling gives one that dominates after: what maps the
    Gaussian pair to the two outputs (Blackwell) maps their mixtures too. Poisson sampling under replace compares three worlds,
    for which only plain Gaussians have a proof: refused.
    """

    screen: float
    threshold: float
    answer: Gaussian
    most: int

    def __post_init__(self) -> None:
        if not (self.screen > 0.0 and math.isfinite(self.screen)) or math.isnan(self.threshold):
            raise BadValue(f"{text(self)}: screen is a positive standard deviation and threshold a number, in votes.")
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 1:
            raise BadValue(f"{text(self)}: at most so many queries are answered, a whole number of at least 1.")
        if type(self.answer) is not Gaussian:
            raise BadValue(f"{text(self)}: only Gaussian(noise_multiplier) has a proof together with the screening.")

    def __call__(self, value: Row, context: Context) -> Row:
        stddev = self.answer.stddev(context.claim)
        if not math.isfinite(stddev):
            raise UnsoundRound(f"{text(self)}: nothing bounds a row: its noise is infinite.", "put a Clip before it.")
        votes = value.detach().cpu().double().reshape(context.claim.parts, -1)
        largest = votes.max(dim=1).values + context.key.child("screen").normal(len(votes), stddev=self.screen)
        passed = (largest > self.threshold).nonzero().flatten()[: self.most]
        noise = context.key.child("answer").normal(self.most, votes.shape[1], stddev=stddev)
        answers = torch.zeros_like(votes).index_copy(0, passed, votes[passed] + noise[: len(passed)])
        return answers.reshape(-1).to(value)

    def noise_and_norm(self) -> tuple[float, None]:
        return self.answer.noise_multiplier, None

    def with_noise(self, noise_multiplier: float) -> Screened:
        """Both noises by the same factor, so that the shares of the cost stay as they are."""
        factor = noise_multiplier / self.answer.noise_multiplier
        return replace(self, screen=self.screen * factor, answer=self.answer.with_noise(noise_multiplier))

    def carry(self, claim: Claim) -> Claim:
        if self.most > claim.at_server(self).parts:
            raise UnsoundRound(
                f"{text(self)} answers up to {self.most} queries, and a row has {claim.parts} here of which each is known to have "
                "its share of the bound.",
                "let most be no larger than the queries of a round, and put no piece between the votes and the screening.",
            )
        if claim.paid:
            return claim  # a function of what is paid for, and more noise
        stddev = self.answer.stddev(claim)
        both = _Both(self.answer.noise_multiplier, (stddev / self.screen) ** 2, self.most / claim.parts)
        paid = pay_at_server(claim, both, self)
        assert paid.world is not None, "just paid"
        for event in paid.world.walk():
            if isinstance(event, PoissonSampled) and event.relation is Relation.REPLACE and event.rate < 1.0:
                raise UnsoundRound(
                    f"{text(self)}: under replace, Poisson sampling compares three worlds (a client's row, another in its place, "
                    "none), for which only noise that does not depend on earlier answers has a proof.",
                    "use relation='add_remove', FixedSize or Everyone, or AddNoise without screening.",
                )
        return paid

    def unproven(self, claim: Claim) -> Claim:
        """How a round without a guarantee goes on: the noise is drawn all the same."""
        return replace(claim, stddev=self.answer.stddev(claim))
