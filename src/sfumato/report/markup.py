"""HTML that is escaped by construction: text is escaped when it enters an element, and only elements are not."""

from __future__ import annotations

import re
from html import escape
from typing import TypeAlias

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")  # no page may hold these


_VOID = ("img",)  # these have no end


class Html(str):
    """Markup that is safe to put into a page as it stands."""

    __slots__ = ()


Child: TypeAlias = "Html | str | None"


def element(name: str, *children: Child, **attributes: str) -> Html:
    """An element; text among its children is escaped, None is left out. `class_` gives the attribute `class`.

    >>> element("p", "a < b", class_="lead")
    '<p class="lead">a &lt; b</p>'
    """
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    said = "".join(f' {key}="{escaped(value)}"' for key, value in pairs)
    return Html(f"<{name}{said}>" if name in _VOID else f"<{name}{said}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Elements and text in a row."""
    return Html(
        "".join(child if isinstance(child, Html) else escaped(child) for child in children if child is not None)
    )


def escaped(text: str) -> Html:
    """Text as it may stand between tags or in an attribute."""
    return Html(escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)))
