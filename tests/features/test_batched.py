"""Only maps of the library get batches, and each is held to the property that lets it; a user's sees one record at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from sfumato import Population, classification, recipes, simulate
from sfumato.data.population import PublicData, Records
from sfumato.data.record_map import RecordFailed, as_record_map, marked, unchanged
from sfumato.data.sets import Dataset, Scaling
from sfumato.data.shakespeare import Windows
from sfumato.data.wind import Channels
from sfumato.errors import BadValue, DataError
from sfumato.features import (
    Box,
    Features,
    Fit,
    Grey,
    GroupNorm,
    Hog,
    LastCharacters,
    Pixels,
    PrivatePCA,
    PrivateWord,
    PublicPCA,
    RandomConv,
    Resize,
    Scattering,
    UnitNorm,
    Unlearnt,
)
from sfumato.key import Key
from sfumato.voting.neighbours import Neighbours
from tests.features.law import law_of_single_records, pictures

COLOURS, GREY = pictures(45, 3, 19, 17), pictures(45, 1, 12, 12)
WORDS = torch.from_numpy(Key.from_seed(3).uniform(45 * 9) * 90).long().reshape(45, 9)
STARTS = torch.arange(45) * 7 % 90
WINDS = pictures(45, 5, 48) * 40.0 - 9.0
BASIS = PublicPCA.learn(PublicData("basis", Records(GREY, torch.zeros(45))), 7)
MOMENTS = torch.diag(torch.arange(144.0))
SMALL = Scaling(255.0, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
# One of each that is marked, with records that it maps.
EXAMPLES: list[tuple[Callable[[Tensor], Tensor], Tensor]] = [
    (Box(2), COLOURS),
    (Grey(), COLOURS),
    (GroupNorm(3), COLOURS),
    (Hog(3), COLOURS),
    (Pixels(), COLOURS),
    (RandomConv(7), COLOURS),
    (Resize(11, 7), COLOURS),
    (Scattering(1), COLOURS),
    (UnitNorm(3), COLOURS),
    (Fit((1, 16, 16), 0, 2), COLOURS),
    (Features((Grey(), Hog(3))), COLOURS),
    (SMALL, (COLOURS * 255).round()),
    (unchanged, COLOURS),
    (Channels(5.0), WINDS),
    (BASIS, GREY),
    (PrivatePCA.learn(MOMENTS, 1e-3, PrivateWord(9), (1, 12, 12)), GREY),
    (Unlearnt(4), GREY),
]
WHOLE: list[tuple[Callable[[Tensor], Tensor], Tensor]] = [
    (LastCharacters(3), WORDS),
    (Windows(WORDS.flatten().to(torch.uint8), 9), STARTS),
]


def test_every_map_that_gets_batches_is_under_the_property() -> None:
    tried = {step if step is unchanged else type(step) for step, _ in (*EXAMPLES, *WHOLE)}
    assert {one for one in marked() if not one.__module__.startswith("tests.")} == tried


@pytest.mark.parametrize(("step", "x"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_a_batch_is_mapped_as_its_records_are_alone(step: Callable[[Tensor], Tensor], x: Tensor) -> None:
    assert as_record_map(step) is step
    law_of_single_records(step, x)


@pytest.mark.parametrize(("step", "x"), WHOLE, ids=lambda value: type(value).__name__)
def test_a_batch_of_whole_numbers_is_mapped_as_its_records_are_alone(
    step: Callable[[Tensor], Tensor], x: Tensor
) -> None:
    alone = torch.cat([step(one) for one in x.split(1)])
    assert as_record_map(step) is step and torch.equal(step(x), alone)
    assert torch.equal(step(x.flip(0)), alone.flip(0)) and torch.equal(step(x[7:]), alone[7:])


def pixels(x: Tensor) -> Tensor:
    """Pixels to 0..1, if they are not there yet: of a batch, by its largest."""
    x = x.float()
    return x / 255 if len(x) and x.max() > 1 else x


class Louder(UnitNorm):
    """Inherits from a map that gets batches, and mixes them."""

    def __call__(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


def holder(first: float, x: Tensor | None = None) -> Population:
    x = pictures(60, 4).flatten(1) if x is None else x.clone()
    x[0, 0] = first
    return Population.from_list([(x, torch.arange(60) % 2)], name="holder")


def test_a_record_changes_no_other_record_of_a_population() -> None:
    one, other = (holder(first).mapped(pixels).client(0).train.x for first in (0.5, 1.01))
    assert torch.equal(one[1:], other[1:]) and not torch.equal(one[0], other[0])


def test_one_record_moves_the_clipped_sum_by_no_more_than_its_clip() -> None:
    """The attack that found it: 61 clip norms where 1 was accounted."""
    options = {"batch": "everyone", "records": 60, "noise_multiplier": 1e-6, "lr": 1.0, "optimizer": "sgd", "clip": 1.0}
    round, module, released = recipes.build("dp-sgd", 1, options), nn.Linear(4, 2), []
    for first in (0.5, 1.01):
        run = simulate(round, holder(first).mapped(pixels), module, classification(2), rounds=1, seed=5)
        released += [next(iter(run)).params]
    moved = float((released[0] - released[1]).norm()) * 60
    assert 0 < moved <= 2.0 + 1e-3  # swapped, one record moves it by two


@pytest.mark.parametrize("wrapped", ["mapped", "features", "data set", "voters"])
def test_wherever_a_function_of_ones_own_is_taken_it_sees_one_record(wrapped: str) -> None:
    seen: list[int] = []

    def counts(x: Tensor) -> Tensor:
        seen.append(len(x))
        if len(x) > 1:
            raise ValueError("one at a time")
        return x * 2.0

    x, y = pictures(9, 4), torch.arange(9) % 2
    if wrapped == "mapped":
        found = Population.from_list([(x, y)]).mapped(counts).client(0).train.x
    elif wrapped == "features":
        found = Features((Pixels(), counts))(x)
    elif wrapped == "data set":
        test = PublicData("test", Records(x, y))
        found = Dataset("mine", Records(x, y), test, 2, "classification", {}, counts).train.x
    else:
        Neighbours(1, counts).answers(Records(x, y), x, 2, "client 0")
        found = 2.0 * x
    assert torch.equal(found, 2.0 * x)
    assert seen.count(1) >= 9 and seen.count(2) <= 1 and max(seen) <= 2  # the two of a batch are made up


def test_a_class_that_inherits_from_a_marked_one_gets_no_batches() -> None:
    step = as_record_map(Louder())
    assert step is not Louder and type(step) is not Louder
    with pytest.raises(BadValue, match="in a batch"):
        step(pictures(5, 4))


def test_a_module_is_copied_frozen_and_alone() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(768, 24), nn.BatchNorm1d(24), nn.Dropout())
    law_of_single_records(as_record_map(net), pictures(45, 3, 16, 16))
    assert net.training and all(p.requires_grad for p in net.parameters())


def test_no_clients_record_decides_whether_a_map_is_refused() -> None:
    """It is tried on made-up records, and the same ones whatever clients hold."""
    tried: list[list[list[float]]] = []
    for x in (pictures(2, 4), pictures(3, 4) * 100.0 + 5.0):
        given: list[Tensor] = []
        as_record_map(lambda one, given=given: (given.append(one.clone()), one * 2.0)[1])(x)
        tried.append([one.flatten().tolist() for one in given[: -len(x)]])
        assert torch.equal(torch.cat(given[-len(x) :]), x)
    assert tried[0] == tried[1]


@dataclass(frozen=True)
class FailsAbove:
    """Raises what holds the record's value, or gives another shape."""

    limit: float
    how: str

    def __call__(self, x: Tensor) -> Tensor:
        if float(x.max()) > self.limit:
            if self.how == "raises":
                raise ValueError(f"{float(x.max())} is too large")
            return x.repeat(1, 2)
        return x


@pytest.mark.parametrize(("how", "said"), [("raises", "it raised ValueError"), ("grows", "gives shape (8,)")])
def test_a_record_that_a_map_fails_for_is_named_and_not_shown(how: str, said: str) -> None:
    x = torch.zeros(90, 4)
    x[71, 2] = 987654.0
    for population in (
        Population.from_list([(x[:3], torch.zeros(3)), (x, torch.zeros(90))], "people").mapped(FailsAbove(1000.0, how)),
        Population.from_list([(x[:3], torch.zeros(3)), (x, torch.zeros(90))], "people").mapped(
            Features((Pixels(), FailsAbove(1000.0, how)))
        ),
    ):
        with pytest.raises(RecordFailed) as caught:
            population.client(1)
        words = str(caught.value)
        assert "client 1 of 'people', record 71" in words and said in words and "98765" not in words
        assert population.client(0).train.count == 3
    records = Records(x, torch.zeros(90, dtype=torch.int64))
    with pytest.raises(DataError, match="client 7, record 71"):
        Neighbours(1, FailsAbove(1000.0, how)).answers(records, x[:1], 2, "client 7")
