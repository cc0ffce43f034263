"""How guarantees and progress look in a notebook: small, escaped, and legible in the light and in the dark.

Nothing is loaded and no colour is set: text takes that of the page, and its edge is a shade of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_BOX = "border-left:3px solid currentColor;padding:.2em 0 .2em .8em;margin:.3em 0;max-width:46em;line-height:1.45"
_FAINT = "opacity:.75"
_GRID = "display:grid;grid-template-columns:max-content auto;gap:0 1em;margin:.3em 0"


def guarantee_card(headline: str, rows: Sequence[tuple[str, str]], assumptions: Sequence[str], above: str = "") -> str:
    """The headline; folded under it the rows of the guarantee, and its assumptions as a list."""
    said = "".join(f'<dt>{escape(name)}</dt><dd style="margin:0">{escape(words)}</dd>' for name, words in rows)
    assumed = "".join(f"<li>{escape(words)}</li>" for words in assumptions)
    listed = f'<div>assumptions</div><ul style="margin:.2em 0">{assumed}</ul>' if assumed else ""
    over = f'<div style="{_FAINT}">{escape(above)}</div>' if above else ""
    folded = f'<details><summary>the guarantee</summary><dl style="{_GRID}">{said}</dl>{listed}</details>'
    return f'<div style="{_BOX}">{over}<strong>{escape(headline)}</strong>{folded}</div>'
