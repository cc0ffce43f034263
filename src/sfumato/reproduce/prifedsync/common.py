"""What the tables of PriFedSync have in common: one training run with personal models, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.account.event import Unit
from sfumato.account.papers.prifedsync import Federated
from sfumato.data.load import build_population, load
from sfumato.data.test_parts import with_test_parts
from sfumato.engine.simulate import simulate
from sfumato.guarantee import rounded_up
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.local.plain_steps import PlainSteps
from sfumato.models import build
from sfumato.objective import classification
from sfumato.pieces.mean import RealisedMean
from sfumato.pieces.optimizer import local_optimizer
from sfumato.pieces.personal import HelperBlend
from sfumato.pieces.sampler import Everyone, FixedSize, Poisson
from sfumato.report.curves import Curve, Plot, thinned
from sfumato.report.pictures import SERIES
from sfumato.reproduce.table import MISSING, Done, Row, spread
from sfumato.round import Round
from sfumato.run.personal_scores import PersonalScores

PAPER = "Zheng, Chen, Long and Su 2021, Federated f-Differential Privacy (PriFedSync)"
DELTA = 1e-5
MNIST: dict[str, Any] = {
    "data": "mnist", "split": "shards:4", "clients": 100, "records": 600, "test_part": 200, "model": "cnn-mnist",
    "rate": 1.0, "batch": 16, "steps": 38, "sigma": 1.0, "lr": 0.001, "weight_decay": 0.0, "lr_decay": 1.0,
    "helper_weight": 0.1, "rounds": 100, "target": 0.9,
}  # fmt: skip
QUICK: dict[str, Any] = {
    "data": "digits", "clients": 8, "records": 160, "test_part": 40, "model": "logistic", "batch": 16, "steps": 10,
    "lr": 0.01, "rounds": 8,
}  # fmt: skip
QUICK_WORDS = (
    "Quick: 8 rounds of a linear model on scikit-learn's digits with 8 clients. It shows that everything runs, and says nothing "
    "about the paper's numbers."
)
NOTES = (
    "mu is the paper's central limit over all steps of all rounds; it is no bound. Both epsilons are exact compositions at delta "
    f"{DELTA:g}: for a client that takes part in every round, and for one that takes part with probability p (everybody may see "
    "when). They hold for each record, swapped for another, against all others together and against the server.",
    "Personal accuracy: each client's helper model on its own test part; mean over clients. Such numbers read clients' data "
    "without paying for it, and are not private.",
    "A client that was never drawn begins at the global model of that round; the paper lets it begin at the first one.",
)


def train(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Train until the target is reached, or for all rounds; the curve holds personal and, if asked for, global accuracy."""
    dataset, root = load(settings["data"]), Key.from_seed(seed)
    clients = min(settings["clients"], len(dataset.pool.y) // settings["records"])
    shared = build_population(dataset, clients, settings["split"], root.child("split"), settings["records"])
    population = with_test_parts(shared, dataset.test, settings["test_part"], root.child("tests"))
    shape, objective = tuple(dataset.test.records.x.shape[1:]), classification(dataset.classes)
    module = build(settings["model"], shape, dataset.classes, root.child("model"))
    scores = PersonalScores(population, objective)
    curve, reached = [], None
    for progress in simulate(_round(settings), population, module, objective, rounds=settings["rounds"], seed=seed):
        own = scores(progress)
        everywhere = scores.of_global(progress).mean if settings.get("global") else None
        curve.append([progress.round, own.mean, own.spread, own.worst_decile, everywhere])
        if settings["target"] is not None and own.mean >= settings["target"]:
            reached = progress.round
            break
    return {"clients": clients, "reached": reached, "rounds": curve[-1][0], "accuracy": curve[-1][1], "curve": curve}


def _round(settings: Mapping[str, Any]) -> Round:
    optimizer, batch = local_optimizer("adam", settings["lr"]), FixedSize(settings["batch"])
    sigma, decay, lr_decay = settings["sigma"], settings["weight_decay"], settings["lr_decay"]
    local: Any = PlainSteps(settings["steps"], batch, optimizer, decay, lr_decay)
    if sigma is not None:
        steps, records = settings["steps"], settings["records"]
        local = DpSgd(steps, batch, records, 1.0, 2 * sigma, optimizer, weight_decay=decay, lr_decay=lr_decay)
    return Round(
        sample=Everyone() if settings["rate"] == 1.0 else Poisson(settings["rate"]),
        local=local,
        aggregate=RealisedMean(),
        personal=HelperBlend(settings["helper_weight"]),
        unit=Unit.RECORD,
        nonprivate=sigma is None,
    )


def federated(settings: Mapping[str, Any], rounds: int) -> Federated:
    """The run in words of privacy, after so many rounds."""
    numbers = {name: settings[name] for name in ("steps", "sigma", "rate", "clients")}
    return Federated(share=settings["batch"] / settings["records"], rounds=rounds, **numbers)


def row(done: Sequence[Done]) -> Row:
    """One line: what was set, then the paper's number and ours for rounds, mu, both epsilons and accuracy."""
    settings, paper = done[0].cell.settings, done[0].cell.paper
    private = settings["sigma"] is not None
    accuracies = [100 * one.result["accuracy"] for one in done]
    worst = [100 * one.result["curve"][-1][3] for one in done]
    return {
        "p": f"{settings['rate']:g}",
        "sigma": f"{settings['sigma']:g}" if private else "no privacy",
        **({"batch": f"{settings['batch']}", "steps": f"{settings['steps']}"} if "iterations" in paper else {}),
        "rounds, paper": str(paper.get("rounds", MISSING)),
        "rounds, ours": _reached(done),
        **(_costs(done) if private else {}),
        "accuracy, paper": f"{paper['accuracy']:.2f}" if "accuracy" in paper else MISSING,
        "accuracy, ours": spread(accuracies, "{:.2f}"),
        "worst tenth of clients": spread(worst, "{:.1f}"),
        "minutes": f"{sum(one.seconds for one in done) / 60:.1f}",
    }


def _reached(done: Sequence[Done]) -> str:
    if done[0].cell.settings["target"] is None:
        return spread([one.result["rounds"] for one in done], "{:.0f}")
    if all(one.result["reached"] for one in done):
        return spread([one.result["reached"] for one in done], "{:.0f}")
    return f"not in {max(one.result['rounds'] for one in done)}"


def _costs(done: Sequence[Done]) -> Row:
    settings, paper = done[0].cell.settings, done[0].cell.paper
    ours = federated(settings, max(one.result["rounds"] for one in done))
    found = {"mu, paper": f"{paper['mu']:.2f}" if "mu" in paper else MISSING, "mu, ours": f"{ours.mu:.2f}"}
    theirs = federated({**settings, **paper.get("settings", {})}, paper["rounds"]) if "rounds" in paper else None
    for name, cost in (("every round", Federated.every_round), ("p", Federated.participation)):
        found[f"epsilon ({name}), paper's rounds"] = MISSING if theirs is None else rounded_up(cost(theirs, DELTA), 4)
        found[f"epsilon ({name}), ours"] = rounded_up(cost(ours, DELTA), 4)
    if "iterations" in paper:
        found["iterations, paper"] = f"{paper['iterations']:,}"
        found["iterations, ours"] = f"{settings['steps'] * ours.rounds:,}"
    return found


def curves(name: str, title: str, done: Sequence[Done], both: bool = False) -> list[Plot]:
    """Accuracy by round: one line for each row and seed; with `both`, the global model's beside it."""
    lines: list[Curve] = []
    for one in done:
        several = sum(other.cell.row == one.cell.row for other in done) > 1
        label = one.cell.row + (f", seed {one.cell.seed}" if several else "")
        for place, words in ((1, "personal, " if both else ""), (4, "global, ")):
            points = [(float(p[0]), float(p[place])) for p in one.result["curve"] if p[place] is not None]
            if points and (place == 1 or both):
                kept = thinned(points)
                index = done.index(one) + (len(SERIES) if place == 4 else 0)  # the same colour, dashed
                lines.append(Curve(words + label, index, tuple(x for x, _ in kept), tuple(y for _, y in kept)))
    return [Plot(name, title, "Round", "Mean accuracy over clients", tuple(lines), percent=True)] if lines else []
