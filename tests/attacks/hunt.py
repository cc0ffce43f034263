"""The law over many random rounds, and what came of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from sfumato.errors import SfumatoError
from tests.attacks.rounds import draw
from tests.attacks.search import Violation, violation
from tests.attacks.semantics import Unmodelled


@dataclass
class Tally:
    """How many rounds were attacked, refused or left alone."""

    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.counts.most_common())


def hunt(seed: int, tally: Tally) -> Iterator[Violation | None]:
    """Draw rounds without end; each step is one round that was attacked, and what was found."""
    random = Random(seed)
    while True:
        case = draw(random)
        try:
            found = violation(case.build(), case.population, case.shape, case.rounds)
        except SfumatoError:
            tally.counts["refused"] += 1
        except Unmodelled:
            tally.counts["left alone"] += 1
        else:
            tally.counts["attacked"] += 1
            tally.counts["violations"] += found is not None
            yield found
