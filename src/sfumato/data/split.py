"""How a pool of records becomes clients: iid, shards by label, Dirichlet in both common forms, and clients as they are.

Each split returns one array of row numbers per client. A record goes to at most one client, and everything follows from
the key, which is public: a split is part of an experiment's description.

| text                  | who gets what                                                             | client sizes     |
|-----------------------|---------------------------------------------------------------------------|------------------|
| `iid`                 | records at random                                                         | equal            |
| `shards:4`            | 4 runs of the records sorted by label (McMahan et al. 2017)               | equal            |
| `dirichlet:0.5`       | each client draws its own mixture of classes (Hsu et al. 2019)            | equal            |
| `dirichlet-classes:0.5` | each class is divided over the clients (Yurochkin et al. 2019)          | very different   |
| `natural`             | the data's own clients, some of them at random: Shakespeare's roles       | their own        |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import BadValue, DataError, nearest

if TYPE_CHECKING:
    from sfumato.data.population import Records
    from sfumato.key import Key

SPLITS = {
    "iid": "",
    "shards": "4",
    "dirichlet": "0.5",
    "dirichlet-classes": "0.5",
    "natural": "",
}  # examples of numbers


def iid(records: Records, clients: int, key: Key, records_per_client: int | None = None) -> list[np.ndarray]:
    """Records at random; without `records_per_client` all of them, and sizes differ by at most one."""
    return np.array_split(_chosen(records.count, clients, key, records_per_client), clients)


def shards(
    records: Records, clients: int, shards_per_client: int, key: Key, records_per_client: int | None = None
) -> list[np.ndarray]:
    """Records sorted by label and cut into equal shards, of which each client gets `shards_per_client` at random.

    What does not fill a shard is left out, at random. A client sees few labels: about as many as it has shards.
    """
    count = clients * shards_per_client
    if records_per_client is not None and records_per_client % shards_per_client:
        raise BadValue(
            f"{records_per_client} records per client do not make {shards_per_client} equal shards. "
            f"Use a multiple of {shards_per_client}, or --records-per-client 0, which shares out all."
        )
    order = _chosen(records.count, clients, key, records_per_client)
    size = len(order) // count
    if size == 0:
        raise BadValue(f"{records.count} records do not fill {count} shards. Use fewer clients or fewer shards each.")
    order = order[: size * count]
    order = order[np.argsort(_labels(records)[order], kind="stable")].reshape(count, size)
    deal = key.child("deal").permutations(1, count)[0].reshape(clients, shards_per_client)
    return list(order[deal].reshape(clients, -1))


def dirichlet(
    records: Records, clients: int, concentration: float, key: Key, records_per_client: int | None = None
) -> list[np.ndarray]:
    """Equal clients, each with its own mixture of classes from a Dirichlet around the pool's frequencies.

    Each class has `concentration` times its frequency relative to a balanced pool, which gives the usual symmetric
    Dirichlet there; Hsu et al. state the sum over classes instead. Classes are used up as clients draw from them; a
    client that wants one that is gone draws anew.
    """
    shuffled = _by_class(records, key)
    size = _used(records.count, clients, records_per_client) // clients
    left = np.array([len(rows) for rows in shuffled])
    mixtures = key.child("mixture").dirichlet(concentration * left * len(left) / left.sum(), clients)
    parts = []
    for client, mixture in enumerate(mixtures):
        taken = _take(mixture, left, size, key.child("client", number=client))
        parts.append(np.concatenate([rows[n - m : n] for rows, n, m in zip(shuffled, left, taken, strict=True)]))
        left = left - taken
    return parts


def dirichlet_classes(records: Records, clients: int, concentration: float, key: Key) -> list[np.ndarray]:
    """Each class divided over the clients in proportions from a symmetric Dirichlet; every record is used.

    Sizes differ widely when the concentration is small, and a client may end up with no record at all.
    """
    shuffled = _by_class(records, key)
    shares = key.child("shares").dirichlet(np.full(clients, float(concentration)), len(shuffled))
    pieces = [
        np.split(rows, np.rint(np.cumsum(share)[:-1] * len(rows)).astype(np.int64))
        for rows, share in zip(shuffled, shares, strict=True)
    ]
    return [np.concatenate(piece) for piece in zip(*pieces, strict=True)]


def natural(own: np.ndarray, clients: int, key: Key, records_per_client: int | None = None) -> list[np.ndarray]:
    """Clients of the data's own, which ones and in which order at random; `own` says where the rows of each begin.

    `records_per_client` is a cap: of a client with more, records at even distances are used, in their order.
    """
    there = len(own) - 1
    if clients > there:
        raise BadValue(f"clients={clients}, but the data has {there} of its own. Declare at most what is there.")
    chosen = key.child("natural").permutations(1, there)[0][:clients]
    counts = np.diff(own)
    return [own[i] + spread(int(counts[i]), records_per_client or int(counts[i])) for i in chosen]


def spread(count: int, at_most: int) -> np.ndarray:
    """At most so many of `count` places, at even distances.

    >>> spread(10, 4)
    array([0, 2, 5, 7])
    """
    return np.arange(count) if count <= at_most else np.arange(at_most) * count // at_most


def parse(text: str) -> tuple[str, float | None]:
    """The name and number of a split's text.

    >>> parse("shards:4"), parse("iid")
    (('shards', 4.0), ('iid', None))
    """
    name, colon, number = text.partition(":")
    if name not in SPLITS:
        raise BadValue(f"unknown split {text!r}. {nearest(name, SPLITS)}")
    if not SPLITS[name]:
        if colon:
            raise BadValue(f"split {text!r}: {name} takes no number. Write {name}.")
        return name, None
    example = f"Write {name}:{SPLITS[name]}, for example."
    try:
        value = float(number)
    except ValueError:
        raise BadValue(f"split {text!r}: {name} needs a number. {example}") from None
    if not 0 < value < float("inf") or (name == "shards" and value != int(value)):
        kind = "a whole number above 0" if name == "shards" else "a finite number above 0"
        raise BadValue(f"split {text!r}: {number} is not {kind}. {example}")
    return name, value


def partition(
    text: str,
    records: Records,
    clients: int,
    key: Key,
    records_per_client: int | None = None,
    own: np.ndarray | None = None,
) -> list[np.ndarray]:
    """The split that a text names, see the table on top; `own` is where the rows of each natural client begin."""
    name, value = parse(text)
    if clients < 1:
        raise BadValue(f"clients={clients}: there must be at least one.")
    if records_per_client is not None and records_per_client < 1:
        raise BadValue(f"records_per_client={records_per_client}: give each client at least one record.")
    if name == "natural":
        if own is None:
            raise BadValue("split 'natural': these data have no clients of their own. Use iid, for example.")
        return natural(own, clients, key, records_per_client)
    if value is None:
        return iid(records, clients, key, records_per_client)
    if name == "shards":
        return shards(records, clients, int(value), key, records_per_client)
    if name == "dirichlet":
        return dirichlet(records, clients, value, key, records_per_client)
    if records_per_client is not None:
        raise BadValue(
            f"{text} gives clients of its own sizes, so records_per_client={records_per_client} cannot hold. "
            "Use dirichlet, or --records-per-client 0."
        )
    return dirichlet_classes(records, clients, value, key)


def _chosen(count: int, clients: int, key: Key, records_per_client: int | None) -> np.ndarray:
    """The records that are used, in random order."""
    order: np.ndarray = key.child("order").permutations(1, count)[0]
    return order[: _used(count, clients, records_per_client)]


def _used(count: int, clients: int, records_per_client: int | None) -> int:
    """How many records are used; there must be one for each client, or as many as are asked for."""
    needed = clients * (records_per_client or 1)
    if needed > count:
        raise BadValue(
            f"{clients} clients of {records_per_client or 'at least 1'} need {needed} records, the pool has {count}. "
            "Use fewer clients or fewer records each."
        )
    return count if records_per_client is None else needed


def _take(mixture: np.ndarray, left: np.ndarray, size: int, key: Key) -> np.ndarray:
    """How many of each class a client takes: draws from its mixture, repeated where a class has run out."""
    taken: np.ndarray = np.zeros_like(left)
    attempt = 0
    while missing := size - int(taken.sum()):
        weights = np.where(taken < left, mixture, 0.0)
        if not weights.any():
            weights = (left - taken).astype(np.float64)
        edges = np.cumsum(weights / weights.sum())
        drawn = np.searchsorted(edges[:-1], key.child("draw", attempt=attempt).uniform(missing), side="right")
        taken = np.minimum(taken + np.bincount(drawn, minlength=len(left)), left)
        attempt += 1
    return taken


def _labels(records: Records) -> np.ndarray:
    if records.y.ndim != 1 or records.y.is_floating_point():
        raise DataError(
            f"a split by label needs one class per record; y is {records.y.dtype} of shape {tuple(records.y.shape)}. "
            "Use iid."
        )
    labels: np.ndarray = records.y.numpy()
    return labels


def _by_class(records: Records, key: Key) -> list[np.ndarray]:
    """The rows of each class, in random order."""
    labels = _labels(records)
    rows = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return [some[key.child("class", number=i).permutations(1, len(some))[0]] for i, some in enumerate(rows)]
