"""The part of a page that says how well anybody can tell: what epsilon grew to, and the errors that nobody can avoid."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.account.event import Relation, Unit
from sfumato.report.history import epsilon_by_round, tradeoff
from sfumato.report.markup import Html, element, join
from sfumato.report.parts import figure, table
from sfumato.report.read import Record
from sfumato.report.telling import Telling, telling
from sfumato.report.words import MISSING, number, share_up

_TITLE = "How well anybody can tell"
_ALARMS = (0.001, 0.01, 0.1)
_NOT_PROVEN = (
    "There is no epsilon and no curve to show: nothing is proven for this run, so nothing limits how well one can tell."
)
_NO_EVENT = "No curve: the run's ledger, which holds what happened, is not beside it or cannot be read."
_NO_ROUNDS = "No round was recorded."
_NOTE = (
    "Of this run alone no test does better than the curve, whoever makes it and whatever they know of everybody's data; whoever "
    "sees other runs on the same clients too sees more. It is computed from the same event as epsilon, and rests on the same "
    "assumptions. The dotted line is what guessing without looking achieves."
)


def limits(run: Record) -> Html:
    """The curves, and what they mean; or that there are none."""
    heading = element("h2", _TITLE)
    if not run.proven:
        return join(heading, element("p", _NOT_PROVEN))
    spent = figure(epsilon_by_round([run]), "Epsilon by round", _NO_ROUNDS)
    drawn = figure(tradeoff([run]), _TITLE, _NO_EVENT)
    known = telling(run.event, run.price)
    words = _words(run, known) if known is not None else None
    return join(heading, words, element("div", drawn, spent, class_="pictures"))


def found_at_most(runs: Sequence[Record], alarms: float = 0.01) -> str:
    """The most that anybody finds, in any one of these runs, who accepts so many false alarms; missing where not all is known."""
    known = [telling(run.event, run.price) if run.proven else None for run in runs]
    found = [one.found(alarms) for one in known if one is not None]
    return share_up(max(found)) if found and len(found) == len(known) else MISSING


def _words(run: Record, known: Telling) -> Html:
    stated = run.guarantee(run.text("unit"), "world").get("relation")
    relation, unit = Relation(stated or run.text("relation")), Unit(run.text("unit"))
    those = "of those that are" if relation is Relation.ADD_REMOVE else "of the cases where it is so"
    sentence = (
        f"Somebody looks at all that this run released and guesses whether {relation.neighbours(unit)}. Whoever accepts 1 false "
        f"alarm in 100 finds at most {share_up(known.found(0.01))} {those}; without looking it is 1\N{NO-BREAK SPACE}%. Where "
        f"both are as likely, nobody is right more often than {share_up(known.right)} of the time; a coin is right "
        "50\N{NO-BREAK SPACE}%."
    )
    rows = (
        element(
            "tr",
            element("th", f"1 in {number(1 / alarms)}", scope="row"),
            element("td", share_up(known.found(alarms))),
            element("td", f"{number(100 * alarms)}\N{NO-BREAK SPACE}%"),
        )
        for alarms in _ALARMS
    )
    heads = ("False alarms", "Found, at most", "Without looking")
    said = element("div", element("p", sentence), element("p", _NOTE, class_="note"))
    return element("div", said, table(heads, rows, "telling"), class_="beside")
