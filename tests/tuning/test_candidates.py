"""What --vary says, and the runs that it stands for."""

from __future__ import annotations

import pytest

from sfumato.calibration import noise_and_clip
from sfumato.errors import BadValue
from sfumato.run.request import Request
from sfumato.tuning.candidates import candidates, in_words, noise_of, with_settings
from tests.tuning.made_up import OPTIONS, prepared


def test_all_combinations_in_order() -> None:
    found = candidates(Request(), ["options.server_lr=1,2.5", "options.server_optimizer=sgd,adam", "rounds=3"])
    assert len(found) == 4
    assert found[0] == {"options.server_lr": 1, "options.server_optimizer": "sgd", "rounds": 3}
    assert found[-1] == {"options.server_lr": 2.5, "options.server_optimizer": "adam", "rounds": 3}


@pytest.mark.parametrize(("recipe", "key"), [("dp-fedavg", "options.server_lr"), ("dp-sgd", "options.lr")])
def test_without_any_learning_rates_around_the_one_there_is(recipe: str, key: str) -> None:
    request = Request.of_recipe(recipe).with_value(key, 1.2345)
    assert [one[key] for one in candidates(request, [])] == [0.309, 0.617, 1.23, 2.47, 4.94]


def test_without_a_learning_rate_there_is_nothing_to_vary() -> None:
    with pytest.raises(BadValue, match=r"dp-fedavg has no options.server_lr to vary. Say what to try"):
        candidates(Request(), [])


@pytest.mark.parametrize(
    "word", ["server_lr=1,2", "rounds", "rounds=", "=1", "data.name=mnist", "epsilon=1,2", "seed=1"]
)
def test_only_rounds_and_options_are_tried(word: str) -> None:
    with pytest.raises(BadValue, match=f"--vary {word}: write rounds=30,60 or an option of the recipe"):
        candidates(Request(), [word])


def test_a_key_is_given_once() -> None:
    with pytest.raises(BadValue, match="rounds was given before. Put all its values into one --vary"):
        candidates(Request(), ["rounds=1", "rounds=2"])


def test_a_run_with_other_settings_has_the_noise_of_its_budget_or_a_given_one() -> None:
    target = prepared()
    more = with_settings(target, {"rounds": 8, "options.clip": 0.25})
    assert more.request.rounds == 8 and noise_and_clip(more.round)[1] == 0.25
    assert noise_of(more) == pytest.approx(2 * noise_of(target), rel=1e-3), "four times the rounds"
    assert noise_of(with_settings(target, {"rounds": 8}, noise=3.0)) == 3.0
    assert target.request.rounds == 2, "the run itself stays as it is"


@pytest.mark.parametrize("settings", [{"options.no_such": 1}, {"options.server_lr": "fast"}, {"rounds": 0}])
def test_settings_that_no_run_has_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(BadValue):
        with_settings(prepared(), settings)


def test_without_noise_there_is_no_budget_to_plan_with() -> None:
    bare = {name: value for name, value in OPTIONS.items() if name in ("lr", "epochs")}
    with pytest.raises(BadValue, match="fedavg adds no noise"):
        noise_of(prepared(recipe="fedavg", epsilon=None, options=bare))


def test_in_words() -> None:
    assert in_words({"options.server_lr": 2, "rounds": 60}) == "server_lr 2, rounds 60"
