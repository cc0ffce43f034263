"""Three trust domains: what clients share, what only the server knows, what only one client knows."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from sfumato import HelperBlend, Key, Plan, Poisson, RealisedMean, Round, Unit, classification
from sfumato.engine import simulation as running
from sfumato.engine.clients import Block, Clients, Total
from sfumato.engine.cohort import Cohort
from sfumato.engine.keys import Keys
from sfumato.engine.simulate import simulate
from sfumato.engine.slots import Opening
from sfumato.errors import BadValue
from sfumato.local.dp_sgd import DpSgd
from sfumato.pieces.context import Context
from sfumato.pieces.mask import SharedMask
from sfumato.pieces.sampler import Everyone
from sfumato.testing.piece import claim_for, layout_for
from tests.helpers import dp_round, linear, made_up_population

PEOPLE = made_up_population([5, 1, 0, 12, 7, 3])


def keys_in(value: Any) -> Iterator[Key]:
    """Every key that can be reached from a value."""
    if isinstance(value, Key):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for part in dataclasses.fields(value):
            yield from keys_in(getattr(value, part.name))
    elif isinstance(value, dict):
        for part in value.values():
            yield from keys_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from keys_in(part)


def test_an_opening_holds_the_shared_key_of_its_round_and_no_other() -> None:
    simulation = simulate(
        dp_round(client=(SharedMask(0.5), *dp_round().client)), PEOPLE, linear(), classification(3), rounds=1, seed=0
    )
    keys = simulation.randomness.keys(0)
    opening = Cohort(Clients(simulation.job, PEOPLE, Plan())).open(simulation.start.params, 0, keys.opening(0))
    found = list(keys_in(opening))
    assert found == [keys.opening(0)]
    for secret in (keys.server, keys.clients, keys.shared, keys.turn(0).key, keys.server_piece(0, 0), keys.lasting):
        assert secret not in found


def test_no_domain_lies_above_another() -> None:
    keys = Keys.of(Key.from_seed(0))
    paths = [keys.opening(3).path, keys.turn(3).key.path, keys.server_piece(0, 3).path, keys.client(7, round=3).path]
    tops = [path.split("/")[1] for path in paths]
    assert tops == ["shared", "server", "server", "clients"]
    assert len({keys.shared.digest, keys.server.digest, keys.clients.digest}) == 3


def test_what_the_opening_reveals_is_not_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    normal = Key.normal

    def spy(self: Key, *shape: int, stddev: float = 1.0) -> torch.Tensor:
        drawn.append(self.path)
        return normal(self, *shape, stddev=stddev)

    simulation = simulate(dp_round(), PEOPLE, linear(), classification(3), rounds=2, seed=0, plan=Plan())
    monkeypatch.setattr(Key, "normal", spy)
    list(simulation)
    servers = [simulation.randomness.keys(number).server.path for number in range(2)]
    assert len(drawn) == 2 and all(path.startswith(server + "/") for path, server in zip(drawn, servers, strict=True))


def test_a_client_piece_cannot_ask_for_a_key_of_the_server() -> None:
    context = Context(0, layout_for(3), claim_for(3), Key.from_seed(0))
    with pytest.raises(BadValue, match="it would know the noise"):
        context.stream_key(round=0)


def test_the_servers_half_gets_sums_and_no_row_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    local = DpSgd(steps=2, batch=Poisson(0.5), records=5)
    round = Round(sample=Everyone(), local=local, aggregate=RealisedMean(), personal=HelperBlend(0.3), unit=Unit.RECORD)
    served: list[tuple[Any, ...]] = []
    serve = running.Simulation._serve

    def spy(self: Any, *given: Any) -> Any:
        served.append(given)
        return serve(self, *given)

    monkeypatch.setattr(running.Simulation, "_serve", spy)
    simulation = simulate(round, PEOPLE, linear(), classification(3), rounds=2, seed=0, plan=Plan())
    *_, progress = simulation
    assert len(served) == 2 and len(progress.memory) == 6
    for _, total, opening, _ in served:
        assert {part.name for part in dataclasses.fields(Total)} == {"rows", "weight", "senders", "norms"}
        assert total.rows.shape == simulation.start.params.shape and total.norms == ()
        assert isinstance(opening, Opening)


def test_a_block_and_its_job_can_be_sent_elsewhere() -> None:
    simulation = simulate(dp_round(), PEOPLE, linear(), classification(3), rounds=1, seed=0, plan=Plan())
    keys, params = simulation.randomness.keys(0), simulation.start.params
    cohort = Cohort(Clients(simulation.job, PEOPLE, Plan()))
    from sfumato.engine.clients import Start

    start = Start(params, cohort.open(params, 0, keys.opening(0)), keys.clients)
    here = cohort.clients((start, [3, 4]))
    there = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(cohort.clients))((start, [3, 4]))))
    assert isinstance(there, Block) and torch.equal(here.total.rows, there.total.rows)
