"""`sfumato plan`: leave one of noise, sampling, rounds, epsilon and population open, and get it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from sfumato.commands.account import Curious, Dimension, RelationOption, UnitOption, Votes, cautioned, unit_of
from sfumato.commands.answers import Json, parse_unit, refusing, show
from sfumato.commands.compare import compare_laws
from sfumato.errors import BadValue
from sfumato.guarantee import default_delta, rounded_up
from sfumato.pieces.law_names import LAWS
from sfumato.planning.price import Price, price
from sfumato.planning.setting import parse_noise, parse_relation
from sfumato.planning.solve import AdaptivePrice, Alternative, Plan, Question, adaptive_price, alternatives, solve
from sfumato.planning.words import caution


def plan(
    clients: Annotated[int | None, typer.Option(help="How many clients there are.")] = None,
    sample: Annotated[str | None, typer.Option(help="poisson:RATE, poisson:SIZE, fixed:SIZE or everyone.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The epsilon to meet.")] = None,
    noise: Annotated[
        str | None, typer.Option(help="gaussian:Z, laplace:B, laplace-l2:B or staircase:B, or only the law.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Default: 1e-5, or 1/(10 n) if that is less, for n --clients.")
    ] = None,
    relation: RelationOption = None,
    dimension: Dimension = None,
    accountant: Annotated[str, typer.Option(help="auto, pld, rdp or gdp.")] = "auto",
    curious: Curious = 1,
    table: Annotated[bool, typer.Option("--table/--no-table", help="What changes to the plan would buy.")] = True,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show what every law of noise needs for --epsilon.")
    ] = False,
    rate: Annotated[float | None, typer.Option(help="With --compare: as --sample poisson:RATE.")] = None,
    steps: Annotated[int | None, typer.Option(help="With --compare: how many releases, as --rounds.")] = None,
    clip: Annotated[float | None, typer.Option(help="With --compare: the clip norm, in each law's own order.")] = None,
    votes: Votes = "",
    unit: UnitOption = "client",
    json: Json = False,
) -> None:
    """Plan a run: give all but one of noise, sampling, rounds, epsilon (and clients); the open one is solved for."""
    with refusing(json):
        start = time.perf_counter()
        _refuse_unused(
            compare,
            {"noise": noise, "relation": relation, "clients": clients, "votes": votes or None},
            "has no effect with --compare",
        )
        _refuse_unused(not votes, {"unit": None if unit == "client" else unit}, "is for plan --votes")
        _refuse_unused(not compare, {"rate": rate, "steps": steps, "clip": clip}, "is for plan --compare")
        if compare:
            if steps is not None and rounds is not None:
                raise BadValue("plan --compare: --steps and --rounds are the same here. Give one of them.")
            many, norm = rounds if steps is None else steps, 1.0 if clip is None else clip
            compare_laws(
                epsilon, default_delta(None) if delta is None else delta, rate, sample, many, dimension, norm, json
            )
            return
        law = noise if noise in LAWS else None
        words = None if noise is None or law else parse_noise(noise)
        if votes and sample is None and None in (words, rounds, epsilon):
            sample = "everyone"  # who votes, unless somebody is drawn
        question = Question(
            words, sample, rounds, epsilon, default_delta(clients) if delta is None else delta, clients, parse_relation(relation),
            law or "gaussian", accountant, dimension, curious, parse_unit(unit), votes,
        )  # fmt: skip
        found = solve(question)
        seconds = time.perf_counter() - start
        others = alternatives(found, accountant) if table else []
        priced, free = price(found.setting, found.delta, accountant), adaptive_price(found, epsilon)
        said = caution(found.delta, found.clients, "client") if found.clients else ""
        answer = {**_answer(found, others, priced, seconds), "caution": said}
        answer["adaptive"] = None if free is None else asdict(free)
        show(answer, [*_lines(found, others, priced, free), *cautioned(said)], json)


def _refuse_unused(applies: bool, options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if applies and value is not None:
            raise BadValue(f"--{name} {value}: that {why}. Leave it out.")


def _answer(found: Plan, others: list[Alternative], priced: Price, seconds: float) -> dict[str, Any]:
    return {
        **priced.to_json(),
        "solved": found.solved,
        "clients": found.clients,
        "cohort": found.cohort,
        "sample": str(found.setting.sample),
        "dimension": found.dimension,
        "signal_to_noise": found.signal_to_noise,
        "alternatives": [asdict(other) for other in others],
        "seconds": round(seconds, 4),
    }


def _lines(found: Plan, others: list[Alternative], priced: Price, free: AdaptivePrice | None) -> list[str]:
    setting, answer = found.setting, priced.to_json()
    turns, noise = "queries" if setting.votes else "rounds", rounded_up(setting.law.noise_multiplier, 5)
    of, norms = (unit_of(setting.votes, 2), " votes") if setting.votes else ("times the clip norm", " clip norms")
    value = {
        "noise": f"noise {setting.law_name}:{noise}",
        "rounds": f"at most {setting.rounds:,} {turns}",
        "sample": f"a cohort of at most {round(found.cohort or 0)}",
        "clients": f"at least {found.clients:,} clients" if found.clients else "",
        "epsilon": f"epsilon {rounded_up(found.epsilon, 5)}",
    }[found.solved]
    lines = [
        f"{value}: {priced.headline}",
        "",
        *priced.lines,
        "",
        f"noise        {setting.law_name}, {noise} {of}; sensitivity {answer['sensitivity']:g}{norms}",
        f"cohort       {answer['sampling']}; {setting.rounds:,} {turns}",
    ]
    if free is not None:
        needed = "" if free.noise is None else f"; noise {rounded_up(free.noise, 5)} for epsilon {found.epsilon:.5g}"
        epsilon = rounded_up(free.epsilon, 5)
        lines.append(
            f"adaptive     epsilon {epsilon} at Renyi order {free.order:.4g} (--adaptive, shared ledgers){needed}"
        )
    if found.signal_to_noise is not None:
        lines.append(f"signal       {_signal(found)}")
    if others:
        lines += ["", f"{'for the same epsilon':<42} {'noise':>9} {'signal/noise':>13}"]
    for other in others:
        needed = "-" if other.noise is None else rounded_up(other.noise, 4)
        signal = "-" if other.signal is None else f"x {other.signal:.3g}"
        lines.append(f"{other.change:<42} {needed:>9} {signal:>13}  {other.note}".rstrip())
    return lines


def _signal(found: Plan) -> str:
    """The largest that a released sum can be, beside its noise."""
    if found.setting.votes:
        return f"a count of all clients is {found.signal_to_noise:.3g} standard deviations of its noise"
    return (
        f"the mean update of one round is at most {found.signal_to_noise:.3g} times its noise, in L2 norms on {found.dimension:,} "
        "parameters: as much only if all updates are equal and of the clip norm"
    )
