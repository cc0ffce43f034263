"""A study of a way to train: many models on one candidate of each pair, each attacked in turn with the others as its shadows."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from sfumato.audit.attack import Keep, Tell
from sfumato.audit.membership import Scores, in_turn
from sfumato.audit.shadows import Seen, World, shadows_of
from sfumato.errors import BadValue

Rates = dict[str, tuple[float, tuple[float, float]]]  # the mean over targets, and its 95 % interval


def study(
    attacks: Mapping[Scores, int], world: World, models: int, keep: Keep, tell: Tell
) -> tuple[dict[str, Rates], Tensor]:
    """What each attack finds, on as many of the models as stand beside it; and the models themselves.

    Who is inside a model was a coin, so members and others come from one distribution, and nothing but training tells them apart.
    """
    if models < 4 or any(not 2 <= targets <= models for targets in attacks.values()):
        raise BadValue(
            f"{models} models, of which {', '.join(map(str, attacks.values()))} are attacked: at least 4 models, and between 2 and "
            "all of them in turn."
        )
    rows, held = shadows_of(world, models, keep, tell)
    seen = Seen.of(world, rows[0], rows, held)
    found = {attack.label: in_turn(attack, seen, targets, keep, tell) for attack, targets in attacks.items()}
    return found, rows
