"""Was this record, or this client, in the training data? Attacks by threshold, by likelihood ratio (LiRA), and relative (RMIA)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from scipy import stats

from sfumato.audit.attack import Found, Keep, Subject, Tell
from sfumato.audit.roc import Roc, by_coin, chart, over
from sfumato.audit.run_world import target_of, world_of
from sfumato.audit.shadows import Seen, shadows_of
from sfumato.errors import BadValue
from sfumato.key import Key

_FEWEST_IN_TURN = 4


@runtime_checkable
class Scores(Protocol):
    """A membership attack as a function of what is seen: the higher a unit's score, the more it looks like a member."""

    name: ClassVar[str]
    in_turn: ClassVar[bool]  # whether it is fast enough to attack every shadow too

    @property
    def label(self) -> str:
        """What its results are called."""
        ...

    def scores(self, seen: Seen, keep: Keep, key: Key, tell: Tell) -> np.ndarray: ...


@dataclass(frozen=True)
class OfRun:
    """What every membership attack on a run can be asked."""

    name: ClassVar[str]
    shadows: int = 16
    unit: str = "record"
    most: int = 1000  # members asked about, and as many others
    looks: int = 1  # after how many rounds the model is seen; more than one needs kept releases

    @property
    def label(self) -> str:
        return self.name

    def found(self, attack: Scores, subject: Subject, keep: Keep, tell: Tell) -> Found:
        """Train shadows, score every unit, and compare with who really was a member."""
        fewest = 0 if attack.name == Threshold.name else 2
        if self.shadows < fewest or self.most < 1:
            raise BadValue(
                f"{attack.name}: shadows={self.shadows}, most={self.most}: it compares with at least 2 shadows, and asks about at "
                "least 1 member. Use e.g. 16 and 1000."
            )
        world = world_of(subject, self.unit, self.most, self.looks, keep.key.child("units"))
        seen = Seen.of(world, target_of(subject, world), *shadows_of(world, self.shadows, keep, tell))
        member = np.arange(world.units.count) < world.units.pairs
        return summary(attack, seen, member, keep, tell)


def summary(attack: Scores, seen: Seen, member: np.ndarray, keep: Keep, tell: Tell) -> Found:
    """The attack's rates on the target beside those of a global threshold on the same units, and of a coin; and the mean rates
    where each shadow in turn is the target, which say more of the recipe than one model can.
    """
    key = keep.key.child("attack", called=attack.name)
    roc, plain = (Roc.of(each.scores(seen, keep, key, tell), member) for each in (attack, Threshold()))
    baselines = {f"global threshold: {word}": value for word, value in plain.numbers().items()}
    baselines |= {f"a coin, in 1 of 20: {word}": value for word, value in by_coin(member, key).items()}
    curves = {attack.name: roc} | ({} if attack.name == Threshold.name else {"global threshold": plain})
    numbers, bands = roc.numbers(), roc.bands()
    if attack.in_turn and seen.shadows >= _FEWEST_IN_TURN:
        for word, (mean, band) in in_turn(attack, seen, seen.shadows, keep, tell).items():
            numbers[f"shadows in turn: {word}"], bands[f"shadows in turn: {word}"] = mean, band
    notes = (*seen.world.notes, _resolution(roc))
    name = f"{attack.label}-of-clients" if seen.world.units.kind == "client" else attack.label
    return Found(name, numbers, baselines, notes, curves={"roc": chart(curves)}, bands=bands)


def in_turn(
    attack: Scores, seen: Seen, targets: int, keep: Keep, tell: Tell
) -> dict[str, tuple[float, tuple[float, float]]]:
    """Mean rates, with 95 % intervals, where each of the first shadows in turn is the target."""
    found = []
    for shadow in range(targets):
        key = keep.key.child("attack", called=attack.name, on=shadow)
        scores = attack.scores(seen.instead(shadow), keep, key, tell)
        found.append(Roc.of(scores, seen.inside[shadow].numpy()).numbers())
    return {word: over(np.array([one[word] for one in found])) for word in found[0]}


def _resolution(roc: Roc) -> str:
    return (
        f"Bands are at 95 % for each number: of true positives exact binomial at the threshold found, over {roc.members} members. "
        f"That threshold was found on {roc.others} others, so a rate of false positives of 0.001 stands for "
        f"{int(0.001 * roc.others)} of them. Accuracy is that of the best threshold in hindsight. All scores are of one model, "
        "whose noise moves them together, and bands do not count that; where each shadow in turn is the target they do."
    )


@dataclass(frozen=True)
class Threshold(OfRun):
    """One threshold on the loss for all units (Yeom et al. 2018): the baseline, which needs no shadows."""

    name: ClassVar[str] = "threshold"
    in_turn: ClassVar[bool] = True
    summary: ClassVar[str] = "one threshold on the loss for everybody (Yeom et al. 2018)"
    shadows: int = 0

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        return self.found(self, subject, keep, tell)

    def scores(self, seen: Seen, keep: Keep, key: Key, tell: Tell) -> np.ndarray:
        return np.asarray(seen.confidences[-1])


@dataclass(frozen=True)
class Lira(OfRun):
    """The likelihood ratio attack (Carlini et al. 2022): is the target's confidence in a unit that of models that saw it?

    For each unit the confidences of shadows that saw it, and of those that did not, are taken as normal with means of its own;
    the two variances are common to all units, as the authors advise for few shadows. `online` compares the two densities;
    offline uses only shadows that did not see it: how unlikely is so much confidence?
    """

    name: ClassVar[str] = "lira"
    in_turn: ClassVar[bool] = True
    summary: ClassVar[str] = "likelihood ratios from shadows, online or offline (Carlini et al. 2022)"
    online: bool = True

    @property
    def label(self) -> str:
        return self.name if self.online else f"{self.name}-offline"

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        return self.found(self, subject, keep, tell)

    def scores(self, seen: Seen, keep: Keep, key: Key, tell: Tell) -> np.ndarray:
        return likelihood_ratios(seen.confidences.numpy(), seen.inside.numpy(), self.online)


def likelihood_ratios(confidences: np.ndarray, inside: np.ndarray, online: bool) -> np.ndarray:
    """LiRA's scores from confidences [shadows + 1, units], the target last, and who is inside each shadow."""
    shadows, target = confidences[:-1], confidences[-1]
    out_mean, out_spread = _normal(shadows, ~inside)
    if not online:
        return np.asarray(-stats.norm.logsf(target, out_mean, out_spread))
    in_mean, in_spread = _normal(shadows, inside)
    ratios = stats.norm.logpdf(target, in_mean, in_spread) - stats.norm.logpdf(target, out_mean, out_spread)
    return np.asarray(ratios)


def _normal(values: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean of each column over its `which`, and one standard deviation around these means for all."""
    counts = which.sum(axis=0)
    means = np.where(which, values, 0.0).sum(axis=0) / np.maximum(counts, 1)
    squares = np.where(which, (values - means) ** 2, 0.0).sum()
    freedom = max(1, int(counts.sum()) - values.shape[1])
    return means, float(np.sqrt(squares / freedom) + 1e-6)


@dataclass(frozen=True)
class Rmia(OfRun):
    """Robust membership inference (Zarifzadeh et al. 2024): of how many other units does this one beat the likelihood ratio?

    A unit's ratio is its likelihood under the target over its mean likelihood under shadows, half of which saw it. Its score is
    the share of other units whose ratio, times `gamma`, it reaches.
    """

    name: ClassVar[str] = "rmia"
    in_turn: ClassVar[bool] = True
    summary: ClassVar[str] = "relative likelihood ratios against other records (Zarifzadeh et al. 2024)"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not self.gamma > 0:
            raise BadValue(f"gamma={self.gamma}: a ratio is positive. Use 1.0.")

    def __call__(self, subject: Subject, keep: Keep, tell: Tell) -> Found:
        return self.found(self, subject, keep, tell)

    def scores(self, seen: Seen, keep: Keep, key: Key, tell: Tell) -> np.ndarray:
        losses = seen.world.units.means(seen.losses.mean(1))
        return relative(losses.numpy(), self.gamma)


def relative(losses: np.ndarray, gamma: float) -> np.ndarray:
    """RMIA's scores from losses [shadows + 1, units], the target last; likelihoods are e^-loss, kept as logarithms."""
    likelihood = torch.from_numpy(-losses)
    usual = torch.logsumexp(likelihood[:-1], dim=0) - np.log(len(losses) - 1)
    ratios = (likelihood[-1] - usual).numpy()
    beaten = np.searchsorted(np.sort(ratios), ratios - np.log(gamma), side="right")
    return np.asarray(beaten / len(ratios))
