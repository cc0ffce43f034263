"""Laws of noise by name, as recipes and the command line say them; each with the norm that its clip bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sfumato.errors import BadValue, nearest
from sfumato.pieces.law import Gaussian, Laplace
from sfumato.pieces.staircase import Staircase

NamedLaw: TypeAlias = Gaussian | Laplace | Staircase
LAWS: dict[str, Callable[[float], NamedLaw]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "laplace-l2": lambda noise_multiplier: Laplace(noise_multiplier, order=2),
    "staircase": Staircase,
}


def law_named(name: str, noise_multiplier: float) -> tuple[NamedLaw, int]:
    """The law of that name, and the order of the clip that it is a multiple of.

    >>> law_named("laplace", 2.0)
    (Laplace(noise_multiplier=2.0, order=1), 1)
    """
    if name not in LAWS:
        raise BadValue(f"the law {name!r} is not known. {nearest(name, LAWS)}")
    law = LAWS[name](noise_multiplier)
    return law, law.order


def name_of(law: NamedLaw) -> str:
    """The name that makes this law.

    >>> name_of(Laplace(2.0, order=2))
    'laplace-l2'
    """
    made = ((name, make(law.noise_multiplier)) for name, make in LAWS.items())
    return next(name for name, other in made if type(other) is type(law) and other.order == law.order)
