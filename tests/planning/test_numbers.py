"""The plain functions give what the commands print, and what training states."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import sfumato
from sfumato import recipes
from sfumato.account import accountant
from sfumato.commands.app import app
from sfumato.errors import SfumatoError

DELTA, RATE, STEPS = 1e-5, 0.05, 200


def told(command: str) -> dict[str, Any]:
    found = CliRunner().invoke(app, [*command.split(), "--delta", str(DELTA), "--json"])
    answer: dict[str, Any] = json.loads(found.output)
    return answer


@pytest.mark.parametrize("relation", ["add-remove", "replace", "zero-out"])
def test_epsilon_is_that_of_account(relation: str) -> None:
    asked = f"account --noise gaussian:1.3 --sample poisson:{RATE} --rounds {STEPS} --relation {relation}"
    ours = sfumato.epsilon(noise_multiplier=1.3, delta=DELTA, rate=RATE, steps=STEPS, relation=relation)
    assert ours == told(asked)["epsilon"]


def test_the_others_are_those_of_plan() -> None:
    sample = f"plan --sample poisson:{RATE} --no-table"
    noise = sfumato.noise_multiplier(epsilon=2.0, delta=DELTA, rate=RATE, steps=STEPS)
    assert noise == told(f"{sample} --rounds {STEPS} --epsilon 2.0")["noise_multiplier"]
    most = sfumato.steps(noise_multiplier=1.3, epsilon=2.0, delta=DELTA, rate=RATE)
    assert most == told(f"{sample} --noise gaussian:1.3 --epsilon 2.0")["rounds"]


def test_they_agree_with_each_other() -> None:
    noise = sfumato.noise_multiplier(epsilon=2.0, delta=DELTA, rate=RATE, steps=STEPS)
    found = sfumato.epsilon(noise_multiplier=noise, delta=DELTA, rate=RATE, steps=STEPS)
    assert 1.998 <= found <= 2.0
    assert sfumato.delta(noise_multiplier=noise, epsilon=found, rate=RATE, steps=STEPS) == pytest.approx(
        DELTA, rel=1e-2
    )
    assert sfumato.steps(noise_multiplier=noise, epsilon=2.0, delta=DELTA, rate=RATE) == STEPS


def test_epsilon_is_what_training_states_for_records() -> None:
    round = recipes.build("dp-sgd", 1, {"batch": f"poisson:{RATE}", "noise_multiplier": 1.3})
    proof = round.derive(population=1, dimension=7).primary
    ours = sfumato.epsilon(noise_multiplier=1.3, delta=DELTA, rate=RATE, steps=STEPS)
    assert ours == accountant("auto").epsilon(proof.after(STEPS), DELTA)


def test_without_a_rate_nothing_is_sampled() -> None:
    ours = sfumato.epsilon(noise_multiplier=20.0, delta=DELTA, steps=STEPS)
    assert ours == pytest.approx(told(f"account --noise gaussian:20 --rounds {STEPS}")["epsilon"], rel=1e-3)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rate": 2}, "the rate is a probability"),
        ({"steps": 0}, "rounds=0: a whole number from 1"),
        ({"delta": 1.0}, "strictly between 0 and 1"),
        ({"noise_multiplier": 0.0}, "positive and finite"),
        ({"relation": "remove"}, "not known"),
        ({"by": "moments"}, "is not known"),
    ],
)
def test_what_cannot_be_meant_is_refused(changed: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"noise_multiplier": 1.0, "delta": DELTA, "rate": RATE, "steps": STEPS, **changed}
    with pytest.raises(SfumatoError, match=words):
        sfumato.epsilon(**given)
