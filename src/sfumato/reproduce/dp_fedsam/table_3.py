"""DP-FedSAM, Table 3: how many coordinates are kept, moved from CIFAR-10 to EMNIST Letters."""

from __future__ import annotations

from itertools import product

from sfumato.reproduce.dp_fedsam import common
from sfumato.reproduce.table import QUICK, Cell, Group, Row, Table

# keep: training and test accuracy on CIFAR-10 with ResNet-18
PRINTED = {
    1.0: (90.83, 54.14), 0.1: (91.35, 55.05), 0.2: (92.83, 56.12), 0.4: (92.60, 57.00), 0.6: (92.43, 56.42), 0.8: (91.89, 56.14),
}  # fmt: skip
MASKS = {"dense": "sound", "published": "as published"}


def table(scale: str) -> Table:
    """The table at a scale."""
    kept, seeds = ((1.0, 0.4), 2) if scale == QUICK else (PRINTED, 3)
    settings = common.base(scale) | common.METHODS["DP-FedSAM-top_k"]
    cells: list[Cell] = []
    for mask, keep in product(MASKS, kept):
        row, changed = f"{MASKS[mask]}, keep {keep:g}", {"keep": keep, "mask": mask}
        cells += common.cells(seeds, row, {**settings, **changed}, {"method": row, **changed})
    title = (
        f"DP-FedSAM-top_k, Table 3: the share of coordinates that is kept, Dirichlet 0.6, epsilon {common.EPSILON:g}"
    )
    panels = (
        common.Panel("sound, our order", {"mask": "dense"}, "accuracy", "Test accuracy by round, sound variant"),
        common.Panel("as published, our order", {"mask": "published"}),
    )
    return common.table("dp-fedsam-table-3", title, scale, cells, _row, panels, common.CIFAR_NOTE)


def _row(done: Group) -> Row:
    settings = done[0].cell.settings
    train, test = PRINTED[settings["keep"]]
    return {
        "variant": MASKS[settings["mask"]],
        "keep": f"{settings['keep']:g}",
        "train, paper (CIFAR-10)": f"{train:.2f}",
        "test, paper (CIFAR-10)": f"{test:.2f}",
        **common.measured(done),
    }
