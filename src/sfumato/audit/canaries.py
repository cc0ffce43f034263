"""Pieces that put canaries into a round and watch what it shows, and leave everything else of the round as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from sfumato.claim import Claim
from sfumato.local.task import Task
from sfumato.pieces.context import Context, Facts
from sfumato.pieces.protocol import Aggregate, ClientPiece, LocalPiece, ServerPiece, State, StepRule
from sfumato.pieces.wrapper import forward_hooks
from sfumato.shapes import Rows


@dataclass(frozen=True)
@forward_hooks
class Canaries(LocalPiece):
    """Clients from number `first` on send what `rows` holds for them, one row each; those before train by `inner`.

    States what `inner` states: a row that a canary sends is one that the proof allows any client to send.
    """

    inner: LocalPiece
    first: int
    rows: Tensor = field(repr=False, compare=False)
    fresh_rows: ClassVar[bool] = True

    def train(self, task: Task) -> Rows:
        numbers = torch.tensor(task.ids, dtype=torch.int64) - self.first
        found = self.rows[numbers.clamp(min=0)]
        trained = [place for place, number in enumerate(numbers.tolist()) if number < 0]
        if trained:
            found[trained] = self.inner.train(task.some(trained)).to(found)
        return found

    def carry(self, claim: Claim) -> Claim:
        return self.inner.carry(claim)

    def prepare(self, facts: Facts) -> Tensor | None:
        return self.inner.prepare(facts) if self.first else None


@dataclass(frozen=True)
@forward_hooks
class WatchedNoise(ServerPiece):
    """The server's noise, and whoever sees what comes out of it: all that the proof says anybody sees."""

    inner: ServerPiece
    seen: list[Tensor] = field(repr=False, compare=False)

    def __call__(self, value: Tensor, context: Context) -> Tensor:
        found = self.inner(value, context)
        self.seen.append(found.double().clone())
        return found

    def carry(self, claim: Claim) -> Claim:
        return self.inner.carry(claim)


@dataclass(frozen=True)
@forward_hooks
class WatchedSum(Aggregate):
    """A sum that is private because of the noise in its rows, and whoever sees it."""

    inner: Aggregate
    seen: list[Tensor] = field(repr=False, compare=False)

    def weights(self, sizes: Tensor) -> Tensor:
        return self.inner.weights(sizes)

    def finish(self, total: Tensor, weight: float) -> Tensor:
        found = self.inner.finish(total, weight)
        self.seen.append(found.double().clone())
        return found

    def carry(self, claim: Claim) -> Claim:
        return self.inner.carry(claim)


@dataclass(frozen=True)
class WatchedMessages(ClientPiece):
    """Whoever sees the message of one client, after its own noise: this changes nothing."""

    client: int
    seen: list[Tensor] = field(repr=False, compare=False)
    keeps_grid: ClassVar[bool] = True
    keeps_distances: ClassVar[bool] = True

    def __call__(self, rows: Rows, context: Context) -> Rows:
        for place in _places(context.ids, self.client):
            self.seen.append(rows[place].double().clone())
        return rows

    def carry(self, claim: Claim) -> Claim:
        return claim


@dataclass(frozen=True)
@forward_hooks
class NoiseWatcher(ClientPiece, ServerPiece):
    """A piece that adds noise, with its values before and after."""

    inner: Any
    seen: list[tuple[Tensor, Tensor]] = field(repr=False, compare=False)

    def __call__(self, value: Tensor, context: Context) -> Tensor:
        before = value.double().clone()
        found = self.inner(value, context)
        self.seen.append((before, found.double()))
        return found  # type: ignore[no-any-return]

    def carry(self, claim: Claim) -> Claim:
        return self.inner.carry(claim)  # type: ignore[no-any-return]


def _places(ids: Sequence[int], client: int) -> list[int]:
    return [place for place, number in enumerate(ids) if number == client]


@dataclass(frozen=True)
class WatchedSteps(StepRule):
    """Goes nowhere, and keeps every noisy mean gradient that private local training gives it: the proof pays for each."""

    seen: list[Tensor] = field(repr=False, compare=False)
    lr: float = 1.0

    def step(self, params: Tensor, state: State, update: Tensor) -> tuple[Tensor, State]:
        self.seen.append(-update.double())
        return params, state

    def carry(self, claim: Claim) -> Claim:
        return claim
