"""The same noise in two neighbouring worlds: it cancels, and what is left is how far one unit moves the release, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_HUGE = 1e30
_KINDS = {
    "zeros": 0.0,
    "ordinary": 1.0,
    "huge": _HUGE,
    "tiny": 1e-40,
    "NaN": math.nan,
    "infinite": math.inf,
}


@dataclass(frozen=True)
class Pair:
    """Two neighbouring inputs of a mechanism."""

    name: str
    absent: Any
    present: Any


@dataclass(frozen=True)
class Moved:
    """How far a release moved between the two inputs of a pair; infinite, with the reason, where it did not stay finite."""

    pair: str
    l2: float
    l1: float
    problem: str = ""


def replay(
    mechanism: Callable[[Any], Any], pairs: Iterable[Pair], freeze: Callable[[], object] = lambda: None
) -> list[Moved]:
    """Run a mechanism on both inputs of every pair with the same randomness: `freeze` is called before each run, and sets it.

    States a lower bound on sensitivity, without any chance: a mechanism that adds noise to a value which one unit moves by at
    most s moves its release by at most s here. A release that is not finite in one of the two worlds, or not there because the
    mechanism failed, tells them apart whatever the noise is.

    >>> clip = lambda rows: sum(row / max(1.0, row.norm()) for row in rows)
    >>> max(moved.l2 for moved in replay(clip, pairs_of_rows(dimension=3, clients=2)))
    inf
    """
    return [
        _moved(pair.name, *(_released(mechanism, data, freeze) for data in (pair.absent, pair.present)))
        for pair in pairs
    ]


def check_replay(
    mechanism: Callable[[Any], Any],
    pairs: Iterable[Pair],
    freeze: Callable[[], object] = lambda: None,
    *,
    sensitivity: float,
    order: int = 2,
) -> None:
    """Nothing moves by more than the stated sensitivity, in the norm of that order, but for rounding in float32."""
    for moved in replay(mechanism, pairs, freeze):
        found = moved.l2 if order == 2 else moved.l1
        why = f" ({moved.problem})" if moved.problem else ""
        assert found <= sensitivity * (1 + 1e-6), (
            f"{moved.pair}: moves by {found:.6g}{why}, and {sensitivity:.6g} is stated"
        )


def pairs_of_rows(dimension: int, clients: int, zero_out: bool = False) -> list[Pair]:
    """One client more among others, or with `zero_out` its row instead of zeros: ordinary, huge, tiny, NaN and infinite rows,
    each as a whole or in one coordinate, beside others of three kinds.
    """
    found = []
    for others in ("zeros", "ordinary", "huge"):
        rest = [torch.full((dimension,), _KINDS[others]) for _ in range(clients - 1)]
        for kind, value in _KINDS.items():
            for where in ("everywhere", "in one coordinate"):
                row = torch.full((dimension,), value)
                if where != "everywhere":
                    row[1:] = 0.0 if kind == "zeros" else _HUGE
                absent = [*rest, torch.zeros(dimension)] if zero_out else rest
                found.append(Pair(f"{kind} {where}, others {others}", absent, [*rest, row]))
    return found


def _released(mechanism: Callable[[Any], Any], data: Any, freeze: Callable[[], object]) -> np.ndarray | str:
    """What comes out as numbers, or why nothing does."""
    freeze()
    try:
        return flat(mechanism(data))
    except Exception as error:
        return f"raises {type(error).__name__}"


def flat(release: Any) -> np.ndarray:
    """A release as one row of float64: a tensor, an array, a number, or a list of them."""
    if isinstance(release, list | tuple):
        return np.concatenate([flat(part) for part in release]) if release else np.zeros(0)
    values = release.detach().cpu().numpy() if isinstance(release, torch.Tensor) else np.asarray(release)
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _moved(name: str, absent: np.ndarray | str, present: np.ndarray | str) -> Moved:
    if isinstance(absent, str) or isinstance(present, str):
        said = {one for one in (absent, present) if isinstance(one, str)}
        alike = isinstance(absent, str) and isinstance(present, str) and len(said) == 1
        return Moved(name, 0.0, 0.0) if alike else Moved(name, math.inf, math.inf, " or ".join(sorted(said)))
    if absent.shape != present.shape:
        return Moved(name, math.inf, math.inf, f"a release of {len(absent)} and one of {len(present)} numbers")
    if np.array_equal(absent, present, equal_nan=True):
        return Moved(name, 0.0, 0.0)
    differ = (absent != present) & ~(np.isnan(absent) & np.isnan(present))  # what is not finite in both tells nothing
    one, other = absent[differ], present[differ]
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return Moved(name, math.inf, math.inf, "a release that is not finite")
    gone = other - one
    return Moved(name, float(np.linalg.norm(gone)), float(np.abs(gone).sum()))


def worst(moves: Sequence[Moved]) -> Moved:
    """The pair that moved furthest."""
    return max(moves, key=lambda moved: moved.l2)
