"""A pool is mapped once: what is kept is what would be mapped, or nothing."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sfumato.data.record_map import batched
from sfumato.errors import DataError
from sfumato.features import Features, cached, mapped, parse_features
from sfumato.features import cache as module
from tests.features.law import pictures

FEATURES = parse_features("scattering:1,group-norm:3")


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were mapped, each time."""
    seen: list[int] = []
    usual = module.mapped
    monkeypatch.setattr(module, "mapped", lambda *arguments: (seen.append(len(arguments[1])), usual(*arguments))[1])
    return seen


def halved(x: Tensor) -> Tensor:
    return x.float() / 510.0


@pytest.mark.parametrize("count", [0, 1, 255, 256, 700])
def test_threads_and_parts_change_no_bit(count: int) -> None:
    pool = (pictures(count, 1, 8, 8) * 255).to(torch.uint8)
    expected = FEATURES(halved(pool))
    assert torch.equal(mapped(FEATURES, pool, halved), expected)
    assert torch.get_num_threads() == 3
    torch.set_num_threads(1)
    assert torch.equal(mapped(FEATURES, pool, halved), expected)


def test_every_part_is_mapped_by_one_thread_of_torch_and_a_network_by_those_that_it_has() -> None:
    seen: set[tuple[bool, int]] = set()

    def watched(x: Tensor) -> Tensor:
        seen.add((threading.current_thread() is threading.main_thread(), torch.get_num_threads()))
        return x.flatten(1)

    mapped(Features((batched(lambda x: watched(x)),)), pictures(3000, 1, 2, 2))
    assert seen == {(True, 1), (False, 1)}
    seen.clear()
    mapped(Features((watched,)), pictures(3000, 1, 2, 2))
    assert seen == {(True, 3)}


def test_a_wrong_record_is_refused_from_within_a_thread() -> None:
    @batched
    def wrong(x: Tensor) -> Tensor:
        if float(x.max()) > 599:
            raise DataError("record 600")
        return x

    with pytest.raises(DataError, match="record 600"):
        mapped(Features((wrong,)), torch.arange(700.0)[:, None])
    assert torch.get_num_threads() == 3


def test_a_record_that_a_function_of_ones_own_fails_for_is_named_by_its_place_in_the_pool() -> None:
    def wrong(x: Tensor) -> Tensor:
        if float(x.max()) > 599:
            raise ValueError(f"{float(x.max())}")
        return x

    with pytest.raises(DataError, match="record 600: .*ValueError"):
        mapped(Features((wrong,)), torch.arange(700.0)[:, None])


def test_what_is_kept_is_read_and_not_mapped_again(tmp_path: Path, times: list[int]) -> None:
    pool, folder = pictures(30, 1, 8, 8), tmp_path / "of" / "clients"
    first = cached(FEATURES, pool, folder)
    assert (
        torch.equal(first, FEATURES(pool)) and torch.equal(cached(FEATURES, pool, str(folder)), first) and times == [30]
    )
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.suffix == ".safetensors"


def test_whatever_changes_the_result_has_a_file_of_its_own(tmp_path: Path, times: list[int]) -> None:
    pool = pictures(30, 1, 8, 8)
    changed = pool.clone()
    changed[29, 0, 7, 7] += 1e-6
    for some, other in ((changed, None), (pool, halved), (pool[:29], None), (pool, None)):
        assert torch.equal(
            cached(FEATURES, some, tmp_path, None, other), FEATURES(some if other is None else other(some))
        )
    cached(parse_features("scattering:1,group-norm:9"), pool, tmp_path)
    for some in (pool, pool[1:], pool.double()):
        cached(FEATURES, some, tmp_path, "its name")
    assert len(times) == 8 == len(list(tmp_path.iterdir()))


def damaged(content: bytes) -> Iterator[bytes]:
    middle = len(content) // 2
    yield b""
    yield content[:5]
    yield content[:middle]
    yield content[:-1]
    yield content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    yield b"\xff" * len(content)


def test_a_damaged_file_is_mapped_again(tmp_path: Path, times: list[int]) -> None:
    pool = pictures(30, 1, 8, 8)
    good = cached(FEATURES, pool, tmp_path)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for number, broken in enumerate(damaged(content)):
        file.write_bytes(broken)
        assert torch.equal(cached(FEATURES, pool, tmp_path), good) and len(times) == number + 2
        assert file.read_bytes() == content
    kept = load_file(file)["x"]
    for tensors, told in (({"x": kept[:29]}, None), ({"y": kept}, None), ({"x": kept + 1.0}, {"content": "another"})):
        save_file(tensors, file, told)
        assert torch.equal(cached(FEATURES, pool, tmp_path), good) and torch.equal(load_file(file)["x"], kept)


def test_where_nothing_can_be_written_nothing_is_kept(
    tmp_path: Path, times: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, taken = pictures(3, 1, 8, 8), tmp_path / "a file"
    taken.write_text("no folder")
    for _ in range(2):
        assert torch.equal(cached(FEATURES, pool, taken / "inside"), FEATURES(pool))
    monkeypatch.setattr(module, "save_file", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert torch.equal(cached(FEATURES, pool, tmp_path / "full"), FEATURES(pool))
    assert len(times) == 3 and not list((tmp_path / "full").iterdir())


def test_two_at_once_do_no_harm(tmp_path: Path) -> None:
    pool, found = pictures(600, 1, 8, 8), []
    both = [threading.Thread(target=lambda: found.append(cached(FEATURES, pool, tmp_path))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(found) == 2 and all(torch.equal(one, FEATURES(pool)) for one in found)
    assert len(list(tmp_path.iterdir())) == 1
