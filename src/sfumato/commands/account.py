"""`sfumato account`: what a setting costs."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import typer

from sfumato.account.event import Event, Relation, Repeated
from sfumato.commands.answers import Json, read_setting, refusing, show
from sfumato.guarantee import headline
from sfumato.planning.setting import Setting

Noise = Annotated[
    str, typer.Option(help="gaussian:Z, laplace-l2:B (over the L2 clip norm), laplace:B, staircase:B (over the L1).")
]
Dimension = Annotated[int | None, typer.Option(help="How many parameters are trained.")]
Sample = Annotated[str, typer.Option(help="The cohort: poisson:RATE, fixed:SIZE/CLIENTS or everyone[:CLIENTS].")]
Rounds = Annotated[int, typer.Option(help="How many rounds.")]
Delta = Annotated[float, typer.Option(help="The delta, below one over the population.")]
RelationOption = Annotated[
    str | None, typer.Option(help="add-remove, replace or zero-out; else what the sampling implies.")
]
Curious = Annotated[int, typer.Option(help="Clients who pool what they know of a fixed-size cohort.")]


Votes = Annotated[
    str,
    typer.Option(help="A round is a query that clients answer: label, knn:K or attributes:MOST; noise is in votes."),
]
UnitOption = Annotated[str, typer.Option(help="Whose data is hidden: client or record.")]


def account(
    noise: Noise,
    rounds: Rounds,
    delta: Delta,
    sample: Sample = "everyone",
    relation: RelationOption = None,
    unit: UnitOption = "client",
    batch: Annotated[str | None, typer.Option(help="Local batches of a record's client, e.g. fixed:16/600.")] = None,
    steps: Annotated[int, typer.Option(help="Local steps per round (with --unit record).")] = 1,
    noise_at: Annotated[str, typer.Option(help="Where noise for a client is added: server or client.")] = "server",
    accountant: Annotated[str, typer.Option(help="auto, pld, rdp, gdp or theorem (DP-Fed-LS).")] = "auto",
    curious: Curious = 1,
    dimension: Dimension = None,
    shuffle: Annotated[
        bool, typer.Option(help="Messages with their own noise are permuted before the server.")
    ] = False,
    votes: Votes = "",
    json: Json = False,
) -> None:
    """Say what a setting costs: the smallest epsilon that can be proven, and for whom it holds."""
    with refusing(json):
        setting = read_setting(
            noise, sample, rounds, unit, relation, batch, steps, noise_at, curious, dimension, shuffle, votes
        )
        answer = price(setting, delta, accountant)
        show(answer, _lines(answer), json)


def price(setting: Setting, delta: float, name: str) -> dict[str, Any]:
    """The answer, with everything that has to be said beside its epsilon."""
    from sfumato.account.central_limit import approximations
    from sfumato.planning.words import assumptions, sampling, views

    start = time.perf_counter()
    claim, event = setting.claim(), setting.event()
    epsilon, used = _epsilon(setting, delta, name)
    seconds = time.perf_counter() - start
    shown, who = epsilon if math.isfinite(epsilon) else None, views(setting)
    server = None if claim.server is None else _price(Repeated(claim.server, setting.rounds), delta, name)[0]
    seen = server if server is not None and math.isfinite(server) else None
    view = "everyone who sees the model" + (", the server included" if shown is not None and seen == shown else "")
    return {
        "headline": headline(shown, delta, f"each {setting.unit}", view, digits=6),
        "epsilon": shown,
        "delta": delta,
        "accountant": used,
        "relation": str(claim.relation),
        "unit": str(setting.unit),
        "noise": setting.law_name,
        "noise_multiplier": setting.law.noise_multiplier,
        "order": setting.law.order,
        "stddev": claim.stddev,
        "sensitivity": claim.noise_sensitivity,
        "rounds": setting.rounds,
        "votes": setting.votes,
        "sampling": sampling(setting),
        "neighbours": claim.relation.neighbours(setting.unit),
        "views": {
            "world": {"epsilon": shown, "who": who["world"]},
            "server": {"epsilon": seen, "who": who["server"]},
        },
        "assumptions": assumptions(setting),
        "mechanism": event.words(),
        "approximations": approximations(event, delta),
        "event": event.to_json(),
        "seconds": round(seconds, 4),
    }


def unit_of(votes: str, order: int) -> str:
    """What noise and sensitivity are so many of."""
    return f"votes{' in L1' * (order == 1)}" if votes else f"times the {'L1 ' * (order == 1)}clip norm"


def _epsilon(setting: Setting, delta: float, name: str) -> tuple[float, str]:
    from sfumato.account.papers.dp_fed_ls import dp_fed_ls_epsilon
    from sfumato.errors import CannotAccount
    from sfumato.pieces.law import Gaussian
    from sfumato.pieces.sampler import FixedSize, Poisson

    if name == "theorem":
        claim, sampler = setting.claim(), setting.sample.sampler
        fits = {Poisson: (Relation.ADD_REMOVE, 2), FixedSize: (Relation.REPLACE, 1)}
        relation, theorem = fits.get(type(sampler), (None, 0))
        other = setting.batch or setting.at_client or setting.votes
        if not isinstance(setting.law, Gaussian) or other or claim.relation != relation:
            raise CannotAccount(
                "the theorems of DP-Fed-LS cover Gaussian noise at the server for clients' updates: Poisson sampling under "
                "add-remove, or a fixed size under replace. Use --accountant auto."
            )
        rate = sampler.chance(claim)
        epsilon = dp_fed_ls_epsilon(theorem, setting.law.noise_multiplier, 1.0, rate, setting.rounds, delta)
        return epsilon, f"theorem {theorem} of DP-Fed-LS"
    return _price(setting.event(), delta, name)


def _price(event: Event, delta: float, name: str) -> tuple[float, str]:
    from sfumato.account.auto import Auto
    from sfumato.account.protocol import accountant

    price = accountant(name)
    used = price.choose(event) if isinstance(price, Auto) else price
    return used.epsilon(event, delta), used.name


def _lines(answer: dict[str, Any]) -> list[str]:
    of = unit_of(answer["votes"], answer["order"])
    rows = [
        ("unit", f"one {answer['unit']}"),
        ("relation", f"{Relation(answer['relation']).words}: {answer['neighbours']}"),
        ("noise", f"{answer['noise']}, {answer['noise_multiplier']:g} {of}"),
        ("sensitivity", f"{answer['sensitivity']:g} {of}"),
        ("sampling", answer["sampling"]),
        ("queries" if answer["votes"] else "rounds", f"{answer['rounds']:,}"),
        ("accountant", f"{answer['accountant']} (proven, rounded up)"),
        ("holds for", answer["views"]["world"]["who"]),
        ("the server", answer["views"]["server"]["who"]),
        ("assuming", "; ".join(answer["assumptions"])),
    ]
    for value in answer["approximations"].values():
        rows.append(("not proven", f"mu = {value['mu']:.4g}, epsilon = {value['epsilon']:.4g} ({value['label']})"))
    return [answer["headline"], *(f"  {name:<12} {text}" for name, text in rows)]
