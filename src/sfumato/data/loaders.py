"""A DataLoader as data: its dataset, and how large its batches are."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, default_collate

from sfumato.errors import BadValue


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
    if data.collate_fn is not default_collate:
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
