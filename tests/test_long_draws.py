"""Draws longer than any buffer: each is a function of fresh bytes of one keystream, up to the largest model of the library."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato import (
    AddNoise,
    Clip,
    Everyone,
    FixedSize,
    Gaussian,
    Key,
    Laplace,
    Mean,
    Poisson,
    Population,
    Round,
    Sgd,
    Staircase,
    chacha,
    simulate,
)
from sfumato.claim import Claim, Relation, Unit
from sfumato.exact_draws import below, discrete_gaussian, gaps, rounded_gaussian
from sfumato.models import NAMES, build
from sfumato.pieces.context import Context
from sfumato.pieces.exact import DiscreteGaussian, RoundedGaussian
from sfumato.pieces.law import Law
from sfumato.secure_sum import masks
from sfumato.testing.noise import check_law, check_unrepeated
from sfumato.update import Layout
from tests.slow_chacha import SlowKeystream

LONG = 2**22 // 8 + 3  # words of more than four blocks


def add_mask(key: Key) -> np.ndarray:
    row = np.zeros(LONG, "<u8")
    masks.add_mask(row, key.stream(32), 1)
    return row


DRAWS: dict[str, Callable[[Key], object]] = {
    "stream": lambda key: key.stream(8 * LONG),
    "blocks": lambda key: list(key.blocks(8 * LONG)),
    "integers": lambda key: key.integers(LONG),
    "uniform": lambda key: key.uniform(LONG),
    "permutations": lambda key: key.permutations(LONG // 1000, 1000),
    "normal": lambda key: key.normal(LONG),
    "laplace": lambda key: key.laplace(LONG),
    "dirichlet": lambda key: key.dirichlet(np.full(1000, 0.5), LONG // 2000 + 1),
    "rounded-gaussian": lambda key: rounded_gaussian(LONG, 3.0, key),
    "discrete-gaussian": lambda key: discrete_gaussian(LONG, 3.0, key),
    "gaps": lambda key: gaps(LONG, 0.3, key),
    "below": lambda key: below(1000, LONG, key),
    "poisson": lambda key: Poisson(0.5).draw(2 * LONG, key),
    "fixed-size": lambda key: FixedSize(LONG).draw(2 * LONG + 9, key),
    "mask": add_mask,
}


@pytest.mark.parametrize("name", DRAWS)
def test_every_long_draw_is_that_of_the_twin(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = DRAWS[name](Key.from_seed(1))
    for module in ("key", "secure_sum.masks"):
        monkeypatch.setattr(f"sfumato.{module}.Keystream", SlowKeystream)
    slow = DRAWS[name](Key.from_seed(1))
    assert len(drawn) >= min(LONG // 2000, 4)  # type: ignore[arg-type]
    assert bool(np.all(np.asarray(drawn) == np.asarray(slow))) if not isinstance(drawn, list) else drawn == slow


@pytest.mark.parametrize(("name", "count"), [("normal", LONG), ("laplace", LONG)])
def test_long_float_draws_follow_their_formula_word_by_word(name: str, count: int) -> None:
    """The draw again from all words at once, written from the definition."""
    key = Key.from_seed(2)
    if name == "laplace":
        words = np.frombuffer(SlowKeystream(key.to_bytes()).read(8 * count), "<u8")
        size = -np.log(((words & np.uint64(2**63 - 1)).astype(float) + 0.5) / 2.0**63) / math.sqrt(2.0)
        expected = np.where(words >> np.uint64(63) == 1, -size, size)
    else:
        words = np.frombuffer(SlowKeystream(key.to_bytes()).read(8 * (count + count % 2)), "<u8")
        pairs = [block.reshape(2, -1) for block in np.split(words, range(2**17, len(words), 2**17))]
        first, second = np.concatenate(pairs, axis=1)
        radius = np.sqrt(-2.0 * np.log(((first & np.uint64(2**63 - 1)).astype(float) + 0.5) / 2.0**63))
        angle = 2.0 * math.pi * ((second & np.uint64(2**53 - 1)).astype(float) + 0.5) / 2.0**53
        expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
    np.testing.assert_allclose(getattr(key, name)(count).numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def largest() -> int:
    """The parameters of the largest model of the library: of all names, only a ResNet has more than two million."""
    assert set(NAMES) == {
        "logistic",
        "mlp",
        "cnn-mnist",
        "cnn-emnist",
        "cnn-cifar",
        "cnn-medical",
        "cnn-wind",
        "resnet-18",
        "char-lstm",
    }
    return sum(p.numel() for p in build("resnet-18", (3, 32, 32), 100, Key.from_seed(0)).parameters())


def released(noise: Law, dimension: int) -> tuple[np.ndarray, float]:
    """What a server's noise adds to a sum of zeros, and the standard deviation that is accounted."""
    grid = 2.0**-20 if isinstance(noise, RoundedGaussian | DiscreteGaussian) else None
    claim = Clip(1.0, order=noise.order).carry(Claim(Unit.CLIENT, Relation.ADD_REMOVE, 9, dimension))
    claim = replace(claim, sampling=Everyone(), aggregated=True, grid=grid)
    layout = Layout(("weight",), (torch.Size([dimension]),))
    sum_of_zeros = torch.zeros(dimension, dtype=torch.float64)
    noisy = AddNoise(noise)(sum_of_zeros, Context(0, layout, claim, Key.from_seed(11)))
    return noisy.double().numpy(), noise.stddev(claim)


NOISES = (
    Gaussian(1.0),
    Laplace(1.0),
    Laplace(1.0, order=2),
    Staircase(1.0),
    RoundedGaussian(1.0),
    DiscreteGaussian(1.0),
)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_noise_at_the_largest_dimension_does_not_repeat(noise: Law, largest: int) -> None:
    drawn, stddev = released(noise, largest)
    assert len(drawn) == largest > 2**23
    check_unrepeated(drawn, stddev)
    check_law(drawn[:: largest // 20_000], stddev, "laplace" if isinstance(noise, Laplace | Staircase) else "norm")
    if not isinstance(noise, RoundedGaussian | DiscreteGaussian):
        assert len(np.unique(drawn)) > largest - 1000, "equal coordinates"


class OverwrittenBuffer(chacha.Keystream):
    """The defect of version 0.2.0: all reads of a size share one buffer."""

    def read(self, size: int) -> bytearray:
        if not hasattr(self, "_rooms"):
            self._rooms: dict[int, bytearray] = {}
        room = self._rooms.setdefault(size, bytearray(size))
        room[:] = super().read(size)
        return room


def joined_views(self: Key, size: int) -> bytes:
    """`Key.stream` as that version had it: views of blocks, joined when the last one is there."""
    return b"".join(list(self.blocks(size)))


@pytest.fixture
def _as_in_0_2_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.key.Keystream", OverwrittenBuffer)
    monkeypatch.setattr(Key, "stream", joined_views)


@pytest.mark.usefixtures("_as_in_0_2_0")
@pytest.mark.parametrize("noise", [Laplace(1.0), Laplace(1.0, order=2), Staircase(1.0)], ids=repr)
def test_an_overwritten_buffer_is_caught(noise: Law) -> None:
    drawn, stddev = released(noise, 2**19)
    with pytest.raises(AssertionError, match="repeats"):
        check_unrepeated(drawn, stddev)


DIMENSION = 2**18 + 2**17
LAGS = sorted({2**power for power in range(8, 19)} | set(range(2**15, DIMENSION, 2**15)))


class Scale(torch.nn.Module):
    """One weight a coordinate."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(DIMENSION))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sum(1, keepdim=True)


def equal_pairs(noise: Law, present: bool) -> int:
    """The attack: in how many of 10 rounds the change of the first coordinate equals that of one at a suspected distance.

    The victim's update moves only the first coordinate; so where noise repeats, it differs from its copy by what the victim
    added, and by nothing without it.
    """
    x = torch.zeros(2, 1, DIMENSION)
    x[1, 0, 0] = 5.0 if present else 0.0
    clients = Population.from_list([(one, torch.ones(1, 1)) for one in x])
    order = getattr(noise, "order", 2)
    round = Round(
        Everyone(),
        Sgd(lr=1.0, steps=1, batch_size=1),
        Mean(over=2),
        client=(Clip(1.0, order=order),),
        server=(AddNoise(noise),),
    )
    run = simulate(round, clients, Scale(), rounds=10, objective=torch.nn.MSELoss(), seed=1)
    models = [np.zeros(DIMENSION), *(progress.params.double().numpy() for progress in run)]
    changes = np.diff(models, axis=0)
    return int((np.abs(changes[:, LAGS] - changes[:, :1]) < 1e-5).any(1).sum())


ATTACKED = [Laplace(10.0), Laplace(10.0, order=2), Staircase(10.0), Gaussian(10.0)]


@pytest.mark.parametrize("noise", ATTACKED, ids=repr)
def test_a_victim_among_many_coordinates_is_hidden(noise: Law) -> None:
    """Fresh noise: no pair is ever equal, with the victim or without."""
    assert equal_pairs(noise, present=False) == equal_pairs(noise, present=True) == 0


@pytest.mark.usefixtures("_as_in_0_2_0")
@pytest.mark.parametrize("noise", ATTACKED[:3], ids=repr)
def test_the_attack_works_on_an_overwritten_buffer(noise: Law) -> None:
    assert (equal_pairs(noise, present=False), equal_pairs(noise, present=True)) == (10, 0)
