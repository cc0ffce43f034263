"""What was published, as its sources have it: numbers that were read there, and none from memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sfumato.reproduce.frontier.costs import COST
from sfumato.reproduce.table import Cell

_HANDCRAFTED = (
    "github.com/ftramer/Handcrafted-DP: README.md (2a1c3a8), baselines.py and cnns.py (1d31943), data.py and dp_utils.py "
    "(79e7475)"
)
_SHUFFLED = "DataLoader(shuffle=True, drop_last=True), accounted as Poisson"
_MEDIANS = "and the medians that the statistics of its features are clipped to, which nothing pays for"
_PFL = (
    "github.com/apple/pfl-research (2c77da1): README.md, configs/baseline.yaml and pytorch/train.py of "
    "benchmarks/image_classification, benchmarks/dataset/cifar10/numpy.py, pfl/data/sampling.py"
)
_FEDSAM = "the paper: Table 1, Algorithm 1 and its configuration"


@dataclass(frozen=True)
class Published:
    """One published result: what is printed, and the settings that its real cost is computed from.

    `unpriced` is what the cost leaves out, or why there is none. `accuracy` and `claimed` are None where no source was found.
    """

    who: str
    task: str
    what: str
    accuracy: float | None
    claimed: float | None
    delta: float
    source: str
    sampled: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    unpriced: str = ""

    @property
    def cell(self) -> Cell:
        """The cell that computes its cost."""
        facts = {name: value for name, value in asdict(self).items() if name != "settings"}
        row = f"{self.who}, {self.task}, {self.what}"
        return Cell(row, {**self.settings, "delta": self.delta}, 0, COST, facts)


MNIST, CIFAR, EMNIST = "MNIST, record", "CIFAR-10, record", "EMNIST, client"


def _handcrafted(task: str, what: str, accuracy: float, **settings: Any) -> Published:
    """A row of Tramer and Boneh's main table, at epsilon 3 and delta 1e-5."""
    facts = {"sampling": "shuffled", "records": 60_000 if task == MNIST else 50_000, **settings}
    words = ("Tramer and Boneh 2021", task, what, accuracy, 3.0, 1e-5, _HANDCRAFTED, _SHUFFLED)
    return Published(*words, facts, _MEDIANS if "normalisation" in settings else "")


def _fedsam(what: str, accuracy: float, unpriced: str = "") -> Published:
    """A row of DP-FedSAM's Table 1, EMNIST with Dirichlet 0.6; it prints no epsilon for it."""
    settings = {"sampling": "fixed size", "clients": 500, "cohort": 50, "noise": 0.95, "rounds": 200}
    sampled = "50 of 500 clients without replacement, accounted as Poisson"
    used = {} if unpriced else settings
    return Published("Shi et al. 2023", EMNIST, what, accuracy, None, 1 / 500, _FEDSAM, sampled, used, unpriced)


PUBLISHED = (
    _handcrafted(MNIST, "scattering, linear", 98.7, batch=4096, noise=3.04, passes=40, normalisation=8.0),
    _handcrafted(MNIST, "CNN", 98.1, batch=512, noise=1.23, passes=40),
    Published(
        "Papernot et al. 2021", MNIST, "tempered sigmoids", 98.1, 2.93, 1e-5,
        "Table 4 of Ghazi et al. 2021, Deep Learning with Label Differential Privacy, which cites it", "not found",
        unpriced="its batch, noise and passes were not found in a source",
    ),
    _handcrafted(CIFAR, "scattering, linear", 67.0, batch=8192, noise=5.67, passes=60, normalisation=8.0),
    _handcrafted(CIFAR, "scattering, CNN", 69.3, batch=8192, noise=5.67, passes=60, normalisation=8.0),
    _handcrafted(CIFAR, "CNN", 59.2, batch=1024, noise=1.54, passes=30),
    Published(
        "pfl-research", "CIFAR-10, client", "benchmark, iid, central privacy", None, 2.0, 1e-6, _PFL,
        "50 draws with replacement from 1,000 users, to simulate 1,000 of 10^6: noise for those, times 50/1000",
        {
            "sampling": "larger population", "epsilon": 2.0, "meant_population": 1_000_000, "meant_cohort": 1_000,
            "clients": 1_000, "cohort": 50, "rounds": 3_000,
        },
    ),
    _fedsam("DP-FedAvg, Dirichlet 0.6", 82.20),
    _fedsam("DP-FedSAM, Dirichlet 0.6", 84.32),
    _fedsam(
        "DP-FedSAM-top_k, Dirichlet 0.6", 84.80,
        "nothing is proven: each client drops coordinates after its share of the noise",
    ),
)  # fmt: skip
