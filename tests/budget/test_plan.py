"""Each client keeps to its own budget, whatever the others' are; what holds for all is the largest (PRIVACY B(ix))."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import sfumato
from sfumato import (
    AddNoise,
    Clip,
    ClipPerClient,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    Laplace,
    Mean,
    PerClient,
    Poisson,
    PoissonPerClient,
    Presence,
    RealisedMean,
    Relation,
    Round,
    Unit,
    accountant,
)  # fmt: skip
from sfumato.account.event import Event, PoissonSampled, Repeated
from sfumato.account.inside import dearest, each_client, for_client
from sfumato.derive import PUBLIC_SETTINGS, UnitDerivation
from sfumato.errors import BadValue, CannotAccount, UnsoundRound
from sfumato.run.read_round import round_text
from sfumato.testing.piece import claim_for
from tests.helpers import dp_round, unchecked

ROUNDS, CLIENTS, DELTA = 20, 12, 1e-5
RECORDS = Round(
    sample=Poisson(0.5),
    local=DpSgd(3, Poisson(0.1), 50, law=Gaussian(1.0)),
    aggregate=RealisedMean(),
    unit=Unit.RECORD,
)


def budgets(round: Round, given: Any, **settings: Any) -> Round:
    """The planned round; searches go through thousands of calls, so without the type checker of the tests."""
    with unchecked():
        return sfumato.budgets(round, given, **{"rounds": ROUNDS, "population": CLIENTS, **settings})


def proof(round: Round, dimension: int = 5) -> UnitDerivation:
    return round.derive(population=CLIENTS, dimension=dimension).primary


def epsilon(event: Event, delta: float = DELTA) -> float:
    with unchecked():
        return accountant("auto").epsilon(event, delta)


def spent(round: Round, client: int | None, delta: float = DELTA, rounds: int = ROUNDS) -> float:
    return epsilon(for_client(proof(round).after(rounds), client), delta)


def mapping(by: str = "") -> dict[Any, Any]:
    own = {"by": by} if by else {}
    return {
        "default": (4.0, DELTA),
        0: {"epsilon": 1.0, **own},
        (1, 2): {"epsilon": 2.5, "delta": 1e-6, **own},
    }


ROUNDS_OF = {
    "clip": dp_round(),
    "clip of everyone": dp_round(sample=Everyone(Relation.REPLACE)),
    "clip and noise at the client": dp_round(
        sample=Poisson(0.5, Relation.REPLACE), client=(Clip(1.0), AddNoise(Gaussian(1.0))), server=()
    ),
    "clip under an L1 norm": dp_round(client=(Clip(1.0, order=1),), server=(AddNoise(Laplace(1.0)),)),
    "rate": dp_round(),
    "rounds": dp_round(),
    "noise": RECORDS,
    "rate of records": RECORDS,
    "rounds of records": replace(RECORDS, sample=Everyone(), local=DpSgd(1, Poisson(0.5), 50)),
}


@pytest.mark.parametrize("name", ROUNDS_OF)
def test_everybody_keeps_to_its_own_budget(name: str) -> None:
    by = name.partition(" ")[0]
    round = budgets(ROUNDS_OF[name], mapping(by), dimension=5)
    every = [(None, 4.0, DELTA), (0, 1.0, DELTA), (1, 2.5, 1e-6), (2, 2.5, 1e-6)]
    for client, most, delta in every:
        found = spent(round, client, delta)
        assert found <= most, (client, found)
        if by != "rounds":
            assert found > 0.998 * most, (client, found)
        elif client is not None:  # one round more would have been too much
            assert isinstance(round.sample, PoissonPerClient)
            last = round.sample.of(client).rounds
            assert last is not None and last < ROUNDS
            longer = replace(round.sample, own={client: replace(round.sample.of(client), rounds=last + 1)})
            assert spent(replace(round, sample=longer), client, delta) > most
    assert epsilon(proof(round).after(ROUNDS)) == pytest.approx(max(spent(round, client) for client, *_ in every))
    assert PUBLIC_SETTINGS in proof(round).assumptions
    assert round_text(round) is not None


def test_a_client_has_a_law_and_a_last_round_of_its_own() -> None:
    given = {"default": (4.0, DELTA), 3: (2.0, DELTA, "laplace"), 5: {"epsilon": 2.0, "rounds": 4}}
    round = budgets(RECORDS, given, dimension=5)
    assert isinstance(round.local, PerClient) and isinstance(round.sample, PoissonPerClient)
    own = round.local.of(3)
    assert isinstance(own, DpSgd) and isinstance(own.law, Laplace) and own.order == 1
    assert round.sample.of(5) == Presence(0.5, 4)
    for client in (3, 5):
        assert 0.998 * 2.0 < spent(round, client) <= 2.0
    assert spent(round, 5, rounds=4) == spent(round, 5)
    assert "stops by itself after its last round" in " ".join(proof(round).assumptions)


def test_noise_of_ones_own_decides_the_clips() -> None:
    loud = budgets(dp_round(), mapping(), noise_multiplier=50.0)
    assert not any(isinstance(piece, ClipPerClient) for piece in loud.client)
    soft = budgets(dp_round(), mapping(), noise_multiplier=0.7)
    (clip,), (noise,) = soft.client, soft.server
    assert isinstance(clip, ClipPerClient) and isinstance(noise, AddNoise)
    assert clip.norm < 1.0 and clip.norm * noise.law.noise_multiplier == pytest.approx(0.7)
    assert 0.998 * 4.0 < spent(soft, None) <= 4.0


@pytest.mark.parametrize(
    ("round", "given", "says"),
    [
        (dp_round(), {0: {"epsilon": 1.0, "by": "noise"}}, "one noise hides all clients"),
        (dp_round(), {0: (1.0, DELTA, "laplace")}, "one noise hides all clients"),
        (RECORDS, {0: {"epsilon": 1.0, "by": "clip"}}, "its client's own noise"),
        (RECORDS, {0: (1.0, DELTA, "laplas")}, "'laplas' is not known"),
        (dp_round(sample=FixedSize(3)), {0: {"epsilon": 1.0, "by": "rate"}}, "everybody else's chance"),
        (dp_round(sample=FixedSize(3)), {0: {"epsilon": 2.0, "rounds": 3}}, "everybody else's chance"),
        (dp_round(client=(sfumato.AdaptiveClip(),)), {0: (1.0, DELTA)}, r"needs a Clip\(norm\)"),
        (dp_round(), {0: {"epsilon": 1e-3, "by": "rounds"}}, "does not last one round"),
        (
            dp_round(client=(ClipPerClient(Clip(1.0), {3: Clip(0.5)}),)),
            {0: (1.0, DELTA)},
            "settings of their own in this round already",
        ),
        (dp_round(server=(), nonprivate=True), {0: (1.0, DELTA)}, "proves nothing"),
    ],
    ids=lambda one: "" if isinstance(one, Round) else str(one),
)
def test_what_cannot_be_kept_is_refused(round: Round, given: Any, says: str) -> None:
    with pytest.raises(BadValue, match=says):
        budgets(round, {"default": (4.0, DELTA), **given})


def test_a_fixed_cohort_lends_little_room() -> None:
    """A client displaces another: however small its own norm is, the other's is what it takes away."""
    near = {"default": (4.0, DELTA), 0: (3.0, DELTA)}
    round = budgets(dp_round(sample=FixedSize(3)), near)
    assert spent(round, 0) <= 3.0 < spent(round, None) <= 4.0
    with pytest.raises(CannotAccount, match="whose own norm counts too"):
        budgets(dp_round(sample=FixedSize(3)), {**near, 0: (0.5, DELTA)})
    with pytest.raises(BadValue, match="Leave it out"):
        budgets(RECORDS, near, noise_multiplier=1.0)


def test_one_budget_for_all_is_a_calibrated_round() -> None:
    for round in (dp_round(), RECORDS):
        found = budgets(round, {"default": (4.0, DELTA)})
        same = sfumato.calibrate(round, epsilon=4.0, delta=DELTA, rounds=ROUNDS, population=CLIENTS)
        assert not proof(found).parts and type(found.local) is type(round.local)
        assert spent(found, None) == pytest.approx(spent(same, None), rel=1e-3)


def test_shares_of_noise_need_everybody_in_every_round() -> None:
    shares = (Clip(1.0), sfumato.NoiseShare(Gaussian(1.0), 5))
    with pytest.raises(UnsoundRound, match="the size of the cohort varies"):
        dp_round(
            sample=PoissonPerClient(Presence(1.0), {3: Presence(1.0, 2)}, Relation.REPLACE), client=shares, server=()
        )


# Golden: q = 0.05, z = 1, T = 200, delta 1e-5 costs 4.7659 (reference value pld.poisson_gaussian.q0.05.z1.0.T200).
GOLDEN = 4.7659


def test_client_level_is_the_sampled_gaussian_at_ones_own_clip_and_rate() -> None:
    """PRIVACY B(ix): z_k = nu / C_k and q_k, whatever the others' are."""
    for others, rate in ((2.0, 0.3), (8.0, 1.0)):
        round = Round(
            sample=PoissonPerClient(Presence(rate), {7: Presence(0.05)}),
            local=sfumato.Sgd(lr=0.1, epochs=1),
            client=(ClipPerClient(Clip(others), {7: Clip(1.0)}),),
            aggregate=Mean(over=3.0),
            server=(AddNoise(Gaussian(1.0 / others)),),
        )
        event = for_client(proof(round).after(200), 7)
        assert event == Repeated(PoissonSampled(0.05, sfumato.account.event.GaussianEvent(1.0)), 200)
        assert epsilon(event) == pytest.approx(GOLDEN, abs=2e-3)
        assert epsilon(proof(round).after(200)) > 2 * GOLDEN


def test_record_level_is_ones_own_noise_rate_and_steps() -> None:
    local = PerClient(DpSgd(5, Poisson(0.5), 9, law=Gaussian(0.5)), {7: DpSgd(1, Poisson(0.05), 9, law=Gaussian(1.0))})
    round = Round(sample=Everyone(), local=local, aggregate=RealisedMean(), unit=Unit.RECORD)
    assert spent(round, 7, rounds=200) == pytest.approx(GOLDEN, abs=2e-3)


def test_own_settings_reach_the_other_unit_and_relation() -> None:
    round = dp_round(client=(ClipPerClient(Clip(1.0), {3: Clip(0.25)}),))
    derivation = round.derive(population=CLIENTS, dimension=5)
    record = derivation.units[Unit.RECORD]  # one record may turn the whole row around: twice the own norm
    alone = dp_round(client=(Clip(0.25),), server=(AddNoise(Gaussian(4.0)),))
    same = alone.derive(population=CLIENTS, dimension=5)
    assert for_client(record.world, 3) == same.units[Unit.RECORD].world
    assert derivation.primary.swapped is not None and same.primary.swapped is not None
    assert for_client(derivation.primary.swapped.world, 3) == same.primary.swapped.world
    assert derivation.primary.sensitivity == pytest.approx(1.0 / 5)


def test_a_bound_of_ones_own_is_forgotten_where_a_piece_knows_nothing_of_it() -> None:
    clip = ClipPerClient(Clip(1.0), {3: Clip(0.25)})
    claim = claim_for(5)
    own = clip.carry(replace(claim, client=3))
    assert (own.row.l2, own.l2, own.displaced.l2, own.rows_apart.l2) == (0.25, 1.0, 1.25, 0.5)
    assert own.scaled(0.5).row.l2 == 0.125 and Clip(0.1).carry(own).row.l2 == 0.1
    assert replace(own, l2=3.0, l1=9.0).row.l2 == 3.0  # stated by a piece from outside


def test_leaving_out_what_surely_costs_less_changes_nothing() -> None:
    round = budgets(dp_round(), mapping())
    event = proof(round).after(ROUNDS)
    assert len(dearest(each_client(event))) == 1 < len(each_client(event)) == 3
    assert epsilon(event) == max(epsilon(own) for own in each_client(event))
    mixed = {"default": (4.0, DELTA), 0: (3.9, DELTA, "laplace"), 1: {"epsilon": 2.0, "by": "rounds"}}
    round = budgets(RECORDS, mixed)
    event = proof(round).after(ROUNDS)
    assert len(dearest(each_client(event))) == 2
    assert epsilon(event) == max(epsilon(own) for own in each_client(event))


def test_many_budgets_are_found_together() -> None:
    given: dict[Any, Any] = {client: (1.0 + client % 4, DELTA) for client in range(2000)}
    round = budgets(RECORDS, {"default": (6.0, DELTA), **given}, population=3000)
    assert isinstance(round.local, PerClient) and len(round.local.own) == 4
    event = round.derive(population=3000, dimension=5).primary.after(ROUNDS)
    assert [epsilon(for_client(event, client)) <= 1.0 + client % 4 for client in range(5)] == [True] * 5


def test_a_cost_that_depends_on_the_dimension_asks_for_it() -> None:
    """Planned for one coordinate, Laplace noise under an L2 clip would be too small for a model of many."""
    local = sfumato.DpSgd(2, sfumato.Poisson(0.1), 100, law=sfumato.Laplace(1.0, order=2))
    round = sfumato.Round(
        sample=sfumato.Everyone(), local=local, aggregate=sfumato.RealisedMean(), unit=sfumato.Unit.RECORD
    )
    given = {"default": (4.0, 1e-5), 0: (2.0, 1e-5)}
    with pytest.raises(BadValue, match="depends on the number of trained parameters"):
        sfumato.budgets(round, given, rounds=3, population=5)
    with pytest.raises(BadValue, match="depends on the number of trained parameters"):
        sfumato.calibrate(round, epsilon=4.0, delta=1e-5, rounds=3, population=5)
    sfumato.budgets(round, given, rounds=3, population=5, dimension=50)
