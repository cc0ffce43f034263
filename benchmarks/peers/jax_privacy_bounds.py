"""Clopper-Pearson and one-run bounds of jax-privacy beside ours, on the same scores of exact Gaussian canaries."""

from __future__ import annotations

import json
from typing import Any

import jax_privacy.auditing as theirs
import numpy as np

from sfumato.audit.bounds import Errors, clopper_pearson, gaussian_fit
from sfumato.audit.one_run import Guesses, steinke
from sfumato.key import Key

ALPHA, DELTA = 0.05, 1e-5


def scores(mu: float, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    key = Key.from_seed(seed)
    return key.child("out").normal(count).numpy(), key.child("in").normal(count).numpy() + mu


def main() -> None:
    rows: list[dict[str, Any]] = []
    for mu, count in ((1.0, 500), (2.0, 500), (3.0, 2000)):
        absent, present = scores(mu, count, 1)
        auditor = theirs.CanaryScoreAuditor(present, absent)
        name, threshold = f"mu {mu:g}, {count} of each world", mu / 2
        at = {"threshold_strategy": theirs.Explicit(threshold)}
        right = int((present >= threshold).sum())
        guesses = Guesses(2 * count, right + int((absent >= threshold).sum()), right)
        found = {
            "Clopper-Pearson": (
                clopper_pearson(Errors.of(absent, present, threshold), DELTA, ALPHA),
                auditor.epsilon_clopper_pearson(ALPHA, DELTA, one_sided=False, **at),
            ),
            f"one run, {guesses.made} guesses": (
                steinke(guesses, DELTA, ALPHA),
                auditor.epsilon_one_run(ALPHA, DELTA, **at),
            ),
        }
        rows += [
            {"scores": name, "bound": bound, "ours": float(ours), "theirs": float(other)}
            for bound, (ours, other) in found.items()
        ]
    nothing = [scores(0.0, 200, seed) for seed in range(100)]
    fits = sum(
        theirs.CanaryScoreAuditor(present, absent).epsilon_from_gdp(ALPHA, DELTA) > 0 for absent, present in nothing
    )
    ours = sum(gaussian_fit(absent, present, DELTA, ALPHA) > 0 for absent, present in nothing)
    note = (
        f"Without any leak, 200 scores of each world: jax-privacy's `epsilon_from_gdp` is above 0 in {fits} of 100 audits at 95 %, "
        f"our fit in {ours}."
    )
    print(json.dumps({"rows": rows, "note": note}))


if __name__ == "__main__":
    main()
