"""With keys shared for the test, whole runs over nodes give the parameters of `simulate`, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sfumato import AddNoise, Clip, Gaussian, Plan, Poisson, RealisedMean, SharedMask
from sfumato.account.event import Unit
from sfumato.data.population import Population, PublicData, Records
from sfumato.engine.clients import Block, Clients, Start, Total
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Simulation
from sfumato.engine.slots import Opening
from sfumato.exact_round import secure
from sfumato.features import parse_features
from sfumato.federation.node.answer import Node
from sfumato.federation.question import END, RELEASED, TRAIN, Question
from sfumato.federation.terms import Agreement, Terms, nobody_here
from sfumato.federation.wire import Letter
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.pieces.personal import ControlVariates
from sfumato.round import Round
from tests.federation.node.helpers import PEOPLE, SIZES, ledger_of, letter_of, node_of, question_of, terms_of
from tests.helpers import dp_round, made_up_population

PUBLIC = PublicData("asked", Records(*made_up_population([9], seed=5).client(0).train))
DP_SGD = {"records": 5, "batch": "poisson:0.5", "steps": 2, "noise_multiplier": 1.0}


class Asking:
    """Workers that ask nodes: the server's side, without deadlines, and without anybody who is missing."""

    def __init__(self, clients: Clients, agreement: Agreement, nodes: list[Node], public: PublicData | None) -> None:
        self.agreement, self.nodes, self.public, self.entries = agreement, nodes, public, 0
        self.last: tuple[Start, list[int]] | None = None

    def assumptions(self) -> tuple[str, ...]:
        return ()

    def kernels(self) -> tuple[object, ...]:
        return ("nodes",)

    def close(self) -> None:
        pass

    def _ask(self, kind: str, client: int, start: Start, **changed: Any) -> Letter:
        terms = self.agreement.terms
        shared = (start.clients, start.lasting or start.clients) if terms.keys == "shared" else None
        question = Question(
            terms=terms.text,
            hash=self.agreement.hash,
            client=client,
            attempt=0,
            since=0,
            planned=terms.rounds,
            params=start.params,
            opening=start.opening,
            public=self.public,
            shared_keys=shared,
        )
        letter = replace(question, **changed).letter(kind)
        reply = self.nodes[client](Letter.from_bytes(letter.to_bytes()))
        assert reply.kind == "ok", reply.kind
        return Letter.from_bytes(reply.to_bytes())

    def blocks(self, start: Start, ids: Sequence[int]) -> Iterator[Block]:
        assert not start.memory, "what clients remember lies with them"
        self.last = start, list(ids)
        for client in ids:
            reply = self._ask(TRAIN, client, start)
            row = reply.tensors["row"]
            gathers = self.agreement.job.slots.gathers
            total = Total(row[None] if gathers else row, float(reply.facts["weight"]), (client,) if gathers else None)
            yield Block(total, {}, torch.ones(1, dtype=torch.int64))

    def released(self, params: torch.Tensor, opening: Opening) -> None:
        assert self.last is not None
        start, ids = self.last
        for client in ids:
            self._ask(RELEASED, client, start, params=params)
        if opening.number + 1 == self.agreement.terms.rounds:
            for client in range(len(self.nodes)):
                self._ask(END, client, start, params=params)


def people_of(terms: Terms) -> Population:
    """The clients of a run, where one process holds them all."""
    people = PEOPLE.mapped(parse_features(terms.features)) if terms.features else PEOPLE
    return replace(people, example=terms.example)


def federated(folder: Path, terms: Terms, public: PublicData | None = None, **allowed: Any) -> Simulation:
    """A run over nodes: who drives it holds nobody's data."""
    agreement = Agreement.of(terms, public)
    nodes = [node_of(folder / str(client), client, **allowed) for client in range(len(SIZES))]
    people = replace(people_of(terms), load=nobody_here)
    return ready(agreement, people, cohort=partial(Asking, agreement=agreement, nodes=nodes, public=public))


def ready(agreement: Agreement, people: Population, **options: Any) -> Simulation:
    job = agreement.job
    settings: dict[str, Any] = {"rounds": agreement.terms.rounds, "seed": 3, "plan": Plan(), **options}
    return simulate(job.slots.round, people, job.module, job.objective, **settings)


def scaffold() -> Round:
    return dp_round(
        local=DpSgd(2, Poisson(0.5), 5, 1.0, Gaussian(1.0)),
        client=(),
        aggregate=RealisedMean(),
        server=(),
        personal=ControlVariates(),
        unit=Unit.RECORD,
    )


RUNS: dict[str, Any] = {
    "dp-fedavg": lambda: terms_of("dp-fedavg", rounds=4),
    "dp-fedsam": lambda: terms_of("dp-fedsam", rounds=4),
    "dp-fedavg-adaptive": lambda: terms_of("dp-fedavg-adaptive", rounds=4),
    "fed-smp previous": lambda: terms_of("fed-smp", options={"mask": "previous"}, rounds=4),
    "prifedsync": lambda: terms_of("prifedsync", options=DP_SGD, rounds=6),
    "udp-fl median": lambda: terms_of("udp-fl", options={**DP_SGD, "aggregate": "median"}, rounds=4),
    "control variates": lambda: terms_of(round=scaffold(), rounds=6),
    "noise at the client": lambda: terms_of("perturb-model", rounds=4),
    "a mask of random coordinates": lambda: terms_of(
        round=dp_round(client=(SharedMask(0.5), Clip(1.0)), server=(AddNoise(Gaussian(1.0)),)), rounds=4
    ),
    "exact noise": lambda: terms_of(round=secure(dp_round()), rounds=2, secure=True),
    "features": lambda: terms_of("dp-fedavg", rounds=3, features="unit-norm"),
}


def check_equal(folder: Path, terms: Terms, public: PublicData | None = None) -> None:
    found = [progress.params for progress in federated(folder, terms, public, shared_keys=True)]
    wanted = [progress.params for progress in ready(Agreement.of(terms, public), people_of(terms))]
    assert len(found) == len(wanted) == terms.rounds
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    job = Agreement.of(terms, public).job
    assert not torch.equal(found[-1], job.slots.layout.row(job.module))


@pytest.mark.parametrize("name", RUNS)
def test_the_parameters_are_those_of_simulate(tmp_path: Path, name: str) -> None:
    check_equal(tmp_path, replace(RUNS[name](), keys="shared"))


@pytest.mark.parametrize("recipe", ["pate-fl", "knn-fl"])
def test_votes_are_those_of_simulate(tmp_path: Path, recipe: str) -> None:
    options = {"queries": 6, "classes": 3, "stddev": 1.0}
    check_equal(tmp_path, terms_of(recipe, public=PUBLIC, options=options, rounds=1, keys="shared"), PUBLIC)


def test_a_row_is_that_of_the_engine(tmp_path: Path) -> None:
    terms = replace(RUNS["prifedsync"](), keys="shared")
    agreement, question = Agreement.of(terms), question_of(terms)
    keys = Key.from_seed(1).child("clients"), Key.from_seed(1).child("lasting")
    reply = node_of(tmp_path, shared_keys=True)(letter_of(terms, shared_keys=keys))
    block = Clients(agreement.job, PEOPLE, Plan())((question.start(*keys), [1]))
    assert torch.equal(reply.tensors["row"], block.total.rows) and reply.facts["weight"] == block.total.weight


@pytest.mark.parametrize("name", ["dp-fedavg", "prifedsync", "noise at the client"])
def test_with_keys_of_their_own_events_are_the_same_and_rows_are_not(tmp_path: Path, name: str) -> None:
    terms = RUNS[name]()
    run, alone = federated(tmp_path, terms), ready(Agreement.of(terms), people_of(terms))
    *_, last = run
    *_, other = alone
    assert not torch.equal(last.params, other.params)
    for unit in Unit:
        assert run.ledger.spent(unit) == alone.ledger.spent(unit)
        assert run.guarantee(1e-5, unit).epsilon == alone.guarantee(1e-5, unit).epsilon


def test_what_was_promised_is_what_the_server_spent(tmp_path: Path) -> None:
    run = federated(tmp_path, RUNS["dp-fedavg"]())
    *_, _ = run
    for client in range(len(SIZES)):  # also who was never drawn hears of it at the end
        for unit in Unit:
            held, spent = ledger_of(tmp_path / str(client)).spent(unit), run.ledger.spent(unit)
            assert held is not None and spent is not None and held.world == spent.world


def test_the_final_model_lies_with_every_node(tmp_path: Path) -> None:
    terms = RUNS["dp-fedavg"]()
    *_, last = federated(tmp_path, terms)
    for client in range(len(SIZES)):
        (path,) = (tmp_path / str(client) / "set" / "models").iterdir()
        module = Agreement.of(terms).job.with_params(torch.zeros_like(last.params))
        module.load_state_dict(load_file(path))
        assert torch.equal(Agreement.of(terms).job.slots.layout.row(module), last.params)
