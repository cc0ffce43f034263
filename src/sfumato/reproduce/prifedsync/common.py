"""What the tables of PriFedSync have in common: one training run with personal models, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sfumato import recipes
from sfumato.account import accountant
from sfumato.account.event import Repeated
from sfumato.account.papers.prifedsync import Published
from sfumato.data.load import build_population, load
from sfumato.data.test_parts import with_test_parts
from sfumato.engine.simulate import simulate
from sfumato.key import Key
from sfumato.local.dp_sgd import PlainSteps
from sfumato.models import build
from sfumato.objective import classification
from sfumato.pieces.optimizer import local_optimizer
from sfumato.pieces.sampler import FixedSize
from sfumato.report.curves import Curve, Plot, thinned
from sfumato.report.pictures import SERIES
from sfumato.report.words import bound
from sfumato.reproduce.show import accuracy, minutes, printed, spread
from sfumato.reproduce.table import Cell, Group, Row, Settings, Work, at, seeded
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
NOTES = (
    "mu is the paper's central limit over all steps of all rounds; it is no bound. Both epsilons are exact compositions at delta "
    f"{DELTA:g}: for a client that takes part in every round, and for one that takes part with probability p (everybody may see "
    "when). They hold for each record, swapped for another, against all others together and against the server.",
    "Personal accuracy: each client's helper model on its own test part; mean over clients. Such numbers read clients' data "
    "without paying for it, and are not private.",
    "A client that was never drawn begins at the global model of that round; the paper lets it begin at the first one.",
)


def train(settings: Settings, seed: int) -> dict[str, Any]:
    """Train until the target is reached, or for all rounds; the curve holds personal and, if asked for, global accuracy."""
    dataset, root = load(settings["data"]), Key.from_seed(seed)
    clients = min(settings["clients"], len(dataset.pool.y) // settings["records"])
    shared = build_population(dataset, clients, settings["split"], root.child("split"), settings["records"])
    population = with_test_parts(shared, dataset.test, settings["test_part"], root.child("tests"))
    objective = classification(dataset.classes)
    module = build(settings["model"], dataset.input_shape, dataset.classes, root.child("model"))
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


TRAIN = Work("sfumato.reproduce.prifedsync.train", train)


def _round(settings: Settings) -> Round:
    """The recipe; without privacy, plain steps in place of its local training."""
    rate, sigma, batch = settings["rate"], settings["sigma"], settings["batch"]
    known = ("records", "steps", "lr", "weight_decay", "lr_decay", "helper_weight")
    options = {name: settings[name] for name in known} | {"batch": f"fixed:{batch}"}
    options["sample"] = "everyone" if rate == 1.0 else f"poisson:{rate}"
    if sigma is not None:
        return recipes.build("prifedsync", settings["clients"], options | {"noise_multiplier": 2 * sigma})
    adam, decays = local_optimizer("adam", settings["lr"]), (settings["weight_decay"], settings["lr_decay"])
    plain = PlainSteps(settings["steps"], FixedSize(batch), adam, *decays)
    return replace(recipes.build("prifedsync", settings["clients"], options), local=plain, nonprivate=True)


def published(settings: Settings, rounds: int) -> Published:
    """The run in the paper's words of privacy, after so many rounds."""
    numbers = {name: settings[name] for name in ("steps", "sigma", "rate", "clients")}
    return Published(share=settings["batch"] / settings["records"], rounds=rounds, **numbers)


def epsilons(settings: Settings, rounds: int) -> dict[str, float]:
    """What its Round proves after so many: for who took part in every round, and with the chance to take part."""
    clients = settings["clients"]
    proof = _round(settings).derive(population=clients, dimension=1).primary
    return {
        name: accountant().epsilon(Repeated(event, rounds), DELTA)
        for name, event in (("every round", proof.chooser), ("p", proof.server))
        if event is not None
    }


def cells(
    scale: str, row: str, settings: Settings, paper: Settings, rounds: int, clients: int, seeds: int = 3, **changed: Any
) -> list[Cell]:
    """The cells of a line of the paper, from its own settings and what is printed, for so many rounds here.

    With so many clients unless at full scale, and as many seeds there; one is enough without privacy.
    """
    private, fewer = settings["sigma"] is not None, at(scale, QUICK, {"clients": clients}, {})
    chosen = {**settings, "rounds": rounds, **fewer, **changed}
    known = {**paper, "settings": dict(settings)} if private else paper
    return seeded(at(scale, 1, 1, seeds) if private else 1, row, chosen, TRAIN, known)


Rates = Mapping[tuple[float, float], tuple[int, float, float, float]]


def to_target(
    scale: str, settings: Settings, printed: Rates, free: Iterable[tuple[float, float]], longer: float, *counts: int
) -> list[Cell]:
    """Tables 1 and 3: for each rate and sigma up to `longer` times the paper's rounds, and where it is `free` their number
    without privacy. `counts` are clients and seeds.
    """
    found = []
    for (rate, sigma), (rounds, mu, reached, plain) in printed.items():
        own, paper = {**settings, "rate": rate, "sigma": sigma}, {"rounds": rounds, "mu": mu, "accuracy": reached}
        found += cells(scale, f"p {rate:g}, sigma {sigma:g}", own, paper, int(longer * rounds), *counts)
        if (rate, sigma) in free:
            own, paper = {**own, "sigma": None, "target": None}, {"rounds": rounds, "accuracy": plain}
            found += cells(scale, f"p {rate:g}, {rounds} rounds without privacy", own, paper, rounds, *counts)
    return found


def row(done: Group) -> Row:
    """One line: what was set, then the paper's number and ours for rounds, mu, both epsilons and accuracy."""
    settings, paper = done[0].cell.settings, done[0].cell.paper
    private = settings["sigma"] is not None
    worst = [100 * one.result["curve"][-1][3] for one in done]
    return {
        "p": f"{settings['rate']:g}",
        "sigma": f"{settings['sigma']:g}" if private else "no privacy",
        **({name: str(settings[name]) for name in ("batch", "steps")} if "iterations" in paper else {}),
        "rounds, paper": str(paper["rounds"]),
        "rounds, ours": _reached(done),
        **(_costs(done) if private else {}),
        "accuracy, paper": printed(paper.get("accuracy")),
        "accuracy, ours": accuracy(done),
        "worst tenth of clients": spread(worst, "{:.1f}"),
        **minutes(done),
    }


def _reached(done: Group) -> str:
    counted = "rounds" if done[0].cell.settings["target"] is None else "reached"
    if all(one.result[counted] for one in done):
        return spread([one.result[counted] for one in done], "{:.0f}")
    return f"not in {max(one.result['rounds'] for one in done)}"


def _costs(done: Group) -> Row:
    settings, paper = done[0].cell.settings, done[0].cell.paper
    rounds = max(one.result["rounds"] for one in done)
    ours, theirs = epsilons(settings, rounds), epsilons(paper["settings"], paper["rounds"])
    found = {"mu, paper": printed(paper["mu"]), "mu, ours": f"{published(settings, rounds).mu:.2f}"}
    for name, epsilon in ours.items():
        found[f"epsilon ({name}), paper's rounds"] = bound(theirs[name])
        found[f"epsilon ({name}), ours"] = bound(epsilon)
    if "iterations" in paper:
        found["iterations, paper"] = f"{paper['iterations']:,}"
        found["iterations, ours"] = f"{settings['steps'] * rounds:,}"
    return found


def curves(name: str, title: str, both: bool = False) -> Callable[[Group], list[Plot]]:
    """A picture of accuracy by round: one line for each row and seed; with `both`, the global model's beside it."""
    places = ((1, "personal, ", 0), (4, "global, ", len(SERIES))) if both else ((1, "", 0),)  # the same colour, dashed

    def draw(done: Group) -> list[Plot]:
        lines: list[Curve] = []
        for index, one in enumerate(done):
            several = sum(other.cell.row == one.cell.row for other in done) > 1
            label = one.cell.row + (f", seed {one.cell.seed}" if several else "")
            for place, words, further in places:
                points = thinned([(float(point[0]), float(point[place])) for point in one.result["curve"]])
                xs, ys = zip(*points, strict=True)
                lines.append(Curve(words + label, index + further, xs, ys))
        return [Plot(name, title, "Round", "Mean accuracy over clients", tuple(lines), percent=True)] if lines else []

    return draw
