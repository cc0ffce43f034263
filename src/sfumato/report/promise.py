"""The part of a page that says what is proven, and for whom; or, as prominently, that nothing is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.report.markup import Html, element, join
from sfumato.report.parts import definitions
from sfumato.report.read import Record, finite
from sfumato.report.words import bound

_UNITS = {"client": "For a whole client", "record": "For one record"}
_INSIDE = "For any change inside one client"


def guarantee(run: Record) -> Html:
    """What is proven, prominently; or, as prominently, that nothing is. Then what the others may rely on."""
    stopped, early = run.text("stopped"), element("p", "Stopped early", class_="label")
    notice = element("div", early, element("p", stopped, class_="sentence"), class_="warning") if stopped else None
    return join(_proven(run) if run.proven else _not_proven(run), _views(run), notice)


def _proven(run: Record) -> Html:
    facts = run.guarantee(run.text("unit"), "world")
    first, rows = _first(facts), _rows(facts)
    items = element("ul", *(element("li", item) for item in run.assumptions))
    return element(
        "section",
        element("p", "What is guaranteed", class_="label"),
        element("p", first, class_="promise") if first else None,
        definitions(rows, class_="rows") if rows else element("p", _told(facts), class_="sentence"),
        join(element("p", "Assumptions", class_="label assuming"), items) if run.assumptions else None,
        class_="guarantee",
    )


def said_first(run: Record) -> str:
    """Epsilon, delta, unit, relation and observer in one line; empty where run.json does not hold it."""
    return _first(run.guarantee(run.text("unit"), "world"))


def _first(facts: Mapping[str, Any]) -> str:
    """The headline of a guarantee; empty where nothing is proven."""
    found = str(facts.get("headline") or "") if finite(facts.get("epsilon")) is not None else ""
    return f"{found[:1].upper()}{found[1:]}"


def _rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Those of the guarantee's text; none in a run.json that has only a sentence."""
    found = facts.get("rows")
    pairs = (row for row in found if isinstance(row, list) and len(row) == 2) if isinstance(found, list) else ()
    return [(str(name), str(words)) for name, words in pairs]


def _told(facts: Mapping[str, Any]) -> str:
    """What is said where there is no headline: why nothing is proven, or the sentence of an earlier version."""
    rows = _rows(facts)
    return rows[0][1] if rows else str(facts.get("sentence") or "run.json does not say what is proven.")


def _not_proven(run: Record) -> Html:
    claim = run.table("unproven")
    verdict = "Not private" if run.baseline else "No proven guarantee"
    why = (
        "This run is a baseline without privacy. Treat its model as you would treat the clients' data."
        if run.baseline
        else "Do not rely on this run to protect anyone's data."
    )
    claimed = finite(claim.get("claimed_epsilon"))
    by = f" ({claim['claimed_by']})" if claim.get("claimed_by") else ""
    said = f"epsilon {bound(claimed)} at delta {bound(run.number('delta'), 3)}{by}. We could not prove it."
    rows = [("The paper", str(claim.get("paper") or "")), ("Its claim", "" if claimed is None else said)]
    rows.append(("The step that fails", str(claim.get("step") or "")))
    really = claim.get("really")
    for words, epsilon in really.items() if isinstance(really, dict) else ():
        rows.append((words[0].upper() + words[1:], f"epsilon {bound(finite(epsilon))}"))
    return element(
        "section",
        element("p", "Warning", class_="label"),
        element("p", verdict, class_="verdict"),
        element("p", run.text("guarantee"), class_="sentence"),
        element("p", why, class_="assuming"),
        definitions(rows) if any(value for _, value in rows) else None,
        class_="warning",
    )


def _views(run: Record) -> Html | None:
    """The server's view, and the other unit; what is as unproven as the model itself is not said again."""
    if not run.proven:
        return None
    seen = run.guarantee(run.text("unit"), "server")
    rows = [
        (
            f"Against {seen.get('view') or 'the server'}",
            _first(seen) or (_told(seen) if seen else run.text("guarantee_server")),
        )
    ]
    for unit in run.table("guarantees"):
        if unit != run.text("unit"):
            facts = run.guarantee(unit, "world")
            name = _INSIDE if facts.get("whole_client") is True else _UNITS.get(unit, f"For one {unit}")
            rows.append((name, _first(facts) or _told(facts)))
    return definitions(rows, class_="views")
