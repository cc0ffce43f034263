"""`sfumato curve`: the trade-off between the two errors of an attacker, as a picture or as numbers."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sfumato.commands.account import Curious, Dimension, RelationOption
from sfumato.commands.answers import Json, read_setting, refusing, show
from sfumato.errors import BadValue
from sfumato.planning.setting import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = TypeVar("Value", str, int)


def curve(
    noise: Annotated[
        list[str], typer.Option(help="gaussian:Z, laplace:B, laplace-l2:B or staircase:B; several for several curves.")
    ],
    rounds: Annotated[list[int], typer.Option(help="How many rounds; one, or one per curve.")],
    sample: Annotated[list[str] | None, typer.Option(help="The cohort; one, or one per curve.")] = None,
    relation: RelationOption = None,
    accountant: Annotated[str, typer.Option(help="auto, pld, rdp or gdp.")] = "auto",
    points: Annotated[int, typer.Option(help="How many false positive rates.")] = 101,
    curious: Curious = 1,
    dimension: Dimension = None,
    output: Annotated[Path | None, typer.Option(help="Write a picture: .png, .svg or .pdf.")] = None,
    json: Json = False,
) -> None:
    """Draw what a test for one unit can at best achieve: no test has a smaller false negative rate than the curve."""
    with refusing(json):
        if not 2 <= points <= 10_001:
            raise BadValue(f"--points {points}: from 2 to 10001 is needed.")
        samples = sample or ["everyone"]
        count = max(len(noise), len(samples), len(rounds))
        noises, samples = _one_each(noise, count, "noise"), _one_each(samples, count, "sample")
        each = zip(noises, samples, _one_each(rounds, count, "rounds"), strict=True)
        settings = [read_setting(*words, relation=relation, curious=curious, dimension=dimension) for words in each]
        answer: dict[str, Any] = {"curves": [_numbers(setting, accountant, points) for setting in settings]}
        if output is not None:
            draw(answer["curves"], output)
            answer["output"] = str(output)
        show(answer, _lines(answer), json)


def draw(curves: list[dict[str, Any]], output: Path) -> None:
    """All curves in one picture, in the style of the report's."""
    from sfumato.report.pictures import drawn

    if output.suffix not in (".png", ".svg", ".pdf"):
        raise BadValue(f"--output {output}: the name must end in .png, .svg or .pdf.")
    picture = drawn("trade-off", "The errors of an attacker", lambda: _figure(curves), output.suffix[1:])
    try:
        output.write_bytes(picture)
    except OSError as error:
        raise BadValue(f"--output {output}: cannot be written ({error.strerror}).") from None


def _figure(curves: list[dict[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    from sfumato.report.pictures import INK, SERIES

    figure = Figure(figsize=(5.0, 4.5 + 0.25 * len(curves)))
    axes = figure.add_subplot()
    axes.plot([0, 1], [1, 0], color=INK, linestyle=(0, (1.5, 2)), linewidth=1.2, label="nothing can be told")
    for index, one in enumerate(curves):
        color, rates = SERIES[index % len(SERIES)], one["false_positive_rate"]
        axes.plot(rates, one["false_negative_rate"], color=color, label=one["label"], clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xlabel("False positive rate", labelpad=6)
    axes.set_ylabel("False negative rate, at least", labelpad=6)
    figure.legend(loc="outside lower center", ncols=1, labelcolor=INK, fontsize=9.5)
    return figure


def _numbers(setting: Setting, name: str, points: int) -> dict[str, Any]:
    from sfumato.account.protocol import accountant
    from sfumato.guarantee import PUBLIC, observed_by
    from sfumato.planning.words import sampling

    price, claim, event = accountant(name), setting.claim(), setting.event()
    rates = [at / (points - 1) for at in range(points)]
    return {
        "label": f"{setting.noise}, {setting.sample}, {setting.rounds} rounds ({claim.relation.words})",
        "relation": str(claim.relation),
        "unit": str(setting.unit),
        "accountant": name,
        "noise_multiplier": setting.law.noise_multiplier,
        "sensitivity": claim.noise_sensitivity,
        "sampling": sampling(setting),
        "observer": observed_by(PUBLIC, event, setting.unit),
        "false_positive_rate": rates,
        "false_negative_rate": [price.tradeoff(event, rate) for rate in rates],
    }


def _one_each(values: list[Value], count: int, name: str) -> list[Value]:
    if len(values) not in (1, count):
        raise BadValue(f"--{name} is given {len(values)} times for {count} curves: give it once, or once per curve.")
    return values * count if len(values) == 1 else values


def _down(floor: float) -> str:
    """A floor with six digits that is still one.

    >>> _down(0.48614399), _down(1.0), _down(0.0)
    ('0.486143', '1', '0')
    """
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(float(floor)))):.6g}"


def _lines(answer: dict[str, Any]) -> list[str]:
    if "output" in answer:
        drawn = [f"  {one['label']}" for one in answer["curves"]]
        return [f"{len(drawn)} curve(s) in {answer['output']}", *drawn]
    lines = []
    for one in answer["curves"]:
        lines += [one["label"], f"  each {one['unit']}; accountant {one['accountant']}; observer: {one['observer']}"]
        lines.append("  false positive rate   false negative rate, at least")
        pairs = list(zip(one["false_positive_rate"], one["false_negative_rate"], strict=True))
        lines += [f"  {a:<21.4g} {_down(b)}" for a, b in pairs[:: max(1, len(pairs) // 20)]]
    return lines
