"""`sfumato plan --compare`: what every law of noise needs for one target."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from sfumato.commands.answers import show
from sfumato.errors import BadValue
from sfumato.pieces.sampler import Drawn, FixedSize, Poisson, parse_drawn
from sfumato.planning.compare import Compared, Winners, compare, winners


def compare_laws(
    epsilon: float | None,
    delta: float,
    rate: float | None,
    sample: str | None,
    steps: int | None,
    dimension: int | None,
    clip: float,
    json: bool,
) -> None:
    """Print every law, or why it has no proof, and which wins under which clip."""
    needed = {"--epsilon": epsilon, "--steps (or --rounds)": steps, "--dimension": dimension}
    if missing := [name for name, value in needed.items() if value is None]:
        raise BadValue(f"plan --compare: give {' and '.join(missing)} too.")
    assert epsilon is not None and steps is not None and dimension is not None
    start = time.perf_counter()
    drawn = _drawn(rate, sample)
    rows = compare(epsilon, delta, drawn, steps, dimension, clip)
    wins = winners(rows, dimension)
    answer: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "sample": str(drawn),
        "steps": steps,
        "dimension": dimension,
        "clip": clip,
        "laws": [asdict(one) for one in rows],
        "wins": asdict(wins),
        "seconds": round(time.perf_counter() - start, 4),
    }
    show(answer, _lines(answer, rows, wins), json)


def _drawn(rate: float | None, sample: str | None) -> Drawn:
    if rate is not None and sample is not None:
        raise BadValue("plan --compare: --rate and --sample both say how units are drawn. Give one of them.")
    drawn = Drawn(Poisson(rate)) if rate is not None else parse_drawn(sample or "everyone", option="--sample")
    if isinstance(drawn.sampler, FixedSize) and drawn.population is None:
        raise BadValue(f"--sample {sample}: a fixed size needs its population, e.g. fixed:50/1000.")
    return drawn


def _lines(answer: dict[str, Any], rows: list[Compared], wins: Winners) -> list[str]:
    dimension = answer["dimension"]
    many = f"{answer['steps']:,} release{'s' if answer['steps'] > 1 else ''}"
    lines = [
        f"epsilon {answer['epsilon']:g} at delta {answer['delta']:g}: {answer['sample']}, {many}",
        f"clip norm {answer['clip']:g}, {dimension:,} coordinate{'s' if dimension > 1 else ''}; distortions of one release",
        "",
        f"{'law':<11} {'clip':<4} {'multiplier':>10} {'stddev':>9} {'expected L1':>12} {'L2 (rms)':>10}  accountant",
    ]
    for one in rows:
        if one.noise_multiplier is None:
            lines.append(f"{one.law:<11} {one.clip:<4} no proof: {one.note}")
            continue
        lines.append(
            f"{one.law:<11} {one.clip:<4} {one.noise_multiplier:>10.5g} {one.stddev:>9.5g} {one.l1_distortion:>12.6g} "
            f"{one.l2_distortion:>10.5g}  {one.accountant}"
        )
    lines += ["", f"{'least noise':<20} {'expected L1':<12} L2 (rms)"]
    for name, laws in (("under an L2 clip", wins.under_l2_clip), ("under an L1 clip", wins.under_l1_clip)):
        lines.append(f"  {name:<18} {laws['l1']:<12} {laws['l2']}")
    if wins.l1_clip_pays_below <= 1.0:
        lines.append("in L2 an L1 clip pays for no row: it keeps less, and its noise is no smaller")
    elif dimension > 1:
        lines += [
            f"in L2 an L1 clip pays for rows whose L1 norm is below {wins.l1_clip_pays_below:.4g} times their L2 norm;",
            f"that ratio is 1 for one coordinate and {wins.largest_ratio:.4g} for a row that is spread evenly",
        ]
    return lines
