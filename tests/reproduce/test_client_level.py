"""The tables of DP-Fed-LS and DP-FedSAM: they run, their privacy columns are the papers', and their pictures tell the truth."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from sfumato import Key, Records, classification, evaluate
from sfumato.data.load import hold_out, load
from sfumato.errors import BadValue
from sfumato.reproduce import TABLES, make
from sfumato.reproduce.clips import clip_statistics
from sfumato.reproduce.dp_fed_ls.common import POISSON, UNIFORM
from sfumato.reproduce.dp_fed_ls.table_1 import our_noise, paper_noise
from sfumato.reproduce.dp_fed_ls.table_2 import columns
from sfumato.reproduce.dp_fedsam.common import METHODS, PUBLISHED, order
from sfumato.reproduce.landscape import direction, landscape
from sfumato.reproduce.run import run_table
from sfumato.reproduce.table import SCALES, Cell, Done, Work
from tests.helpers import linear

OURS = [name for name in TABLES if name.startswith(("dp-fed-ls", "dp-fedsam"))]


@pytest.mark.usefixtures("written_once")
@pytest.mark.parametrize("name", OURS)
def test_the_quick_table_runs_and_draws(name: str, shelf: Path) -> None:
    table, folder = make(name, "quick"), shelf / name
    done = run_table(table, folder, lambda line: None)
    written = json.loads((folder / "table.json").read_text())
    assert written["missing"] == 0 and len(written["rows"]) == len({one.cell.row for one in done})
    assert all(cell.result.get("epsilon", 1.0) is not None or _unproven(cell) for cell in done)
    drawn = {path.stem for path in folder.glob("*.png")}
    assert drawn == {plot.name for plot in table.plots(done)}
    assert drawn or name in ("dp-fed-ls-table-2", "dp-fedsam-table-2")


def _unproven(done: Done) -> bool:
    return done.cell.settings["recipe"] == "fedavg" or done.cell.settings.get("mask") == "published"


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_has_a_file_of_its_own_and_says_how_it_is_scaled(name: str, scale: str) -> None:
    table = make(name, scale)
    assert len({cell.name for cell in table.cells}) == len(table.cells)
    assert table.scaled or scale == "full"
    json.dumps([dict(cell.settings) for cell in table.cells])


# PRIVACY.md, A1: noise multiplier, printed uniform and Poisson, proven Poisson, proven uniform, the same if the noise is z G
TABLE_2 = [(1.5, 5.23, 2.56, 1.819, 2.099, 8.05), (1.3, 6.34, 3.19, 2.289, 2.659, 11.38)]
TABLE_2 += [(1.1, 7.84, 4.24, 3.076, 3.587, 17.39), (1.0, 8.66, 5.07, 3.701, 4.314, 22.31)]
TABLE_3 = [(1.6, 14.94, 6.78, 5.198, 5.791, 19.50), (1.4, 17.69, 8.22, 6.379, 7.159, 25.49)]
TABLE_3 += [(1.2, 22.43, 10.41, 8.186, 9.256, 35.16), (1.0, 27.24, 14.04, 11.224, 12.775, 52.10)]
SETTINGS = [(0.05, 200, 2000, row) for row in TABLE_2] + [(0.2, 100, 975, row) for row in TABLE_3]


@pytest.mark.parametrize(("rate", "rounds", "clients", "row"), SETTINGS)
def test_the_privacy_columns_are_those_of_the_paper(
    rate: float, rounds: int, clients: int, row: tuple[float, ...]
) -> None:
    ratio, uniform, poisson, exact, replaced, halved = row
    common = {"clients": clients, "rate": rate, "rounds": rounds, "delta": clients**-1.1, "ratio": ratio}
    found = columns({**common, "sampling": POISSON, "printed": poisson}, 0)
    assert found["counted"] == pytest.approx(poisson, abs=0.009)
    assert exact - 5e-4 <= found["proven"] <= exact * 1.002
    assert found["enough"] < 1
    found = columns({**common, "sampling": UNIFORM, "printed": uniform}, 0)
    assert found["counted"] == pytest.approx(uniform, abs=0.009)
    # a client who sees the model leaves one client fewer to hide among
    assert replaced - 5e-4 <= found["proven"] <= replaced * 1.005
    assert halved - 0.005 <= found["if z G"] <= halved * 1.005


@pytest.mark.parametrize(
    ("sampling", "epsilon", "paper", "ours"),
    [
        (UNIFORM, 6, 0.8081, 0.3398), (UNIFORM, 7, 0.6637, 0.3197), (UNIFORM, 8, 0.5821, 0.3032),
        (UNIFORM, 9, 0.5257, 0.2893), (POISSON, 6, 0.7771, 0.1665), (POISSON, 7, 0.6436, 0.1568),
        (POISSON, 8, 0.5662, 0.1487), (POISSON, 9, 0.5122, 0.1420),
    ],
)  # fmt: skip
def test_the_noises_of_table_1(sampling: str, epsilon: int, paper: float, ours: float) -> None:
    assert paper_noise(sampling, epsilon) == pytest.approx(paper, abs=1.5e-4)
    assert our_noise(sampling, epsilon) == pytest.approx(ours, rel=2e-3)


def test_all_algorithms_get_the_same_noise_and_only_the_published_one_proves_nothing() -> None:
    table = make("dp-fedsam-table-1", "default")
    assert len({cell.settings["noise_multiplier"] for cell in table.cells}) == 1
    assert {cell.paper["method"] for cell in table.cells} == set(METHODS)
    assert [name for name, options in METHODS.items() if options.get("mask") == "published"] == [PUBLISHED]


def test_the_order_knows_what_is_within_the_spread() -> None:
    values = {"good": (0.9, 0.92), "fair": (0.89, 0.91), "bad": (0.1, 0.1)}
    done = []
    for method, found in values.items():
        for seed, accuracy in enumerate(found):
            cell = Cell(method, {}, seed, Work("nothing", lambda settings, seed: {}), {"method": method})
            done.append(Done(cell, {"accuracy": accuracy}, 0.0))
    assert order(done) == "good 91.0 ± 1.41 ~ fair 90.0 ± 1.41 > bad 10.0 ± 0"


def test_what_the_clip_leaves_is_equation_18_by_hand() -> None:
    rounds, clip = [[0.5, 2.0, 4.0], [], [1.0]], 1.0
    found = clip_statistics(rounds, clip)
    left = [1.0, 0.5, 0.25]
    mean = sum(left) / 3
    assert found["mean"] == pytest.approx([mean, 1.0])
    assert found["spread"] == pytest.approx([sum(abs(value - mean) for value in left) / 3, 0.0])
    assert found["clipped"] == 0.5 and sum(found["counts"]) == 4


def test_a_landscape_has_the_model_in_its_middle_and_leaves_it_alone() -> None:
    module, objective = linear(), classification(3)
    records = Records(Key.from_seed(1).normal(20, 6).float(), torch.arange(20) % 3)
    before = [p.detach().clone() for p in module.parameters()]
    found = landscape(module, records, objective, Key.from_seed(0), points=3, reach=2.0)
    assert found.steps == (-2.0, 0.0, 2.0)
    assert found.losses[1][1] == pytest.approx(evaluate(module, records, objective)["loss"], rel=1e-6)
    assert found.sharpness > 0
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_a_direction_has_the_norm_of_every_filter_and_nothing_along_biases() -> None:
    module = torch.nn.Conv2d(2, 3, 5)
    found = direction(module, Key.from_seed(0))
    for own, new in zip(module.weight, found["weight"], strict=True):
        assert float(new.norm()) == pytest.approx(float(own.detach().norm()), rel=1e-5)
        assert not torch.allclose(own, new)
    assert not found["bias"].any()


def test_what_is_held_out_is_in_no_client_and_always_the_same() -> None:
    digits = load("digits")
    parted = hold_out(digits, 400, Key.from_seed(0))
    assert parted.validation is not None
    both = torch.cat([parted.validation.records.x, parted.scaling(parted.pool.x)]).flatten(1)
    whole = digits.train.x.flatten(1)
    assert math.isclose(float(both.double().sum()), float(whole.double().sum()), rel_tol=1e-9)
    again = hold_out(digits, 400, Key.from_seed(0)).validation
    assert again is not None and torch.equal(parted.validation.records.x, again.records.x)
    for wrong in (0, 1400):
        with pytest.raises(BadValue, match="set aside as public"):
            hold_out(digits, wrong, Key.from_seed(0))
    with pytest.raises(BadValue, match="already"):
        hold_out(parted, 10, Key.from_seed(0))
