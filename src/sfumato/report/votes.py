"""The part of a page that is about votes: which labels were released, and what was asked."""

from __future__ import annotations

from sfumato.report.markup import Html, element, join
from sfumato.report.parts import table
from sfumato.report.read import Record, finite
from sfumato.report.words import number

_NOTE = "Labels are read from noisy counts, which are all that was released; some of them are wrong."


def votes(run: Record) -> Html | None:
    """Released labels per class, how often the student agrees with them, and the first queries; nothing where nobody votes."""
    found = run.table("votes")
    if not found:
        return None
    counts, shown, agreement = found.get("classes"), found.get("shown"), finite(found.get("agreement"))
    facts = f"{number(finite(found.get('asked')))} queries were asked, and {number(finite(found.get('answered')))} answered."
    facts += "" if agreement is None else f" The student agrees with {100 * agreement:.1f} % of the released labels."
    rows = [
        element("tr", element("th", what, scope="row"), *(element("td", value) for value in values))
        for what, values in (
            ("Labels", [number(finite(count)) for count in counts] if isinstance(counts, list) else []),
        )
    ]
    heads = ("Class", *(str(place) for place in range(len(counts) if isinstance(counts, list) else 0)))
    pictures = (
        element(
            "figure",
            element("img", src=f"data:image/png;base64,{one['png']}", alt=f"a query labelled {one['label']}"),
            element("figcaption", str(one["label"])),
        )
        for one in (shown if isinstance(shown, list) else [])
    )
    return join(
        element("h2", "What was asked"),
        element("p", facts),
        table(heads, rows, class_="votes") if len(heads) > 1 else None,
        element("div", *pictures, class_="queries") if shown else None,
        element("p", _NOTE, class_="note"),
    )
