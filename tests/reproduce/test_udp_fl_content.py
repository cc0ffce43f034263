"""UDP-FL's tables of attacks on content: what stands beside them needs no model, and pictures have the names of their tables."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sfumato.report.curves import Plot
from sfumato.reproduce import make
from sfumato.reproduce.run import run_table
from sfumato.reproduce.show import having
from sfumato.reproduce.udp_fl import attacked, common, table_7, table_8, table_9


@pytest.mark.usefixtures("written_once")
def test_a_table_has_its_picture_with_a_line_for_each_law_and_guess(tmp_path: Path) -> None:
    table = make("udp-fl-table-9", "quick")
    done = run_table(table, tmp_path, lambda line: None)
    (plot,) = table.plots(done)
    assert plot.name == "reconstruction-mse" and isinstance(plot, Plot)
    methods = {one.cell.paper["method"] for one in done} - {*attacked.PUBLISHED}
    assert {curve.name for curve in plot.curves} >= {method.partition(" (")[0] for method in methods} - {"Gaussian"}
    (free,) = having(done, method=common.NONE)
    assert free.cell.paper["paper"] == table_9.FREE


@pytest.mark.parametrize("printed", [table_7.PRINTED, table_8.PRINTED, table_9.PRINTED])
def test_the_paper_has_four_epsilons_of_three_laws(printed: attacked.Printed) -> None:
    assert {*printed} == {"gaussian", "laplace", "staircase"} and {len(rows) for rows in printed.values()} == {4}


def test_printed_psnr_and_mse_imply_one_peak() -> None:
    """Which is why the column that the paper calls F1 is PSNR, in units of unit variance: 10 log10(peak^2 / MSE)."""
    rows = [row for rows in table_7.PRINTED.values() for row in rows] + [table_7.FREE]
    peaks = [math.sqrt(mse * 10 ** (psnr / 10)) for mse, psnr, _ in rows]
    assert all(3.9 < peak < 4.15 for peak in peaks)


def test_bands_by_hand() -> None:
    mean, low, high = attacked.band([1.0, 2.0, 3.0])
    assert (mean, high - mean) == (2.0, pytest.approx(4.302653 / math.sqrt(3), rel=1e-5)) and mean - low == high - mean
    assert attacked.band([5.0]) == [5.0, 5.0, 5.0]
