"""The parts of a page: what is proven and for whom, the numbers behind it, the pictures, the proof."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sfumato.account.event import Relation
from sfumato.budget.words import clients_in_words, settings_in_words
from sfumato.report.curves import Plot
from sfumato.report.markup import Html, element, join
from sfumato.report.pictures import series, svg
from sfumato.report.read import Record, finite
from sfumato.report.words import MISSING, bound, label, measured, number

_UNITS = {"client": "For a whole client", "record": "For one record of a client"}
_RELATIONS = {str(relation): relation.words for relation in Relation}
NO_TEST_DATA = "Accuracy was not measured: this run had no public test data."


def guarantee(run: Record) -> Html:
    """What is proven, prominently; or, as prominently, that nothing is. Then what the others may rely on."""
    stopped, early = run.text("stopped"), element("p", "Stopped early", class_="label")
    notice = element("div", early, element("p", stopped, class_="sentence"), class_="warning") if stopped else None
    return join(_proven(run) if run.proven else _not_proven(run), _views(run), notice)


def _proven(run: Record) -> Html:
    sentence = str(run.guarantee(run.text("unit"), "world").get("sentence") or "")
    items = element("ul", *(element("li", item) for item in run.assumptions))
    return element(
        "section",
        element("p", "What is guaranteed", class_="label"),
        element("p", sentence or "run.json holds no sentence about it.", class_="sentence"),
        join(element("p", "Assuming", class_="label assuming"), items) if run.assumptions else None,
        class_="guarantee",
    )


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
    return number(line["epsilon"]), number(line["delta"]), "none proven" if spent is None else bound(spent)


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
    return element("tr", element("td", slot), element("td", element("code", piece)), element("td", states))


def table(heads: Iterable[str], rows: Iterable[Html], class_: str) -> Html:
    """A table that scrolls by itself where the screen is narrow."""
    cells = (element("th", head, scope="col") for head in heads)
    head, body = element("thead", element("tr", *cells)), element("tbody", *rows)
    return element("div", element("table", head, body, class_=class_), class_="scroll")


def again(run: Record) -> Html:
    """How to make the run again. The seed stays out: a guarantee that rests on it holds while it is not known."""
    text, withheld = without_seed(run.toml)
    note = "The seed is left out of this page, because the noise can be computed from it; it is in the run's run.toml."
    unnamed = run.summary.get("unnamed")
    shell = "sfumato train --config run.toml --out runs/again"
    python = f'simulate(round, population, module, objective, rounds={run.text("rounds")}, folder="runs/again")'
    return join(
        element("h2", "How to make this run again"),
        element("pre", element("code", python if unnamed else shell)),
        element("details", element("summary", "run.toml"), element("pre", element("code", text))) if text else None,
        element("p", note, class_="note") if withheld else None,
        element("p", _versions(run), class_="note"),
    )


def without_seed(toml: str) -> tuple[str, bool]:
    """run.toml without the seed of the noise, and whether there was one. Public seeds stand in tables, and stay.

    >>> without_seed("seed = 7\\n[model]\\nseed = 0\\n")
    ('[model]\\nseed = 0\\n', True)
    """
    lines = toml.splitlines(keepends=True)
    top = next((number for number, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    kept = [line for line in lines[:top] if line.partition("=")[0].strip(" \t\"'") != "seed"]
    return "".join(kept + lines[top:]), len(kept) < top


def _versions(run: Record) -> str:
    said = [f"{name} {version}" for name, version in run.table("versions").items()]
    threads = run.number("threads")
    said += [f"{number(threads)} threads" if threads != 1 else "1 thread"] if threads is not None else []
    return f"Made with {', '.join(said)}." if said else ""
