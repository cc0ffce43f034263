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
    drawn = [np.asarray(norms, dtype=np.float64) for norms in rounds if len(norms)]
    left = [np.minimum(1.0, clip / np.maximum(norms, 1e-300)) for norms in drawn]
    every = np.concatenate([np.zeros(0), *drawn])
    counts, edges = np.histogram(every, bins=max(1, min(_BINS, len(every) // 10)))
    return {
        "clip": clip,
        "mean": [float(share.mean()) for share in left],
        "spread": [float(np.abs(share - share.mean()).mean()) for share in left],
        "norm": [float(norms.mean()) for norms in drawn],
        "clipped": float((every > clip).mean()) if len(every) else 0.0,
        "counts": counts.tolist(),
        "edges": edges.tolist(),
    }
