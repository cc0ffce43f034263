"""What attacks found, in a folder and on a page of their own: functions of private records that nobody paid for.

Nothing here reads or writes a run's report, and no report reads this.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sfumato.audit.attack import FOLDER, Found, private_folder
from sfumato.engine.checkpoint import write_atomically
from sfumato.errors import BadValue
from sfumato.report.curves import Curve, Plot
from sfumato.report.markup import Html, element, join
from sfumato.report.page import document
from sfumato.report.parts import figure, swatch, table
from sfumato.report.pictures import drawn
from sfumato.report.read import finite
from sfumato.report.words import MISSING, duration, label, number

_OWNER = 0o600
_WARNING = (
    "This page is a function of private records, and nobody paid for it: no guarantee of the run covers it. Do not publish it, "
    "and do not send it to whoever may not see the clients' data."
)
_MEANING = (
    "An attack that finds nothing proves nothing: another one may find more. What is proven is in the run's report. Numbers stand "
    "beside what the same units give without an attack."
)


def write_attack(found: Found, run: Path) -> Path:
    """Write what an attack found into the run's private folder, and the page of all attacks anew; gives back the page."""
    folder = private_folder(run / FOLDER)
    if not re.fullmatch(r"[\w.-]+", found.attack):
        raise BadValue(f"{found.attack!r}: an attack's name is that of a file, of letters, digits and dashes.")
    pictures = {}
    for name, picture in found.pictures.items():
        file = f"{found.attack}-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.png"
        content = picture if isinstance(picture, bytes) else drawn(file, name, picture)
        write_atomically(folder / file, content, mode=_OWNER)
        pictures[name] = file
    held = {**json.loads(found.to_json()), "pictures": pictures}
    write_atomically(folder / f"{found.attack}.json", json.dumps(held, indent=2) + "\n", mode=_OWNER)
    page = folder / "index.html"
    write_atomically(page, page_of(folder, run.resolve().name), mode=_OWNER)
    return page


def page_of(folder: Path, run: str) -> str:
    """The page of all attacks whose results lie in a folder."""
    attacks = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    warning = element(
        "section",
        element("p", "Not private", class_="label"),
        element("p", "This must not be published", class_="verdict"),
        element("p", _WARNING, class_="sentence"),
        class_="warning",
    )
    parts = [_attack(one, place, folder) for place, one in enumerate(attacks)]
    named = f"{len(attacks)} attack{'' if len(attacks) == 1 else 's'}: {', '.join(one['attack'] for one in attacks)}"
    title = f"Attacks on the run {run}: not private"
    return document("attacks, not private", title, named, warning, element("p", _MEANING), *parts, closing=_WARNING)


def _attack(one: dict[str, Any], place: int, folder: Path) -> Html:
    charts = [_chart(name, chart, one["attack"], place) for name, chart in one["curves"].items()]
    pictures = [_picture(name, folder / file) for name, file in one["pictures"].items()]
    curves: list[dict[str, Any]] = [curve for chart in one["curves"].values() for curve in chart["curves"]]
    names = (element("li", swatch(index), curve["name"]) for index, curve in enumerate(curves))
    return join(
        element("h2", label(one["attack"])),
        _numbers(one),
        element("ul", *names, class_="legend") if curves else None,
        element("div", *charts, *pictures, class_="pictures") if charts or pictures else None,
        element("ul", *(element("li", note) for note in one["notes"]), class_="note"),
        element("p", f"It took {duration(finite(one.get('seconds')))}.", class_="note"),
    )


def _numbers(one: dict[str, Any]) -> Html:
    """Each number with its band, and the same number of each baseline beside it; other baselines stand below."""
    names, baselines, bands = list(one["numbers"]), one["baselines"], one.get("bands", {})
    columns = list(
        dict.fromkeys(key.removesuffix(f": {name}") for name in names for key in baselines if key.endswith(f": {name}"))
    )
    beside = {f"{column}: {name}" for column in columns for name in names}
    rows = [
        _row(name, one["numbers"][name], bands.get(name), [baselines.get(f"{column}: {name}") for column in columns])
        for name in names
    ]
    rows += [_row(key, value, None, [None] * len(columns)) for key, value in baselines.items() if key not in beside]
    return table(("", "Found", "95 % band", *map(label, columns)), rows, class_="comparison")


def _row(name: str, value: object, band: Sequence[float] | None, others: Sequence[object]) -> Html:
    edges = MISSING if band is None else f"{_rate(band[0])} to {_rate(band[1])}"
    cells = (element("td", text) for text in (_rate(value), edges, *map(_rate, others)))
    return element("tr", element("th", label(name), scope="row"), *cells)


def _rate(value: object) -> str:
    return number(finite(value), 3)


def _chart(name: str, chart: dict[str, Any], attack: str, place: int) -> Html:
    curves = tuple(_curve(one, index) for index, one in enumerate(chart["curves"]))
    plot = Plot(f"{attack}-{name}-{place}", chart["title"], chart["x"], chart["y"], curves, log=chart["log"])
    return figure(plot, chart["title"], "Nothing to draw.")


def _curve(one: dict[str, Any], index: int) -> Curve:
    xs, ys, low, high = (tuple(one[part]) for part in ("xs", "ys", "low", "high"))
    return Curve(one["name"], index, xs, ys, low=low, high=high)


def _picture(name: str, path: Path) -> Html:
    source = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    image = element("img", src=source, alt=name, style="width:100%;height:auto")
    return element("figure", element("figcaption", name), image)
