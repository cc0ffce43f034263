"""Whole pages: one run, or several side by side. One file, no scripts, nothing fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files

from sfumato.report import parts
from sfumato.report.curves import accuracy_against_epsilon, accuracy_by_round, epsilon_by_round, measure
from sfumato.report.markup import Html, element, join
from sfumato.report.read import Record
from sfumato.report.votes import votes
from sfumato.report.words import MISSING, number
from sfumato.version import __version__

MARK = '<meta name="generator" content="Sfumato'
_NOTHING_PROVEN = "There is no epsilon to show: nothing is proven for this run."
_NO_ROUNDS = "No round was recorded."
_NO_TEST_DATA = "No run was measured on public test data."
_NO_PAIRS = "No run has both an epsilon and a measure on public test data."
_RELEASED = "This page holds released values only: what the guarantee covers, what is public, and what was declared."


def one_run(run: Record) -> str:
    """The page of one run."""
    missing = parts.NO_TEST_DATA if run.points else _NO_ROUNDS
    hidden = _NO_ROUNDS if run.proven else _NOTHING_PROVEN
    accuracy = parts.figure(accuracy_by_round([run]), f"{measure([run])} by round", missing)
    spent = parts.figure(epsilon_by_round([run]), "Epsilon by round", hidden)
    facts = (f"{run.text('model')} model", _count(run, "population", "client"), _count(run, "rounds", "round"))
    title = _heading(run)
    return document(
        "one run",
        title,
        ", ".join(fact for fact in facts if fact),
        parts.guarantee(run),
        element("h2", "Key numbers"),
        parts.numbers(run),
        parts.budgets(run),
        votes(run),
        element("h2", "Round by round"),
        element("div", accuracy, spent, class_="pictures"),
        parts.derivation(run),
        parts.again(run),
    )


def comparison(runs: Sequence[Record]) -> str:
    """The page of several runs: a table, the curves over each other, and what is guaranteed by each."""
    title, care = f"Comparison of {len(runs)} runs", _incomparable(runs)
    common = [f"{name.lower()} {value}" for name, value in _common(runs)]
    names = (element("li", parts.swatch(index), run.name) for index, run in enumerate(runs))
    levels = any(not run.proven for run in runs) and any(run.proven for run in runs)
    dashed = "Dashed and level: runs without a proven guarantee, at their last value." if levels else ""
    first = parts.figure(accuracy_by_round(runs), f"{measure(runs)} by round", _NO_TEST_DATA)
    second = parts.figure(accuracy_against_epsilon(runs), f"{measure(runs)} against epsilon", _NO_PAIRS)
    return document(
        "several runs",
        title,
        f"In common: {', '.join(common)}." if common else "",
        element("h2", "Side by side"),
        _table(runs),
        element("p", care, class_="note") if care else None,
        element("h2", "Curves"),
        element("ul", *names, class_="legend"),
        element("div", first, second, class_="pictures"),
        element("p", dashed, class_="note") if dashed else None,
        element("h2", "What each run guarantees"),
        *(_guarantee(index, run) for index, run in enumerate(runs)),
    )


def _guarantee(index: int, run: Record) -> Html:
    heading = element("h3", parts.swatch(index), run.name, element("span", _heading(run), class_="note"))
    return join(heading, parts.guarantee(run))


_ROWS: dict[str, Callable[[Record], str]] = {
    "Epsilon": parts.epsilon,
    "Accuracy": parts.accuracy,
    "Recipe": lambda run: run.text("recipe"),
    "Data": lambda run: run.text("data"),
    "Model": lambda run: run.text("model"),
    "Delta": parts.delta,
    "Rounds": lambda run: number(run.number("rounds")),
    "Population": partial(parts.fact, key="population"),
    "Unit": partial(parts.fact, key="unit"),
    **{name: partial(parts.fact, key=key) for key, name in parts.FACTS.items() if key not in ("unit", "population")},
}
_TELLING = ("Epsilon", "Accuracy")  # always in the table, and larger
_ALWAYS = (*_TELLING, "Training time")


def _same(name: str, runs: Sequence[Record]) -> bool:
    return len({_ROWS[name](run) for run in runs}) == 1


def _common(runs: Sequence[Record]) -> list[tuple[str, str]]:
    """What all runs share is said once, so that the table holds what tells them apart."""
    shared = [(name, _ROWS[name](runs[0])) for name in _ROWS if name not in _ALWAYS and _same(name, runs)]
    return [(name, value) for name, value in shared if value and value != MISSING]


def _table(runs: Sequence[Record]) -> Html:
    """One column per run."""
    rows = []
    for name, say in _ROWS.items():
        if name not in _ALWAYS and _same(name, runs):
            continue
        style = {"class_": "telling"} if name in _TELLING else {}
        cells = (element("td", say(run), **style) for run in runs)
        rows.append(element("tr", element("th", measure(runs) if name == "Accuracy" else name, scope="row"), *cells))
    names = (join(parts.swatch(index), run.name) for index, run in enumerate(runs))
    return parts.table(("", *names), rows, class_="comparison")


def _incomparable(runs: Sequence[Record]) -> str:
    """An epsilon is only more or less than another for the same unit, relation and delta."""
    proven = [run for run in runs if run.proven]
    differ = [name.lower() for name in ("Unit", "Relation", "Delta") if proven and not _same(name, proven)]
    if not differ:
        return ""
    these = f"{' and '.join(differ)} differ{'' if len(differ) > 1 else 's'}"
    return f"Compare these epsilons with care: unit, relation and delta make the promise, and {these} here."


def _heading(run: Record) -> str:
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
