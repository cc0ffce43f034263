"""The recipe of UDP-FL: every law by its name, in its own norm, with the noise that is proven enough; and what it may be given."""

from __future__ import annotations

import pytest

from sfumato import (
    GeometricMedian,
    MeanThenPublic,
    Median,
    ModeConnectivity,
    RealisedMean,
    TrimmedMean,
    classification,
    recipes,
    simulate,
)
from sfumato.account import accountant
from sfumato.account.event import Unit
from sfumato.calibration import calibrate
from sfumato.data import build_population, load
from sfumato.data.load import hold_out
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.local.dp_sgd import DpSgd
from sfumato.models import build
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from sfumato.unproven import BY_EVENT

LAWS = {"gaussian": (2, 1.0), "laplace-l2": (2, 1.0), "laplace": (1, 4.0), "staircase": (1, 4.0)}


@pytest.mark.parametrize("law", LAWS)
def test_a_law_by_name_brings_its_own_norm(law: str) -> None:
    local = recipes.build("udp-fl", 10, {"law": law, "noise_multiplier": 2.0}).local
    assert isinstance(local, DpSgd)
    assert (local.order, local.clip) == LAWS[law] and local.law.noise_multiplier == 2.0
    own = recipes.build("udp-fl", 10, {"law": law, "clip": 0.5}).local
    assert isinstance(own, DpSgd) and own.clip == 0.5


@pytest.mark.parametrize("law", LAWS)
def test_the_noise_that_is_found_is_proven_enough_at_the_dimension_of_the_model(law: str) -> None:
    """In one dimension a staircase costs less than in many: noise that is found there would not be enough."""
    built = recipes.build("udp-fl", 10, {"law": law})
    found = calibrate(built, epsilon=4.0, delta=1e-5, rounds=150, population=10, dimension=7850)
    proof = found.derive(population=10, dimension=7850).primary
    epsilon = accountant("auto").epsilon(proof.after(150), 1e-5)
    assert proof.unit is Unit.RECORD and 3.98 <= epsilon <= 4.0


def test_a_run_finds_its_noise_at_the_dimension_of_its_model() -> None:
    request = Request(recipe="udp-fl", epsilon=4.0, delta=1e-5, rounds=10, data=DataRequest(clients=10))
    round = prepare(request.with_value("options.law", "staircase")).round
    event = round.derive(population=10, dimension=650).primary.after(10)
    assert 3.98 <= accountant("auto").epsilon(event, 1e-5) <= 4.0


@pytest.mark.parametrize("law", ["laplace-as-published", "staircase-as-published"])
def test_a_law_as_published_trains_unproven_and_says_what_it_really_costs(law: str) -> None:
    round = recipes.build("udp-fl", 10, {"law": law, "records": 140, "batch": "poisson:0.2", "noise_multiplier": 0.5})
    digits = load("digits")
    population = build_population(digits, 10, "iid", Key.from_seed(0))
    module = build("logistic", digits.input_shape, 10, Key.from_seed(0))
    run = simulate(round, population, module, classification(10), rounds=1, seed=0)
    list(run)
    said = run.guarantee(1e-5).unproven
    assert (
        run.guarantee(1e-5).epsilon is None and "UDP-FL (Feng et al. 2024) claims epsilon" in said and BY_EVENT in said
    )
    assert "proven for this very noise" in said


def test_no_noise_is_sought_for_an_epsilon_that_nothing_proves() -> None:
    request = Request(recipe="udp-fl", epsilon=4.0, delta=1e-5, data=DataRequest(clients=10))
    with pytest.raises(BadValue, match="udp-fl: .* Give --unproven and no --epsilon"):
        prepare(request.with_value("options.law", "laplace-as-published"))


AGGREGATES = {"mean": RealisedMean, "median": Median, "trimmed": TrimmedMean, "geometric": GeometricMedian}
ON_PUBLIC = {"mode-connectivity": ModeConnectivity, "mean-then-public": MeanThenPublic}


def test_aggregates_by_name_and_public_data_only_where_they_train() -> None:
    public = hold_out(load("digits"), 100, Key.from_seed(0), "public").validation
    for name, kind in AGGREGATES.items():
        assert isinstance(recipes.build("udp-fl", 10, {"aggregate": name}).aggregate, kind)
        with pytest.raises(BadValue, match="has no use for public records"):
            recipes.build("udp-fl", 10, {"aggregate": name}, public)
    for name, kind in ON_PUBLIC.items():
        found = recipes.build("udp-fl", 10, {"aggregate": name}, public).aggregate
        assert isinstance(found, kind) and found.public is public
        with pytest.raises(BadValue, match="give --public-records 1000"):
            recipes.build("udp-fl", 10, {"aggregate": name})
    with pytest.raises(BadValue, match="Did you mean 'median'"):
        recipes.build("udp-fl", 10, {"aggregate": "medain"})


def test_neither_a_shuffler_nor_control_variates_change_what_is_proven() -> None:
    plain, other = (recipes.build("udp-fl", 10, {"shuffle": on, "scaffold": on}) for on in (False, True))
    events = [round.derive(population=10, dimension=650).primary for round in (plain, other)]
    assert events[0].world == events[1].world and events[0].server == events[1].server


def test_public_records_are_nobodys_and_none_of_the_test_split() -> None:
    digits = load("digits")
    aside = hold_out(digits, 100, Key.from_seed(0), "public")
    assert aside.counts == {"train": 1300, "test": 397, "public": 100}
    assert aside.validation is not None and aside.validation.name == "digits/public"
    known = {row.tobytes() for row in digits.train.x.flatten(1).numpy()}
    assert all(row.tobytes() in known for row in aside.validation.records.x.flatten(1).numpy())


def test_a_recipe_that_needs_no_public_records_refuses_them() -> None:
    request = Request(recipe="dp-fedavg", data=DataRequest(clients=10, public_records=100))
    with pytest.raises(BadValue, match="nothing here has a use for public records"):
        prepare(request)
    for many in (0, 1400):
        with pytest.raises(BadValue, match=f"{many} records set aside as public"):
            prepare(Request(recipe="udp-fl", data=DataRequest(clients=10, public_records=many)))


def test_numbers_are_not_learnt_as_classes(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.data.files import write_wind

    root = tmp_path_factory.mktemp("wind")
    write_wind(root / "gefcom2012-wind", hours=11_400)
    data = DataRequest(name="gefcom2012-wind", folder=str(root), task="classification")
    with pytest.raises(BadValue, match="Give --task regression"):
        prepare(Request(recipe="udp-fl", data=data))
