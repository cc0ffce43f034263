"""The same classes in pictures of several kinds, and each kind a client: Office-Caltech10 and DomainNet.

| name                                    | clients                                                                 |
|-----------------------------------------|-------------------------------------------------------------------------|
| `office-caltech10`, `domainnet`         | all domains                                                             |
| `office-caltech10-amazon`               | one domain, for example as the public one                               |
| `office-caltech10-not-amazon`           | all domains but one                                                     |
| `domainnet-fruit`, `domainnet-fruit-...` | seven classes of fruit, as in AE-DPFL, which names none of them: our choice |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sfumato.data.domain_names import (
    DOMAINNET_CLASSES,
    DOMAINNET_NAMES,
    FRUIT,
    OFFICE_NAMES,
    chosen,
)
from sfumato.data.formats import pictures_in, read_coloured
from sfumato.data.population import Records
from sfumato.data.sets import IMAGENET, Dataset, dataset_of
from sfumato.errors import DataError
from sfumato.key import Key

__all__ = ["DOMAINNET_NAMES", "OFFICE_NAMES", "chosen", "domainnet", "office_caltech10"]
SIDE = 64  # pixels: pictures of other sizes are resized
_Read = Callable[[str], tuple[Records, Records]]


def office_caltech10(name: str, root: Path) -> Dataset:
    """Ten classes in four domains (Gong et al. 2012), folders DOMAIN/CLASS; a public key keeps a fifth of each to test on."""
    folders = (root / "office-caltech10", root)
    folder = next((one for one in folders if all((one / domain).is_dir() for domain in chosen(name))), None)
    if folder is None:
        raise FileNotFoundError(name)
    classes = sorted(one.name for one in (folder / chosen(name)[0]).iterdir() if one.is_dir())

    def read(domain: str) -> tuple[Records, Records]:
        found = {label: folder / domain / own for label, own in enumerate(classes)}
        if missing := [str(one) for one in found.values() if not one.is_dir()]:
            raise DataError(f"{missing[0]} is missing, though another domain has that class. Fetch it again.")
        whole = _records([(file, label) for label, own in found.items() for file in pictures_in(own)])
        order = torch.from_numpy(
            Key.from_seed(0).child("office-caltech10", domain=domain).permutations(1, whole.count)[0]
        )
        test, train = (Records(whole.x[rows], whole.y[rows]) for rows in order.tensor_split([whole.count // 5]))
        return train, test

    return _by_domain(name, chosen(name), read, len(classes))


def domainnet(name: str, root: Path) -> Dataset:
    """345 classes in six domains (Peng et al. 2019), with their lists of training and test pictures: lines "path label"."""
    folders = (root / "domainnet", root)
    folder = next((one for one in folders if all(_lists(one, domain) for domain in chosen(name))), None)
    if folder is None:
        raise FileNotFoundError(name)
    fruit = name.startswith("domainnet-fruit")

    def read(domain: str) -> tuple[Records, Records]:
        train, test = (_records(_listed(folder, path, fruit)) for path in _lists(folder, domain))
        return train, test

    return _by_domain(name, chosen(name), read, len(FRUIT) if fruit else DOMAINNET_CLASSES)


def _lists(folder: Path, domain: str) -> list[Path]:
    """The two lists of a domain, if both are there."""
    found = [folder / f"{domain}_{part}.txt" for part in ("train", "test")]
    return found if all(path.is_file() for path in found) else []


def _listed(folder: Path, path: Path, fruit: bool) -> list[tuple[Path, int]]:
    found = []
    for line in path.read_text().splitlines():
        picture, _, label = line.rpartition(" ")
        if not picture or not label.isdecimal():
            raise DataError(f"{path}: {line!r} is not a picture and its label. Fetch it again.")
        kind = Path(picture).parent.name
        if not fruit or kind in FRUIT:
            found.append((folder / picture, FRUIT.index(kind) if fruit else int(label)))
    return found


def _records(listed: Iterable[tuple[Path, int]]) -> Records:
    files, labels = zip(*listed, strict=True) if listed else ((), ())
    return Records(torch.from_numpy(read_coloured(files, SIDE)), torch.tensor(labels, dtype=torch.int64))


def _by_domain(name: str, domains: tuple[str, ...], read: _Read, classes: int) -> Dataset:
    """The domains one after another, each a client under its name."""
    trains, tests = zip(*map(read, domains), strict=True)
    train, test = (Records(*map(torch.cat, zip(*parts, strict=True))) for parts in (trains, tests))
    found = dataset_of(name, train, test, classes, IMAGENET)
    own = np.cumsum([0, *(part.count for part in trains)])
    return replace(found, own=own, people=domains, counts={**found.counts, "clients": len(domains)})
