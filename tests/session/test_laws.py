"""The laws of a private step, on what lands in `.grad`: noise, sensitivity, and an attack that stays under the guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from scipy.stats import kstest
from torch import nn

from sfumato import Session, private
from sfumato.gradients import ClippedSum
from sfumato.testing import Pair, audit_mechanism, check_replay, replay
from sfumato.testing.replay import worst

CLIP, BATCH = 0.5, 8
Data = tuple[torch.Tensor, torch.Tensor]


def product(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A record's gradient is y times x, whatever the parameters are."""
    return outputs.squeeze(-1) * y


def still(data: Data, inputs: int, **changed: Any) -> Session:
    """A session that learns nothing, so that its releases are alike: its learning rate is zero."""
    module = nn.Linear(inputs, 1, bias=False)
    nn.init.zeros_(module.weight)
    options: dict[str, Any] = {"batch_size": BATCH, "records": BATCH, "steps": 1, "noise_multiplier": 1.0, "seed": 0}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    return private(module, optimizer, data, product, clip=CLIP, **(options | changed))


def releases(session: Session) -> Iterator[torch.Tensor]:
    """What each step put into `.grad`."""
    for _ in session:
        (parameter,) = session.module.parameters()
        assert parameter.grad is not None
        yield parameter.grad.clone().flatten()


@pytest.mark.parametrize(("scale", "is_right"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_noise_is_the_multiple_of_the_clip_over_the_expected_batch(scale: float, is_right: bool) -> None:
    """Nobody's gradient, so all of it is noise; one record is there, and the divisor is that of the expected batch."""
    session = still((torch.zeros(1, 4000), torch.zeros(1)), 4000, noise_multiplier=2.0)
    (found,) = releases(session)
    stddev = scale * 2.0 * CLIP / BATCH
    assert bool(kstest(found.numpy() / stddev, "norm").pvalue > 1e-6) is is_right


def pairs() -> list[Pair]:
    """One record more among others: ordinary, huge, tiny, NaN, infinite."""
    found = []
    for rest in (1.0, 1e30):
        x, y = torch.full((BATCH - 1, 3), rest), torch.ones(BATCH - 1)
        for value in (1.0, -1e30, 1e-40, float("nan"), float("inf")):
            more = torch.cat([x, torch.full((1, 3), value)]), torch.ones(BATCH)
            found.append(Pair(f"{value}, others {rest}", (x, y), more))
    return found


def summed(data: Data) -> torch.Tensor:
    (found,) = releases(still(data, 3))
    return BATCH * found


def test_one_record_moves_a_step_by_the_clip_norm_and_as_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same seed, noise is the same for both datasets."""
    moves = replay(summed, pairs())
    assert 0.999 * CLIP < worst(moves).l2 <= CLIP * (1 + 1e-6), worst(moves)
    whole = ClippedSum.__call__
    monkeypatch.setattr(ClippedSum, "__call__", lambda self, *given: 1.01 * whole(self, *given))
    with pytest.raises(AssertionError, match="is stated"):
        check_replay(summed, pairs()[:1], sensitivity=CLIP)


class Stepping:
    """One step of a long session for each run; a session for each world."""

    def __init__(self, runs: int, noise: float) -> None:
        self.options = {"noise_multiplier": noise, "steps": runs, "batch_size": BATCH // 2}
        self.worlds: dict[int, Iterator[torch.Tensor]] = {}

    def __call__(self, data: Data) -> torch.Tensor:
        if id(data) not in self.worlds:
            self.worlds[id(data)] = releases(still(data, 3, **self.options))
        return next(self.worlds[id(data)])


@pytest.mark.parametrize(("noise", "refuted"), [(2.0, False), (0.2, True)])
def test_a_canary_stays_under_the_guarantee(noise: float, refuted: bool) -> None:
    """Half of the batches have the canary. With a tenth of the noise that is claimed, the same attack refutes the claim."""
    delta, runs = 1e-3, 240
    others = torch.zeros(BATCH - 1, 3), torch.ones(BATCH - 1)
    canary = torch.cat([others[0], torch.full((1, 3), 1e3)]), torch.ones(BATCH)
    honest = still(others, 3, batch_size=BATCH // 2, noise_multiplier=2.0)
    honest.step()
    claimed = honest.epsilon(delta)
    found = audit_mechanism(Stepping(runs, noise), others, canary, delta=delta, epsilon=claimed, runs=runs)
    assert found.refuted is refuted, found
