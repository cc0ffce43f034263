"""What the clip met, round by round: read from clients' rows before any noise, so it is not private and is for study only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_BINS = 40  # at most; each shall hold ten updates or so


def clip_statistics(rounds: Sequence[Sequence[float]], clip: float) -> dict[str, Any]:
    """Equation 18 of DP-FedSAM for each round, and the distribution of all norms before the clip.

    alpha = min(1, clip / norm) is what the clip leaves of an update; `mean` is its mean over the clients of a round, and
    `spread` the mean distance from it. Both are over the drawn clients, where the paper has all of them.

    >>> clip_statistics([[1.0, 4.0]], clip=2.0)["mean"]
    [0.75]
    """
    mean, spread, norm = [], [], []
    for norms in rounds:
        if len(norms) == 0:
            continue
        left = np.minimum(1.0, clip / np.maximum(np.asarray(norms, dtype=np.float64), 1e-300))
        mean.append(float(left.mean()))
        spread.append(float(np.abs(left - left.mean()).mean()))
        norm.append(float(np.mean(norms)))
    every = np.concatenate([np.asarray(norms, dtype=np.float64) for norms in rounds])
    counts, edges = np.histogram(every, bins=max(1, min(_BINS, len(every) // 10)))
    clipped = float((every > clip).mean()) if len(every) else 0.0
    return {
        "clip": clip,
        "mean": mean,
        "spread": spread,
        "norm": norm,
        "clipped": clipped,
        "counts": counts.tolist(),
        "edges": edges.tolist(),
    }
