"""Which data a run has: features change what is computed with and nobody's identity, and what is public is said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sfumato.data.load import load
from sfumato.digest import digest
from sfumato.errors import SfumatoError
from sfumato.features import cache as kept
from sfumato.features import parse_features
from sfumato.features.fit import Fit
from sfumato.run.folder import load as load_run
from sfumato.run.mapped_source import with_features
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from sfumato.run.run import Run
from sfumato.run.source import Source, find_source
from tests.data.test_usps_and_domains import write_libsvm

MODULE = """
import torch

def client(number):
    generator = torch.Generator().manual_seed(number)
    return torch.rand(4, 1, 16, 16, generator=generator), torch.arange(4)

def flat(number):
    return torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)

def same(x):
    return x.flatten(1)

def broken(x):
    raise RuntimeError("out of ink")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder with a small USPS, 12 and 11 digits of 16x16, and a user's module."""
    write_libsvm(tmp_path / "usps")
    (tmp_path / "theirs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield str(tmp_path)
    sys.modules.pop("theirs", None)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were mapped, each time."""
    seen: list[int] = []
    usual = kept.mapped
    monkeypatch.setattr(kept, "mapped", lambda *arguments: (seen.append(len(arguments[1])), usual(*arguments))[1])
    return seen


def asked(folder: str, **data: Any) -> Request:
    options = {"noise_multiplier": 2.0, "epochs": 1, "sample": "everyone"}
    return Request(rounds=2, seed=3, data=replace(DataRequest(clients=10, folder=folder), **data), options=options)


def source(folder: str, **data: Any) -> Source:
    wanted = asked(folder, **data).data
    return with_features(wanted, find_source(wanted, domain=False))


def test_features_change_the_data_and_nobodys_identity(folder: str) -> None:
    words: list[dict[str, Any]] = [
        {},
        {"features": "pixels"},
        {"features": "hog:2"},
        {"features": "resize:16,pca:5", "public": "usps"},
        {"features": "resize:16,pca:6", "public": "usps"},
        {"features": "resize:16,pca:5:0", "public": "usps"},
        {"test": "usps"},
    ]
    people = [prepare(asked(folder, **data)).population for data in words]
    assert len({one.identity for one in people}) == 1 and people[0].identity is not None
    assert len({digest(one.client(3)) for one in people}) == len(words) and all(one.is_fixed for one in people)
    again = prepare(asked(folder, **words[3])).population
    assert digest(again.client(3)) == digest(people[3].client(3))


def test_another_public_basis_gives_other_records_of_the_same_people(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"features": "resize:16,pca:5", "public": "usps"}
    first = source(folder, **data).of(asked(folder).data)
    monkeypatch.setattr("sfumato.run.source._BASIS", 11)  # one record fewer
    second = source(folder, **data).of(asked(folder).data)
    assert first.identity == second.identity
    assert not torch.equal(first.client(0).train.x, second.client(0).train.x)


def test_a_record_becomes_what_features_make_of_it_whoever_holds_it(folder: str) -> None:
    """The slow twin: each client's own records, as they are, mapped by themselves."""
    plain = replace(find_source(asked(folder).data, domain=False), dataset=load("digits").unscaled)
    public = find_source(asked(folder, public="usps").data, domain=False).public
    for words, data in (("hog:2,unit-norm", {}), ("resize:16,pca:5", {"public": "usps"})):
        features, data = parse_features(words, public), {"features": words, **data}
        found = source(folder, **data)
        people, own = found.of(asked(folder).data), plain.of(asked(folder).data)
        for client in range(10):
            assert torch.equal(people.client(client).train.x, features(own.client(client).train.x))
            assert torch.equal(people.client(client).train.y, own.client(client).train.y)
        assert found.test is not None
        assert torch.equal(found.test.records.x, features(load("digits").unscaled.test.records.x))
        assert found.public is None, "the round has no use for it"


def test_what_was_mapped_is_kept_in_the_data_folder_and_used(folder: str, times: list[int]) -> None:
    data = {"features": "resize:16,scattering:1,pca:5", "public": "usps"}
    first = source(folder, **data)
    assert sorted(times) == [12, 397, 1400]  # what the basis is learnt from, the test split, the clients' pool
    files = {path: path.read_bytes() for path in (Path(folder) / "features").iterdir()}
    assert len(files) == 3
    second = source(folder, **data)
    assert len(times) == 3 and first.dataset is not None and second.dataset is not None
    assert torch.equal(first.dataset.pool.x, second.dataset.pool.x)
    assert first.dataset.stored == second.dataset.stored
    for path, content in files.items():
        path.write_bytes(content[:-4] + b"\x00\x00\x80\x3f")
    third = source(folder, **data)
    assert len(times) == 6 and third.dataset is not None
    assert torch.equal(first.dataset.pool.x, third.dataset.pool.x)
    assert {path: path.read_bytes() for path in files} == files


def test_a_run_that_goes_on_with_features_is_the_same_run(folder: str, tmp_path: Path) -> None:
    data = {"features": "resize:16,pca:5,unit-norm:3", "public": "usps"}
    runs = tmp_path / "runs"
    for _ in Run(prepare(replace(asked(folder, **data), rounds=4)), runs / "whole"):
        pass
    for _ in Run(prepare(asked(folder, **data)), runs / "parts"):
        pass
    for path in (Path(folder) / "features").iterdir():
        path.unlink()
    again = replace(Request.from_toml(runs / "parts" / "run.toml"), rounds=4)
    for _ in Run(prepare(again), runs / "parts", resume=True):
        pass
    whole, parts = (load_run(runs / name) for name in ("whole", "parts"))
    assert all(torch.equal(p, q) for p, q in zip(whole.parameters(), parts.parameters(), strict=True))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another shape": (
        {"public": "usps", "features": "pca:5"},
        r"records of shape \(1, 8, 8\), and the basis is of usps/train's of shape \(1, 16, 16\)",
    ),
    "own data of another shape": (
        {"name": "theirs:flat", "public": "usps", "features": "pca:2", "outputs": 2},
        r"records of shape \(3,\), and the basis is of usps/train's of shape \(1, 16, 16\)",
    ),
    "a basis in one shape, tests in another": (
        {"public": "digits", "name": "theirs:client", "test": "usps", "features": "pca:2", "outputs": 10},
        r"of shape \(1, 16, 16\), and the basis is of digits/train's of shape \(1, 8, 8\)",
    ),
    "unused": ({"public": "usps"}, "nothing here has a use for public records.*give --test-data usps"),
    "unused by these features": ({"public": "usps", "features": "hog:2"}, "nothing here has a use for public records"),
    "unused records set aside": ({"public_records": 50}, "--public-records 50: nothing here has a use"),
    "the clients' own": ({"public": "digits", "features": "pca:5"}, "clients of digits hold the same records"),
    "no such set": ({"public": "uspss", "features": "pca:5"}, "Did you mean 'usps'"),
    "a public set that tests have too, of other classes": ({"test": "usps", "outputs": 12}, "same classes"),
    "a user's features fail": ({"features": "theirs:broken"}, "record 0: features theirs:broken: it raised RuntimeError"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_training(folder: str, name: str) -> None:
    data, said = REFUSED[name]
    with pytest.raises(SfumatoError, match=said):
        prepare(asked(folder, **data))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, None),
        ({"features": "hog:2"}, None),
        ({"test": "usps"}, None),
        ({"features": "resize:16,pca:5", "public": "usps"}, "the records of usps/train are public: nothing hides them"),
        ({"features": "pca:5", "public_records": 100}, "the records of digits/public are public: nothing hides them"),
        (
            {"features": "resize:8,pca:5", "public": "digits", "name": "theirs:client", "outputs": 10},
            "the records of digits/train are public: nothing hides them",
        ),
        ({"features": "theirs:same"}, "the features theirs:same were made without clients"),
    ],
)
def test_the_guarantee_names_what_is_public(folder: str, data: dict[str, Any], said: str | None) -> None:
    with closing(Run(prepare(asked(folder, **data)), Path(folder) / "run")) as run:
        assert [progress.round for progress in run] == [1, 2]
        words = str(run.guarantee())
    assert (said in words) if said else ("nothing hides them" not in words and "were made" not in words), words


def test_own_data_with_a_public_basis(folder: str) -> None:
    data = {"name": "theirs:client", "public": "usps", "features": "scattering:1,pca:4", "outputs": 10, "test": "usps"}
    prepared = prepare(asked(folder, **data))
    assert prepared.population.client(7).train.x.shape == (4, 4) and prepared.input_shape == (4,)
    assert prepared.test is not None and prepared.test.records.x.shape == (11, 4)
    features = parse_features("scattering:1,pca:4", find_source(asked(folder, **data).data, domain=False).public)
    own = replace(asked(folder, **data).data, public=None, features=None, test=None)
    theirs = find_source(own, domain=False).of(own)
    assert torch.equal(prepared.population.client(7).train.x, features(theirs.client(7).train.x))
    assert "public" in prepared.counts and "train" not in prepared.counts, "nothing of a user's own is counted"
    sizes = {len(load_file(path)["x"]) for path in (Path(folder) / "features").iterdir()}
    assert sizes == {11, 12}, "nor is anything of it kept on disk: only what is tested on, and what the basis is of"


def test_records_set_aside_are_a_basis_and_nobodys(folder: str) -> None:
    data = {"public_records": 100, "features": "pca:5"}
    prepared = prepare(asked(folder, **data))
    assert prepared.public is None and prepared.counts == {"train": 1300, "test": 397, "public": 100}
    aside = find_source(asked(folder, **data).data, domain=False).public
    assert aside is not None and aside.records.count == 100
    features = parse_features("pca:5", aside)
    mine = {tuple(row.tolist()) for row in features(aside.records.x)}
    theirs = [prepared.population.client(number).train.x for number in range(10)]
    assert not mine & {tuple(row.tolist()) for x in theirs for row in x}
    assert prepared.test is not None
    assert torch.equal(prepared.test.records.x, features(load("digits").unscaled.test.records.x))


def test_records_set_aside_take_the_shape_of_what_is_tested_on(folder: str) -> None:
    data = {"public_records": 100, "test": "usps", "features": "pca:5"}
    prepared, found = prepare(asked(folder, **data)), find_source(asked(folder, **data).data, domain=False)
    assert found.public is not None and found.public.records.x.shape == (100, 1, 16, 16)
    plain = find_source(asked(folder, public_records=100, features="pixels").data, domain=False).public
    assert plain is not None and torch.equal(found.public.records.x, Fit((1, 16, 16))(plain.records.x))
    assert prepared.input_shape == (5,) and prepared.test is not None and prepared.test.records.count == 11


def test_tests_stay_the_data_sets_own_beside_a_basis(folder: str) -> None:
    prepared = prepare(asked(folder, public="usps", features="resize:16,pca:5"))
    assert prepared.test is not None and prepared.test.name == "digits/test" and prepared.test.records.count == 397
    tested = prepare(asked(folder, public="usps", features="pca:5", test="usps"))
    assert tested.test is not None and tested.test.name == "usps/test" and tested.test.records.count == 11


@pytest.mark.data
def test_letters_are_a_basis_for_digits_that_have_other_classes() -> None:
    data = DataRequest("mnist", clients=5, records_per_client=20, public="emnist-letters", features="pca:20")
    public = find_source(data, domain=False).public
    assert public is not None and public.name == "emnist-letters/train" and public.records.count == 5000
    assert int(public.records.y.max()) == 25
    prepared = prepare(Request(data=data, options={"noise_multiplier": 2.0}))
    assert prepared.outputs == 10 and prepared.input_shape == (20,)
    assert prepared.test is not None and prepared.test.records.count == 10_000
