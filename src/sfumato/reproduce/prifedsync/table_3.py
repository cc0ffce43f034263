"""PriFedSync, Table 3: CIFAR-10 with Dirichlet 0.5, on the files that are at hand."""

from __future__ import annotations

from sfumato.reproduce.prifedsync import common
from sfumato.reproduce.table import FULL, Table, scaled

# rate, sigma: rounds, mu, accuracy, accuracy without privacy
PRINTED = {
    (1.0, 1.0): (468, 6.70, 52.03, 64.72), (1.0, 0.75): (321, 9.77, 52.22, 62.55), (1.0, 0.5): (207, 26.81, 52.23, 59.61),
    (0.5, 1.0): (904, 9.31, 52.07, 64.65), (0.5, 0.75): (671, 14.13, 52.04, 62.53), (0.5, 0.5): (405, 37.51, 52.01, 59.85),
}  # fmt: skip
CIFAR = common.MNIST | {
    "data": "cifar10", "split": "dirichlet:0.5", "records": 500, "model": "cnn-cifar", "steps": 32,
    "lr": 0.005, "weight_decay": 0.0005, "lr_decay": 0.99**0.1, "target": 0.52,
}  # fmt: skip
_CLIENTS = 10
_SCALED = (
    f"{_CLIENTS} clients of 500 records in place of 100, one seed, p = 1 with sigma 1 and 0.5 only, at most as many rounds as the "
    "paper needed, and one run without privacy. The paper's setting, with as many clients as the files give: --full."
)
_NOTES = (
    *common.NOTES,
    "Test parts follow the labels that the client holds, not the mixture that they were drawn from.",
)


def table(scale: str) -> Table:
    """The table at a scale."""
    some = {key: PRINTED[key] for key in ((1.0, 1.0), (1.0, 0.5))}
    printed, free, longer = (PRINTED, list(PRINTED), 2.0) if scale == FULL else (some, [(1.0, 0.5)], 1.0)
    cells = common.to_target(scale, CIFAR, printed, free, longer, _CLIENTS, 1)
    title = "PriFedSync, Table 3: CIFAR-10 (Dirichlet 0.5) at 52 % average personal accuracy"
    plots = common.curves("accuracy", "Personal accuracy by round")
    words = scaled(scale, common.QUICK, _SCALED)
    return Table("prifedsync-table-3", title, common.PAPER, scale, cells, common.row, plots, words, _NOTES)
