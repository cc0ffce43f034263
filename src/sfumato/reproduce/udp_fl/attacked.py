"""What the tables of attacks on content have in common: which runs are attacked, at which epsilon, and how rows are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats
from torch import nn

from sfumato.engine.plan import Plan
from sfumato.engine.simulate import simulate
from sfumato.objective import evaluate
from sfumato.report.curves import Curve, Plot
from sfumato.reproduce.show import having, minutes
from sfumato.reproduce.table import Cell, Group, Row, Settings, Work, at, seeded
from sfumato.reproduce.training import Start, dataset_of, proven
from sfumato.reproduce.udp_fl import common
from sfumato.update import Layout

PROVEN = (common.GAUSSIAN, "Laplace", "Staircase")
PUBLISHED = ("Laplace, as published", "Staircase, as published")
Printed = Mapping[str, Sequence[tuple[float, ...]]]
NOTES = (
    "No ranking is claimed, of laws or of epsilons: many gaps in the paper's table are 0.01. Bands are at 95 %; what they are "
    "over is said below.",
    "The paper prints neither delta nor how many records were attacked, nor how often: its numbers have no bands.",
    "An attack that finds nothing proves nothing: proven rows hide each record at the epsilon that they name, whatever it finds, "
    "and `really` is what is proven for the noise of rows as published.",
)


def cells(scale: str, settings: Settings, work: Work, printed: Printed, free: tuple[float, ...]) -> list[Cell]:
    """The proven laws at every epsilon, the published ones at the last, and no privacy; each beside what the paper has."""
    epsilons = at(scale, (8.0,), common.EPSILONS, common.EPSILONS)
    found: list[Cell] = []
    for method in (*PROVEN, *PUBLISHED):
        own = common.METHODS[method]
        paper = printed[own["law"].removesuffix("-as-published")]
        for epsilon in epsilons if method in PROVEN else epsilons[-1:]:
            values = paper[common.EPSILONS.index(epsilon)]
            found += cell(scale, method, {**settings, **own, "epsilon": epsilon}, work, values)
    return found + cell(scale, common.NONE, {**settings, **common.FREE}, work, free)


def cell(scale: str, method: str, settings: Settings, work: Work, paper: tuple[float, ...] = ()) -> list[Cell]:
    """One line of the table."""
    epsilon = settings["epsilon"]
    row = method if epsilon is None else f"{method}, epsilon {epsilon:g}"
    return seeded(at(scale, 1, 1, 3), row, settings, work, {"method": method, "paper": paper})


def trained(settings: Settings, seed: int) -> tuple[Start, nn.Module, dict[str, Any]]:
    """Where a run begins, the model where it ends, and what it cost and learnt."""
    dataset = dataset_of(settings["data"], 0)
    start = Start.of(settings, seed, dataset, settings["records"])
    round = common.round_of(settings, None, Layout.of(start.module).dimension)
    facts = {"rounds": settings["rounds"], "seed": seed, "plan": Plan("loop", 1, 1)}
    module = start.module
    for progress in simulate(round, start.population, start.module, start.objective, **facts):
        if progress.round == settings["rounds"]:
            module = progress.module
    found = evaluate(module, dataset.test.records, start.objective)["accuracy"]
    return start, module.eval(), {"accuracy": found, **costs(settings, Layout.of(module).dimension)}


def costs(settings: Settings, dimension: int) -> dict[str, float | None]:
    """What is proven for a run of these settings, and for the noise of one that claims something else."""
    round, clients = common.round_of(settings, None, dimension), settings["clients"]
    rounds, delta = settings["rounds"], settings["delta"]
    world = round.derive(population=clients, dimension=dimension).primary.world
    return {
        "epsilon": proven(world, rounds, delta),
        "really": common.really_of(round, clients, dimension, rounds, delta),
    }


def band(values: Sequence[float]) -> list[float]:
    """The mean and its 95 % band by Student's t, which one value has not."""
    mean, count = float(np.mean(values)), len(values)
    off = math.nan if count < 2 else float(stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return [mean, mean - off, mean + off] if math.isfinite(off) else [mean, mean, mean]


def shown(found: Sequence[float], digits: int = 3) -> str:
    """A mean and its band.

    >>> shown([0.5, 0.4, 0.6]), shown([0.5, 0.5, 0.5])
    ('0.500 (0.400 to 0.600)', '0.500')
    """
    mean, low, high = found
    return f"{mean:.{digits}f}" + (f" ({low:.{digits}f} to {high:.{digits}f})" if high > low else "")


def over(done: Group, *path: str) -> list[float]:
    """A mean and its band over seeds: of one, its own; of several, their means."""
    values = [_at(one.result, path) for one in done]
    return [float(value) for value in np.mean(values, axis=0)]


def _at(result: Any, path: Sequence[str]) -> Any:
    for word in path:
        result = result[word]
    return result


def row(done: Group, words: str, ours: Callable[[Group], Row]) -> Row:
    """Which noise at which epsilon, the paper's numbers and ours."""
    settings, paper = done[0].cell.settings, done[0].cell.paper
    found = {"noise": paper["method"], "accounting": settings.get("accounting", "")}
    found |= {
        "epsilon": "" if settings["epsilon"] is None else f"{settings['epsilon']:g}",
        "really": common.really(done),
    }
    printed = " ".join(f"{value:g}" for value in paper["paper"])
    return {**found, f"{words}, paper": printed, **ours(done), **minutes(done)}


def plot(name: str, title: str, y: str, done: Group, value: Callable[[Group], list[float]]) -> list[Plot]:
    """What the proven laws reach by epsilon, with bands, and what stands beside them, whatever epsilon is."""
    curves: list[Curve] = []
    methods = dict.fromkeys(one.cell.paper["method"] for one in done)
    for index, method in enumerate(method for method in methods if method not in PUBLISHED):
        own = having(done, method=method)
        epsilons = list(dict.fromkeys(one.cell.settings["epsilon"] for one in own))
        points = [value(having(own, epsilon=epsilon)) for epsilon in epsilons]
        mean, low, high = (tuple(values) for values in zip(*points, strict=True))
        if epsilons == [None]:
            ends = common.EPSILONS[0], common.EPSILONS[-1]
            curves.append(Curve(method.partition(" (")[0], index, ends, (mean[0], mean[0])))
        else:
            curves.append(Curve(method, index, tuple(epsilons), mean, False, low, high))
    return [Plot(name, title, "Epsilon", y, tuple(curves))] if curves else []
