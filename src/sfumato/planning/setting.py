"""A "what if" in the user's words, walked as a Round is walked: the same samplers, the same laws, the same payments.

noise   gaussian:Z     standard deviation Z times the L2 clip norm
        laplace:B      scale B times the L1 clip norm         laplace-l2:B    times the L2 clip norm, at a dimension
        staircase:B    falls by e^(-1/B) with every L1 clip norm, at a dimension
sample  poisson:0.05   each client with probability 0.05       poisson:50/1000   the same
        fixed:50/1000  50 of 1000 clients, without replacement
        everyone       or everyone:1000, where their number matters
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sfumato.account.checks import check_rounds
from sfumato.account.event import Event, Relation, Repeated, Unit
from sfumato.claim import Claim
from sfumato.errors import BadValue, nearest
from sfumato.pieces.channel import Shuffler
from sfumato.pieces.law_names import LAWS, NamedLaw, name_of
from sfumato.pieces.payment import pay_at_client, pay_at_server, pay_in_local_steps
from sfumato.pieces.sampler import Drawn, Everyone
from sfumato.voting.bounds import parse_votes

OF_DIMENSION = ("laplace-l2", "staircase")  # what these cost depends on how many coordinates there are


def parse_noise(text: str) -> NamedLaw:
    """What `--noise` says.

    >>> parse_noise("gaussian:1.1")
    Gaussian(noise_multiplier=1.1)
    """
    law, _, size = text.partition(":")
    if law not in LAWS:
        raise BadValue(f"--noise {text}: the law {law!r} is not known. {nearest(law, LAWS)}")
    try:
        multiplier = float(size)
    except ValueError:
        raise BadValue(f"--noise {text}: {size!r} is not a number. Write for example gaussian:1.0.") from None
    if not (multiplier > 0 and math.isfinite(multiplier)):
        raise BadValue(f"--noise {text}: the noise must be positive and finite, e.g. gaussian:1.0.")
    return LAWS[law](multiplier)


def parse_relation(text: str | None) -> Relation | None:
    """What `--relation` says: add-remove, replace or zero-out."""
    if text is None:
        return None
    name = text.replace("-", "_")
    if name not in list(Relation):
        raise BadValue(f"--relation {text}: not known. {nearest(name, [str(one) for one in Relation])}")
    return Relation(name)


@dataclass(frozen=True)
class Setting:
    """Noise, sampling and rounds; `batch` and `steps` describe the local training of a record's client.

    `relation` chooses what a neighbour of the unit is; without it noise at the client speaks of replace, and everything else
    of what its sampler speaks of. `dimension` is how many coordinates a row has, for the laws that ask for it. With `votes` a
    round is one query, a row is a client's answer, and the noise is that many votes, not that many norms of an answer.
    """

    law: NamedLaw
    sample: Drawn
    rounds: int
    unit: Unit = Unit.CLIENT
    relation: Relation | None = None
    batch: Drawn | None = None
    steps: int = 1
    at_client: bool = False
    dimension: int | None = None
    shuffled: bool = False
    votes: str = ""

    def __post_init__(self) -> None:
        if self.dimension is None and self.law_name in OF_DIMENSION:
            raise BadValue(
                f"--noise {self.noise}: what it costs depends on the dimension. Give it, e.g. --dimension 7850."
            )
        if self.dimension is not None and self.dimension < 1:
            raise BadValue(f"--dimension {self.dimension}: at least 1 is needed.")
        check_rounds(self.rounds)
        check_rounds(self.steps, "steps")
        if self.votes:
            parse_votes(self.votes)
            if self.batch is not None or self.steps != 1:
                raise BadValue(
                    f"--votes {self.votes}: clients who vote train without noise. Leave --batch and --steps out."
                )
        elif self.unit is Unit.RECORD and self.batch is None:
            raise BadValue("--unit record: say how a client draws its batches, e.g. --batch fixed:16/600 --steps 38.")
        elif self.unit is Unit.CLIENT and (self.batch is not None or self.steps != 1):
            raise BadValue("--batch and --steps speak of records: add --unit record, or leave them out.")
        if self.shuffled and not self.at_client:
            raise BadValue(
                "--shuffle is about messages that carry their own noise: add --noise-at client, or leave it out. Private local "
                "steps gain nothing from it."
            )
        if self.at_client and self.batch is not None:
            raise BadValue(
                "--noise-at client has no effect with --batch: there the noise is added in every local step. Leave it out."
            )

    def claim(self) -> Claim:
        """What is provable after one round: rows of norm 1, drawn, summed over a constant, and noise where it is added."""
        sampler = self.sample.sampler
        default = Relation.REPLACE if self.at_client else sampler.relation
        relation = self.relation or default if self.unit is Unit.CLIENT else Relation.REPLACE
        claim = sampler.carry(Claim(self.unit, relation, self.sample.population or 1, self.dimension or 1))
        if self.batch is not None:
            drawn = self.batch.sampler if self.relation is None else replace(self.batch.sampler, relation=self.relation)
            records = self.batch.population or 1  # only a fixed size depends on it, and that has one
            return pay_in_local_steps(claim, self.law, 1.0, self.law.order, drawn, records, self.steps)
        bounded, law = claim.clipped(1.0, self.law.order), self.law
        if self.votes:
            bounded = parse_votes(self.votes).carry(claim, 1)
            law = law.with_noise(law.noise_multiplier / (bounded.l1 if law.order == 1 else bounded.l2))
        if self.at_client:
            paid = pay_at_client(bounded, law, "noise")
            return Shuffler().carry(paid) if self.shuffled else paid
        return pay_at_server(replace(bounded, aggregated=True), law, "noise")

    def event(self) -> Event:
        """What happens to one unit in all rounds, in the view of the world."""
        world = self.claim().world
        assert world is not None, "the noise paid"
        return Repeated(world, self.rounds)

    def at(self, multiplier: float) -> Setting:
        """The same with other noise."""
        return replace(self, law=self.law.with_noise(multiplier))

    @property
    def law_name(self) -> str:
        """As it is written in `--noise`."""
        return name_of(self.law)

    @property
    def noise(self) -> str:
        """As it is written."""
        return f"{self.law_name}:{self.law.noise_multiplier:g}"

    @property
    def everyone(self) -> bool:
        """Whether every client takes part in every round."""
        return isinstance(self.sample.sampler, Everyone)
