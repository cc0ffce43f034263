"""Central runs are left whole by whoever breaks off, and begin with the number of records that anybody can count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.engine.checkpoint import Checkpoint
from sfumato.errors import BadValue
from sfumato.local.dp_sgd import DpSgd
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from sfumato.run.run import Run

REQUEST = Request(
    recipe="dp-sgd",
    rounds=6,
    seed=0,
    delta=1e-4,
    evaluate_every=10,
    checkpoint_every=100,
    data=DataRequest(clients=1, records_per_client=0),
    options={"noise_multiplier": 2.0},
)


def rounds_stored(folder: Path) -> int:
    found = Checkpoint.read(folder)
    assert found is not None
    return found.round


def test_a_loop_that_breaks_off_leaves_its_last_round(tmp_path: Path) -> None:
    run = Run(prepare(REQUEST), tmp_path / "run")
    for progress in run:
        if progress.round == 4:
            break
    assert rounds_stored(tmp_path / "run") == 4
    run.close()


def test_so_does_one_whose_generator_lives_on(tmp_path: Path) -> None:
    run = Run(prepare(REQUEST), tmp_path / "run")
    rest = iter(run)
    for _ in range(3):
        next(rest)
    assert rounds_stored(tmp_path / "run") == 0
    run.close()
    assert rounds_stored(tmp_path / "run") == 3
    again = Run(prepare(REQUEST), tmp_path / "run", resume=True)
    assert [progress.round for progress in again][-1] == 6 and again.ledger.count == 6
    again.close()


def test_the_published_pool_is_counted_and_stays_with_the_request() -> None:
    found = prepare(REQUEST)
    assert isinstance(found.round.local, DpSgd)
    assert found.request.options["records"] == found.round.local.records == 1400
    assert prepare(found.request).request == found.request


def test_declared_records_are_believed() -> None:
    local = prepare(REQUEST.with_value("options.records", 1000)).round.local
    assert isinstance(local, DpSgd) and local.divisor == 100


def test_a_request_for_many_clients_is_refused() -> None:
    with pytest.raises(BadValue, match="clients=200: in dp-sgd one trusted holder"):
        prepare(Request(recipe="dp-sgd", epsilon=1.0))


def test_one_record_fewer_is_declared_where_fixed_batches_are_drawn_without_any_one_of_them() -> None:
    for options, records in (
        ({"batch": "fixed:100"}, 1400),
        ({"batch": "fixed:100", "relation": "add_remove"}, 1399),
        ({"batch": "poisson:0.1", "relation": "add_remove"}, 1400),
    ):
        request = replace(Request.of_recipe("dp-sgd"), epsilon=2.0, delta=1e-4, options=options)
        assert prepare(request).request.options["records"] == records
