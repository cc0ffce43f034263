"""The world of a finished run: its members, as many others that were held out, and its recipe to train shadows with."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sfumato.audit.attack import Subject
from sfumato.audit.round_world import RoundWorld, one_by_one
from sfumato.audit.units import Units
from sfumato.data.population import Population, Records
from sfumato.engine.plan import Plan
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.run.schema import read_summary
from sfumato.update import Layout

UNITS = ("record", "client")
_FEWEST = 10  # pairs; with fewer no rate can be told from chance


def world_of(subject: Subject, kind: str, most: int, looks: int, key: Key) -> RoundWorld:
    """Up to so many members and as many others, by chance; the models after so many rounds, the last among them."""
    if kind not in UNITS:
        raise BadValue(f"unit={kind!r}: ask about one {' or one '.join(UNITS)}.")
    prepared = subject.prepared
    others, source = _held_out(subject)
    order = torch.from_numpy(key.child("others").permutations(1, others.count)[0])
    others = Records(*(part.index_select(0, order) for part in others))
    make = _of_records if kind == "record" else _of_clients
    units, places, seconds = make(prepared.population, others, most, key.child("members"))
    seen = _looks(subject, looks)
    engine = replace(Plan(**read_summary(subject.folder)["engine"]), shards=1)
    return RoundWorld(
        prepared.round, prepared.population, prepared.module, prepared.objective, subject.rounds, units, places, seconds, seen,
        engine, prepared.request.device, _notes(subject, units, source, seen),
    )  # fmt: skip


def target_of(subject: Subject, world: RoundWorld) -> Tensor:
    """What the run showed after the rounds that are looked at, [looks, dimension]."""
    if world.looks == (subject.rounds,):
        return Layout.of(subject.module).row(subject.module)[None]
    return torch.stack([subject.releases[round - 1] for round in world.looks])


def _notes(subject: Subject, units: Units, source: str, looks: tuple[int, ...]) -> tuple[str, ...]:
    kind, count = units.kind, units.pairs
    known = [
        f"Members are {count} {kind}s of the run, chosen by chance; as many others come from {source}.",
        "The attacker sees the final model only."
        if len(looks) == 1
        else f"The attacker sees the models after {len(looks)} rounds, the last among them.",
        "The attacker knows the recipe with all its settings, the two candidates for each place and all records beside them, and "
        "runs the recipe again with either. That is more than most attackers know; it is what the guarantee for one "
        f"{kind} assumes of them.",
    ]
    test = subject.prepared.test
    if test is not None and test.name.partition("/")[0] != subject.prepared.request.data.name:
        known.append(
            f"{test.name!r} may be of another source than the clients' records: then the run's own numbers tell sources apart, and "
            "not members. Where each shadow in turn is the target they do not."
        )
    if subject.prepared.basis is not None:
        known.append("Shadows share the basis that the run has learnt, so what the basis tells is not attacked.")
    return tuple(known)


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
    return Units.of_records(Records(x, y), second), places, one_by_one(second)


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
