"""Replies do not depend on single records (PRIVACY R15): kind, size, weight and facts are constants of the request."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import recipes
from sfumato.data.population import Population
from sfumato.exact_round import secure
from sfumato.federation.node.answer import Node
from sfumato.federation.terms import Agreement, Terms
from sfumato.federation.wire import Letter
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.recipes import RECIPES
from tests.federation.node.helpers import RECORDS, SIZES, letter_of, policy_of, terms_of
from tests.federation.node.replies import (
    ODD,
    TOKENS,
    check_distances,
    check_replies,
    node_with,
    of_recipe,
    of_texts,
    records,
    texts,
)

FAMILIAR = {name: change(records()) for name, change in ODD.items()}
PAIRS = {"as they are": records(), **FAMILIAR}
RAISING = {"as they are": texts(), "above": texts(odd=9), "below": texts(odd=-5), "first": texts(odd=9, victim=1)}
SHARED = Key.from_seed(2), Key.from_seed(3)


@pytest.mark.parametrize(
    "recipe", [name for name, recipe in RECIPES.items() if not recipe.central and name != "fedavg"]
)
def test_one_record_changes_nothing_of_a_reply(tmp_path: Path, recipe: str) -> None:
    terms, public = of_recipe(recipe)
    check_replies(tmp_path, terms, PAIRS, public)


VARIANTS: dict[str, Any] = {
    "fixed batches": lambda: of_recipe("prifedsync", {"batch": "fixed:4"}),
    "whole batches": lambda: of_recipe("udp-fl", {"batch": "everyone"}),
    "exact noise": lambda: (
        terms_of(round=secure(recipes.build("dp-fedavg", len(SIZES), {})), secure=True, options={}),
        None,
    ),
    "features": lambda: of_recipe("dp-fedavg", features="unit-norm"),
    "features of records": lambda: of_recipe("prifedsync", features="unit-norm"),
    "another model": lambda: of_recipe("prifedsync", model="mlp"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_nor_in_other_rounds(tmp_path: Path, variant: str) -> None:
    terms, public = VARIANTS[variant]()
    check_replies(tmp_path, terms, PAIRS, public)


def test_without_privacy_only_the_number_of_records_shows(tmp_path: Path) -> None:
    pairs = {name: pair for name, pair in PAIRS.items() if name != "missing"}
    check_replies(tmp_path, of_recipe("fedavg")[0], pairs)


HOSTILE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nan": lambda params: params * math.nan,
    "1e38": lambda params: (params + 1.0) * 1e38,
    "1e19": lambda params: (params + 1.0) * 1e19,
}


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("recipe", ["dp-fedavg-adaptive", "perturb-model", "prifedsync"])
def test_nor_with_parameters_from_which_no_training_goes_well(tmp_path: Path, recipe: str, hostile: str) -> None:
    pairs = {name: PAIRS[name] for name in ("as they are", "label above", "nan", "3e38", "zero", "missing")}
    check_replies(tmp_path, of_recipe(recipe)[0], pairs, change=HOSTILE[hostile])


@pytest.mark.parametrize(
    "recipe", ["dp-fedavg", "dp-fedavg-adaptive", "perturb-model", "prifedsync", "udp-fl", "dp-fedsgd"]
)
def test_nor_does_a_record_on_which_training_fails(tmp_path: Path, recipe: str) -> None:
    check_replies(tmp_path, of_texts(recipe), RAISING, **TOKENS)


# A row is a noisy sum of clipped gradients over the divisor. The clip is short, so that all of them are as long.
STEP = {"steps": 1, "optimizer": "sgd", "lr": 1.0, "clip": 0.01}


def bound_of(terms: Terms) -> float:
    """What replacing one record may move: twice the clip norm, over the divisor."""
    local = Agreement.of(terms).job.slots.round.local
    assert isinstance(local, DpSgd)
    return 2.0 * local.clip / local.divisor


@pytest.mark.parametrize("batch", ["poisson:0.5", "fixed:4", "everyone"])
def test_a_record_at_fault_moves_a_private_step_by_its_own_gradient(tmp_path: Path, batch: str) -> None:
    """The last record is the one that is missing: without another one, others have other numbers, and other batches are drawn."""
    terms = of_recipe("prifedsync", {**STEP, "batch": batch})[0]
    last = {"missing": (records()[0][:-1], records()[1][:-1])} if batch != "poisson:0.5" else {}
    pairs = {name: pair for name, pair in PAIRS.items() if name != "missing"}
    check_distances(tmp_path, terms, {**pairs, **last}, bound_of(terms))


@pytest.mark.parametrize("batch", ["poisson:0.5", "fixed:16", "everyone"])
def test_a_record_that_raises_moves_a_private_step_by_its_own_gradient(tmp_path: Path, batch: str) -> None:
    terms = of_texts("prifedsync", {**STEP, "batch": batch})
    check_distances(tmp_path, terms, RAISING, bound_of(terms), **TOKENS)


def test_a_record_at_fault_moves_a_vote_of_neighbours_by_one_neighbour(tmp_path: Path) -> None:
    terms, public = of_recipe("knn-fl")
    check_distances(tmp_path, terms, PAIRS, math.sqrt(2.0 * 6) / 5, public)


@pytest.mark.parametrize("recipe", ["perturb-model", "dp-fedavg"])
def test_a_client_moves_by_no_more_than_its_clip(tmp_path: Path, recipe: str) -> None:
    check_distances(tmp_path, of_texts(recipe), RAISING, 2.0, **TOKENS)


def test_a_client_on_which_training_fails_sends_exactly_its_own_noise(tmp_path: Path) -> None:
    """The same as one without records, whose update is zero."""
    terms = of_texts("perturb-model", keys="shared")
    log: list[str] = []
    rows = [
        node_with(tmp_path / str(place), pair, log, **TOKENS)(letter_of(terms, shared_keys=SHARED)).tensors["row"]
        for place, pair in enumerate([texts(odd=9), texts(0), texts()])
    ]
    assert torch.equal(rows[0], rows[1]) and not torch.equal(rows[0], rows[2])
    assert float(rows[0].std()) > 0.5
    assert any("sent a zero update" in line and "IndexError" in line for line in log)
    assert "IndexError: index out of range" in (tmp_path / "0" / "errors" / "errors.log").read_text()


def test_a_failure_votes_for_no_clip_norm_either(tmp_path: Path) -> None:
    """The bit of an adaptive clip is zero, not one for a longer or a shorter norm."""
    terms = of_texts("dp-fedavg-adaptive")
    row, other = (
        node_with(tmp_path / str(place), pair, **TOKENS)(letter_of(terms)).tensors["row"]
        for place, pair in enumerate([texts(odd=9), texts()])
    )
    assert not row.any() and other[-1] != 0.0


def test_a_failure_is_masked_in_a_secure_sum_like_any_update(tmp_path: Path) -> None:
    from sfumato.secure_sum import Power
    from tests.federation.node.test_sums import EVERYBODY, Nodes

    nodes = Nodes(tmp_path, Power.FOLLOWS)
    nodes.nodes[1] = node_with(tmp_path / "odd", FAMILIAR["label above"])
    assert nodes.sum_of(EVERYBODY).isfinite().all()


@pytest.mark.parametrize("recipe", ["perturb-model", "prifedsync"])
@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("cuda"), RuntimeError("can't allocate memory")]
)
def test_a_machine_without_memory_drops_out(tmp_path: Path, recipe: str, error: Exception) -> None:
    def load(number: int) -> object:
        raise error

    policy = policy_of(tmp_path)
    node = Node(policy, data=lambda: Population("set", 1, load, is_fixed=True), log=lambda line: None)
    assert node(letter_of(of_recipe(recipe)[0])).kind == "failed"


def test_a_file_that_is_not_there_drops_out(tmp_path: Path) -> None:
    log: list[str] = []
    node = Node(policy_of(tmp_path), log=log.append)
    assert node(letter_of(of_recipe("perturb-model")[0])).kind == "failed" and "A node holds one client" in log[-1]


@pytest.mark.parametrize(
    "asked",
    [
        {"outputs": 2},
        {"outputs": 4},
        {"task": "regression", "target_type": "float32"},
        {"input_shape": (7,)},
        {"input_shape": (3, 2)},
        {"input_type": "int64"},
        {"target_shape": (1,)},
    ],
    ids=str,
)
def test_a_request_about_other_records_is_refused_before_a_record_is_touched(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    """A server that asked for 3, 10, 5, 9 and 12 classes learned the largest label from which of them failed."""
    node = Node(
        policy_of(tmp_path),
        data=lambda: Population("set", 1, lambda number: pytest.fail("loaded")),
        log=lambda line: None,
    )
    question = letter_of(terms_of())
    terms = replace(terms_of(), **asked).text
    assert node(Letter("train", {**question.facts, "terms": terms}, question.tensors)).kind == "refused.records"
    assert not (tmp_path / "set").exists()


def test_a_node_that_declares_no_records_refuses_everything(tmp_path: Path) -> None:
    assert node_with(tmp_path, records(), records=None)(letter_of(terms_of())).kind == "refused.records"


def test_features_are_made_of_what_is_declared(tmp_path: Path) -> None:
    terms = terms_of("dp-fedavg", features="unit-norm")
    assert node_with(tmp_path, records())(letter_of(terms)).kind == "ok"
    wide = replace(RECORDS, input_shape=(7,))
    assert node_with(tmp_path / "wide", records(), records=wide)(letter_of(terms)).kind == "refused.records"


def test_replies_leave_at_a_fixed_time_after_the_request(tmp_path: Path) -> None:
    terms, took = terms_of("perturb-model"), []
    for place, pair in enumerate([records(), records(0)]):
        node = node_with(tmp_path / str(place), pair, reply_seconds=0.4)
        began = time.monotonic()
        assert node(letter_of(terms)).kind == "ok"
        took.append(time.monotonic() - began)
    assert min(took) >= 0.4
