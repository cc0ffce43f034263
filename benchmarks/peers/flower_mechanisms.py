"""Flower's own clip, weighted mean and noise, as its fixed-clipping strategy calls them, under replay with frozen noise."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
from flwr.supercore.differential_privacy import add_gaussian_noise_inplace, compute_clip_model_update, compute_stdv

from sfumato.account.gdp import gdp_epsilon
from sfumato.testing import Pair, audit_mechanism, replay

NORM, CLIENTS, NOISE = 1.0, 10, 2.0
logging.disable(logging.CRITICAL)
np.seterr(all="ignore")


def released(clients: list[tuple[list[np.ndarray], float]]) -> list[np.ndarray]:
    """The noisy mean of clipped updates; a client is its update, as arrays, and its number of examples."""
    records = []
    for update, examples in clients:
        current = [np.zeros_like(array) for array in update]
        trained = [array.copy() for array in update]
        compute_clip_model_update(trained, current, NORM)
        arrays = ArrayRecord({str(place): Array(np.asarray(array)) for place, array in enumerate(trained)})
        records.append(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": examples})}))
    mean = aggregate_arrayrecords(records, "num-examples").to_numpy_ndarrays()
    add_gaussian_noise_inplace(mean, compute_stdv(NOISE, NORM, CLIENTS))
    return mean


def client(value: float, shape: tuple[int, ...] = (4,), examples: float = 1.0) -> tuple[list[np.ndarray], float]:
    return [np.full(shape, value, dtype=np.float32)], examples


def pair(name: str, one: tuple[list[np.ndarray], float], shape: tuple[int, ...] = (4,)) -> Pair:
    """A client's update instead of a small one, which it could have been: the others are ordinary."""
    others = [client(0.1, shape) for _ in range(CLIENTS - 1)]
    usual = client(1e-3, shape, one[1])
    return Pair(name, [*others, usual], [*others, one])


def mixed() -> tuple[list[np.ndarray], float]:
    """One NaN, and everything else far beyond the norm."""
    update = np.full(4, 1e6, dtype=np.float32)
    update[0] = np.nan
    return [update], 1.0


PAIRS = [
    pair("huge update", client(1e6)),
    pair("NaN in one coordinate", mixed()),
    pair("infinite update", client(np.inf)),
    pair("update of zeros", client(0.0)),
    pair("parameter without axes (0-d), huge", client(1e6, ()), ()),
    pair("weight of a million examples", client(1e6, examples=1e6)),
]


def main() -> None:
    stated = 2 * NORM / CLIENTS  # whichever the relation: a clipped update in place of another one
    rows: list[dict[str, Any]] = [
        {"peer": "Flower", "input": moved.pair, "moves": moved.l2, "stated": stated, "problem": moved.problem}
        for moved in replay(released, PAIRS, lambda: np.random.seed(0))
    ]
    alone, delta = [client(0.1, ()) for _ in range(CLIENTS)], 1e-5
    worlds = alone, [*alone[1:], client(1e6, ())]
    found = audit_mechanism(released, *worlds, delta=delta, epsilon=gdp_epsilon(2 / NOISE, delta), runs=3000)
    print(json.dumps({"rows": rows, "audit": f"parameter without axes, huge: {found}"}))


if __name__ == "__main__":
    main()
