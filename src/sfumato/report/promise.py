"""The part of a page that says what is proven, and for whom; or, as prominently, that nothing is."""

from __future__ import annotations

from sfumato.report.markup import Html, element, join
from sfumato.report.parts import definitions
from sfumato.report.read import Record, finite
from sfumato.report.words import bound, headline

_UNITS = {"client": "For a whole client", "record": "For one record of a client"}


def guarantee(run: Record) -> Html:
    """What is proven, prominently; or, as prominently, that nothing is. Then what the others may rely on."""
    stopped, early = run.text("stopped"), element("p", "Stopped early", class_="label")
    notice = element("div", early, element("p", stopped, class_="sentence"), class_="warning") if stopped else None
    return join(_proven(run) if run.proven else _not_proven(run), _views(run), notice)


def _proven(run: Record) -> Html:
    facts = run.guarantee(run.text("unit"), "world")
    first, sentence = said_first(run), str(facts.get("sentence") or "")
    items = element("ul", *(element("li", item) for item in run.assumptions))
    return element(
        "section",
        element("p", "What is guaranteed", class_="label"),
        element("p", first, class_="promise") if first else None,
        element("p", sentence or "run.json holds no sentence about it.", class_="sentence"),
        join(element("p", "Assuming", class_="label assuming"), items) if run.assumptions else None,
        class_="guarantee",
    )


def said_first(run: Record) -> str:
    """What matters in one line: epsilon, delta, whose data, against whom; empty where run.json does not hold all four."""
    found = headline(run.guarantee(run.text("unit"), "world"))
    return f"{found[:1].upper()}{found[1:]}"


def _not_proven(run: Record) -> Html:
    claim = run.table("unproven")
    verdict = "Not private" if run.baseline else "No proven guarantee"
    why = (
        "This run is a baseline without privacy. Treat its model as you would treat the clients' data."
        if run.baseline
        else "Nobody should rely on this run to hide anyone's data."
    )
    claimed = finite(claim.get("claimed_epsilon"))
    said = f"epsilon {bound(claimed)} at delta {bound(run.number('delta'), 3)}. We could not prove it."
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
    receiver = run.guarantee(run.text("unit"), "server").get("view") or "the server"
    rows = [(f"Against {receiver}", run.text("guarantee_server"))]
    for unit in run.table("guarantees"):
        if unit != run.text("unit"):
            sentence = run.guarantee(unit, "world").get("sentence")
            rows.append((_UNITS.get(unit, f"For one {unit}"), str(sentence or "")))
    return definitions(rows, class_="views")
