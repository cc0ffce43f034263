"""A question that the owner's rules allow: what it amounts to, what it costs, and how many rounds it speaks of."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from sfumato.digest import digest
from sfumato.federation.node.costs import Dues, Heard, part_of
from sfumato.federation.node.rules import Refused
from sfumato.federation.question import Question
from sfumato.federation.terms import Agreement, Terms
from sfumato.pieces.mask import RandomMask, SharedMask, kept_of

_MOST_ROUNDS = 10**6  # of which a promise may speak: pricing more takes longer than a server should keep a node busy


@dataclass(frozen=True)
class Asked:
    """A question, what it amounts to, and what that costs this client."""

    question: Question
    agreement: Agreement
    dues: Dues
    session: bytes = b""  # of a secure sum

    @property
    def terms(self) -> Terms:
        return self.agreement.terms

    @property
    def run(self) -> str:
        return self.terms.run

    @property
    def round(self) -> int:
        return self.question.opening.number

    @property
    def seeded(self) -> bool:
        """Whether somebody else knows the noise."""
        return self.terms.keys != "own"

    @property
    def same_run(self) -> str:
        """What stays the same in all questions of a run; it may get more rounds."""
        return digest(replace(self.terms, rounds=0).text)

    def told(self, questions: int) -> Heard:
        """How many rounds the server's ledger will hold, by whatever says most of all that the server has said.

        Each new attempt began at least one round again, so by round r of attempt a it holds at least r + 1 + a; and it holds a
        round for each of the different questions. A client that was to stop after some rounds, and is asked more often, has not
        stopped: then it pays for all of them. Where rounds share a cost, as those of one pass through groups of clients do, a
        resumed run draws groups anew, and each of its rounds counts.
        """
        question, rounds = self.question, self.terms.rounds
        count = max(question.planned, rounds + question.attempt, self.round + 1 + question.attempt, questions)
        if count > _MOST_ROUNDS:
            raise Refused("refused.rounds", f"{count:,} rounds are more than a node promises itself to")
        own = [part_of(proof, question.client) for proof in self.dues.promised.values()]
        goes_on = any(one.until is not None and questions > one.until for one in own)
        drawn_anew = question.since > 0 and any(one.every > 1 for one in own)
        return Heard(count, question.attempt > 0 or count > rounds or goes_on or drawn_anew)

    def check_form(self) -> None:
        """Refuse parameters that are not the model's, and numbers that count nothing."""
        dimension, found = self.agreement.job.slots.layout.dimension, len(self.question.params)
        if found != dimension:
            raise Refused("refused.shape", f"{found} parameters for a model that has {dimension}")
        if min(self.question.attempt, self.question.since) < 0:
            raise Refused("refused.letter", f"attempt {self.question.attempt}, since round {self.question.since}")

    def check_opening(self) -> None:
        """Refuse what the server prepared, where a proof rests on its form: a coordinate named twice would make norms grow, and
        what some noise costs depends on how many coordinates there are.
        """
        slots, opening = self.agreement.job.slots, self.question.opening
        for nth, piece in enumerate(slots.round.client):
            if isinstance(piece, SharedMask) and not _is_mask(opening.prepared.get(nth), piece, slots.layout.dimension):
                raise Refused(
                    "refused.opening", "the shared mask is no ascending list of as many coordinates as are due"
                )


def _is_mask(mask: torch.Tensor | None, piece: SharedMask, dimension: int) -> bool:
    if mask is None or mask.dtype != torch.int64 or mask.dim() != 1 or not len(mask):
        return False
    if isinstance(piece.by, RandomMask) and len(mask) != kept_of(piece.keep, dimension):
        return False
    ascends = bool((mask[1:] > mask[:-1]).all())
    return ascends and int(mask[0]) >= 0 and int(mask[-1]) < dimension
