"""The page of one run, and what every page has. One file, no scripts, nothing fetched."""

from __future__ import annotations

from importlib.resources import files

from sfumato.report import parts
from sfumato.report.again import again
from sfumato.report.audits import audits
from sfumato.report.history import accuracy_by_round, loss_by_round, measure
from sfumato.report.limits import limits
from sfumato.report.markup import Html, element
from sfumato.report.promise import guarantee
from sfumato.report.read import Record
from sfumato.report.votes import votes
from sfumato.report.words import number
from sfumato.version import __version__

MARK = '<meta name="generator" content="Sfumato'
_NO_ROUNDS = "No round was recorded."
_RELEASED = "This page holds released values only: what the guarantee covers, what is public, and what was declared."


def one_run(run: Record) -> str:
    """The page of one run."""
    missing = parts.NO_TEST_DATA if run.points else _NO_ROUNDS
    accuracy = parts.figure(accuracy_by_round([run]), f"{measure([run])} by round", missing)
    lost = loss_by_round([run])
    facts = (f"{run.text('model')} model", _count(run, "population", "client"), _count(run, "rounds", "round"))
    title = heading(run)
    return document(
        "one run",
        title,
        ", ".join(fact for fact in facts if fact),
        guarantee(run),
        element("h2", "Key numbers"),
        parts.numbers(run),
        parts.budgets(run),
        limits(run),
        votes(run),
        element("h2", "Round by round"),
        element("div", accuracy, parts.figure(lost, lost.title, "") if lost else None, class_="pictures"),
        parts.derivation(run),
        audits(run),
        again(run),
    )


def heading(run: Record) -> str:
    """What a run is called where the name of its folder says little."""
    return f"{run.text('recipe') or 'A run'} on {run.text('data') or 'unnamed data'}"


def _count(run: Record, key: str, word: str) -> str:
    value = run.number(key)
    return "" if value is None else f"{number(value)} {word}{'' if value == 1 else 's'}"


def document(what: str, title: str, subtitle: str, *body: Html | None, closing: str = _RELEASED) -> str:
    """A whole page; `closing` says whose eyes it is for."""
    style = files("sfumato.report").joinpath("style.css").read_text(encoding="utf-8")
    nothing_fetched = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    footer = element("footer", element("p", closing), element("p", f"Written by Sfumato {__version__}."))
    head = (
        '<meta charset="utf-8">\n'
        f'{MARK} {__version__}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{nothing_fetched}">\n'
        f"{element('title', f'{title} · Sfumato')}\n<style>\n{style}</style>"
    )
    eyebrow = element("p", f"Sfumato: report of {what}", class_="eyebrow")
    top = (eyebrow, element("h1", title), element("p", subtitle, class_="subtitle") if subtitle else None)
    main = element("main", Html("\n".join(part for part in (*top, *body) if part)), footer)
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{main}\n</body>\n</html>\n'
