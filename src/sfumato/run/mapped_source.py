"""The data of a run with its features: all records mapped, at once and kept on disk, or whenever a client is drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from sfumato.data.load import data_folder
from sfumato.data.population import PublicData, Records
from sfumato.data.record_map import unchanged
from sfumato.data.sets import Dataset
from sfumato.errors import BadValue
from sfumato.features import Features, cached, learns, mapped, parse_features
from sfumato.run.naming import naming
from sfumato.run.request import DataRequest
from sfumato.run.source import Source

_MOST_BYTES = 4 * 2**30  # of mapped records that are kept on disk; of more, clients are mapped when they are drawn


def with_features(data: DataRequest, found: Source) -> Source:
    """All records mapped: those of a named data set at once, and kept on disk; a user's own, or too many, when they are drawn."""
    learnt = data.features is not None and learns(data.features)
    if found.public is not None and not (found.shared or learnt):
        option = f"--public {data.public}" if data.public else f"--public-records {data.public_records}"
        tested = f"; to be tested on {data.public}, give --test-data {data.public}" if data.public else ""
        raise BadValue(
            f"{option}: nothing here has a use for public records. Add pca to --features, e.g. pca:20, or leave it out{tested}."
        )
    if data.features is None and not found.fit:
        return found
    kept = data_folder(data.folder or None) / "features"

    def keeping(features: Features, x: Tensor) -> Tensor:
        return cached(features, x, kept)

    with naming(f"the features {data.features!r}"):
        features = Features(()) if data.features is None else parse_features(data.features, found.public, keeping)
    mapping = Features((*found.fit, *features.steps))
    test, public = found.test, found.public
    if test is not None:
        test = _mapped(test, features, kept)
    if public is not None:
        public = _mapped(public, features, kept) if found.shared else None
    found = replace(found, test=test, public=public)
    if found.dataset is None or _bytes(found.dataset, mapping) > _MOST_BYTES:
        return replace(found, dataset=None, population=found.of(data).mapped(mapping))
    return replace(found, dataset=_mapped_set(found.dataset, mapping, kept))


def _bytes(dataset: Dataset, mapping: Features) -> int:
    """How large all records together become."""
    return int(mapping(dataset.scaling(dataset.pool.x[:1])).nbytes) * dataset.pool.count


def with_steps(found: Source, features: Features) -> Source:
    """All records mapped further, by steps that only this run has: nothing of it is kept on disk."""
    test = found.test
    if test is not None:
        test = replace(test, records=Records(mapped(features, test.records.x), test.records.y))
    found = replace(found, test=test)
    if found.dataset is None:
        assert found.population is not None, "one of the two is there"
        return replace(found, population=found.population.mapped(features))
    dataset = found.dataset
    pool = Records(mapped(features, dataset.pool.x, dataset.scaling), dataset.pool.y)
    assumes = (*dataset.assumes, *features.assumptions)
    return replace(
        found, dataset=replace(dataset, pool=pool, scaling=unchanged, origin=dataset.stored, assumes=assumes)
    )


def _mapped(public: PublicData, features: Features, kept: Path) -> PublicData:
    records = public.records
    return replace(public, records=Records(cached(features, records.x, kept), records.y)) if features.steps else public


def _mapped_set(dataset: Dataset, features: Features, kept: Path) -> Dataset:
    """The data set of mapped records; who its people are does not change."""
    x = cached(features, dataset.pool.x, kept, dataset.stored, dataset.scaling)
    pool, assumes = Records(x, dataset.pool.y), features.assumptions
    return replace(dataset, pool=pool, scaling=unchanged, origin=dataset.stored, assumes=assumes)
