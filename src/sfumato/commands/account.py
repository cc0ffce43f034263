"""`sfumato account`: what a setting costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.account.event import Unit
from sfumato.commands.answers import Json, read_setting, refusing, show
from sfumato.planning.setting import Setting

if TYPE_CHECKING:
    from sfumato.planning.price import Price

Noise = Annotated[
    str, typer.Option(help="gaussian:Z, laplace-l2:B (over the L2 clip norm), laplace:B, staircase:B (over the L1).")
]
Dimension = Annotated[int | None, typer.Option(help="How many parameters are trained.")]
Sample = Annotated[str, typer.Option(help="The cohort: poisson:RATE, fixed:SIZE/CLIENTS or everyone[:CLIENTS].")]
Rounds = Annotated[int, typer.Option(help="How many rounds.")]
Delta = Annotated[
    float | None, typer.Option(help="Default: 1e-5, or 1/(10 n) if that is less, for the n clients of --sample.")
]
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
    delta: Delta = None,
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
    from sfumato.guarantee import default_delta
    from sfumato.planning.price import price
    from sfumato.planning.words import caution

    with refusing(json):
        setting = read_setting(
            noise, sample, rounds, unit, relation, batch, steps, noise_at, curious, dimension, shuffle, votes
        )
        units = declared_units(setting)
        found = price(setting, default_delta(units) if delta is None else delta, accountant)
        said = "" if units is None else caution(found.public.delta, units, str(setting.unit))
        show({**found.to_json(), "caution": said}, [*_lines(found), *cautioned(said)], json)


def declared_units(setting: Setting) -> int | None:
    """How many units the options declare; None where they do not say."""
    batch = setting.batch
    records = 1 if setting.unit is Unit.CLIENT else None if batch is None else batch.population
    clients = setting.sample.population
    return None if clients is None or records is None else clients * records


def cautioned(said: str) -> list[str]:
    """A caution as the last lines of an answer."""
    return ["", f"caution: {said}"] if said else []


def unit_of(votes: str, order: int) -> str:
    """What noise and sensitivity are so many of."""
    return f"votes{' in L1' * (order == 1)}" if votes else f"times the {'L1 ' * (order == 1)}clip norm"


def _lines(found: Price) -> list[str]:
    answer = found.to_json()
    of = unit_of(answer["votes"], answer["order"])
    rows = [
        ("noise", f"{answer['noise']}, {answer['noise_multiplier']:g} {of}"),
        ("sensitivity", f"{answer['sensitivity']:g} {of}"),
        ("cohort", answer["sampling"]),
        ("queries" if answer["votes"] else "rounds", f"{answer['rounds']:,}"),
    ]
    for value in answer["approximations"].values():
        rows.append(("not proven", f"mu = {value['mu']:.4g}, epsilon = {value['epsilon']:.4g} ({value['label']})"))
    return [found.headline, "", *found.lines, "", *(f"{name:<12} {text}" for name, text in rows)]
