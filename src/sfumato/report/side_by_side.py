"""The tables of several runs: what they reached, every setting that differs, and once what is the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sfumato.report import parts
from sfumato.report.groups import Group
from sfumato.report.history import measure
from sfumato.report.limits import found_at_most
from sfumato.report.markup import Html, element, join
from sfumato.report.read import Record, finite
from sfumato.report.settings import rows
from sfumato.report.words import MISSING, measured, number

_FACTS: dict[str, Callable[[Record], str]] = {
    "Recipe": lambda run: run.text("recipe"),
    "Data": lambda run: run.text("data"),
    "Model": lambda run: run.text("model"),
    "Delta": parts.delta,
    "Rounds": lambda run: number(run.number("rounds")),
    "Population": partial(parts.fact, key="population"),
    "Unit": partial(parts.fact, key="unit"),
    **{name: partial(parts.fact, key=key) for key, name in parts.FACTS.items() if key not in ("unit", "population")},
}

_LONG = 32  # letters; a cell with more of them may break anywhere


def side_by_side(groups: Sequence[Group]) -> Html:
    """One column for each group of runs: what it reached, and below it every setting that is not the same for all."""
    runs = [run for group in groups for run in group.runs]
    lines = [_line("Epsilon", [_epsilon(group) for group in groups], "reached")]
    lines.append(_line(measure(runs), [_reached(group) for group in groups], "reached"))
    losses = [_loss(group) for group in groups]
    lines += [_line("Loss", losses)] if any(loss != MISSING for loss in losses) else []
    found = [found_at_most(group.runs) for group in groups]
    lines += [_line("Found at 1 false alarm in 100", found)] if any(one != MISSING for one in found) else []
    for name, say in _FACTS.items():
        if not _same(name, groups):
            lines.append(_line(name, [say(group.first) for group in groups]))
    for name, row in rows([group.runs for group in groups]).items():
        if row.differs:
            lines.append(_line(element("code", name), row.cells))
    names = (join(parts.swatch(group.index), group.name) for group in groups)
    return parts.table(("", *names), lines, class_="comparison")


def _line(name: str, cells: Sequence[str], class_: str = "") -> Html:
    styles = (class_ or ("long" if not isinstance(cell, Html) and len(cell) > _LONG else "") for cell in cells)
    shown = (
        element("td", cell, **({"class_": style} if style else {})) for cell, style in zip(cells, styles, strict=True)
    )
    return element("tr", element("th", name, scope="row"), *shown)


def _same(name: str, groups: Sequence[Group]) -> bool:
    return len({_FACTS[name](group.first) for group in groups}) == 1


def _epsilon(group: Group) -> str:
    """The largest of a group, so that it holds for each of its runs."""
    if not group.proven:
        return "none proven"
    return parts.epsilon(max(group.runs, key=lambda run: run.number("epsilon") or 0.0))


def _reached(group: Group) -> Html:
    """The measure at the end; of several runs their mean, and from where to where they go."""
    values = [run.number("accuracy") for run in group.runs]
    return _over_seeds(values, group.first.measure) or join(parts.accuracy(group.first))


def _loss(group: Group) -> Html:
    values = [finite(run.table("metrics").get("loss")) for run in group.runs]
    return _over_seeds(values, "loss") or join(measured("loss", values[0]))


def _over_seeds(values: Sequence[float | None], name: str) -> Html | None:
    known = [value for value in values if value is not None]
    if len(values) == 1 or len(known) < len(values):
        return None
    span = f"{measured(name, min(known))} to {measured(name, max(known))}, {len(known)} seeds"
    return join(measured(name, sum(known) / len(known)), element("span", span, class_="span"))


def in_common(groups: Sequence[Group]) -> list[str]:
    """The facts that all runs share, said once, so that the table holds what tells them apart."""
    shared = [(name, say(groups[0].first)) for name, say in _FACTS.items() if _same(name, groups)]
    return [f"{name.lower()} {value}" for name, value in shared if value and value != MISSING]


def equal_settings(groups: Sequence[Group]) -> Html | None:
    """Every other setting that is the same for all, folded away; a default is one where runs say so."""
    same = [(name, row.cells[0]) for name, row in rows([group.runs for group in groups]).items() if not row.differs]
    pairs = [element("div", element("dt", element("code", name)), element("dd", value)) for name, value in same]
    said = f"{len(same)} further settings of run.toml are the same for all runs"
    return element("details", element("summary", said), element("dl", *pairs, class_="facts")) if same else None


def run_by_run(runs: Sequence[Record]) -> Html:
    """Every run with what it reached, where the table above has means."""
    lines = (
        element(
            "tr",
            element("th", run.name, scope="row"),
            element("td", parts.epsilon(run)),
            element("td", parts.accuracy(run)),
            element("td", measured("loss", finite(run.table("metrics").get("loss")))),
        )
        for run in runs
    )
    return parts.table(("Run", "Epsilon", measure(runs), "Loss"), lines, class_="runs")


def incomparable(groups: Sequence[Group]) -> str:
    """An epsilon is only more or less than another for the same unit, relation and delta."""
    proven = [group for group in groups if group.proven]
    differ = [name.lower() for name in ("Unit", "Relation", "Delta") if proven and not _same(name, proven)]
    if not differ:
        return ""
    these = f"{' and '.join(differ)} differ{'' if len(differ) > 1 else 's'}"
    return f"Compare these epsilons and curves with care: unit, relation and delta make the promise, and {these} here."
