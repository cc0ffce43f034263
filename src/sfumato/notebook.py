"""How guarantees and progress look in a notebook: small, escaped, and legible in the light and in the dark.

Nothing is loaded and no colour is set: text takes that of the page, and its edge is a shade of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_BOX = "border-left:3px solid currentColor;padding:.2em 0 .2em .8em;margin:.3em 0;max-width:46em;line-height:1.45"
_FAINT = "opacity:.75"


def guarantee_card(headline: str, sentence: str, assumptions: Sequence[str], above: str = "") -> str:
    """The headline; folded under it what it means, and what it assumes."""
    assumed = "".join(f"<li>{escape(words)}</li>" for words in assumptions)
    listed = f'<div>Assuming:</div><ul style="margin:.2em 0">{assumed}</ul>' if assumed else ""
    over = f'<div style="{_FAINT}">{escape(above)}</div>' if above else ""
    folded = f"<details><summary>what this says</summary><p>{escape(sentence)}</p>{listed}</details>"
    return f'<div style="{_BOX}">{over}<strong>{escape(headline)}</strong>{folded}</div>'


def plain_card(headline: str, hint: str) -> str:
    """The headline, and how to know more."""
    return f'<div style="{_BOX}"><strong>{escape(headline)}</strong><div style="{_FAINT}">{escape(hint)}</div></div>'
