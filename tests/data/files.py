"""Tiny files in the public formats, for tests of the loaders."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return header + array.astype(np.uint8).tobytes()


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_idx_set(
    folder: Path, train: str, test: str, ending: str = ".gz", counts: tuple[int, int] = (20, 10), first_label: int = 0
) -> None:
    """Images whose pixel [i, row, column] is i + row + 2 column, with labels that count up from `first_label`."""
    for prefix, count in zip((train, test), counts, strict=True):
        i, row, column = np.ogrid[:count, :28, :28]
        write(folder / f"{prefix}-images-idx3-ubyte{ending}", idx(i + row + 2 * column))
        write(folder / f"{prefix}-labels-idx1-ubyte{ending}", idx(np.arange(count) % 10 + first_label))


def write_cifar(path: Path, labels: list[int], coarse: bytes = b"") -> None:
    """Images that are their label in red, 100 in green and 200 in blue; CIFAR-100 has a coarse label before the label."""
    records = [coarse + bytes([label]) + bytes([label] * 1024 + [100] * 1024 + [200] * 1024) for label in labels]
    write(path, b"".join(records))


def write_svhn(path: Path, labels: list[int]) -> None:
    """Images whose pixel [row, column, colour] is row + 2 column + 100 colour, as MATLAB files have them."""
    from scipy.io import savemat

    row, column, colour = np.ogrid[:32, :32, :3]
    image = (row + 2 * column + 50 * colour).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    x = np.repeat(image[..., None], len(labels), axis=3)
    savemat(path, {"X": x, "y": np.array(labels, np.uint8)[:, None]}, do_compression=True)


def play(roles: int = 8, lines: int = 30) -> str:
    """A made-up file of plays: sonnets, one play with `roles` roles of some thousand characters each, and a poem."""
    names = [f"ROLE {chr(65 + number)}" for number in range(roles)]
    speeches = [
        f"  {name}. In scene {scene} {name.lower()} speaks,\n    and says it {scene * 7 % 10} times over.\n\nEnter all\n"
        for scene in range(lines)
        for name in names
    ]
    head = "1609\n\nTHE SONNETS\n\nby William Shakespeare\n\n  From fairest creatures. We desire\n    increase\n"
    body = "1603\n\nA MADE-UP PLAY\n\n\nby William Shakespeare\n\n" + "".join(speeches)
    return head + body + "\nA POEM\n\nby William Shakespeare\n\n  From off a hill. Whose womb\n    reworded\n"


def write_play(root: Path, text: str) -> None:
    write(root / "shakespeare" / "t8.shakespeare.txt", text.encode())


def write_pictures(root: Path, counts: dict[str, int], ending: str = ".jpeg", side: int = 8, mode: str = "L") -> None:
    """A folder for each class, with pictures that are 10 in the first, 20 in the second..., and one more in each next picture."""
    from PIL import Image

    for label, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            grey = Image.new("L", (side, side), 10 * (label + 1) + number)
            grey.convert(mode).save(root / name / f"{number:06d}{ending}", quality=100)


def hour(number: int) -> str:
    """The hour of that number after the first of July 2009, as the competition writes it."""
    return (np.datetime64("2009-07-01T00", "h") + number).item().strftime("%Y%m%d%H")


def write_wind(folder: Path, hours: int = 13_200, missing: tuple[int, ...] = (), farms: int = 7) -> None:
    """Power that is farm + hour / 100,000, and forecasts every 12 hours whose wind is the number of the forecast."""
    folder.mkdir(parents=True, exist_ok=True)
    powers = [
        ",".join([hour(number), *(f"{farm + number / 1e5:.5f}" for farm in range(1, farms + 1))])
        for number in range(hours)
        if number not in missing
    ]
    (folder / "train.csv").write_text("\n".join(["date,wp1,wp2,wp3,wp4,wp5,wp6,wp7", *powers]) + "\n")
    for farm in range(1, farms + 1):
        lines = ["date,hors,u,v,ws,wd"]
        for number in range(0, hours, 12):
            lines += [f"{hour(number)},{ahead},{number // 12},{ahead},{farm},90" for ahead in range(1, 49)]
        (folder / f"windforecasts_wf{farm}.csv").write_text("\n".join(lines) + "\n")
