"""The page of attacks says that it is not private, holds everything that was found, and no report knows of it."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sfumato.audit.attack import FOLDER, Chart, Curve, Found
from sfumato.audit.attacks import attack_run
from sfumato.audit.membership import Lira
from sfumato.errors import BadValue
from sfumato.report import write_page
from sfumato.report.attacks import write_attack
from tests.audit.runs import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawing() -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1))
    figure.add_subplot().plot([0, 1], [0, 1])
    return figure


def found(name: str = "lira") -> Found:
    curve = Curve(name, (0.01, 0.1, 1.0), (0.0, 0.3, 1.0), (0.0, 0.2, 1.0), (0.1, 0.4, 1.0))
    charts = {"roc": Chart("Members found", "False positives", "True positives", (curve,), log=True)}
    numbers, baselines = {"auc": 0.71, "mse": float("nan")}, {"a coin: auc": 0.53, "a grey picture": 1.02}
    pictures = {"Side by side": drawing}
    return Found(name, numbers, baselines, ("Seen: <b>all</b>",), pictures, charts, {"auc": (0.6, 0.8)}, 1.5)


def test_the_page_says_what_it_is_and_holds_what_was_found(tmp_path: Path) -> None:
    page = write_attack(found(), tmp_path)
    write_attack(found("shokri"), tmp_path)
    text = page.read_text()
    assert page == tmp_path / FOLDER / "index.html"
    heading = text.index("This must not be published")
    assert heading < text.index("0.71") and "nobody paid for it" in text and "released values only" not in text
    assert "not private" in re.findall("<h1>(.*?)</h1>", text)[0]
    for word in ("0.6 to 0.8", "0.53", "A grey picture", "1.02", "Shokri", "Seen: &lt;b&gt;all&lt;/b&gt;", "1.5 s"):
        assert word in text
    assert text.count("data:image/png;base64,") == 2 and text.count("<svg") == 2
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", text) and "http://" not in text


def test_files_are_private_and_numbers_that_are_none_are_null(tmp_path: Path) -> None:
    folder = write_attack(found(), tmp_path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    held = json.loads((folder / "lira.json").read_text())
    assert held["numbers"] == {"auc": 0.71, "mse": None} and held["pictures"] == {
        "Side by side": "lira-side-by-side.png"
    }
    assert (folder / "lira-side-by-side.png").read_bytes().startswith(b"\x89PNG")


def test_an_attack_that_is_made_again_takes_its_own_place(tmp_path: Path) -> None:
    write_attack(found(), tmp_path)
    text = write_attack(replace(found(), numbers={"auc": 0.77}), tmp_path).read_text()
    assert "0.77" in text and "0.71" not in text
    with pytest.raises(BadValue, match="name"):
        write_attack(found("../lira"), tmp_path)


def test_nothing_of_an_attack_enters_the_report_or_what_is_released(tmp_path: Path) -> None:
    run = train(tmp_path / "run", rounds=1, clients=10)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    write_attack(attack_run(run, Lira(shadows=4, most=40), lambda line: None, seed=0), run)
    write_page(run)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    assert "report.html" in before and "run.json" in before
    assert {path.name for path in run.iterdir()} - set(before) == {FOLDER}
