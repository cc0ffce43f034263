"""What somebody who trains alone holds already: tensors, a torch Dataset or a DataLoader, made into records in memory."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data import default_collate as put_together

from sfumato.data.records import Records, as_client, kind
from sfumato.errors import BadValue, DataError


def loaded(data: Any) -> tuple[Any, int | None]:
    """The dataset of a DataLoader and its batch size, or the data as they are.

    A loader's order is not used: batches are drawn anew. So one that would choose records in a way of its own, or make batches
    of its own, is refused; it would not be what trains.
    """
    if not isinstance(data, DataLoader):
        return data, None
    if data.batch_size is None or not _ordinary(data.sampler):
        raise BadValue(
            f"the DataLoader draws with {type(data.sampler if data.batch_size else data.batch_sampler).__name__}, and that is not "
            "what would train: each record is drawn by chance, independently of the others, and that is what is accounted. Give "
            "the dataset itself, and batch_size=."
        )
    if data.collate_fn is not put_together:
        raise BadValue(
            "the DataLoader makes its batches with a collate_fn of its own, in which records could reach each other. Give the "
            "dataset itself, with one input and one target for each record."
        )
    return data.dataset, data.batch_size


def _ordinary(sampler: Any) -> bool:
    """Each record once in a pass, in order or shuffled."""
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return isinstance(sampler, SequentialSampler)


def records_of(data: Any) -> Records:
    """All records, in memory: of `(x, y)`, or of a Dataset whose items are one input and one target.

    Items are read once, now: a transform that draws at random would be drawn once for the whole training.

    >>> import torch
    >>> records_of(TensorDataset(torch.ones(3, 2), torch.zeros(3))).count
    3
    """
    if isinstance(data, IterableDataset):
        raise DataError(
            f"a {type(data).__name__} gives records in its own order, so none can be drawn by chance. Give a Dataset with a "
            "length, or tensors (x, y)."
        )
    if isinstance(data, TensorDataset):
        data = data.tensors
    elif isinstance(data, Dataset):
        data = _read(data)
    if isinstance(data, tuple | list) and len(data) != 2:
        raise DataError(f"the data are {len(data)} parts, not one input and one target for each record. Give (x, y).")
    return as_client(data, "the data").train


def _read(data: Dataset[Any]) -> Any:
    count = len(data)  # type: ignore[arg-type]  # a Dataset need not say how long it is
    if not count:
        raise DataError(f"the {type(data).__name__} has no records. Give one that has.")
    items = [data[number] for number in range(count)]
    if not isinstance(items[0], tuple | list) or len(items[0]) != 2:
        raise DataError(
            f"an item of the {type(data).__name__} is {kind(items[0])}, not one input and one target. Wrap it in a Dataset whose "
            "items are (x, y)."
        )
    try:
        return put_together(items)
    except (TypeError, RuntimeError) as error:
        raise DataError(
            f"the items of the {type(data).__name__} cannot be stacked: {str(error).partition(':')[0]}. Give each record an input "
            "and a target of the same shape, as tensors, arrays or numbers."
        ) from error
