from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.data import load
from sfumato.data.download import SOURCES, Source
from sfumato.errors import DataError

from .files import write_cifar, write_idx_set


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def served(source: Source, paths: list[Path]) -> Source:
    return replace(source, files=tuple((path.as_uri(), md5(path)) for path in paths))


def test_files_are_fetched_once_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx_set(tmp_path / "remote", "train", "t10k")
    source = served(SOURCES["mnist"], [tmp_path / "remote" / name for name in SOURCES["mnist"].wanted])
    monkeypatch.setitem(SOURCES, "mnist", source)
    here = tmp_path / "here"
    assert load("mnist", here).counts == {"train": 20, "test": 10}
    assert sorted(path.name for path in (here / "mnist").iterdir()) == sorted(source.wanted)
    for path in (tmp_path / "remote").iterdir():
        path.unlink()
    assert load("mnist", here).counts == {"train": 20, "test": 10}


def test_a_wrong_checksum_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx_set(tmp_path / "remote", "train", "t10k")
    source = served(SOURCES["mnist"], [tmp_path / "remote" / name for name in SOURCES["mnist"].wanted])
    (tmp_path / "remote" / source.wanted[1]).write_bytes(b"tampered")
    monkeypatch.setitem(SOURCES, "mnist", source)
    with pytest.raises(DataError, match="not the published"):
        load("mnist", tmp_path / "here")
    assert [path.name for path in (tmp_path / "here" / "mnist").iterdir()] == [source.wanted[0]]


def test_a_zip_is_unpacked_to_the_files_that_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx_set(tmp_path / "remote", "emnist-digits-train", "emnist-digits-test")
    archive = tmp_path / "gzip.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in (tmp_path / "remote").iterdir():
            zipped.write(path, f"gzip/{path.name}")
        zipped.writestr("gzip/readme.txt", "not wanted")
        zipped.writestr("../../escaped-ubyte.gz", "stays inside")
    monkeypatch.setitem(SOURCES, "emnist-digits", served(SOURCES["emnist-digits"], [archive]))
    assert load("emnist-digits", tmp_path / "here").counts["train"] == 20
    names = sorted(path.name for path in (tmp_path / "here" / "emnist").iterdir())
    assert names == sorted(["escaped-ubyte.gz", *SOURCES["emnist-digits"].wanted])


def test_a_tar_is_unpacked_to_the_files_that_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("data_batch_1.bin", "test_batch.bin"):
            write_cifar(tmp_path / name, [1, 2])
            tar.add(tmp_path / name, f"cifar-10-batches-bin/{name}")
        info = tarfile.TarInfo("cifar-10-batches-bin/readme.html")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"hello"))
    monkeypatch.setitem(SOURCES, "cifar10", served(SOURCES["cifar10"], [archive]))
    assert load("cifar10", tmp_path / "here").counts == {"train": 2, "test": 2}
    assert len(list((tmp_path / "here" / "cifar-10-batches-bin").iterdir())) == 2


def test_offline_the_files_and_their_place_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:  # bound but not listening: connections are refused at once
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/train-images-idx3-ubyte.gz"
        monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], files=((url, "0" * 32),)))
        with pytest.raises(DataError, match="the download failed") as caught:
            load("mnist", tmp_path)
    assert "t10k-labels-idx1-ubyte.gz" in str(caught.value) and str(tmp_path / "mnist") in str(caught.value)
    assert "SFUMATO_DATA" in str(caught.value)


def test_a_server_that_stops_in_the_middle_is_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise TimeoutError("timed out")

    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: Broken())
    with pytest.raises(DataError, match="timed out"):
        load("mnist", tmp_path)
    assert list((tmp_path / "mnist").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="the download failed"):
        load("mnist", tmp_path / "file")


def test_every_source_has_checksums() -> None:
    for source in SOURCES.values():
        assert all(len(bytes.fromhex(checksum)) == 16 for _, checksum in source.files)
