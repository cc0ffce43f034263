"""Shadows of a run: its recipe run again, with some of its records or clients replaced by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from sfumato.audit.attack import Subject
from sfumato.audit.units import Units
from sfumato.data.fingerprint import of_tensors
from sfumato.data.population import Client, Population, Records
from sfumato.engine.plan import Plan
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.facts import digest
from sfumato.key import Key
from sfumato.objective import Objective
from sfumato.run.schema import read_summary
from sfumato.update import Layout

UNITS = ("record", "client")
_FEWEST = 10  # pairs; with fewer no rate can be told from chance


@dataclass(frozen=True)
class RunWorld:
    """The attacked run has the first candidate of each pair: a member. The second was held out, and takes its place elsewhere.

    All other records are the same in every model: the attacker is assumed to know them, as differential privacy assumes too.
    `places` are the clients of pairs of clients, or for records (client, position) of each.
    """

    subject: Subject
    units: Units
    places: Tensor
    seconds: tuple[Records, ...] = field(repr=False)  # the second candidates, one by one
    looks: tuple[int, ...]  # rounds after which the model is looked at, counted from 1
    source: str  # where those who were held out come from

    @staticmethod
    def of(subject: Subject, kind: str, most: int, looks: int, key: Key) -> RunWorld:
        """Up to so many members and as many others, by chance; the models after so many rounds, the last among them."""
        if kind not in UNITS:
            raise BadValue(f"unit={kind!r}: ask about one {' or one '.join(UNITS)}.")
        others, source = _held_out(subject)
        order = torch.from_numpy(key.child("others").permutations(1, others.count)[0])
        others = Records(*(part.index_select(0, order) for part in others))
        make = _of_records if kind == "record" else _of_clients
        units, places, seconds = make(subject.prepared.population, others, most, key.child("members"))
        return RunWorld(subject, units, places, seconds, _looks(subject, looks), source)

    @property
    def module(self) -> nn.Module:
        return self.subject.module

    @property
    def objective(self) -> Objective:
        return self.subject.prepared.objective

    @property
    def target(self) -> Tensor:
        """What the run showed after the rounds that are looked at, [looks, dimension]."""
        if self.looks == (self.subject.rounds,):
            return Layout.of(self.module).row(self.module)[None]
        return torch.stack([self.subject.releases[round - 1] for round in self.looks])

    @property
    def notes(self) -> tuple[str, ...]:
        kind, count = self.units.kind, self.units.pairs
        known = [
            f"Members are {count} {kind}s of the run, chosen by chance; as many others come from {self.source}.",
            "The attacker sees the final model only."
            if len(self.looks) == 1
            else f"The attacker sees the models after {len(self.looks)} rounds, the last among them.",
            f"The attacker knows the recipe with all its settings, the records of all other clients and all but one candidate for "
            f"each place, and runs the recipe again with either. That is more than most attackers know; it is what the guarantee "
            f"for one {kind} assumes of them.",
        ]
        if self.subject.prepared.request.data.test is not None:
            known.append(
                "Those who were held out are of another data set: a score may tell the data sets apart, not members."
            )
        if self.subject.prepared.basis is not None:
            known.append("Shadows share the basis that the run has learnt, so what the basis tells is not attacked.")
        return tuple(known)

    @cached_property
    def _facts(self) -> tuple[object, ...]:
        prepared, units = self.subject.prepared, self.units
        data = of_tensors([*units.records, units.owner, self.places], prepared.population.fingerprint)
        engine = read_summary(self.subject.folder).get("engine")
        return "run", data, prepared.round, prepared.module, self.objective.name, self.looks, units.kind, engine

    def facts(self) -> object:
        return self._facts

    def plan(self, models: int) -> Plan:
        """One run after another: each has the plan of the run itself."""
        return Plan()

    def train(self, choices: Tensor, keys: Sequence[Key], plan: Plan) -> Tensor:
        return torch.stack([self._run(choice, key) for choice, key in zip(choices, keys, strict=True)])

    def _run(self, choice: Tensor, key: Key) -> Tensor:
        prepared, subject = self.subject.prepared, self.subject
        name = digest(prepared.population.fingerprint, self._facts[1], choice)
        load = _Replaced(prepared.population, self.units.kind, self._swaps(choice))
        people = replace(prepared.population, load=load, fingerprint=name, source="", origin=None)
        own = Plan(**read_summary(subject.folder)["engine"])
        run = simulate(
            prepared.round, people, prepared.module, prepared.objective, rounds=subject.rounds, plan=replace(own, shards=1),
            seed=int(key.integers(1)[0]), device=prepared.request.device,
        )  # fmt: skip
        wanted = set(self.looks)
        return torch.stack([progress.params.cpu() for progress in run if progress.round in wanted])

    def _swaps(self, choice: Tensor) -> dict[int, list[tuple[int, Records]]]:
        """Who gets what in place of a member: by client, the position and the record or records."""
        swaps: dict[int, list[tuple[int, Records]]] = {}
        for place in (~choice).nonzero().flatten().tolist():
            client, position = self.places[place].tolist()
            swaps.setdefault(client, []).append((position, self.seconds[place]))
        return swaps


@dataclass(frozen=True)
class _Replaced:
    """The clients of a run, some of whose records, or who as a whole, are others."""

    there: Population
    kind: str
    swaps: dict[int, list[tuple[int, Records]]]

    def __call__(self, number: int) -> Client:
        client = self.there.client(number)
        own = self.swaps.get(number)
        if own is None:
            return client
        if self.kind == "client":
            return Client(own[0][1], client.test)
        x, y = (part.clone() for part in client.train)
        for position, other in own:
            x[position], y[position] = other.x[0], other.y[0]
        return Client(Records(x, y), client.test)


def _held_out(subject: Subject) -> tuple[Records, str]:
    """Records that the run never trained on: the public test split, or else what clients kept to test their own models."""
    prepared = subject.prepared
    if prepared.test is not None:
        return prepared.test.records, f"the test records {prepared.test.name!r}"
    clients = (prepared.population.client(number) for number in range(prepared.population.size))
    parts = [client.test for client in clients if client.test is not None and client.test.count]
    if not parts:
        raise BadValue(
            f"{subject.folder}: nobody knows a record that was not trained on, so no attack can be measured. Train with "
            "--test-fraction 0.2, or with public --test-data."
        )
    return Records(*map(torch.cat, zip(*parts, strict=True))), "the parts that clients kept to test their own models"


def _of_records(
    population: Population, others: Records, most: int, key: Key
) -> tuple[Units, Tensor, tuple[Records, ...]]:
    sizes = torch.tensor([population.client(number).train.count for number in range(population.size)])
    owner = torch.arange(population.size).repeat_interleave(sizes)
    position = torch.arange(len(owner)) - (sizes.cumsum(0) - sizes)[owner]
    pairs = _enough(min(most, len(owner), others.count), "records")
    chosen = torch.from_numpy(key.permutations(1, len(owner))[0][:pairs])
    places = torch.stack([owner[chosen], position[chosen]], dim=1)
    own = [population.client(int(client)).train for client, _ in places]
    x, y = (
        torch.stack([part[at] for part, (_, at) in zip(parts, places, strict=True)]) for parts in zip(*own, strict=True)
    )
    second = Records(others.x[:pairs], others.y[:pairs])
    return Units.of_records(Records(x, y), second), places, _one_by_one(second)


def _one_by_one(records: Records) -> tuple[Records, ...]:
    return tuple(Records(records.x[i : i + 1], records.y[i : i + 1]) for i in range(records.count))


def _of_clients(
    population: Population, others: Records, most: int, key: Key
) -> tuple[Units, Tensor, tuple[Records, ...]]:
    """A made-up client for each of as many clients as the others' records are enough for, of the same size."""
    first: list[Records] = []
    second: list[Records] = []
    chosen: list[int] = []
    used = 0
    for number in key.permutations(1, population.size)[0].tolist():
        own = population.client(number).train
        if len(first) == most or used + own.count > others.count:
            break
        if own.count:
            first.append(own)
            second.append(Records(*(part[used : used + own.count] for part in others)))
            chosen.append(number)
            used += own.count
    _enough(len(first), "clients")
    places = torch.stack([torch.tensor(chosen), torch.zeros(len(chosen), dtype=torch.int64)], dim=1)
    return Units.of_clients(first, second), places, tuple(second)


def _enough(pairs: int, kind: str) -> int:
    if pairs < _FEWEST:
        raise BadValue(
            f"{pairs} {kind} can be told from others that were held out, and rates over fewer than {_FEWEST} say nothing. Attack a "
            "run with more of them, or with more test records."
        )
    return pairs


def _looks(subject: Subject, looks: int) -> tuple[int, ...]:
    """The rounds to look at: evenly spaced, the last among them."""
    rounds = subject.rounds
    if not 1 <= looks <= rounds:
        raise BadValue(f"looks={looks}: the run has {rounds} rounds. Look at between 1 and all of them.")
    if looks > 1 and len(subject.releases) < rounds:
        raise BadValue(
            f"looks={looks}: {subject.folder} kept {len(subject.releases)} of the models of its {rounds} rounds. Train with "
            "--keep-releases, or look at the last one only."
        )
    return tuple(rounds - (looks - 1 - place) * rounds // looks for place in range(looks))
