"""Downloads, checked against published checksums and never half there."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from sfumato.data.domain_names import DOMAINNET_NAMES, OFFICE_DOMAINS, OFFICE_NAMES
from sfumato.errors import DataError

_LOG = logging.getLogger(__name__)
_TIMEOUT = 10.0  # seconds without a byte; an offline machine is told so before a user gives up


@dataclass(frozen=True)
class Source:
    """Files to fetch into `folder`: url and MD5 each. An archive is unpacked to the members that end in `members`.

    Without files, people must fetch the data themselves from `page`: it wants a login, or a licence to be agreed to.
    """

    folder: str
    files: tuple[tuple[str, str], ...]
    wanted: tuple[str, ...]
    members: str | None = None
    page: str = ""


def download(source: Source, root: Path) -> None:
    """Fetch what is not there yet; a file appears under its name only when it is whole and its checksum is right."""
    if not source.files:
        raise DataError(f"{source.page} gives it to people only")
    folder = root / source.folder
    folder.mkdir(parents=True, exist_ok=True)
    for url, md5 in source.files:
        target = folder / PurePosixPath(url).name
        if source.members is None and target.exists():
            continue
        with _fetched(url, md5, folder) as part:
            if source.members is None:
                part.replace(target)
            else:
                _unpack(part, source.members, folder)


@contextmanager
def _fetched(url: str, md5: str, folder: Path) -> Iterator[Path]:
    _LOG.info("downloading %s", url)
    digest = hashlib.md5(usedforsecurity=False)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as scratch:
        part = Path(scratch) / "download"
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as response, part.open("wb") as out:
                while block := response.read(1 << 20):
                    digest.update(block)
                    out.write(block)
        except urllib.error.URLError as error:
            raise DataError(f"{url}: {error.reason}") from error
        if digest.hexdigest() != md5:
            raise DataError(f"{url} has the MD5 {digest.hexdigest()}, not the published {md5}")
        yield part


def _unpack(archive: Path, ending: str, folder: Path) -> None:
    """Write the wanted members by their last name only: an archive cannot reach outside the folder."""
    part = archive.with_name("member")
    for name, stream in _members(archive, ending):
        with part.open("wb") as out:
            shutil.copyfileobj(stream, out)
        part.replace(folder / PurePosixPath(name).name)


def _members(archive: Path, ending: str) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            yield from ((name, zipped.open(name)) for name in zipped.namelist() if name.endswith(ending))
        return
    with tarfile.open(archive) as tar:
        for info in tar:
            if info.name.endswith(ending) and (stream := tar.extractfile(info) if info.isfile() else None):
                yield info.name, stream


def _files(base: str, folder: str, checksums: dict[str, str]) -> Source:
    return Source(folder, tuple((f"{base}{name}", md5) for name, md5 in checksums.items()), tuple(checksums))


_EMNIST = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
_SVHN = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}
_SVHN_EXTRA = {"extra_32x32.mat": "a93ce644f1a588dc4d68dda5feec44a7"}
# Checksums as torchvision publishes them (datasets/mnist.py, svhn.py). For CIFAR it has those of the pickled versions only,
# which are not read here; the ones below are on the authors' page beside the binary versions. Nobody publishes one for the
# Shakespeare text: it is that of the copy which the numbers in shakespeare.py are about.
SOURCES = {
    "mnist": _files(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "mnist",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": _files(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "fashion-mnist",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    **{
        f"emnist-{split}": Source(
            "emnist",
            (("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e"),),
            tuple(f"emnist-{split}-{of}-ubyte.gz" for of in _EMNIST),
            members="-ubyte.gz",
        )
        for split in ("letters", "balanced", "byclass", "bymerge", "digits", "mnist")
    },
    "cifar10": Source(
        "cifar-10-batches-bin",
        (("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
        (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        members=".bin",
    ),
    "cifar100": Source(
        "cifar-100-binary",
        (("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
        ("train.bin", "test.bin"),
        members=".bin",
    ),
    "svhn": _files("http://ufldl.stanford.edu/housenumbers/", "svhn", _SVHN),
    "svhn-extra": _files("http://ufldl.stanford.edu/housenumbers/", "svhn", {**_SVHN, **_SVHN_EXTRA}),
    "shakespeare": _files(
        "https://ocw.mit.edu/ans7870/6/6.006/s08/lecturenotes/files/",
        "shakespeare",
        {"t8.shakespeare.txt": "d2028225a89d8b0b3093dddb720da91f"},
    ),
    "usps": _files(
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/",
        "usps",
        {"usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197", "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118"},
    ),
    **dict.fromkeys(
        OFFICE_NAMES,
        Source(
            "office-caltech10",
            (),
            tuple(f"{domain}/CLASS/*.jpg" for domain in OFFICE_DOMAINS),
            page="https://people.eecs.berkeley.edu/~jhoffman/domainadapt/",
        ),
    ),
    **dict.fromkeys(
        DOMAINNET_NAMES,
        Source(
            "domainnet",
            (),
            ("DOMAIN_train.txt", "DOMAIN_test.txt", "DOMAIN/CLASS/*.jpg"),
            page="https://ai.bu.edu/M3SDA/",
        ),
    ),
    "celeba": Source(
        "celeba",
        (),
        ("img_align_celeba/*.jpg", "list_attr_celeba.txt", "list_eval_partition.txt", "identity_CelebA.txt"),
        page="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    ),
    **dict.fromkeys(
        ("utkface", "utkface-gender", "utkface-ethnicity"),
        Source("UTKFace", (), ("AGE_GENDER_ETHNICITY_DATE.jpg",), page="https://susanqq.github.io/UTKFace/"),
    ),
    "medical-mnist": Source(
        "medical-mnist",
        (),
        tuple(f"{name}/*.jpeg" for name in ("AbdomenCT", "BreastMRI", "CXR", "ChestCT", "Hand", "HeadCT")),
        page="https://www.kaggle.com/datasets/andrewmvd/medical-mnist",
    ),
    "gefcom2012-wind": Source(
        "gefcom2012-wind",
        (),
        ("train.csv", *(f"windforecasts_wf{farm}.csv" for farm in range(1, 8))),
        page="https://www.kaggle.com/c/GEF2012-wind-forecasting/data",
    ),
}
