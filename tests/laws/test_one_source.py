"""Every command prices what a Round derives: over random settings the events are equal, and so are the printed numbers."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from typer.testing import CliRunner

from sfumato import (
    AddNoise,
    Clip,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    Mean,
    Plain,
    Poisson,
    RealisedMean,
    Round,
    Sgd,
    Shuffler,
)  # fmt: skip
from sfumato.account import accountant
from sfumato.account.event import Event, Relation, Repeated, Unit
from sfumato.account.shuffled import ShuffledEvent
from sfumato.claim import Claim
from sfumato.commands.answers import read_setting
from sfumato.commands.app import app
from sfumato.errors import SfumatoError
from sfumato.guarantee import guarantee, rounded_up
from sfumato.pieces.law_names import LAWS, law_named
from sfumato.planning.setting import Setting

DELTA = 1e-5
Words = dict[str, Any]


def some_words(rng: random.Random) -> Words:
    """The options of `account`, at random; many of them refused."""
    clients = rng.randint(2, 400)
    size = rng.randint(1, clients)
    fixed, rate = f"fixed:{size}/{clients}", f"poisson:{rng.choice([1, 0.5, round(rng.uniform(0.01, 0.99), 3)])}"
    words: Words = {
        "noise": f"{rng.choice(['gaussian', 'gaussian', *LAWS])}:{rng.choice([0.5, 1, 2, round(rng.uniform(0.3, 9), 2)])}",
        "sample": rng.choice([rate, fixed, "everyone"]),
        "rounds": rng.randint(1, 40),
        "relation": rng.choice([None, "add-remove", "replace", "zero-out"]),
        "noise_at": rng.choice(["server", "client"]),
        "curious": rng.choice([0, 1, 1, 2]),
        "dimension": rng.choice([1, 1, 7, 2000]),
    }
    if not words["sample"].startswith("fixed"):
        words["curious"] = 1
    if words["noise_at"] == "client" and rng.random() < 0.5:
        words["shuffle"] = True
        words["sample"] = f"everyone:{clients}" if words["sample"] == "everyone" else words["sample"]
    if rng.random() < 0.4:
        records = rng.randint(2, 60)
        batch = rng.choice(
            [f"fixed:{rng.randint(1, records)}/{records}", f"poisson:{rng.uniform(0.05, 0.9):.3f}", "everyone"]
        )
        words |= {"unit": "record", "batch": batch, "steps": rng.randint(1, 9)}
    return words


def sampler(words: str, relation: str | None, curious: int) -> tuple[Any, int]:
    """The same sampler, written by hand, and its population."""
    chosen = {} if relation is None else {"relation": Relation(relation.replace("-", "_"))}
    kind, _, amount = words.partition(":")
    if kind == "everyone":
        return Everyone(**chosen), int(amount or 100)
    if kind == "poisson":
        return Poisson(float(amount), **chosen), 100
    size, population = map(int, amount.split("/"))
    return FixedSize(size, curious=curious, **chosen), population


def round_of(words: Words, clip: float) -> tuple[Round, int]:
    """The Round that these options speak of, and its population."""
    law_name, _, size = words["noise"].partition(":")
    law, order = law_named(law_name, float(size))
    if words.get("batch"):
        cohort, population = sampler(words["sample"], None, words["curious"])
        batch, records = sampler(words["batch"], words["relation"], 0)
        local = DpSgd(words["steps"], batch, records, clip, law, order=order)
        return Round(sample=cohort, local=local, aggregate=RealisedMean(), unit=Unit.RECORD), population
    relation = words["relation"] or ("replace" if words["noise_at"] == "client" else None)
    cohort, population = sampler(words["sample"], relation, words["curious"])
    noise, trained = (AddNoise(law),), Sgd(lr=0.1, epochs=1)
    if words["noise_at"] == "client":
        channel = Shuffler() if words.get("shuffle") else Plain()
        client = (Clip(clip, order), *noise)
        return Round(sample=cohort, local=trained, client=client, channel=channel, aggregate=Mean(7.0)), population
    return Round(
        sample=cohort, local=trained, client=(Clip(clip, order),), aggregate=Mean(7.0), server=noise
    ), population


def same(one: Any, other: Any) -> bool:
    """Equal but for the last digits of a float."""
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-12 * abs(one)
    return bool(one == other)


def plain(event: Event | None) -> Any:
    return None if event is None else event.to_json()


def both(words: Words, clip: float) -> tuple[Setting | None, Any]:
    """The setting and the derivation of the same options; None where one of them refuses."""
    setting = proof = None
    try:
        setting = read_setting(**words)
        setting.claim()
    except SfumatoError:
        setting = None
    try:
        round, population = round_of(words, clip)
        proof = round.derive(population=population, dimension=words["dimension"]).primary
    except SfumatoError:
        proof = None
    return setting, proof


def test_what_is_priced_is_what_a_round_derives() -> None:
    rng, agreed, shuffled = random.Random(12), 0, 0
    for _ in range(2000):
        words = some_words(rng)
        if words.get("batch"):
            words = {key: value for key, value in words.items() if key != "shuffle"} | {"noise_at": "server"}
        setting, proof = both(words, rng.choice([0.1, 1.0, 3.0]))
        assert (setting is None) == (proof is None), f"one of them refuses: {words}"
        if setting is None:
            continue
        claim = setting.claim()
        for view in ("world", "server", "chooser"):
            assert same(plain(getattr(claim, view)), plain(getattr(proof, view))), f"{view}: {words}"
        assert claim.relation is proof.relation, words
        assert set(claim.assumptions) == set(proof.assumptions), words
        agreed += 1
        shuffled += any(isinstance(part, ShuffledEvent) for part in proof.world.walk())
    assert agreed > 1000 and shuffled > 20


def cheap(rng: random.Random) -> Words:
    words = some_words(rng)
    words.pop("shuffle", None)
    return {
        **words,
        "rounds": rng.randint(1, 6),
        "noise": f"{rng.choice(['gaussian', *LAWS])}:{rng.uniform(1.5, 6):.2f}",
        "noise_at": "server",
    }


def options(words: Words) -> list[str]:
    said = {name: value for name, value in words.items() if value is not None}
    return [part for name, value in said.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def test_the_numbers_that_are_printed_are_the_derivations_own() -> None:
    rng, told = random.Random(5), 0
    while told < 100:
        words = cheap(rng)
        _, proof = both(words, 1.0)
        called = [*options(words), "--delta", str(DELTA)]
        printed = CliRunner().invoke(app, ["account", *called, "--json"])
        assert (printed.exit_code == 0) == (proof is not None), (words, printed.output)
        if proof is None:
            continue
        event = Repeated(proof.world, words["rounds"])
        derived = guarantee(event, DELTA, unit=proof.unit, relation=proof.relation, view="everyone")
        answer = json.loads(printed.output)
        assert answer["epsilon"] == pytest.approx(derived.epsilon, rel=1e-9), words
        assert (answer["relation"], answer["unit"]) == (str(proof.relation), str(proof.unit))
        assert (answer["views"]["server"]["epsilon"] is None) == (proof.server is None)
        if told % 10 == 0:  # for people: never below
            first = CliRunner().invoke(app, ["account", *called]).output.split()
            assert float(first[2]) >= answer["epsilon"] * (1 - 1e-12)
        told += 1


def test_plan_and_curve_price_the_same_events() -> None:
    rng, told = random.Random(8), 0
    while told < 12:
        words = {key: value for key, value in cheap(rng).items() if key not in ("unit", "batch", "steps", "noise_at")}
        _, proof = both({**words, "noise_at": "server"}, 1.0)
        if proof is None:
            continue
        event = Repeated(proof.world, words["rounds"])
        planned = CliRunner().invoke(app, ["plan", *options(words), "--delta", str(DELTA), "--no-table", "--json"])
        assert planned.exit_code == 0, planned.output
        assert same(json.loads(planned.output)["event"], event.to_json())
        drawn = CliRunner().invoke(app, ["curve", *options(words), "--points", "3", "--json"])
        found = json.loads(drawn.output)["curves"][0]
        assert found["false_negative_rate"][1] == pytest.approx(accountant().tradeoff(event, 0.5), rel=1e-9)
        assert (found["relation"], found["sensitivity"]) == (
            str(proof.relation),
            pytest.approx(proof.sensitivity * 7.0),
        )
        told += 1


def test_explain_prints_what_the_recipe_derives() -> None:
    from sfumato.recipes import RECIPES, build

    for name in RECIPES:
        clients = 1 if RECIPES[name].central else 1000
        proof = build(name, clients, {}).derive(population=clients, dimension=1000).primary
        lines = CliRunner().invoke(app, ["explain", name, "--rounds", "3", "--delta", str(DELTA)]).output.splitlines()
        views = {
            "the public observer": proof.world,
            "the server, if it samples honestly": proof.server,
            "the server, whoever chooses the cohort": proof.chooser,
        }
        if RECIPES[name].central:
            views = {"the public observer": proof.world, "the holder of the records": None}
        for words, event in views.items():
            said = next(line for line in lines if line.startswith(f"  {words} ")).rpartition("  ")[2].strip()
            spent = None if event is None else Repeated(event, 3)
            derived = guarantee(spent, DELTA, unit=proof.unit, relation=proof.relation, view="x")
            assert said == ("nothing is proven" if derived.epsilon is None else rounded_up(derived.epsilon, 4)), name


def test_a_second_source_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law goes red when the command line forgets that whoever joins a fixed-size cohort displaces another."""
    right = Setting.claim

    def forgets(self: Setting) -> Claim:
        from dataclasses import replace

        claim = right(self)
        halved = (
            replace(claim.world, event=Gaussian(1.0).event(1.0, claim.row)) if hasattr(claim.world, "event") else None
        )
        return claim if halved is None else replace(claim, world=halved)

    monkeypatch.setattr(Setting, "claim", forgets)
    with pytest.raises(AssertionError):
        test_what_is_priced_is_what_a_round_derives()
