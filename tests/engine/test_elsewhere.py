"""What is sent to a worker in another process: names of data and the keys of clients; no record, no key of the server's."""

from __future__ import annotations

import pickle
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import Everyone, Key, Plan, Population, Round, SharedMask, classification
from sfumato.data.origin import Named, origin_of
from sfumato.engine.clients import Start
from sfumato.engine.elsewhere import Facts, Letter, Worker, agreed, given
from sfumato.engine.packing import packed, unpacked
from sfumato.engine.simulate import simulate
from sfumato.engine.simulation import Simulation
from sfumato.engine.workers import cut
from sfumato.errors import BadValue, DataError
from sfumato.run.clients import Asked
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from tests.engine.far_people import MARK, people
from tests.engine.test_trust import keys_in
from tests.helpers import dp_round, linear

PEOPLE = Population.from_import("tests.engine.far_people:people")
PATTERN = struct.pack("<3f", MARK, MARK, MARK)
ROUND = dp_round(sample=Everyone(), client=(SharedMask(0.5), *dp_round().client))


def ready(round: Round = ROUND, people: Population = PEOPLE, **options: Any) -> Simulation:
    return simulate(
        round, people, linear(), classification(3), **{"rounds": 1, "seed": 0, "plan": Plan(shards=2), **options}
    )


def start_of(run: Simulation) -> Start:
    """What a cohort begins with, in the first round."""
    keys, params = run.randomness.keys(0), run.start.params
    return Start(params, run.cohort.open(params, 0, keys.opening(0)), keys.clients, {}, keys.lasting_clients)


def everything(run: Simulation) -> bytes:
    """All that would be sent, as it is sent."""
    letter, (text, arrays) = Letter.to_workers(run.cohort.clients), packed(start_of(run))
    return pickle.dumps(letter) + text + b"".join(array.tobytes() for array in arrays)


def test_no_record_is_sent() -> None:
    assert PATTERN in packed(people().client(3))[1][0].tobytes(), "it would be found"
    sent = everything(ready())
    assert PATTERN not in sent and len(sent) < 20_000


def test_no_key_of_the_servers_is_sent() -> None:
    run = ready()
    letter, keys, start = Letter.to_workers(run.cohort.clients), run.randomness.keys(0), start_of(run)
    assert not list(keys_in(pickle.loads(letter.job))) and not list(keys_in(pickle.loads(letter.origin)))
    assert set(keys_in(start)) == {keys.opening(0), keys.clients, keys.lasting_clients}
    sent = everything(run)
    assert keys.clients._bytes in sent, "it would be found"
    servers = [keys.server, keys.channel, keys.shared, keys.turn(0).key, keys.server_piece(0, 0)]
    secrets = [run.randomness.root, keys.lasting, keys.stream(0), *servers]
    assert not [secret for secret in [*secrets, Key.from_seed(0)] if secret._bytes in sent]


def test_nobody_elses_memory_is_sent_with_a_row_of_it() -> None:
    rows = torch.arange(4000.0).view(4, 1000)
    memory = {client: {"start": row} for client, row in enumerate(rows)}
    assert len(pickle.dumps(memory[1])) > 4 * 4000, "torch sends what lies behind a view"
    run = ready()
    start = replace(start_of(run), memory=memory)
    text, arrays = packed(start.only([1]).memory)
    assert [array.nbytes for array in arrays] == [4000] and len(text) < 1000
    own = unpacked((text, arrays))[1]["start"]
    assert torch.equal(own, rows[1])
    own += 1.0  # it is nobody else's
    assert rows[1][0] == 1000.0


def test_a_worker_gives_what_this_process_would(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ready()
    clients, start = run.cohort.clients, start_of(run)
    threads = torch.get_num_threads()
    worker = Worker(pickle.loads(pickle.dumps(Letter.to_workers(clients))))
    shards = cut(list(range(PEOPLE.size)), 2)
    there = [unpacked(packed(worker.shard(start.only(ids), ids))) for ids in shards]
    torch.set_num_threads(threads)
    here = list(run.cohort.workers.blocks(start, list(range(PEOPLE.size))))
    assert [torch.equal(one.block.total.rows, two.total.rows) for one, two in zip(there, here, strict=True)] == [
        True,
        True,
    ]
    assert {one.facts for one in there} == {Facts.of(PEOPLE)} == {given(worker.facts())[0]}


def test_facts_that_differ_are_refused_in_words() -> None:
    here = Facts.of(PEOPLE)
    agreed(here, Facts.of(people()), "this host")
    for changed, words in (
        ({"data": "other"}, "the data on far are not those of this run: 11 clients, digest other; here 11"),
        ({"clients": 12}, "the data on far are not those of this run: 12 clients"),
        ({"version": "9.9"}, "far has sfumato 9.9"),
    ):
        with pytest.raises(DataError, match=words):
            agreed(here, replace(here, **changed), "far")


def test_a_population_is_built_from_its_folder_or_import_path(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(2, 6), "y": torch.zeros(2, dtype=torch.int64)}, tmp_path / "one.pt")
    folder = Population.from_folder(tmp_path).declared(3)
    for population in (folder, PEOPLE, PEOPLE.declared(20)):
        again = pickle.loads(pickle.dumps(origin_of(population))).build()
        assert Facts.of(again) == Facts.of(population) and again.client(population.size - 1).train.count in (0, 8)
    by_number = Population.from_import("tests.engine.far_people:one", size=4)
    assert origin_of(by_number) == Named("tests.engine.far_people:one", 4)
    assert origin_of(by_number).build().client(3).train.count == 3
    for lost in (PEOPLE.mapped(torch.sqrt), PEOPLE.joined(), people()):
        with pytest.raises(BadValue, match="lies in the memory of this process"):
            origin_of(lost)


@pytest.mark.parametrize(
    "request_",
    [
        Request(seed=5),
        Request(data=DataRequest(clients=30, split="dirichlet:0.5", split_seed=3, test_fraction=0.2)),
        Request(data=DataRequest(features="resize:6,unit-norm:3")),
        Request(recipe="fedavg", data=DataRequest(name="tests.engine.far_people:people", clients=15, outputs=3)),
        Request(
            recipe="pate-fl", epsilon=5.0, options={"queries": 20}, data=DataRequest(clients=100, public_records=50)
        ),
        Request(epsilon=3.0, data=DataRequest(features="private-pca:5,unit-norm:3")),
    ],
    ids=["digits", "split", "features", "own", "votes", "basis"],
)
def test_a_population_is_built_from_the_text_of_a_request(request_: Request) -> None:
    request = replace(request_, options={"noise_multiplier": 1.0}) if request_.epsilon is None else request_
    prepared = prepare(replace(request, options={}) if request.recipe == "fedavg" else request)
    if prepared.basis is not None:
        moments = torch.diag(torch.arange(64.0))[torch.triu(torch.ones(64, 64)) > 0]
        prepared = prepared.with_basis(prepared.basis.learn(moments))
    origin = prepared.population.origin
    assert isinstance(origin, Asked) and "seed = 5" not in origin.text, "a seed would give the noise away"
    again = pickle.loads(pickle.dumps(origin)).build()
    assert Facts.of(again) == Facts.of(prepared.population)
    for mine, theirs in zip(prepared.population.client(4), again.client(4), strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or theirs is None or (torch.equal(mine.x, theirs.x) and torch.equal(mine.y, theirs.y))


def test_what_a_worker_cannot_import_is_said_in_words() -> None:
    letter = Letter.to_workers(ready().cohort.clients)
    found = Worker(replace(letter, job=b"cnowhere.at_all\nPiece\n.")).facts()
    assert isinstance(found, DataError)
    assert "No module named 'nowhere'. Install what the run imports on every host" in str(found)
    with pytest.raises(DataError, match="nowhere"):
        given(found)
