"""The parts of a page: the numbers, the budgets, the pictures, the proof."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sfumato.account.event import Relation
from sfumato.budget.words import clients_in_words, settings_in_words
from sfumato.report.curves import Plot
from sfumato.report.markup import Html, element, join
from sfumato.report.pictures import series, svg
from sfumato.report.read import Record, finite
from sfumato.report.words import MISSING, bound, label, measured, number

_RELATIONS = {str(relation): relation.words for relation in Relation}
_LONG = re.compile(r"\b\d+\.\d{6,}(?:e[+-]?\d+)?\b")
NO_TEST_DATA = "Accuracy was not measured: this run had no public test data."


def definitions(rows: Iterable[tuple[str, str]], class_: str = "") -> Html:
    """Names and what they stand for; empty ones are left out."""
    pairs = (join(element("dt", name), element("dd", value)) for name, value in rows if value)
    return element("dl", *pairs, **({"class_": class_} if class_ else {}))


def numbers(run: Record) -> Html:
    """Four numbers to remember, and the rest."""
    tiles = (
        ("Epsilon", epsilon(run)),
        ("Delta", delta(run)),
        (label(run.measure), accuracy(run)),
        ("Rounds", number(run.number("rounds"))),
    )
    headline = (element("div", element("dt", name), element("dd", value)) for name, value in tiles)
    facts = [(name, fact(run, key)) for key, name in FACTS.items()]
    others = ((name, value) for name, value in run.table("metrics").items() if name != run.measure)
    facts += [(label(name), measured(name, finite(value))) for name, value in others]
    grid = (element("div", element("dt", name), element("dd", value)) for name, value in facts if value != MISSING)
    return join(element("dl", *headline, class_="headline"), element("dl", *grid, class_="facts"))


FACTS = {
    "unit": "Unit that is hidden",
    "relation": "Relation",
    "accountant": "Accountant",
    "population": "Population",
    "noise_multiplier": "Noise multiplier",
    "stddev": "Standard deviation",
    "clip": "Clip norm",
    "sensitivity": "Sensitivity",
}


def fact(run: Record, key: str) -> str:
    """One value of run.json in words."""
    value = run.number(key)
    if value is not None:
        return number(value)
    if not run.proven and key in ("unit", "relation", "accountant"):
        return MISSING  # nothing is hidden, so there is nothing to say about how
    text = run.text(key)
    return (_RELATIONS.get(text, text) if key == "relation" else text) or MISSING


def epsilon(run: Record) -> str:
    """Epsilon, or that there is none."""
    return bound(run.number("epsilon")) if run.proven else "none proven"


def delta(run: Record) -> str:
    """Delta, where it goes with an epsilon."""
    return bound(run.number("delta"), 3) if run.proven else MISSING


def accuracy(run: Record) -> str:
    """The measure at the end, or that there is none."""
    value = run.number("accuracy")
    return "not measured" if value is None else measured(run.measure, value)


def budgets(run: Record) -> Html | None:
    """Every client's own budget and what was spent of it, grouped by budget; nothing where clients have none."""
    lines = run.summary.get("budgets")
    if not isinstance(lines, list) or not lines:
        return None
    heads = ("Clients", "Budget", "At delta", "Spent", "Kept by")
    rows = (
        element(
            "tr", *(element("td", value) for value in (clients_in_words(line), *_spent(line), settings_in_words(line)))
        )
        for line in lines
    )
    note = (
        "Epsilon that each client may spend at its own delta, and what it has spent. Budgets are public. What is guaranteed "
        "to all of them is the sentence above, which the largest decides."
    )
    return join(
        element("h2", "Each client's own budget"),
        table(heads, rows, class_="budgets"),
        element("p", note, class_="note"),
    )


def _spent(line: dict[str, Any]) -> tuple[str, str, str]:
    spent = finite(line.get("spent"))
    return number(line["epsilon"]), bound(line["delta"], 3), "none proven" if spent is None else bound(spent)


def figure(plot: Plot | None, title: str, missing: str) -> Html:
    """A picture with its caption, or why there is none."""
    caption = element("figcaption", plot.title if plot else title)
    return element("figure", caption, svg(plot) if plot else element("p", missing))


def swatch(index: int) -> Html:
    """A run's colour."""
    return element("span", class_="swatch", style=f"background:{series(index)}", aria_hidden="true")


def derivation(run: Record) -> Html | None:
    """The proof, piece by piece."""
    steps = run.summary.get("derivation")
    if not isinstance(steps, list) or not steps:
        return None
    body = table(("Slot", "Piece", "What is provable after it"), map(_step, steps), class_="derivation")
    return join(element("h2", "Why this can be believed" if run.proven else "How far a proof goes"), body)


def _step(step: Any) -> Html:
    step = step if isinstance(step, dict) else {}
    slot, piece, states = (str(step.get(key, "")) for key in ("slot", "piece", "states"))
    states = states if step.get("proven", True) else f"not proven: {states}"
    return element("tr", element("td", slot), element("td", element("code", shortened(piece))), element("td", states))


def shortened(piece: str) -> str:
    """A piece as it is written, its long numbers to six digits.

    >>> shortened("Gaussian(noise_multiplier=1.3750830839439412)")
    'Gaussian(noise_multiplier=1.37508)'
    """
    return _LONG.sub(lambda found: f"{float(found[0]):.6g}", piece)


def table(heads: Iterable[str], rows: Iterable[Html], class_: str) -> Html:
    """A table that scrolls by itself where the screen is narrow."""
    cells = (element("th", head, scope="col") for head in heads)
    head, body = element("thead", element("tr", *cells)), element("tbody", *rows)
    return element("div", element("table", head, body, class_=class_), class_="scroll")
