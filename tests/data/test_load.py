from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from sfumato.data import Population, build_population, load, utkface
from sfumato.data.domain_names import DOMAINNET_NAMES, OFFICE_NAMES
from sfumato.data.load import NAMES, data_folder, hold_out
from sfumato.data.split import partition
from sfumato.errors import BadValue, DataError
from sfumato.key import Key

from .files import idx, write, write_cifar, write_idx_set, write_svhn

KEY = Key.from_seed(0)


def test_digits_are_embedded_and_parted_once_and_for_all() -> None:
    digits, again = load("digits"), load("digits")
    assert digits.counts == {"train": 1400, "test": 397}
    assert (digits.input_shape, digits.classes, digits.task) == ((1, 8, 8), 10, "classification")
    assert torch.equal(digits.train.x, again.train.x) and torch.equal(digits.test.records.y, again.test.records.y)
    assert abs(float(digits.train.x.mean())) < 0.02 and abs(float(digits.train.x.std()) - 1) < 0.02
    assert int(torch.bincount(digits.test.records.y).min()) >= 25


@pytest.mark.parametrize("place", ["mnist", "MNIST/raw", "."])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_mnist_is_found_in_each_layout(tmp_path: Path, place: str, ending: str) -> None:
    write_idx_set(tmp_path / place, "train", "t10k", ending)
    mnist = load("mnist", tmp_path, allow_download=False)
    assert mnist.counts == {"train": 20, "test": 10}
    assert mnist.train.x.shape == (20, 1, 28, 28) and mnist.train.x.dtype == torch.float32
    assert float(mnist.train.x[3, 0, 5, 7]) == pytest.approx(((3 + 5 + 14) / 255 - 0.1307) / 0.3081, abs=1e-6)
    assert mnist.train.y.tolist() == [*range(10), *range(10)]
    assert mnist.test.name == "mnist/test" and mnist.test.records.count == 10


def test_mnist_and_fashion_mnist_are_not_taken_for_each_other(tmp_path: Path) -> None:
    write_idx_set(tmp_path / "plain", "train", "t10k")
    with pytest.raises(DataError, match="fashion-mnist is not in"):
        load("fashion-mnist", tmp_path / "plain", allow_download=False)
    write_idx_set(tmp_path / "fashion", "train", "t10k")
    assert load("fashion-mnist", tmp_path / "fashion", allow_download=False).counts["train"] == 20
    with pytest.raises(DataError, match="mnist is not in"):
        load("mnist", tmp_path / "fashion", allow_download=False)


@pytest.mark.parametrize(("split", "first", "classes"), [("letters", 1, 26), ("byclass", 0, 62), ("balanced", 0, 47)])
def test_emnist_is_turned_and_letters_count_from_0(tmp_path: Path, split: str, first: int, classes: int) -> None:
    write_idx_set(tmp_path / "emnist", f"emnist-{split}-train", f"emnist-{split}-test", first_label=first)
    emnist = load(f"emnist-{split}", tmp_path, allow_download=False)
    assert int(emnist.pool.x[3, 0, 5, 7]) == 3 + 7 + 2 * 5
    assert emnist.train.y.tolist() == [*range(10), *range(10)]
    assert emnist.classes == classes


def test_cifar10_is_read_as_far_as_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    write_cifar(folder / "data_batch_1.bin", [3, 4])
    write_cifar(folder / "data_batch_4.bin", [5])
    write_cifar(folder / "test_batch.bin", [9])
    cifar = load("cifar10", tmp_path, allow_download=False)
    assert cifar.counts == {"train": 3, "test": 1}
    assert cifar.train.y.tolist() == [3, 4, 5]
    assert cifar.pool.x[1, :, 0, 0].tolist() == [4, 100, 200]
    assert float(cifar.train.x[0, 2, 31, 31]) == pytest.approx((200 / 255 - 0.4465) / 0.2616, abs=1e-6)


def test_cifar100_has_the_fine_classes(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar-100-binary" / "train.bin", [3, 99, 50], coarse=b"\x07")
    write_cifar(tmp_path / "cifar-100-binary" / "test.bin", [42], coarse=b"\x13")
    cifar = load("cifar100", tmp_path, allow_download=False)
    assert (cifar.counts, cifar.classes) == ({"train": 3, "test": 1}, 100)
    assert cifar.train.y.tolist() == [3, 99, 50] and cifar.test.records.y.tolist() == [42]
    assert cifar.pool.x[1, :, 31, 31].tolist() == [99, 100, 200] and cifar.input_shape == (3, 32, 32)
    assert float(cifar.train.x[0, 2, 0, 0]) == pytest.approx((200 / 255 - 0.4409) / 0.2762, abs=1e-6)


@pytest.mark.parametrize("place", ["svhn", "SVHN", "."])
def test_svhn_is_read_with_10_for_0_and_extra_by_its_own_name(tmp_path: Path, place: str) -> None:
    for part, labels in (("train", [10, 1, 2]), ("test", [9, 10]), ("extra", [5])):
        write_svhn(tmp_path / place / f"{part}_32x32.mat", labels)
    svhn, extra = (load(name, tmp_path, allow_download=False) for name in ("svhn", "svhn-extra"))
    assert (svhn.counts, extra.counts) == ({"train": 3, "test": 2}, {"train": 4, "test": 2})
    assert svhn.train.y.tolist() == [0, 1, 2] and svhn.test.records.y.tolist() == [9, 0]
    assert extra.train.y.tolist() == [0, 1, 2, 5] and extra.classes == 10
    assert [int(extra.pool.x[3, colour, 4, 7]) for colour in range(3)] == [18, 68, 118]
    assert float(svhn.train.x[0, 1, 4, 7]) == pytest.approx((68 / 255 - 0.4438) / 0.2010, abs=1e-6)
    (tmp_path / place / "extra_32x32.mat").unlink()
    assert load("svhn", tmp_path, allow_download=False).counts["train"] == 3
    with pytest.raises(DataError, match="extra_32x32.mat"):
        load("svhn-extra", tmp_path, allow_download=False)


def test_broken_svhn_files_are_refused_by_name(tmp_path: Path) -> None:
    from scipy.io import savemat

    write_svhn(tmp_path / "test_32x32.mat", [1])
    train = tmp_path / "train_32x32.mat"
    for data in (b"<html>not found</html>", b"", (tmp_path / "test_32x32.mat").read_bytes()[:-50]):
        train.write_bytes(data)
        with pytest.raises(DataError, match="train_32x32.mat is no MATLAB file"):
            load("svhn", tmp_path, allow_download=False)
    savemat(train, {"X": np.zeros((3, 32, 32, 5), np.uint8), "y": np.ones((5, 1))})
    with pytest.raises(DataError, match="not bytes of shape"):
        load("svhn", tmp_path, allow_download=False)
    savemat(train, {"X": np.zeros((32, 32, 3, 5), np.uint8), "y": np.ones((4, 1))})
    with pytest.raises(DataError, match="5 images and 4 labels"):
        load("svhn", tmp_path, allow_download=False)


def test_names_are_suggested() -> None:
    with pytest.raises(BadValue, match="Did you mean 'mnist'"):
        load("minst")
    with pytest.raises(BadValue, match="emnist-letters, emnist-balanced"):
        load("emnist")


def test_the_folder_is_the_one_given_else_the_environment_else_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder("given") == Path("given")
    assert data_folder() == tmp_path / "environment"
    monkeypatch.delenv("SFUMATO_DATA")
    assert data_folder() == tmp_path / "cache" / "sfumato"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "sfumato"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "digits"])
def test_missing_files_are_named_with_their_place(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="downloads are off") as caught:
        load(name, tmp_path, allow_download=False)
    wanted = {
        "cifar10": "cifar-10-batches-bin",
        "cifar100": "cifar-100-binary",
        "emnist-letters": "emnist-letters-test-labels-idx1-ubyte.gz",
        "gefcom2012-wind": "windforecasts_wf7.csv",
        "medical-mnist": "AbdomenCT/*.jpeg",
        "usps": "usps.t.bz2",
        "celeba": "identity_CelebA.txt",
        **dict.fromkeys(utkface.NAMES, "AGE_GENDER_ETHNICITY_DATE.jpg"),
        **dict.fromkeys(OFFICE_NAMES, "webcam/CLASS/*.jpg"),
        **dict.fromkeys(DOMAINNET_NAMES, "DOMAIN_train.txt"),
        "shakespeare": "t8.shakespeare.txt",
        "svhn": "test_32x32.mat",
        "svhn-extra": "extra_32x32.mat",
    }
    assert wanted.get(name, "ubyte.gz") in str(caught.value) and str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        ("train-images-idx3-ubyte", b"\0\0\x08\x03", "no IDX file"),
        ("train-images-idx3-ubyte", b"<html>not found</html>", "no IDX file"),
        ("train-images-idx3-ubyte", idx(np.zeros((20, 28, 28)))[:-1], "should hold 15680 bytes"),
        ("train-images-idx3-ubyte", idx(np.zeros((19, 28, 28))), "19 images and 20 labels"),
        ("train-images-idx3-ubyte", idx(np.zeros(20)), "not images and labels"),
        ("train-labels-idx1-ubyte", idx(np.full(20, 10)), "not among 0 to 9"),
    ],
)
def test_broken_files_are_refused_by_name(tmp_path: Path, file: str, data: bytes, words: str) -> None:
    write_idx_set(tmp_path, "train", "t10k", ending="")
    (tmp_path / file).write_bytes(data)
    with pytest.raises(DataError, match=words):
        load("mnist", tmp_path, allow_download=False)


def test_a_cut_archive_and_a_cut_batch_are_refused(tmp_path: Path) -> None:
    write_idx_set(tmp_path, "train", "t10k")
    images = tmp_path / "train-images-idx3-ubyte.gz"
    images.write_bytes(images.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        load("mnist", tmp_path, allow_download=False)
    write(tmp_path / "data_batch_1.bin", b"\0" * 3074)
    write_cifar(tmp_path / "test_batch.bin", [1])
    with pytest.raises(DataError, match="no multiple of 3073"):
        load("cifar10", tmp_path, allow_download=False)


def test_a_population_has_the_records_of_its_pool() -> None:
    digits = load("digits")
    population = build_population(digits, 200, "iid", KEY, records_per_client=7)
    assert (population.name, population.size) == ("digits/iid/200x7", 200)
    clients = [population.client(number) for number in range(200)]
    assert {client.train.count for client in clients} == {7} and {client.test for client in clients} == {None}
    x = torch.cat([client.train.x for client in clients])
    rows = torch.from_numpy(np.concatenate(partition("iid", digits.pool, 200, KEY, 7)))
    assert torch.equal(x, digits.train.x[rows])
    assert torch.equal(torch.cat([client.train.y for client in clients]), digits.train.y[rows])


def test_each_client_keeps_a_part_of_its_own_records_for_tests() -> None:
    digits = load("digits")
    whole = build_population(digits, 10, "shards:2", KEY)
    parted = build_population(digits, 10, "shards:2", KEY, test_fraction=0.25)
    for number in range(10):
        client, together = parted.client(number), whole.client(number).train
        assert client.test is not None
        assert (client.train.count, client.test.count) == (105, 35)
        x = torch.cat([client.train.x, client.test.x]).flatten(1)
        assert torch.equal(x.sum(1).sort().values, together.x.flatten(1).sum(1).sort().values)
        assert set(client.test.y.unique().tolist()) <= set(together.y.unique().tolist())
    for fraction in (-0.1, 1.0):
        with pytest.raises(BadValue, match="at least 0 and below 1"):
            build_population(digits, 10, "iid", KEY, test_fraction=fraction)


def test_a_client_of_a_split_is_its_records() -> None:
    digits = load("digits")
    same = [build_population(digits, 10, "iid", KEY, test_fraction=fraction).identity for fraction in (0.0, 0.5)]
    others = [
        build_population(digits, 10, "iid", Key.from_seed(1)).identity,
        build_population(digits, 11, "iid", KEY).identity,
        build_population(digits, 10, "shards:2", KEY).identity,
        build_population(digits, 10, "shards:4", KEY).identity,
        build_population(digits, 10, "iid", KEY, records_per_client=7).identity,
        build_population(hold_out(digits, 100, KEY), 10, "iid", KEY).identity,
    ]
    assert same[0] == same[1] is not None
    assert len({*same, *others}) == 7


def test_a_population_can_be_sent_to_another_process() -> None:
    population = build_population(load("digits"), 10, "iid", KEY)
    sent: Population = pickle.loads(pickle.dumps(population))
    assert torch.equal(sent.client(3).train.x, population.client(3).train.x)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("mnist", (1, 28, 28), 10), ("emnist-letters", (1, 28, 28), 26), ("cifar10", (3, 32, 32), 10)],
)
def test_the_real_files(name: str, shape: tuple[int, ...], classes: int) -> None:
    found = load(name, allow_download=False)
    assert found.input_shape == shape
    assert found.counts["train"] >= 20_000 and found.counts["test"] >= 4_000
    assert torch.bincount(found.pool.y, minlength=classes).min() > 1_000
    small = build_population(found, 100, "dirichlet:0.5", KEY, records_per_client=20)
    x = torch.cat([small.client(number).train.x for number in range(100)])
    assert abs(float(x.mean())) < 0.1 and abs(float(x.std()) - 1) < 0.1


@pytest.mark.data
def test_real_letters_stand_upright() -> None:
    """The letter I is taller than wide; stored as upstream does it, it lies on its side."""
    letters = load("emnist-letters", allow_download=False)
    ink = letters.pool.x[letters.pool.y == 8, 0].float().mean(0)
    place = (torch.arange(28) - 13.5) ** 2
    assert (ink.sum(1) * place).sum() > 2 * (ink.sum(0) * place).sum()
