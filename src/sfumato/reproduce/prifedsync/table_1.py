"""PriFedSync, Table 1: rounds, mu and accuracy when the average personal accuracy reaches 90 percent."""

from __future__ import annotations

from sfumato.reproduce.prifedsync import common
from sfumato.reproduce.table import FULL, Table, scaled

# rate, sigma: rounds, mu, test accuracy, accuracy without privacy
PRINTED = {
    (1.0, 1.0): (93, 2.71, 90.03, 98.74), (1.0, 0.9): (83, 3.10, 90.25, 98.72), (1.0, 0.75): (64, 3.96, 90.10, 98.55),
    (0.5, 1.0): (194, 3.92, 90.02, 98.90), (0.5, 0.9): (176, 4.51, 90.02, 98.83), (0.5, 0.75): (127, 5.58, 90.11, 98.54),
    (0.25, 1.0): (386, 5.52, 90.00, 98.75), (0.25, 0.9): (325, 6.13, 90.00, 98.75), (0.25, 0.75): (245, 7.75, 90.04, 98.55),
}  # fmt: skip
_CLIENTS = 40
_SCALED = (
    f"{_CLIENTS} clients of 600 records in place of 100 (the personal models learn mostly from their own records), one seed, and "
    "the cells p = 1 with sigma 1 and 0.75 and p = 0.25 with sigma 1, with one run without privacy. The paper's setting: --full."
)


def table(scale: str) -> Table:
    """The table at a scale; a run may take longer than the paper's did."""
    some = {key: PRINTED[key] for key in ((1.0, 1.0), (1.0, 0.75), (0.25, 1.0))}
    printed, free, longer = (PRINTED, list(PRINTED), 2.0) if scale == FULL else (some, [(1.0, 1.0)], 1.5)
    cells = common.to_target(scale, common.MNIST, printed, free, longer, _CLIENTS)
    title = "PriFedSync, Table 1: non-iid MNIST at 90 % average personal accuracy"
    plots = common.curves("accuracy", "Personal accuracy by round")
    words = scaled(scale, common.QUICK, _SCALED)
    return Table("prifedsync-table-1", title, common.PAPER, scale, cells, common.row, plots, words, common.NOTES)
