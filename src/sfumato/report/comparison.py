"""The page of several runs: what differs between them, their curves over each other, and what is guaranteed by each."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.report import parts
from sfumato.report.groups import BAND, Group, grouped
from sfumato.report.history import accuracy_against_epsilon, accuracy_by_round, loss_by_round, measure, tradeoff
from sfumato.report.markup import Html, element, join
from sfumato.report.page import document, heading
from sfumato.report.promise import guarantee
from sfumato.report.read import Record
from sfumato.report.side_by_side import equal_settings, in_common, incomparable, run_by_run, side_by_side

_NO_TEST_DATA = "No run was measured on public test data."
_NO_LOSS = "No loss was measured on public test data."
_NO_PAIRS = "No run has both an epsilon and a measure on public test data."
_NO_CURVE = "No run has both a proven guarantee and a ledger beside it."
_ALONE = (
    "Each epsilon, and each curve of what can be told, is that of one run alone. Whoever sees several runs on the same clients "
    "sees more than one: a shared ledger adds them up."
)


def comparison(runs: Sequence[Record]) -> str:
    """The page of several runs."""
    groups = grouped(runs)
    seeds = any(group.several for group in groups)
    care, common = incomparable(groups), in_common(groups)
    return document(
        "several runs",
        f"Comparison of {len(runs)} runs",
        f"In common: {', '.join(common)}." if common else "",
        element("h2", "Side by side"),
        side_by_side(groups),
        element("p", _ALONE, class_="note"),
        element("p", care, class_="note") if care else None,
        equal_settings(groups),
        element("h2", "Curves"),
        element("ul", *(element("li", parts.swatch(group.index), group.name) for group in groups), class_="legend"),
        element("div", *_figures(runs), class_="pictures"),
        element("p", BAND, class_="note") if seeds else None,
        _dashed(groups),
        join(element("h2", "Run by run"), run_by_run(runs)) if seeds else None,
        element("h2", "What each run guarantees"),
        *_guarantees(groups),
    )


def _figures(runs: Sequence[Record]) -> list[Html]:
    name = measure(runs)
    return [
        parts.figure(accuracy_by_round(runs), f"{name} by round", _NO_TEST_DATA),
        parts.figure(loss_by_round(runs), "Loss by round", _NO_LOSS),
        parts.figure(accuracy_against_epsilon(runs), f"{name} against epsilon", _NO_PAIRS),
        parts.figure(tradeoff(runs), "How well anybody can tell", _NO_CURVE),
    ]


def _dashed(groups: Sequence[Group]) -> Html | None:
    if len({group.proven for group in groups}) == 1:
        return None
    return element("p", "Dashed and level: runs without a proven guarantee, at their last value.", class_="note")


def _guarantees(groups: Sequence[Group]) -> list[Html]:
    """What each run guarantees; once for those that guarantee the same."""
    alike: dict[tuple[str, Html], list[tuple[int, str]]] = {}
    for group in groups:
        for run in group.runs:
            alike.setdefault((heading(run), guarantee(run)), []).append((group.index, run.name))
    found = []
    for (what, said), runs in alike.items():
        colors = (parts.swatch(index) for index in dict.fromkeys(index for index, _ in runs))
        names = ", ".join(name for _, name in runs)
        found.append(join(element("h3", *colors, names, element("span", what, class_="note")), said))
    return found
