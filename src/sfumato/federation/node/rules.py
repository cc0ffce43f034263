"""What a node's owner allows, as rules about the terms of a run: each says why it refuses, in a code and in a sentence.

A rule reads public facts and node.toml, never the node's data: so neither that a run is refused nor why tells anything of them.
The code is for the server, the sentence for the owner's own log. Nothing that the terms name is imported or built before the
owner's lists say so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from sfumato.account.event import Unit
from sfumato.calibration import noise_for
from sfumato.data.population import PublicData
from sfumato.data.record_map import Map, as_record_map
from sfumato.engine.slots import permutes
from sfumato.errors import SfumatoError
from sfumato.features import STEPS, parse_features
from sfumato.federation.node.costs import Dues
from sfumato.federation.node.policy import ANY, LIBRARY, REFUSED, Policy
from sfumato.federation.terms import Agreement, Terms, declared_example
from sfumato.imports import is_import_path
from sfumato.ledger.ledger import PROMISE
from sfumato.models import NAMES
from sfumato.pieces.channel import SecureSum
from sfumato.round import Round
from sfumato.run.read_round import read_round

_LARGEST = 2**28  # numbers in a record, and outputs


class Refused(Exception):
    """A question that a node does not answer: a code for the server, and words for the owner."""

    def __init__(self, code: str, words: str) -> None:
        self.code, self.words = code, words
        super().__init__(f"{code}: {words}")


def judged(policy: Policy, terms: Terms, public: PublicData | None = None) -> tuple[Agreement | None, list[Refused]]:
    """What the terms amount to, and everything that the owner does not allow in them.

    It is not built, where something that must not be imported stands in the way.
    """
    found = list(_before_building(policy, terms))
    if found:
        return None, found
    try:
        function = parse_features(terms.features) if terms.features else None
    except SfumatoError as error:
        return None, [Refused("refused.features", str(error))]
    if found := list(_of_other_records(policy, terms, function)):
        return None, found
    try:
        found = list(_imports(policy, read_round(terms.round, public)))
        if found:
            return None, found
        agreement = Agreement.of(terms, public)
    except SfumatoError as error:
        return None, [Refused("refused.round", f"its Round cannot be built here: {error}")]
    return agreement, list(_after_building(policy, agreement))


def _before_building(policy: Policy, terms: Terms) -> Iterator[Refused]:
    """What can be told from the text."""
    if terms.run.startswith(PROMISE):
        yield Refused(
            "refused.terms", f"a run called {terms.run!r} would stand in the ledger as a promise of another run"
        )
    if not terms.run.isprintable():
        yield Refused(
            "refused.terms", f"a run called {terms.run!r:.80} would not be shown as it is where a ledger is read"
        )
    if not policy.recipes:
        yield Refused(
            "refused.recipe", "node.toml lists no recipes under [allow], so everything is refused until it does"
        )
    elif ANY not in policy.recipes and terms.recipe not in policy.recipes:
        named = repr(terms.recipe) if terms.recipe else "a round that is no recipe"
        yield Refused("refused.recipe", f"{named} is not among the recipes that node.toml allows")
    if not _listed(terms.model, policy.models, NAMES):
        yield Refused("refused.model", f"the model {terms.model!r} is not among the models that node.toml allows")
    for word in filter(None, (word.strip() for word in terms.features.split(","))):
        if not _listed(word, policy.features, tuple(STEPS)):
            yield Refused("refused.features", f"{word!r} is not among the features that node.toml allows")
    yield from _imports(policy, terms.options)
    if terms.keys != "own" and not policy.shared_keys:
        yield Refused(
            "refused.keys", "the server would draw this node's noise itself, which node.toml allows in tests only"
        )
    if policy.client >= terms.clients:
        yield Refused("refused.client", f"this is client {policy.client}, and the run has {terms.clients}")
    if terms.rounds < 1 or max(math.prod(terms.input_shape), math.prod(terms.target_shape), terms.outputs) > _LARGEST:
        yield Refused("refused.shape", "no rounds, or records or outputs of an absurd size")


def _of_other_records(policy: Policy, terms: Terms, features: Map | None) -> Iterator[Refused]:
    """Refuse what is not about such records as the owner declares; features are made of zeros of that shape."""
    declared = policy.records
    if declared is None:
        yield Refused("refused.records", "node.toml has no table [records]: it declares what a record is")
        return
    given = {"task": terms.task, "outputs": terms.outputs}
    for name, value in given.items():
        if value != (own := getattr(declared, name)):
            yield Refused("refused.records", f"{name} is {value!r}, where node.toml declares {own!r}")
    example = declared_example(declared.input_shape, declared.input_type, declared.target_shape, declared.target_type)
    try:
        x = example.x if features is None else as_record_map(features)(example.x)
        wanted = terms.example
    except Exception as error:
        yield Refused("refused.records", f"nothing is made of the declared records: {type(error).__name__}")
        return
    for name, own, asked in (("inputs", x, wanted.x), ("targets", example.y, wanted.y)):
        if (own.shape[1:], own.dtype) != (asked.shape[1:], asked.dtype):
            yield Refused(
                "refused.records",
                f"{name} have shape {tuple(asked.shape[1:])} and type {asked.dtype} in the terms, where the declared records have "
                f"{tuple(own.shape[1:])} and {own.dtype}",
            )


def _listed(name: str, allowed: tuple[str, ...], library: tuple[str, ...]) -> bool:
    """Whether a name is allowed: one of the library's own, with or without its size, or one that is listed as it stands.

    What has the form of an import path is none of the library's, whatever its first word is.

    >>> _listed("char-lstm:64", ("library",), NAMES), _listed("mlp:net", ("library",), NAMES), _listed("a:b", ("a:b",), NAMES)
    (True, False, True)
    """
    own = name.partition(":")[0]
    known = own in library and not is_import_path(name)
    return name in allowed or (known and (LIBRARY in allowed or own in allowed))


def _imports(policy: Policy, thing: Any) -> Iterator[Refused]:
    """Refuse whatever in a Round or in options has the form of an import path: a teacher's model, say."""
    for name in _texts(thing):
        if name not in policy.models:
            yield Refused("refused.model", f"{name!r} would be imported, and is not among the models in node.toml")


def _texts(thing: Any) -> Iterator[str]:
    if isinstance(thing, str):
        if is_import_path(thing):
            yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from _texts(value)
    elif isinstance(thing, tuple | list):
        for value in thing:
            yield from _texts(value)
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type | PublicData):
        for part in dataclasses.fields(thing):
            yield from _texts(getattr(thing, part.name))


def _after_building(policy: Policy, agreement: Agreement) -> Iterator[Refused]:
    """What only the Round itself can tell."""
    round, terms = agreement.job.slots.round, agreement.terms
    if ANY not in policy.recipes and not agreement.is_its_recipe:
        yield Refused("refused.recipe", f"the Round is not what the recipe {terms.recipe!r} makes of its options")
    if round.nonprivate and not policy.nonprivate:
        yield Refused("refused.nonprivate", "the run hides nothing, and node.toml does not allow that")
    if round.unproven and not policy.unproven:
        yield Refused("refused.unproven", "nothing is proven of the run, and node.toml does not allow that")
    noise = min(noise_for(round, unit, policy.client) for unit in relied_on(policy, agreement))
    if noise < policy.smallest_noise:
        yield Refused("refused.noise", f"a noise multiplier of {noise:g}, below {policy.smallest_noise:g}")
    cohort = smallest_cohort(round, terms.clients)
    if cohort < policy.smallest_cohort:
        yield Refused("refused.cohort", f"a cohort of {cohort:g}, below {policy.smallest_cohort}")
    if permutes(round):
        yield Refused("refused.channel", "its cost rests on a shuffler, and between machines nobody permutes messages")
    yield from _budgets(policy, agreement)


def smallest_cohort(round: Round, clients: int) -> float:
    """How many take part: as many as are expected; as few as may reply, where a sum has such a number."""
    expected = round.sample.expected(clients)
    fewest = round.channel.smallest if isinstance(round.channel, SecureSum) else 0
    return min(expected, fewest) if fewest else expected


def relied_on(policy: Policy, agreement: Agreement) -> set[Unit]:
    """The units that the owner's budgets are about; the run's own, where none is finite."""
    budgets = (budget for budget in (policy.budget, policy.total) if budget is not None)
    return {budget.unit for budget in budgets if math.isfinite(budget.epsilon)} or {agreement.derivation.primary.unit}


def _budgets(policy: Policy, agreement: Agreement) -> Iterator[Refused]:
    if policy.budget is None:
        yield Refused(
            "refused.epsilon", f"node.toml states no epsilon for {policy.name!r}: add [allow.data.{policy.name}]"
        )
    dues = Dues.of(agreement, policy.client)
    for unit in sorted(relied_on(policy, agreement)):
        if unit not in dues.units:
            yield Refused("refused.unit", f"the budget is for each {unit}, and nothing is proven for {unit}s")
        elif unit in dues.promised and policy.promise == REFUSED:
            yield Refused(
                "refused.promise",
                f"what hides one {unit} is noise that the server promises to add, and node.toml says that no promise suffices",
            )
        elif unit in dues.trusting and policy.promise == REFUSED:
            yield Refused(
                "refused.promise",
                f"what hides one {unit} is a secure sum whose protocol the server promises to follow, and node.toml says that no "
                'promise suffices; with power = "active" it need not be promised',
            )
