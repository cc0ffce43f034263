"""A piece around another one answers every hook of its protocols as the other does, but for those that are its own."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pytest
import torch

import sfumato
from sfumato import (
    AddNoise,
    Averaged,
    ControlVariates,
    DpSgd,
    Everyone,
    Gaussian,
    PerClient,
    Poisson,
    RealisedMean,
    Relation,
    Sgd,
    Sum,
    Unit,
)
from sfumato.account.event import ByClient
from sfumato.audit.canaries import Canaries, NoiseWatcher, WatchedNoise, WatchedSum
from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.local.nbafl import WithinBall
from sfumato.local.second_moments import SecondMoments
from sfumato.pieces.protocol import Aggregate, ClientPiece, LocalPiece, Piece, ServerPiece, StepRule, hooks
from sfumato.pieces.wrapper import forward_hooks
from tests.helpers import dp_round, unchecked

# Each wrapper with its protocol and the hooks that are its own.
OWN: dict[type[Any], tuple[type[Any], set[str]]] = {
    Canaries: (LocalPiece, {"train", "fresh_rows"}),
    NoiseWatcher: (ClientPiece, {"__call__"}),
    WatchedNoise: (ServerPiece, {"__call__"}),
    WatchedSum: (Aggregate, {"finish"}),
    WithinBall: (LocalPiece, {"train", "carry", "controlled", "fresh_rows", "keeps_grid", "keeps_distances"}),
    Averaged: (StepRule, {"start", "step", "report", "learn"}),
}
FORWARDED = [(kind, name) for kind, (protocol, own) in OWN.items() for name in sorted(hooks(protocol).keys() - own)]


def kinds(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_wrapper_is_known() -> None:
    for found in pkgutil.walk_packages(sfumato.__path__, "sfumato."):
        if found.name.split(".")[1] not in ("commands", "ui"):
            importlib.import_module(found.name)
    wrappers = {
        kind
        for kind in kinds(Piece)
        if kind.__module__.startswith("sfumato.") and "inner" in getattr(kind, "__dataclass_fields__", {})
    }
    assert wrappers == OWN.keys()


class Spy:
    """What each hook was asked; it answers with something that nothing else gives."""

    def __init__(self, protocol: type[Any]) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answers = {name: object() for name in hooks(protocol)}

    def of(self, protocol: type[Any]) -> Any:
        def method(name: str) -> Any:
            return lambda _, *args, **kwargs: self.asked.append((name, *args, *kwargs.values())) or self.answers[name]

        def fact(name: str) -> Any:
            return property(lambda _: self.answers[name])

        own = {name: method(name) if callable(one) else fact(name) for name, one in hooks(protocol).items()}
        return type("Spied", (protocol,), own)()


def wrapper(kind: type[Any], inner: Any) -> Any:
    """A wrapper around a piece; what else it holds is nothing of note."""
    others = {"first": 1, "rows": torch.zeros(1, 1), "seen": [], "norm": 20.0, "decay": 0.9}
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(inner=inner, **{name: value for name, value in others.items() if name in names})


@pytest.mark.parametrize(("kind", "name"), FORWARDED, ids=[f"{kind.__name__}.{name}" for kind, name in FORWARDED])
def test_a_hook_is_that_of_the_piece_inside(kind: type[Any], name: str) -> None:
    protocol, _ = OWN[kind]
    spy, declared = Spy(protocol), hooks(protocol)[name]
    with unchecked():
        piece = wrapper(kind, spy.of(protocol))
        if not callable(declared):
            assert getattr(piece, name) is spy.answers[name]
            return
        given = [object() for _ in list(inspect.signature(declared).parameters)[1:]]
        answer = getattr(piece, name)(*given)
        assert spy.asked == [(name, *given)]
        if name == "with_noise":
            assert type(answer) is kind and answer.inner is spy.answers[name]
        else:
            assert answer is spy.answers[name]


def test_a_new_hook_cannot_be_forgotten() -> None:
    @runtime_checkable
    class More(Aggregate, Protocol):
        newest: int

        def asked(self, what: int) -> int:
            return 0

        @property
        def oldest(self) -> int:
            return 0

    @dataclass(frozen=True)
    class Inside(Sum, More):
        newest: int = 3

        def asked(self, what: int) -> int:
            return what + 1

        @property
        def oldest(self) -> int:
            return 4

    @dataclass(frozen=True)
    @forward_hooks
    class Around(More):
        inner: Any

        def finish(self, total: torch.Tensor, weight: float) -> torch.Tensor:
            return -self.inner.finish(total, weight)

    around = Around(Inside())
    assert (around.asked(1), around.oldest, around.newest) == (2, 4, 3)
    assert around.weights(torch.ones(2)).tolist() == [1.0, 1.0] and around.finish(torch.ones(1), 1.0).item() == -1.0
    assert isinstance(around, More)


def test_what_a_hook_is_made_of_goes_through_the_wrapper() -> None:
    """The step that averages is taken by `learn` too, whatever `learn` of the optimizer inside would do."""
    params, update = torch.zeros(3), torch.ones(3)
    averaged = Averaged(sfumato.GradientDescent(), 0.5)
    context: Any = None
    with unchecked():
        _, state = averaged.learn(params, averaged.start(params), update, context)
    assert torch.equal(state["average"], torch.full((3,), 0.5))


def test_clients_that_are_named_inside_are_told_apart() -> None:
    """A default in place of the inner piece's clients priced all of them as the quietest: epsilon a hundredth of the true one."""
    loud, quiet = (DpSgd(1, Everyone(), 5, law=Gaussian(noise)) for noise in (0.1, 10.0))
    slots: dict[str, Any] = {
        "client": (),
        "aggregate": RealisedMean(),
        "server": (),
        "sample": Everyone(),
        "unit": Unit.RECORD,
    }
    alone, within = (
        dp_round(local=local, **slots).derive(population=4, dimension=21).primary.world
        for local in (PerClient(quiet, {0: loud}), WithinBall(PerClient(quiet, {0: loud}), 20.0))
    )
    assert isinstance(within, ByClient) and within == alone


def test_a_ball_bounds_no_row() -> None:
    """The global model may lie outside of it, and a client's row then leads back: it is as long as that is far."""
    claim = Claim(Unit.CLIENT, Relation.REPLACE, 4, 21)
    assert SecondMoments(6).carry(claim).l2 == 1.0
    stated = WithinBall(SecondMoments(6), 20.0).carry(claim)
    assert stated.l2 == stated.l1 == float("inf")


def test_steps_within_a_ball_cannot_be_corrected() -> None:
    plain = Sgd(lr=0.1, steps=2)
    assert plain.controlled(0) and WithinBall(plain, 20.0).controlled(0) is None
    with pytest.raises(BadValue, match="plain steps"):
        sfumato.simulate(
            dp_round(local=WithinBall(plain, 20.0), personal=ControlVariates(), sample=Poisson(0.5)),
            sfumato.Population.from_list([(torch.ones(3, 2), torch.zeros(3).long())] * 4),
            torch.nn.Linear(2, 2),
            sfumato.classification(2),
            rounds=1,
        )


def test_noise_inside_can_be_chosen() -> None:
    watched = WatchedNoise(AddNoise(Gaussian(1.0)), [])
    assert watched.with_noise(2.0) == WatchedNoise(AddNoise(Gaussian(2.0)), [])
