"""`sfumato account`: what a setting costs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sfumato.account.event import Relation
from sfumato.commands.answers import Json, read_setting, refusing, show

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
    from sfumato.planning.price import price

    with refusing(json):
        setting = read_setting(
            noise, sample, rounds, unit, relation, batch, steps, noise_at, curious, dimension, shuffle, votes
        )
        answer = price(setting, delta, accountant)
        show(answer, _lines(answer), json)


def unit_of(votes: str, order: int) -> str:
    """What noise and sensitivity are so many of."""
    return f"votes{' in L1' * (order == 1)}" if votes else f"times the {'L1 ' * (order == 1)}clip norm"


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
