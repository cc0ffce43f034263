"""`sfumato plan`: leave one of noise, sampling, rounds, epsilon and population open, and get it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from sfumato.commands.account import Curious, Dimension, RelationOption, UnitOption, Votes, unit_of
from sfumato.commands.answers import Json, parse_unit, refusing, show
from sfumato.commands.compare import compare_laws
from sfumato.errors import BadValue
from sfumato.guarantee import rounded_up
from sfumato.pieces.law_names import LAWS
from sfumato.planning.setting import parse_noise, parse_relation
from sfumato.planning.solve import Alternative, Plan, Question, alternatives, solve, usual_delta


def plan(
    clients: Annotated[int | None, typer.Option(help="How many clients there are.")] = None,
    sample: Annotated[str | None, typer.Option(help="poisson:RATE, poisson:SIZE, fixed:SIZE or everyone.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The epsilon to meet.")] = None,
    noise: Annotated[
        str | None, typer.Option(help="gaussian:Z, laplace:B, laplace-l2:B or staircase:B, or only the law.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The delta; by default clients^-1.1.")] = None,
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
            compare_laws(epsilon, _delta(delta, None), rate, sample, many, dimension, norm, json)
            return
        law = noise if noise in LAWS else None
        words = None if noise is None or law else parse_noise(noise)
        if votes and sample is None and None in (words, rounds, epsilon):
            sample = "everyone"  # who votes, unless somebody is drawn
        question = Question(
            words, sample, rounds, epsilon, _delta(delta, clients), clients, parse_relation(relation),
            law or "gaussian", accountant, dimension, curious, parse_unit(unit), votes,
        )  # fmt: skip
        found = solve(question)
        seconds = time.perf_counter() - start
        others = alternatives(found, accountant) if table else []
        answer = _answer(found, others, accountant, seconds)
        show(answer, _lines(found, others, answer), json)


def _refuse_unused(applies: bool, options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if applies and value is not None:
            raise BadValue(f"--{name} {value}: that {why}. Leave it out.")


def _delta(delta: float | None, clients: int | None) -> float:
    if delta is None and clients is None:
        raise BadValue("plan: give --delta, or --clients so that it can be clients^-1.1.")
    return delta if delta is not None else usual_delta(clients or 2)


def _answer(found: Plan, others: list[Alternative], accountant: str, seconds: float) -> dict[str, Any]:
    from sfumato.planning.price import price

    return {
        **price(found.setting, found.delta, accountant),
        "solved": found.solved,
        "clients": found.clients,
        "cohort": found.cohort,
        "sample": str(found.setting.sample),
        "dimension": found.dimension,
        "signal_to_noise": found.signal_to_noise,
        "signal_to_noise_of_all": found.signal_of_all,
        "alternatives": [asdict(other) for other in others],
        "seconds": round(seconds, 4),
    }


def _lines(found: Plan, others: list[Alternative], answer: dict[str, Any]) -> list[str]:
    setting = found.setting
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
        f"{value}  (epsilon = {rounded_up(found.epsilon, 6)} at delta = {rounded_up(found.delta, 3)}, "
        f"proven by {answer['accountant']})",
        f"  noise        {setting.law_name}, {noise} {of}; sensitivity {answer['sensitivity']:g}{norms}",
        f"  sampling     {answer['sampling']}; {setting.rounds:,} {turns}",
        f"  protects     one {setting.unit}, {setting.claim().relation.words}: {answer['neighbours']}",
        f"  holds for    {answer['views']['world']['who']}",
        f"  the server   {answer['views']['server']['who']}",
    ]
    if found.signal_to_noise is not None:
        shape = f"{found.dimension:,} parameters" if found.dimension > 1 else "one parameter; divide by its square root"
        what = "a count, where all clients agree" if setting.votes else f"the mean update, at best ({shape})"
        lines.append(f"  signal       {found.signal_to_noise:.3g} times the noise of {what}")
        if setting.rounds > 1 and not setting.votes:
            lines.append(f"               {found.signal_of_all:.3g} times in all {setting.rounds:,} {turns} together")
    if others:
        lines += ["", f"  {'for the same epsilon':<42} {'noise':>9} {'signal/noise':>13}"]
    for other in others:
        needed = "-" if other.noise is None else rounded_up(other.noise, 4)
        signal = "-" if other.signal_to_noise is None else f"{other.signal_to_noise:.3g}"
        lines.append(f"  {other.change:<42} {needed:>9} {signal:>13}  {other.note}".rstrip())
    return lines
