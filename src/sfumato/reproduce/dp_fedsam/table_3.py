"""DP-FedSAM, Table 3: how many coordinates are kept, moved from CIFAR-10 to EMNIST Letters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.table import QUICK, Cell, Done, Row, Table

# keep: training and test accuracy on CIFAR-10 with ResNet-18
PRINTED = {
    1.0: (90.83, 54.14), 0.1: (91.35, 55.05), 0.2: (92.83, 56.12), 0.4: (92.60, 57.00), 0.6: (92.43, 56.42), 0.8: (91.89, 56.14),
}  # fmt: skip
MASKS = {"dense": "sound", "published": "as published"}


def table(scale: str) -> Table:
    """The table at a scale."""
    settings = common.base(scale)
    cells: list[Cell] = []
    for mask, keep in product(MASKS, (1.0, 0.4) if scale == QUICK else PRINTED):
        chosen = {**settings, **common.METHODS["DP-FedSAM-top_k"], "mask": mask, "keep": keep}
        name = f"{MASKS[mask]}, keep {keep:g}"
        paper = {"method": name, "keep": keep, "mask": mask}
        for seed in range(2 if scale == QUICK else 3):
            cells.append(common.cell(name, chosen, common.EPSILON, seed, paper))
    return Table(
        "dp-fedsam-table-3",
        f"DP-FedSAM-top_k, Table 3: the share of coordinates that is kept, Dirichlet 0.6, epsilon {common.EPSILON:g}",
        common.PAPER,
        scale,
        tuple(cells),
        _row,
        lambda done: common.curves(
            "accuracy", "Test accuracy by round, sound variant", [d for d in done if d.cell.paper["mask"] == "dense"]
        ),
        common.words(scale),
        ("The paper's values are CIFAR-10's with ResNet-18: compare orders, not numbers.", *common.NOTES),
        lambda done: [
            f"{words}, our order: {common.order([d for d in done if d.cell.paper['mask'] == mask])}."
            for mask, words in MASKS.items()
        ],
    )


def _row(done: Sequence[Done]) -> Row:
    facts = done[0].cell.paper
    train, test = PRINTED[facts["keep"]]
    return {
        "variant": MASKS[facts["mask"]],
        "keep": f"{facts['keep']:g}",
        "train, paper (CIFAR-10)": f"{train:.2f}",
        "test, paper (CIFAR-10)": f"{test:.2f}",
        **common.measured(done),
    }
