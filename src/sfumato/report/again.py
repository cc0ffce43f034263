"""The part of a page that says how to make the run again."""

from __future__ import annotations

from sfumato.report.markup import Html, element, join
from sfumato.report.read import Record
from sfumato.report.words import number


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
