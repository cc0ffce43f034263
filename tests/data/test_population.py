from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sfumato.data import Client, Population, PublicData, Records
from sfumato.data.population import require_population, require_public
from sfumato.errors import BadValue, DataError

PAIR = (torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 1]))


def test_a_million_clients_cost_nothing_until_one_is_called() -> None:
    called: list[int] = []

    def load(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        called.append(number)
        return torch.full((2, 3), float(number)), torch.zeros(2)

    population = Population.from_function(load, size=1_000_000, name="many")
    assert called == []
    assert population.client(123_456).train.x[0, 0] == 123_456
    assert called == [123_456]
    assert not population.is_fixed


def test_a_list_of_pairs_and_of_fours() -> None:
    population = Population.from_list([PAIR, (*PAIR, *PAIR)], name="two")
    assert population.client(0).test is None
    assert population.client(1).test is not None
    assert torch.equal(population.client(1).train.x, PAIR[0])


def test_arrays_become_tensors_as_models_want_them() -> None:
    x, y = np.ones((4, 2)), np.arange(4, dtype=np.int16)
    x.flags.writeable = False
    train = Population.from_list([(x, y)]).client(0).train
    assert (train.x.dtype, train.y.dtype) == (torch.float32, torch.int64)


def test_a_client_without_records_is_legal() -> None:
    assert Population.from_list([(torch.zeros(0, 2), torch.zeros(0))]).client(0).train.count == 0


@pytest.mark.parametrize(
    ("loaded", "words"),
    [
        ((torch.zeros(3, 2), torch.zeros(4)), "x has 3 records and y has 4"),
        ((torch.zeros(3, 2),), "is a tuple"),
        ((torch.zeros(3, 2), None), "y is a NoneType"),
        ((torch.zeros(3, 2), np.array(["a", "b", "c"])), "y holds no numbers"),
        ((torch.tensor(1.0), torch.zeros(1)), "x is a single number"),
        ({"x": torch.zeros(3)}, "has x, but not y"),
        ({"images": 1, "targets": 2}, "has images, targets, but not x and y"),
        ({"images": 1, "labels": torch.zeros(2)}, "images is a int"),
        ({"x": 1, "y": 2, "x_test": 3}, "has x, y, x_test, but not y_test"),
        (PublicData("public", Records(*PAIR)), "is a PublicData"),
        (Client(torch.zeros(3), None), "is a Tensor"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_client_is_refused_by_number(loaded: object, words: str) -> None:
    population = Population.from_function(lambda number: loaded, size=9, name="broken")
    with pytest.raises(DataError, match="client 7 of 'broken'") as caught:
        population.client(7)
    assert words in str(caught.value)


def test_a_loader_that_raises_is_named_with_its_cause() -> None:
    def load(number: int) -> None:
        raise OSError("disk on fire")

    with pytest.raises(DataError, match="client 2 of 'hot' could not be loaded: OSError") as caught:
        Population.from_function(load, 5, "hot").client(2)
    assert isinstance(caught.value.__cause__, OSError) and "disk on fire" not in str(caught.value)


@pytest.mark.parametrize("number", [-1, 3])
def test_a_client_that_does_not_exist_is_refused(number: int) -> None:
    with pytest.raises(BadValue, match="has clients 0 to 2"):
        Population.from_list([PAIR] * 3).client(number)


@pytest.mark.parametrize("size", [0, -1, True])
def test_a_size_that_is_no_count_is_refused(size: int) -> None:
    with pytest.raises(BadValue, match="positive whole number"):
        Population("p", size, lambda number: PAIR)


def unchecked(kind: type, **fields: object) -> Any:
    """A dataclass built as it is outside the tests, where nobody checks the types of arguments."""
    made: Any = object.__new__(kind)
    vars(made).update(fields)
    made.__post_init__()
    return made


def test_an_empty_list_and_fields_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(BadValue, match="positive whole number"):
        Population.from_list([])
    with pytest.raises(BadValue, match="load is a int"):
        unchecked(Population, name="p", size=3, load=5)
    with pytest.raises(BadValue, match="positive whole number"):
        unchecked(Population, name="p", size=2.5, load=print)


def test_public_data_and_populations_never_mix() -> None:
    public, private = PublicData("public", Records(*PAIR)), Population.from_list([PAIR])
    assert require_population(private, "train") is private
    assert require_public(public, "test") is public
    with pytest.raises(BadValue, match="train needs a Population, not a PublicData"):
        require_population(public, "train")
    with pytest.raises(BadValue, match="test needs PublicData, not a Population"):
        require_public(private, "test")
    with pytest.raises(BadValue, match="got a PublicData"):
        Population.from_list(public)
    with pytest.raises(BadValue, match="records is a Population"):
        unchecked(PublicData, name="public", records=private)


def test_ids_say_who_the_clients_are_whatever_their_data() -> None:
    def listed(ids: Any, data: float = 0.0) -> str | None:
        return Population.from_list([(PAIR[0] + data, PAIR[1])] * 3, ids=ids).identity

    assert listed(None) is None and Population.from_function(lambda number: PAIR, 3).identity is None
    assert listed(["a", "b", "c"]) == listed(("a", "b", "c"), data=1.0)
    assert len({listed(ids) for ids in (["a", "b", "c"], ["b", "a", "c"], [0, 1, 2], ["0", "1", "2"])}) == 4
    many = Population.from_function(lambda number: PAIR, 3, ids=range(3))
    assert many.identity == listed(range(3))


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", "b"], "2 ids, 2 of them different, for the 3 clients"),
        (["a", "b", "a"], "3 ids, 2 of them different"),
        ("abc", "is one text"),
        (["a", "b", 2.5], "number 3 of them is a float"),
        ([0, 1, True], "number 3 of them is a bool"),
    ],
)
def test_ids_that_name_nobody_are_refused(ids: Any, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Population.from_list([PAIR] * 3, ids=ids)


def test_the_names_of_files_say_who_the_clients_are(tmp_path: Path) -> None:
    _write_folder(tmp_path)
    before = Population.from_folder(tmp_path)
    torch.save({"x": PAIR[0] + 1, "y": PAIR[1]}, tmp_path / "b.pt")
    after = Population.from_folder(tmp_path)
    assert after.identity == before.identity and after.is_fixed
    (tmp_path / "b.pt").rename(tmp_path / "d.pt")
    assert Population.from_folder(tmp_path).identity != before.identity


def _write_folder(folder: Path) -> None:
    tensors = {"x": PAIR[0], "y": PAIR[1]}
    torch.save(tensors, folder / "b.pt")
    np.savez(folder / "a.npz", x=np.zeros((1, 2)), y=np.zeros(1), x_test=np.ones((2, 2)), y_test=np.zeros(2))
    save_file(tensors, folder / "c.safetensors")
    (folder / "README.txt").write_text("not a client")


def test_a_folder_has_one_client_per_file_in_the_order_of_names(tmp_path: Path) -> None:
    _write_folder(tmp_path)
    population = Population.from_folder(tmp_path)
    assert (population.name, population.size) == (tmp_path.name, 3)
    assert [population.client(number).train.count for number in range(3)] == [1, 3, 3]
    held_out = population.client(0).test
    assert held_out is not None and held_out.count == 2
    assert pickle.loads(pickle.dumps(population)).client(2).train.count == 3


def test_a_folder_without_clients_or_with_a_broken_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder"):
        Population.from_folder(tmp_path / "missing")
    with pytest.raises(DataError, match="no client in"):
        Population.from_folder(tmp_path)
    (tmp_path / ".b.npz").write_bytes(b"hidden")
    with pytest.raises(DataError, match="no client in"):
        Population.from_folder(tmp_path)


@pytest.mark.parametrize("ending", ["pt", "npz", "safetensors"])
@pytest.mark.parametrize("content", [b"broken", b""])
def test_a_damaged_file_is_named_in_one_sentence(ending: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / f"a.{ending}").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.{ending} is damaged") as caught:
        Population.from_folder(tmp_path).client(0)
    assert "\n" not in str(caught.value) and "weights_only" not in str(caught.value)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    _write_folder(tmp_path)
    population = Population.from_folder(tmp_path)
    for file in tmp_path.iterdir():
        file.unlink()
    for number in range(population.size):
        with pytest.raises(DataError, match="cannot be read or written: no such file|is damaged"):
            population.client(number)


def test_pickled_code_in_a_clients_file_is_not_run(tmp_path: Path) -> None:
    torch.save({"x": PAIR[0], "y": PAIR[1], "code": print}, tmp_path / "a.pt")
    with pytest.raises(DataError, match=r"a\.pt is damaged, or holds more than tensors"):
        Population.from_folder(tmp_path).client(0)


MODULE = """
import torch
from sfumato.data import Population
PAIR = (torch.zeros(2, 3), torch.zeros(2))
clients = [PAIR] * 4
def by_number(number): return PAIR
def whole(): return Population.from_list(clients, name="whole")
def listed(): return clients
def wrong(): return 5
"""


def test_import_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_clients.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    assert Population.from_import("their_clients:clients").size == 4
    assert Population.from_import("their_clients:whole").name == "whole"
    named = [Population.from_import(f"their_clients:{name}", 4, range(4)) for name in ("clients", "whole", "by_number")]
    assert len({population.identity for population in named} - {None}) == 1
    assert Population.from_import("their_clients:listed").name == "their_clients:listed"
    assert Population.from_import("their_clients:by_number", size=10**6).client(10**6 - 1).train.count == 2
    for path, words in [
        ("their_clients:by_number", "size="),
        ("their_clients:wrong", "gives a int"),
        ("their_clients:hole", "Did you mean 'whole'"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("no path", "no import path"),
    ]:
        with pytest.raises(BadValue, match=words):
            Population.from_import(path)
