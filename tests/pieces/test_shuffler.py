"""A shuffler: messages really change places, and what that gains is stated where it is proven and nowhere else."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from sfumato import (
    AddNoise,
    Clip,
    ControlVariates,
    DpSgd,
    Everyone,
    FixedSize,
    Gaussian,
    HelperBlend,
    Mean,
    MessageAggregate,
    NoiseShare,
    PerClient,
    Plain,
    Plan,
    Poisson,
    Population,
    RealisedMean,
    Round,
    Sgd,
    Shuffler,
    Unit,
    UnsoundRound,
    WeightByExamples,
    classification,
    regression,
)  # fmt: skip
from sfumato.account import accountant
from sfumato.account.event import GaussianEvent, LaplaceEvent, Mixture, Relation
from sfumato.account.shuffled import ShuffledEvent, pure_epsilon
from sfumato.claim import Claim
from sfumato.engine.clients import Clients, Start
from sfumato.engine.cohort import Cohort
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.pieces.context import MessageContext
from sfumato.pieces.law import Laplace
from sfumato.pieces.staircase import Staircase
from sfumato.testing import check_shuffler
from tests.attacks.semantics import Chosen
from tests.helpers import linear, made_up_population

LAPLACE = (Clip(1.0, 1), AddNoise(Laplace(4.0)))  # under replace a message costs 2 / 4
HALF = math.nextafter(0.5, 1.0)  # from above


def shuffled(**changed: Any) -> Round:
    slots: dict[str, Any] = {
        "sample": FixedSize(101, Relation.REPLACE), "local": Sgd(lr=0.1, epochs=1), "client": LAPLACE, "aggregate": Mean(100.0),
        "channel": Shuffler(),
    }  # fmt: skip
    return Round(**{**slots, **changed})


def proof(round: Round, population: int = 1001) -> Any:
    return round.derive(population=population, dimension=1).primary


def test_it_permutes() -> None:
    check_shuffler(Shuffler())


def test_what_is_gained() -> None:
    found = proof(shuffled())
    event = ShuffledEvent(HALF, 100)  # the cohort, less one who is curious
    assert found.chooser == event and found.world == Mixture(101 / 1000, event) == found.server
    said = " ".join(found.assumptions)
    assert "against the shuffler itself only epsilon 0.5001 holds" in said and "at least 100 honest messages" in said
    alone = proof(shuffled(channel=Plain())).chooser
    assert accountant().epsilon(found.chooser, 1e-6) < accountant().epsilon(alone, 1e-6) / 1.5
    everyone = proof(shuffled(sample=Everyone(Relation.REPLACE)), 1001)
    assert everyone.world == everyone.server == ShuffledEvent(HALF, 1000)


def test_the_count_is_what_is_sure_to_arrive_less_the_curious() -> None:
    assert proof(shuffled(channel=Shuffler(60))).chooser.count == 59
    assert proof(shuffled(sample=FixedSize(101, Relation.REPLACE, curious=7), channel=Shuffler(60))).chooser.count == 53
    for sample in (FixedSize(50, Relation.REPLACE), Poisson(0.5, Relation.REPLACE)):
        with pytest.raises(UnsoundRound, match="the cohort"):
            proof(shuffled(sample=sample, channel=Shuffler(60)))
    with pytest.raises(BadValue, match="whole number"):
        Shuffler(-1)


def test_staircase_messages_are_pure_too() -> None:
    round = shuffled(client=(Clip(1.0, 1), AddNoise(Staircase(4.0))))
    for dimension in (1, 50):
        alone, found = (
            replace(round, channel=channel).derive(population=1001, dimension=dimension).primary.chooser
            for channel in (Plain(), Shuffler())
        )
        assert found == ShuffledEvent(pure_epsilon(alone), 100)


@pytest.mark.parametrize(
    ("changed", "held", "why"),
    [
        ({"client": (Clip(1.0), AddNoise(Gaussian(4.0)))}, Mixture(0.101, GaussianEvent(2.0)), "not pure-epsilon private"),
        ({"sample": Poisson(0.1, Relation.REPLACE)}, Mixture(0.1, LaplaceEvent(2.0)), "how many messages arrive"),
        ({"sample": FixedSize(101, Relation.ZERO_OUT)}, Mixture(0.101, LaplaceEvent(4.0)), "not those of replace"),
        ({"sample": FixedSize(2, Relation.REPLACE)}, Mixture(0.002, LaplaceEvent(2.0)), "too few honest messages"),
        ({"client": (Clip(1.0, 1), AddNoise(Laplace(0.25)))}, Mixture(0.101, LaplaceEvent(0.125)), "too few honest"),
        ({"local": PerClient(Sgd(lr=0.1, epochs=1), {3: Sgd(lr=0.2, epochs=1)})}, Mixture(0.101, LaplaceEvent(2.0)),
         "tells these apart"),
        ({"personal": HelperBlend()}, Mixture(0.101, LaplaceEvent(2.0)), "which message was theirs"),
        ({"personal": ControlVariates(), "local": Sgd(lr=0.1, steps=2)}, Mixture(0.101, LaplaceEvent(2.0)), "was theirs"),
    ],
    ids=["gaussian", "poisson", "zero-out", "two", "hardly private", "not alike", "personal models", "control variates"],
)  # fmt: skip
def test_nothing_is_gained_and_it_says_why(changed: dict[str, Any], held: Any, why: str) -> None:
    found = proof(shuffled(**changed))
    assert found.world == found.server == held
    (said,) = [words for words in found.assumptions if "lowers no epsilon here" in words]
    assert why in said


def test_messages_that_are_weighted_after_their_noise_are_told_apart() -> None:
    """A client with a thousand records among clients with one: nobody else's message is as large as its noise."""
    weighted = shuffled(client=(*LAPLACE, WeightByExamples(cap=1000)), unit=Unit.RECORD)
    found = proof(weighted)
    assert found.chooser == LaplaceEvent(2.0) and "tells these apart" in " ".join(found.assumptions)
    before = shuffled(client=(LAPLACE[0], WeightByExamples(cap=1000), LAPLACE[1]), unit=Unit.RECORD)
    assert proof(before).chooser == ShuffledEvent(HALF, 100)


def test_private_local_steps_never_qualify() -> None:
    local = DpSgd(2, Poisson(0.5), 8)
    found, plain = (
        Round(sample=Everyone(), local=local, aggregate=RealisedMean(), unit=Unit.RECORD, **more)
        .derive(population=500, dimension=9).primary
        for more in ({"channel": Shuffler()}, {})
    )  # fmt: skip
    assert found.world == plain.world and any("not pure-epsilon private" in words for words in found.assumptions)


def test_noise_elsewhere_is_priced_as_without_it() -> None:
    sums = proof(shuffled(client=(Clip(1.0),), server=(AddNoise(Gaussian(1.0)),)))
    assert sums.server is None and "shuffler" not in " ".join(sums.assumptions)
    shares = shuffled(client=(Clip(1.0), NoiseShare(Gaussian(1.0), 100)))
    assert proof(shares).world == proof(replace(shares, channel=Plain())).world


def test_numbers_of_records_do_not_pass() -> None:
    with pytest.raises(UnsoundRound, match="not passed on"):
        Round(
            sample=Everyone(), local=DpSgd(2, Poisson(0.5, Relation.REPLACE), 8), channel=Shuffler(),
            aggregate=RealisedMean(by="examples"), unit=Unit.RECORD,
        )  # fmt: skip


@dataclass(frozen=True)
class Watches(MessageAggregate):
    """Keeps what it is shown."""

    seen: Any

    def combine(self, messages: torch.Tensor, context: MessageContext) -> torch.Tensor:
        self.seen.append((messages.clone(), context.clients))
        return messages.mean(dim=0)

    def carry(self, claim: Claim) -> Claim:
        return replace(claim, aggregated=True)


class Seen(list[Any]):
    """A list that names no run."""

    def facts(self) -> str:
        return "seen"


def watched(channel: Any, plan: Plan, rounds: int = 3) -> list[Any]:
    """What the server sees of eight clients, whose rows are their numbers."""
    clients = [(torch.full((1, 3), float(number)), torch.zeros(1, 1)) for number in range(8)]
    seen = Seen()
    round = Round(
        sample=Everyone(Relation.REPLACE), local=Chosen(), aggregate=Watches(seen), channel=channel, nonprivate=True
    )
    module = linear(3, 1)
    module.bias.requires_grad_(False)
    list(simulate(round, Population.from_list(clients), module, regression(), rounds=rounds, seed=0, plan=plan))
    return seen[-rounds:]


def test_the_engine_passes_messages_on_in_that_order_and_without_senders() -> None:
    plain = watched(Plain(), Plan())
    assert all(messages[:, 0].tolist() == list(range(8)) and who == tuple(range(8)) for messages, who in plain)
    for plan in (Plan(), Plan(workers=2), Plan("stacked", 3)):
        orders = [tuple(messages[:, 0].tolist()) for messages, who in watched(Shuffler(), plan) if who is None]
        assert len(set(orders)) == 3 and all(sorted(order) == list(range(8)) for order in orders)
        assert orders == [tuple(messages[:, 0].tolist()) for messages, _ in watched(Shuffler(), Plan())]


def test_a_sum_is_that_of_the_permuted_messages() -> None:
    """To the last bit: float64 sums depend on the order, and the order in which messages were sent must not show."""
    people = made_up_population([5, 1, 0, 12, 7, 3, 9, 4])
    round = shuffled(sample=Everyone(Relation.REPLACE), aggregate=Mean(1.0), client=(Clip(1.0),), nonprivate=True)
    run = simulate(round, people, linear(), classification(3), rounds=1, seed=0, plan=Plan())
    keys, slots = run.randomness.keys(0), run.job.slots
    cohort = Cohort(Clients(run.job, people, Plan()))
    opening = cohort.open(run.start.params, 0, keys.opening(0))
    total = cohort.total(run.start.params, range(8), opening, keys.clients, channel=keys.channel)
    sent = [
        cohort.clients((Start(run.start.params, opening, keys.clients), [client])).total.rows for client in range(8)
    ]
    order = Shuffler().order(8, keys.channel.child("order", round=0))
    expected, weight = slots.weighted_sum(torch.cat(sent)[order], torch.ones(8))
    assert torch.equal(total.rows, expected) and total.weight == weight == 8.0 and total.senders is None


def test_an_empty_cohort_moves_nothing() -> None:
    people = made_up_population([5, 1, 4])
    for aggregate in (Mean(2.0), Watches(Seen())):
        round = shuffled(sample=Poisson(1e-9, Relation.REPLACE), aggregate=aggregate, nonprivate=True)
        run = simulate(round, people, linear(), classification(3), rounds=2, seed=0, plan=Plan())
        *_, progress = run
        assert torch.equal(progress.params, run.start.params)
