"""Settings from public facts: the same facts give the same settings, and all noise together moves an output as the law says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import BadValue
from sfumato.features import parse_features
from sfumato.key import Key
from sfumato.pieces.optimizer import GradientDescent, Momentum
from sfumato.pieces.sampler import parse_sampler
from sfumato.planning import auto
from sfumato.planning.auto import Known, choose

LETTERS = Known(False, 500, 120, 26, (1, 28, 28), "classification", 4.0, 0.002, public="mnist")
CENTRAL = Known(True, 1, 60_000, 10, (1, 28, 28), "classification", 2.0, 1e-5, public="emnist-letters")
DIGITS = Known(False, 200, 7, 10, (1, 8, 8), "classification", 2.0, 0.003)
MANY = replace(LETTERS, clients=100_000, records=50)
ALL = {"letters": LETTERS, "central": CENTRAL, "digits": DIGITS, "many": MANY}
KNOWN = pytest.mark.parametrize("known", ALL.values(), ids=ALL)


@cache
def chosen(known: Known) -> Mapping[str, Any]:
    return {choice.key: choice.value for choice in choose(known)}


def server_lr(known: Known) -> float:
    rate: float = chosen(known)["options.lr" if known.central else "options.server_lr"]
    return rate


def drawn(known: Known) -> float:
    """The expected number of clients or records in a round."""
    words = chosen(known)["options.batch" if known.central else "options.sample"]
    return parse_sampler(words).expected(known.units)


def dimension(known: Known) -> int:
    words = dict(word.partition(":")[::2] for word in chosen(known)["data.features"].split(","))
    return int(words["pca"])


@KNOWN
def test_the_same_facts_give_the_same_settings_each_with_a_reason(known: Known) -> None:
    again = Known(**vars(known))
    assert choose(known) == choose(again)
    keys = [choice.key for choice in choose(known)]
    assert len(keys) == len(set(keys)) and all(len(choice.why) > 10 for choice in choose(known))


def accumulated(known: Known, rounds: int, noise: float, runs: int = 4000) -> float:
    """The standard deviation of an output after so many rounds of noise alone, stepped as the server steps, bias and all."""
    clip = chosen(known)["options.clip"]
    width = 3
    x = torch.full((width,), known.norm / math.sqrt(width))
    key, size = Key.from_seed(0), runs * (width + 1)
    moves = Momentum(server_lr(known), known.momentum) if known.momentum else GradientDescent(server_lr(known))
    params = torch.zeros(size)
    state = moves.start(params)
    for number in range(rounds):
        update = key.child("noise", round=number).normal(size).float() * (noise * clip / drawn(known))
        params, state = moves.step(params, state, update)
    weights = params.reshape(runs, width + 1)
    return float((weights[:, :width] @ x + weights[:, width]).std())


@pytest.mark.parametrize(
    "known",
    [
        LETTERS,
        CENTRAL,
        DIGITS,
        MANY,
        replace(DIGITS, rounds=400),
        replace(DIGITS, clip=0.2, rate=0.3, rounds=100),
        replace(CENTRAL, clip=2.0, momentum=0.5, rounds=60),
        replace(LETTERS, momentum=0.0, epsilon=0.5),
    ],
)
def test_all_noise_together_moves_an_output_by_no_more_than_the_law_says(known: Known) -> None:
    rounds = chosen(known)["rounds"] if known.rounds is None else known.rounds
    noise = auto._noise(known, drawn(known) / known.units, rounds)
    moved = accumulated(known, rounds, noise)
    most = auto._NOISE * math.sqrt(1.0 + 1.0 / known.norm**2)  # the bias moves an output too
    late = [
        (1.0 - known.momentum**number) ** 2 for number in range(1, rounds + 1)
    ]  # momentum of the last has not come yet
    assert moved < 1.04 * most
    assert moved == pytest.approx(most * math.sqrt(sum(late) / rounds), rel=0.04)


@pytest.mark.parametrize("known", [LETTERS, CENTRAL, MANY], ids=["letters", "central", "many"])
def test_the_noise_is_what_the_budget_needs(known: Known) -> None:
    from sfumato.account.auto import Auto
    from sfumato.account.event import GaussianEvent, PoissonSampled, Repeated

    rounds, rate = chosen(known)["rounds"], drawn(known) / known.units
    one = GaussianEvent(auto._noise(known, rate, rounds))
    event = Repeated(one if rate == 1.0 else PoissonSampled(rate, one), rounds)
    assert Auto().epsilon(event, known.delta) == pytest.approx(known.epsilon, rel=0.02)


@KNOWN
def test_learning_rates_and_dimensions_grow_with_epsilon(known: Known) -> None:
    ladder = [replace(known, epsilon=epsilon) for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)]
    rates = [server_lr(one) for one in ladder]
    assert rates == sorted(rates) and rates[-1] > 3 * rates[0]
    if known.public is not None:
        sizes = [dimension(one) for one in ladder]
        assert sizes == sorted(sizes)


def test_the_dimension_grows_with_epsilon_and_with_the_population() -> None:
    assert dimension(replace(LETTERS, epsilon=0.2)) < dimension(replace(LETTERS, epsilon=4.0))
    assert dimension(replace(LETTERS, clients=50)) < dimension(replace(LETTERS, clients=500))
    sizes = [dimension(replace(LETTERS, clients=clients)) for clients in (10, 50, 100, 200, 400, 800)]
    assert sizes == sorted(sizes)
    assert dimension(replace(LETTERS, classes=200, epsilon=1.0)) <= dimension(replace(LETTERS, classes=5, epsilon=1.0))


def work_of_a_round(known: Known) -> float:
    """Multiplications of a round, by the widths that features really have."""
    words = chosen(known)["data.features"].partition(",pca")[0]
    width = parse_features(words)(torch.zeros(1, *known.shape)).flatten(1).shape[1]
    width = width if known.public is None else dimension(known)
    records = drawn(known) * (1 if known.central else known.records)
    return (4.0 if known.central else 6.0) * records * (width + 1) * known.classes


@KNOWN
@pytest.mark.parametrize("seconds", [0.5, 2.0, 10.0, 60.0])
def test_rounds_fit_into_the_seconds_or_are_the_fewest(known: Known, seconds: float) -> None:
    known = replace(known, seconds=seconds)
    rounds, (fewest, most) = chosen(known)["rounds"], auto._ROUNDS
    most = auto._STEPS if known.central else most
    assert fewest <= rounds <= most
    assert rounds == fewest or rounds * work_of_a_round(known) <= 1.001 * seconds * auto._SPEED
    assert rounds <= chosen(replace(known, seconds=2 * seconds))["rounds"]
    if known.central:  # a smaller batch first, so that there are rounds enough
        assert fewest * work_of_a_round(known) <= 1.01 * seconds * auto._SPEED


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 16, 16), (1, 8, 8), (5,), (1, 30, 17)])
def test_the_width_of_chosen_features_is_the_real_one(shape: tuple[int, ...]) -> None:
    choice, width = auto._features(replace(DIGITS, shape=shape))
    assert parse_features(choice.value)(torch.rand(2, *shape)).flatten(1).shape == (2, width)


def test_settings_that_were_given_are_followed() -> None:
    usual = chosen(DIGITS)
    short = chosen(replace(DIGITS, rounds=25))
    assert short["rounds"] == 25 and short["options.server_lr"] > 3 * usual["options.server_lr"]
    assert chosen(replace(DIGITS, rounds=2))["options.average"] == 0.0
    clipped = chosen(replace(DIGITS, clip=0.5))
    assert clipped["options.clip"] == 0.5
    assert clipped["options.server_lr"] == pytest.approx(2 * usual["options.server_lr"], rel=0.01)
    assert chosen(replace(CENTRAL, clip=0.6))["options.lr"] == pytest.approx(
        chosen(CENTRAL)["options.lr"] / 2, rel=0.01
    )
    plain = chosen(replace(DIGITS, momentum=0.0))
    assert plain["options.server_lr"] == pytest.approx(10 * usual["options.server_lr"], rel=0.01)
    assert chosen(replace(DIGITS, rate=0.25))["options.sample"] == "poisson:0.25"


def test_features_that_were_given_are_kept_with_their_norm() -> None:
    given = replace(DIGITS, features="hog:2,unit-norm", width=324, norm=1.0)
    settings = chosen(given)
    assert "data.features" not in settings
    assert settings["options.lr"] == pytest.approx(9 * chosen(DIGITS)["options.lr"], rel=0.01)
    assert settings["options.server_lr"] == pytest.approx(3 * chosen(DIGITS)["options.server_lr"], rel=0.01)


def test_nothing_is_known_of_a_clients_records() -> None:
    unknown, one, many = (chosen(replace(DIGITS, records=count))["options.batch_size"] for count in (0, 1, 10**6))
    assert one == 1 < unknown <= many <= 1000


@given(
    st.booleans(), st.integers(2, 10**6), st.integers(1, 10**5), st.integers(2, 200), st.floats(0.05, 20.0),
    st.floats(0.01, 1e4), st.sampled_from([(1, 28, 28), (3, 32, 32), (1, 8, 8), (7,)]), st.sampled_from([None, "public"]),
)  # fmt: skip
def test_whatever_the_facts_the_settings_can_be_used(
    central: bool,
    clients: int,
    records: int,
    classes: int,
    epsilon: float,
    seconds: float,
    shape: tuple[int, ...],
    public: str | None,
) -> None:
    holders, budget = 1 if central else clients, (epsilon, 1e-6)
    known = Known(central, holders, records, classes, shape, "classification", *budget, public, seconds)
    settings = chosen(known)
    assert 0.0 < server_lr(known) < math.inf and 0.0 <= settings["options.average"] < 1.0
    assert 0.0 < drawn(known) <= known.units
    if public is not None:
        assert dimension(known) <= auto._features(replace(known, public=None))[1]


WRONG: dict[str, Callable[[Known], Known]] = {
    "epsilon=0": lambda known: replace(known, epsilon=0.0),
    "epsilon=-1": lambda known: replace(known, epsilon=-1.0),
    "epsilon=nan": lambda known: replace(known, epsilon=math.nan),
    "epsilon=inf": lambda known: replace(known, epsilon=math.inf),
    "delta=0": lambda known: replace(known, delta=0.0),
    "delta=1": lambda known: replace(known, delta=1.0),
    "delta=nan": lambda known: replace(known, delta=math.nan),
    "seconds=0": lambda known: replace(known, seconds=0.0),
    "seconds=inf": lambda known: replace(known, seconds=math.inf),
    "seconds=nan": lambda known: replace(known, seconds=math.nan),
    "clip norm=0": lambda known: replace(known, clip=0.0),
    "clip norm=nan": lambda known: replace(known, clip=math.nan),
    "momentum=1": lambda known: replace(known, momentum=1.0),
}


@KNOWN
@pytest.mark.parametrize("said", WRONG)
def test_wrong_values_are_refused_by_name(known: Known, said: str) -> None:
    with pytest.raises(BadValue, match=said):
        choose(WRONG[said](known))
