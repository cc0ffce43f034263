"""The part of a page that holds the guarantee against attacks: the proven epsilon above, measured ones below."""

from __future__ import annotations

import math

from sfumato.report.markup import Html, element, join
from sfumato.report.parts import table
from sfumato.report.read import Record, finite
from sfumato.report.words import bound, number

_NAMES = {
    "family": "The same event with other noise",
    "gaussian_fit": "Normal scores, as of unsampled Gaussian noise",
    "clopper_pearson": "Nothing assumed of the mechanism",
}
_NOTE = (
    "The recipe was run again with a canary that sends the worst that the proof allows, many times with it and without it; no "
    "client's data had a part in it. A lower bound above the guarantee would be a mistake of ours. One below it proves nothing: "
    "attacks with a few thousand runs do not reach the truth."
)


def audits(run: Record) -> Html | None:
    """What worst-case canaries showed; nothing where the run was not audited, or has gone on since."""
    found = run.audit
    if not found or finite(found.get("rounds")) != run.number("rounds"):
        return None
    claimed, bounds = finite(found.get("claimed")), found.get("bounds")
    broken = found.get("broken") is True
    sentence = element("p", str(found.get("sentence") or ""), class_="sentence")
    box = (
        element("div", element("p", "Contradicted", class_="label"), sentence, class_="warning") if broken else sentence
    )
    if claimed is None or not isinstance(bounds, dict):
        return join(element("h2", "Held against attacks"), box)
    measured = [(name, value) for name in _NAMES if (value := finite(bounds.get(name))) is not None]
    rows = [_row("At most", bound(claimed), "Proven" if found.get("proven") else "Claimed by a paper, not proven")]
    rows += [_row("At least", _below(value), _NAMES[name]) for name, value in sorted(measured, key=lambda one: -one[1])]
    sure = f"Lower bounds hold together at confidence {number(finite(found.get('confidence')))}, from "
    sure += f"{number(finite(found.get('runs')))} runs of each world."
    return join(
        element("h2", "Held against attacks"),
        box,
        table(("Epsilon", "", "What it rests on"), rows, class_="derivation"),
        element("p", sure),
        element("p", _NOTE, class_="note"),
    )


def _row(kind: str, value: str, why: str) -> Html:
    return element("tr", element("th", kind, scope="row"), element("td", value), element("td", why))


def _below(value: float) -> str:
    """A lower bound that is still one after rounding."""
    return f"{math.floor(1000 * value) / 1000:.3f}"
