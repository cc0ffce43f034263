"""What `explain` answers: one derivation, as plain facts and as lines of text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sfumato.account.event import Event, Relation, Unit
from sfumato.budget.told import told
from sfumato.budget.words import in_words
from sfumato.calibration import noise_and_clip
from sfumato.claim import Step, table
from sfumato.commands.options import flag
from sfumato.guarantee import PUBLIC, Guarantee, guarantee, rounded_up
from sfumato.recipes import find
from sfumato.recipes.sentences import SENTENCES
from sfumato.unproven import claims

if TYPE_CHECKING:
    from sfumato.account.papers.prifedsync import Published
    from sfumato.commands.explain import Explained
    from sfumato.derive import Derivation

_PUBLIC = "the public observer"


_INTERRUPTIONS = (
    "an interruption makes at most 1 round count twice (at most N with --checkpoint-every N); "
    "--restarts K plans for K interruptions"
)


def answer(asked: Explained) -> dict[str, Any]:
    """Everything that is known of the recipe: each slot's piece and statement, events, guarantees, assumptions."""
    about, round = find(asked.recipe), asked.round
    derivation = round.derive(population=asked.clients, dimension=asked.dimension)
    proof, (noise, clip) = derivation.primary, noise_and_clip(round)
    proven = {str(unit): _guarantees(asked, derivation, unit) for unit in Unit}
    published = _published(asked, derivation)
    return {
        "recipe": about.name,
        "summary": about.summary,
        "paper": about.paper,
        "headline": proven[proof.unit]["world"].headline,
        "population": asked.clients,
        "rounds": asked.rounds,
        "delta": asked.delta,
        "dimension": asked.dimension,
        "unit": str(proof.unit),
        "relation": str(proof.relation),
        "noise_multiplier": noise,
        "clip": clip,
        "stddev": proof.stddev,
        "sensitivity": proof.sensitivity,
        "derivation": [asdict(step) for step in proof.steps],
        "events": {view: _event(getattr(proof, view)) for view in ("world", "server", "chooser")},
        "assumptions": list(proven[proof.unit]["world"].assumptions or proof.assumptions),
        "guarantees": {unit: {view: one.to_json() for view, one in views.items()} for unit, views in proven.items()},
        "unproven": claims(round, derivation, asked.rounds, asked.delta) if round.unproven else None,
        "budgets": []
        if asked.budgets is None
        else told(asked.budgets, round, asked.clients, proof.after(asked.rounds)),
        "published": None if published is None else published.text(asked.delta),
        "choices": [asdict(choice) for choice in asked.choices],
        "options": {
            name: {"value": asked.options.get(name, one.default), "default": one.default, "help": SENTENCES[name]}
            for name, one in about.options.items()
        },
    }


def lines(asked: Explained, found: dict[str, Any]) -> list[str]:
    """The same for people."""
    told_before = [asked.opening, "", *_choices(asked), ""] if asked.opening else []
    central, receiver = find(asked.recipe).central, asked.round.channel.receiver
    who, rounds = "one holder" if central else f"{asked.clients} clients", asked.rounds
    after = f"after {rounds} {'round' if rounds == 1 else 'rounds'}"
    events = {view: "nothing is proven" if one is None else one["words"] for view, one in found["events"].items()}
    text = [
        *told_before,
        f"{found['recipe']}: {found['summary']} ({found['paper']})",
        f"{after}: {found['headline']}",
        "",
        f"derivation for one {found['unit']}, {Relation(found['relation']).words}, {who}:",
        *table(tuple(Step(**step) for step in found["derivation"])).split("\n"),
        "",
        f"each round costs, against {_PUBLIC}: {events['world']}",
        f"each round costs, against {receiver}: {events['server']}",
        "",
        found["guarantees"][found["unit"]]["world"]["text"],
        "",
        f"{after}, epsilon at delta {rounded_up(asked.delta, 3)}:",
    ]
    views = {_PUBLIC: "world", receiver: "server"}
    if not central:
        honest, chooser = f"{receiver}, if it samples honestly", f"{receiver}, whoever chooses the cohort"
        views = {_PUBLIC: "world", honest: "server", chooser: "chooser"}
    for whom, view in views.items():
        epsilon = found["guarantees"][found["unit"]][view]["epsilon"]
        text.append(f"  {whom:<40} {'nothing is proven' if epsilon is None else rounded_up(epsilon, 4)}")
    if (said := found["unproven"]) is not None:
        by = f" ({said['claimed_by']})" if said["claimed_by"] else ""
        for words, epsilon in {f"claimed{by}": said["claimed_epsilon"], **said.get("really", {})}.items():
            text.append(f"  {words:<40} {'-' if epsilon is None else format(epsilon, '.4g')}")
    if found["guarantees"][found["unit"]]["world"]["epsilon"] is not None:
        text += ["", _INTERRUPTIONS]
    if found["budgets"]:
        text += ["", "each client's own budget, and the epsilon that is spent of it:"]
        text += [f"  {line}" for line in in_words(found["budgets"])]
    if found["published"]:
        text += ["", found["published"]]
    return [*text, "", "options:", *_options(found["options"])]


def _choices(asked: Explained) -> list[str]:
    wide = max(len(f"{choice.key} = {choice.value}") for choice in asked.choices)
    return [f"  {f'{choice.key} = {choice.value}':<{wide}}  {choice.why}" for choice in asked.choices]


def _options(options: dict[str, Any]) -> list[str]:
    shown = {f"{flag(name)} {one['value']}".rstrip(): one["help"] for name, one in options.items()}
    wide = max(map(len, shown))
    return [f"  {words:<{wide}}  {sentence}" for words, sentence in shown.items()]


def _guarantees(asked: Explained, derivation: Derivation, unit: Unit) -> dict[str, Guarantee]:
    """What is proven after all rounds, in each view; why nothing is, for a unit of which nothing is proven."""
    channel, proof = asked.round.channel, derivation.units.get(unit)
    views = {"world": PUBLIC, "server": channel.receiver, "chooser": f"{channel.receiver}, whoever chooses the cohort"}
    if proof is None:
        refusal = derivation.refused.get(unit)
        why = refusal.reason if refusal else "nothing is proven of this round"
        relation = derivation.primary.relation
        return {
            view: Guarantee(None, asked.delta, unit, relation, whom, "", unproven=why) for view, whom in views.items()
        }
    known: dict[str, Any] = {
        "unit": unit,
        "relation": proof.relation,
        "assumptions": proof.assumptions,
        "unpaid": channel.sees_before_noise,
        "whole_client": derivation.by_whole_client(unit),
    }
    return {
        view: guarantee(proof.seen(view, asked.rounds), asked.delta, view=whom, **known) for view, whom in views.items()
    }


def _event(event: Event | None) -> dict[str, Any] | None:
    return None if event is None else {"words": event.words(), "event": event.to_json()}


def _published(asked: Explained, derivation: Derivation) -> Published | None:
    """The paper's claims about a round of PriFedSync's kind: fixed-size batches under replace, at the client."""
    from sfumato.account.papers.prifedsync import Published
    from sfumato.local.dp_sgd import DpSgd
    from sfumato.pieces.law import Gaussian
    from sfumato.pieces.sampler import FixedSize

    round, local = asked.round, asked.round.local
    if not isinstance(local, DpSgd) or not isinstance(local.batch, FixedSize) or not isinstance(local.law, Gaussian):
        return None
    if local.batch.relation is not Relation.REPLACE:
        return None
    clients = derivation.population
    rate = round.sample.expected(clients) / clients
    sigma = local.law.noise_multiplier / 2  # the paper's counts twice the clip norm
    return Published(local.batch.size / local.records, local.steps, asked.rounds, sigma, rate, clients)
