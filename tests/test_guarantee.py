"""What a guarantee says: its fields in one order, its observer from the event, epsilon at 1e-5 beside every other delta."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sfumato import Everyone, FixedSize, Poisson, Relation, Round, Unit, classification, simulate
from sfumato.account import accountant
from sfumato.account.event import (
    _REGISTRY,
    ByClient,
    CappedPoissonSampled,
    Composed,
    CuriousDraws,
    DiscreteGaussianEvent,
    Event,
    FixedSizeSampled,
    GaussianEvent,
    LaplaceBallEvent,
    LaplaceEvent,
    Mixture,
    NonPrivate,
    Nothing,
    PoissonSampled,
    PureEvent,
    Repeated,
    Secret,
    StaircaseBallEvent,
    StaircaseEvent,
)
from sfumato.account.selected import Selected
from sfumato.account.shuffled import ShuffledEvent
from sfumato.guarantee import (
    PUBLIC,
    REFERENCE_DELTA,
    WIDTH,
    Guarantee,
    default_delta,
    guarantee,
    observed_by,
    sampling_of,
    secrets,
)
from sfumato.local.dp_sgd import DpSgd
from sfumato.pieces.channel import SecureSum
from sfumato.pieces.mean import RealisedMean
from sfumato.pieces.noise import NoiseShare
from sfumato.planning.words import caution
from sfumato.recipes import RECIPES, build
from tests.helpers import dp_round, linear, made_up_population

G = GaussianEvent(1.0)
OF_EVERY_EVENT: list[tuple[Event, tuple[Secret, ...]]] = [
    (Nothing(), ()),
    (NonPrivate("why"), ()),
    (G, ()),
    (LaplaceEvent(1.0), ()),
    (LaplaceBallEvent(1.0, 9), ()),
    (PureEvent(1.0), ()),
    (StaircaseEvent(1.0, 0.5), ()),
    (StaircaseBallEvent(1.0, 1.0, 0.5, 9), ()),
    (DiscreteGaussianEvent(9.0), ()),
    (CuriousDraws(3, 9, 1), ()),
    (PoissonSampled(0.1, G), (Secret.PARTICIPATION,)),
    (PoissonSampled(1.0, G), ()),
    (FixedSizeSampled(0.1, G), (Secret.PARTICIPATION,)),
    (FixedSizeSampled(1.0, G), ()),
    (CappedPoissonSampled(0.1, 3, 9, G), (Secret.PARTICIPATION,)),
    (CappedPoissonSampled(1.0, 3, 9, G), (Secret.PARTICIPATION,)),
    (CappedPoissonSampled(1.0, 9, 9, G), ()),
    (Mixture(0.1, G), ()),  # who took part is seen
    (Mixture(0.1, Repeated(PoissonSampled(0.1, G), 3)), (Secret.PARTICIPATION,)),  # which records were drawn is not
    (ByClient(G, (((3,), PoissonSampled(0.1, G)),)), (Secret.PARTICIPATION,)),
    (Repeated(G, 3), ()),
    (Repeated(FixedSizeSampled(0.1, G), 3), (Secret.PARTICIPATION,)),
    (Composed((G, PoissonSampled(0.1, G))), (Secret.PARTICIPATION,)),
    (ShuffledEvent(1.0, 9), (Secret.ORDER,)),
    (ShuffledEvent(1.0, 1), ()),
    (Selected(G, 0.2), (Secret.RUNS,)),
    (Selected(PoissonSampled(0.1, G), 0.2), (Secret.RUNS, Secret.PARTICIPATION)),
]


@pytest.mark.parametrize(("event", "hidden"), OF_EVERY_EVENT, ids=lambda value: str(value)[:60])
def test_what_must_stay_secret_follows_from_the_event(event: Event, hidden: tuple[Secret, ...]) -> None:
    assert secrets(event) == hidden
    for outer in (
        Repeated(event, 2),
        Composed((LaplaceEvent(2.0), event)),
        ByClient(LaplaceEvent(2.0), (((1,), event),)),
    ):
        assert secrets(outer) == hidden
    said = observed_by(PUBLIC, event, Unit.CLIENT)
    assert said.startswith(PUBLIC) and (said == PUBLIC) == (hidden == ())
    assert ("who took part" in said) == (Secret.PARTICIPATION in hidden)
    assert ("must stay secret" in sampling_of(event)) == bool(hidden)


def test_no_event_is_left_out() -> None:
    """Whoever adds an event says here whether it is credited for a secret."""
    own = {name for name, cls in _REGISTRY.items() if cls.__module__.startswith("sfumato.")}
    assert own == {type(event).__name__ for event, _ in OF_EVERY_EVENT}


def test_records_are_drawn_and_clients_take_part() -> None:
    event = Repeated(PoissonSampled(0.1, G), 3)
    assert observed_by("x", event, Unit.CLIENT) == "x, but not who took part in them"
    assert observed_by("x", event, Unit.RECORD) == "x, but not which records were drawn"


def test_a_secret_that_is_credited_is_in_the_headline_and_among_the_assumptions() -> None:
    """R14: 30 rounds, Poisson 0.5, noise 2.81: epsilon 3 for one who does not know the participants, 4.59 for one who does."""
    facts = {"unit": Unit.CLIENT, "relation": Relation.ZERO_OUT}
    hidden = guarantee(Repeated(PoissonSampled(0.5, GaussianEvent(2.81)), 30), 0.00189, **facts)
    known = guarantee(Repeated(Mixture(0.5, GaussianEvent(2.81)), 30), 0.00189, **facts)
    assert hidden.epsilon == pytest.approx(3.0, abs=0.01) and known.epsilon == pytest.approx(4.59, abs=0.01)
    assert hidden.observer == f"{PUBLIC}, but not who took part in them" and known.observer == PUBLIC
    assert hidden.observer in hidden.headline
    assert [words for words in hidden.assumptions if "stays secret" in words] and not known.assumptions


FIELDS = ("epsilon", "delta", "meaning", "unit", "relation", "observer", "sampling", "mechanism", "accountant")


def of(recipe: str) -> Guarantee:
    clients = 1 if RECIPES[recipe].central else 2000
    proof = build(recipe, clients, {}).derive(population=clients, dimension=1000).primary
    event = proof.after(30)
    return guarantee(event, 1e-6, unit=proof.unit, relation=proof.relation, assumptions=proof.assumptions * 2)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_text_has_one_order_and_fits_a_terminal(recipe: str) -> None:
    found = of(recipe)
    lines = str(found).split("\n")
    assert max(map(len, lines)) <= WIDTH and lines == [line.rstrip() for line in lines]
    if found.epsilon is None:
        assert "no proven guarantee" in found.headline and found.unproven.rstrip(".") in " ".join(str(found).split())
        return
    assert tuple(name for name, _ in found.rows()) == FIELDS
    begun = [line.split()[0] for line in lines if line[0] != " "]
    assert begun == [*FIELDS, "assumptions"]
    assert sum(line.startswith("  - ") for line in lines) == len(found.assumptions)
    for name, words in found.rows():
        assert words, name
        assert all(len(sentence.split()) < 60 for sentence in re.split(r"[.;:] ", words)), name


def test_the_meaning_is_the_definition() -> None:
    found = guarantee(Repeated(G, 2), 1e-3, unit=Unit.CLIENT, relation=Relation.REPLACE)
    meaning = dict(found.rows())["meaning"]
    assert "P(S) <= e^4.846 P'(S) + 0.001" in meaning and "at most a factor of e^4.846, plus 0.001" in meaning
    assert found.epsilon is not None and 4.845 < found.epsilon <= 4.846


@pytest.mark.parametrize("name", ["auto", "rdp", "pld"])
def test_another_delta_has_epsilon_at_1e_5_beside_it(name: str) -> None:
    event = Repeated(PoissonSampled(0.1, GaussianEvent(1.0)), 5)
    facts = {"unit": Unit.CLIENT, "relation": Relation.ADD_REMOVE, "by": accountant(name)}
    found, usual = guarantee(event, 1e-4, **facts), guarantee(event, REFERENCE_DELTA, **facts)
    assert found.reference == usual.epsilon == accountant(name).epsilon(event, 1e-5) > found.epsilon
    shown = usual.headline.split(" at ")[0].removeprefix("epsilon = ")
    assert f"({shown} at 1e-05)" in found.headline and "(" not in usual.headline
    assert f"epsilon {shown} at delta 1e-05" in dict(found.rows())["delta"]
    assert dict(usual.rows())["delta"] == "1e-05"


def test_what_has_no_epsilon_at_1e_5_says_so() -> None:
    lossy = guarantee(LaplaceEvent(1.0), 0.5, unit=Unit.CLIENT, relation=Relation.REPLACE)
    assert "(none at 1e-05)" in replace(lossy, reference=None).headline


def test_delta_is_far_below_one_over_the_units() -> None:
    assert default_delta(1) == default_delta(10_000) == default_delta(None) == 1e-5
    assert default_delta(20_000) == 5e-6 == 1 / 200_000
    for units in (1, 2, 200, 9_999, 10_000, 10_001, 60_000, 10**9):
        assert default_delta(units) <= 1e-5 and caution(default_delta(units), units, "client") == ""
        assert "1/(10 n)" in caution(1.001 / (10 * units), units, "client")


def test_the_default_counts_what_is_declared() -> None:
    people = made_up_population([8] * 3)
    counted = replace(people, counted=True)
    steps = DpSgd(1, Poisson(0.5), 40_000)
    record = Round(Everyone(), steps, RealisedMean(), unit=Unit.RECORD)
    assert record.units(3) == 120_000 and dp_round().units(3) == 3

    def delta(round: Round, population: object) -> float:
        *_, last = simulate(round, population, linear(), classification(3), rounds=1, seed=0)
        assert last.guarantee().delta == last.run.delta
        return last.guarantee().delta

    assert delta(record, people) == 1 / 1_200_000
    assert delta(record, counted) == delta(dp_round(), people) == 1e-5


@pytest.mark.parametrize("sample", [Poisson(0.5), Everyone(), FixedSize(3), Everyone(Relation.ZERO_OUT)], ids=str)
def test_a_record_is_covered_by_the_bound_of_its_whole_client(sample: object) -> None:
    """R16: the replace bound of a client bounds any change inside it, and is not called an epsilon of one record."""
    people = made_up_population([8] * 9)
    *_, last = simulate(dp_round(sample=sample), people, linear(), classification(3), rounds=2, seed=0)
    client, record = last.guarantee(), last.guarantee(unit=Unit.RECORD)
    assert record.whole_client and not client.whole_client and record.relation is Relation.REPLACE
    assert record.epsilon >= client.epsilon
    assert "any change inside one client" in record.headline and "each record" not in str(record)
    assert "bound of a whole client also bounds any change inside it" in dict(record.rows())["relation"]
    assert record.observer == client.observer


def test_a_records_own_event_is_not_its_clients() -> None:
    people = made_up_population([8] * 3)
    round = Round(Everyone(), DpSgd(1, Poisson(0.5), 8), RealisedMean(), unit=Unit.RECORD)
    *_, last = simulate(round, people, linear(), classification(3), rounds=1, seed=0)
    found = last.guarantee()
    assert not found.whole_client and "for each record, add/remove" in found.headline
    assert found.observer.endswith("but not which records were drawn")


def test_members_of_a_secure_sum_are_not_the_observer() -> None:
    round = dp_round(
        sample=FixedSize(4),
        client=(*dp_round().client, NoiseShare(dp_round().server[0].law, 3)),
        server=(),
        channel=SecureSum(),
    )
    everyone = replace(round, sample=Everyone(Relation.REPLACE))
    for one, hidden in ((round, True), (everyone, False)):
        proof = one.derive(population=9, dimension=9).primary
        assert bool(secrets(proof.world)) == hidden
        assert any("told who is in it" in words for words in proof.assumptions) == hidden
