"""Every law of noise at one target: how much each needs at a model's dimension and clip, and which wins when."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sfumato.account.auto import Auto
from sfumato.account.calibrate import calibrate_noise
from sfumato.account.checks import check_delta, check_target
from sfumato.claim import Claim
from sfumato.errors import BadValue, CannotAccount, UnsoundRound
from sfumato.pieces.law import Gaussian
from sfumato.pieces.law_names import LAWS, NamedLaw
from sfumato.pieces.sampler import Drawn
from sfumato.pieces.staircase import Staircase, moments
from sfumato.planning.setting import Setting


@dataclass(frozen=True)
class Compared:
    """One law under the clip of its own order: what it needs for the target, or why it has no proof.

    `l1_distortion` is the expected L1 norm of the noise of one release, `l2_distortion` the root of its expected squared L2
    norm; `stddev` is that of each coordinate.
    """

    law: str
    clip: str
    noise_multiplier: float | None = None
    stddev: float | None = None
    stddev_over_clip: float | None = None
    l1_distortion: float | None = None
    l2_distortion: float | None = None
    accountant: str | None = None
    epsilon: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Winners:
    """The law of the least distortion, L1 and L2, under each clip; and where an L1 clip pays in L2: below that ratio of norms.

    A row of L1 norm r times its L2 norm loses the same by an L1 clip that is r times as long, and that clip's noise is r
    times as large. r is 1 for a row with one coordinate, and the root of the dimension for one that is spread out evenly.
    """

    under_l2_clip: dict[str, str]
    under_l1_clip: dict[str, str]
    l1_clip_pays_below: float
    largest_ratio: float


def distortion(law: NamedLaw, claim: Claim) -> tuple[float, float]:
    """The expected L1 norm of the noise of one release, and the root of its expected squared L2 norm.

    UDP-FL's Theorems 8, 9 and 3, for one release: d stddev sqrt(2/pi), d scale, and for the staircase the mean of its levels.
    The theorems multiply by the number of rounds, which adds up what each round alone does; the noise of T rounds has a root
    mean square of sqrt(T) times one round's, as independent terms of mean 0 do. Theorem 3 also holds on one coordinate only.
    """
    dimension, stddev = claim.dimension, law.stddev(claim)
    if isinstance(law, Staircase):
        norm, square = moments(dimension, law.loss, law.share(dimension))
        return norm * stddev / math.sqrt(square / dimension), stddev * math.sqrt(dimension)
    per_coordinate = math.sqrt(2.0 / math.pi) if isinstance(law, Gaussian) else math.sqrt(0.5)
    return dimension * stddev * per_coordinate, stddev * math.sqrt(dimension)


def compare(epsilon: float, delta: float, sample: Drawn, rounds: int, dimension: int, clip: float) -> list[Compared]:
    """Every named law at this target; where a law has no proof, its reason.

    >>> from sfumato.pieces.sampler import Everyone
    >>> [(one.law, round(one.stddev, 3)) for one in compare(8.0, 1e-5, Drawn(Everyone()), 1, 1, 1.0)]
    [('gaussian', 0.6), ('laplace', 0.177), ('laplace-l2', 0.177), ('staircase', 0.058)]
    """
    check_target(epsilon)
    check_delta(delta)
    if dimension < 1 or not (clip > 0.0 and math.isfinite(clip)):
        raise BadValue(
            f"--dimension {dimension} --clip {clip}: at least one coordinate and a positive clip norm are needed."
        )
    return [_compared(name, epsilon, delta, sample, rounds, dimension, clip) for name in LAWS]


def _compared(
    name: str, epsilon: float, delta: float, sample: Drawn, rounds: int, dimension: int, clip: float
) -> Compared:
    law = LAWS[name](1.0)
    first = Compared(name, f"L{law.order}")
    setting = Setting(law, sample, rounds, dimension=dimension)
    try:
        noise = calibrate_noise(lambda size: setting.at(size).event(), epsilon, delta)
    except (CannotAccount, UnsoundRound) as refusal:
        return replace(first, note=refusal.reason if isinstance(refusal, UnsoundRound) else str(refusal))
    found = setting.at(noise)
    claim = replace(found.claim(), l1=math.inf, l2=math.inf).clipped(clip, law.order)
    stddev, event = found.law.stddev(claim), found.event()
    l1, l2 = distortion(found.law, claim)
    used = Auto().choose(event)
    return replace(
        first,
        noise_multiplier=noise,
        stddev=stddev,
        stddev_over_clip=stddev / clip,
        l1_distortion=l1,
        l2_distortion=l2,
        accountant=used.name,
        epsilon=used.epsilon(event, delta),
    )


def winners(rows: list[Compared], dimension: int) -> Winners:
    """Each law under either clip: an L2 norm is at most the L1 norm, and an L1 norm at most sqrt(dimension) times the L2 norm."""
    proven = [one for one in rows if one.stddev is not None]
    if not proven:
        raise CannotAccount("plan --compare: no law has a proof here. Use another relation, or Poisson sampling.")

    def least(kind: str, wider: float) -> tuple[str, float]:
        sizes = {one.law: getattr(one, kind) * (wider if one.clip == "L1" else 1.0) for one in proven}
        law = min(sizes, key=lambda name: sizes[name])
        return law, sizes[law]

    kinds, root = {"l1": "l1_distortion", "l2": "l2_distortion"}, math.sqrt(dimension)
    under_l2, under_l1 = ({name: least(kind, wider)[0] for name, kind in kinds.items()} for wider in (root, 1.0))
    return Winners(under_l2, under_l1, least("stddev", root)[1] / least("stddev", 1.0)[1], root)
