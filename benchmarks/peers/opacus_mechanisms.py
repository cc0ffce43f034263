"""Opacus' own clip and noise, as its optimizer calls them on per-record gradients, under replay with frozen noise."""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch
from opacus.optimizers import DPOptimizer

from sfumato.testing import Pair, replay

NORM, BATCH, NOISE = 1.0, 10, 2.0
warnings.filterwarnings("ignore")


def released(gradients: list[torch.Tensor]) -> torch.Tensor:
    """The noisy mean gradient of a batch of records, each given by its gradient."""
    parameter = torch.nn.Parameter(torch.zeros(gradients[0].shape))
    parameter.grad_sample = torch.stack(gradients)
    optimizer = DPOptimizer(
        torch.optim.SGD([parameter], lr=1.0),
        noise_multiplier=NOISE,
        max_grad_norm=NORM,
        expected_batch_size=BATCH,
        generator=torch.Generator().manual_seed(0),
    )
    optimizer.pre_step()
    assert parameter.grad is not None
    return parameter.grad.clone()


def pair(name: str, value: float, shape: tuple[int, ...] = (4,), mixed: bool = False) -> Pair:
    """A record's gradient instead of a small one; the others are ordinary."""
    others = [torch.full(shape, 0.1) for _ in range(BATCH - 1)]
    gradient = torch.full(shape, 1e6 if mixed else value)
    if mixed:
        gradient[0] = value
    return Pair(name, [*others, torch.full(shape, 1e-3)], [*others, gradient])


PAIRS = [
    pair("huge gradient", 1e6),
    pair("NaN in one coordinate", float("nan"), mixed=True),
    pair("infinite gradient", float("inf")),
    pair("gradient of zeros", 0.0),
    pair("parameter without axes (0-d), huge", 1e6, ()),
]


def main() -> None:
    rows: list[dict[str, Any]] = [
        {"peer": "Opacus", "input": moved.pair, "moves": moved.l2, "stated": 2 * NORM / BATCH, "problem": moved.problem}
        for moved in replay(released, PAIRS)
    ]
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
