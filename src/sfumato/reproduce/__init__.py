"""The papers' tables, run again: theirs and ours side by side. `TABLES` lists them by name without loading torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sfumato.errors import BadValue, nearest

if TYPE_CHECKING:
    from sfumato.reproduce.table import Table


TABLES = {
    "prifedsync-table-1": "Rounds and mu at 90 % average personal accuracy, non-iid MNIST",
    "prifedsync-figure-4-1": "Personal models against the global one, non-iid MNIST",
    "prifedsync-table-2": "Batches of 8 against 16: privacy and computation (with Figure 4.2)",
    "prifedsync-table-3": "Rounds and mu at 52 % average personal accuracy, CIFAR-10",
    "dp-fed-ls-table-1": "MNIST with the paper's noise, and with the noise that is proven enough (with Figure 2)",
    "dp-fed-ls-table-2": "The privacy columns; no training",
    "dp-fed-ls-table-3": "An LSTM on Shakespeare, and its privacy columns (with Figure 5)",
    "dp-fed-ls-figure-4": "Smoothing under much noise and high learning rates, Shakespeare",
    "dp-fedsam-table-1": "Seven algorithms at one epsilon, EMNIST Letters, three splits",
    "dp-fedsam-table-2": "The same at epsilon 4 to 10",
    "dp-fedsam-table-3": "How many coordinates are kept",
    "dp-fedsam-table-4": "What sharpness-aware steps change",
    "dp-fedsam-figure-3": "Loss landscapes, norms before the clip, equation 18 (with Figures 1 and 4)",
    "dp-fedsam-figure-5": "Sweeps of radius and local epochs",
    "udp-fl-figure-1": "Every law by round, published and proven, equal and unequal clients; mode connectivity and its control",
    "udp-fl-figure-2": "CIFAR-10 at epsilon 2 and 8, by round",
    "udp-fl-figure-3": "More clients, and more records in a step",
    "udp-fl-figure-4": "Every law by epsilon, published and proven, MNIST and Medical MNIST",
    "udp-fl-figure-5": "Wind power: FedAvg and SCAFFOLD by epsilon, climatology and persistence beside them",
    "udp-fl-figure-6": "With and without a shuffler; what one is worth to messages that are private as a whole",
    "udp-fl-table-4": "CIFAR-10 by epsilon",
    "udp-fl-table-5": "Seconds of training and of the search for the noise, and bytes",
    "udp-fl-table-6": "Membership attacks by epsilon: Shokri's, LiRA and Canary, CIFAR-10",
    "udp-fl-table-7": "Gradient inversion by epsilon: pictures from a client's message, batches of 1, 10 and 100",
    "udp-fl-table-8": "Attribute inference by epsilon: gender from a model of age groups, UTKFace",
    "udp-fl-table-9": "A reconstruction network by epsilon: pictures from a model's answers, CIFAR-10",
    "ae-dpfl-settings": "What the appendix's settings cost; no training",
    "ae-dpfl-digits": "MNIST clients, USPS public: votes and DP-FedAvg at one epsilon, and ceilings",
    "ae-dpfl-crossing": "Where voting wins: by epsilon, queries and clients",
    "ae-dpfl-office": "Office-Caltech10, each domain in turn the server's; CIFAR-10 on random features",
    "frontier": "Published accuracies with what they really cost as sampled, and --auto at the same tasks",
    "frontier-choices": "What each choice of --auto is worth, one at a time",
    "frontier-auto": "--auto beside the setting that each recipe is shipped with, on every data set at hand",
    "audit-recipes": "Upper and lower bound on epsilon of every recipe: proven, and shown by canaries",
}


def make(name: str, scale: str) -> Table:
    """The table of that name, which is that of its folder and file here, at one of the scales."""
    if name not in TABLES:
        raise BadValue(f"there is no table {name!r}. {nearest(name, TABLES)}")
    home = name.replace("-table-", ".table-").replace("-figure-", ".figure-").replace("ae-dpfl-", "ae_dpfl.")
    home = home.replace("frontier-", "frontier.")
    home = home.replace("-", "_")
    table: Table = import_module(f"sfumato.reproduce.{home}").table(scale)
    return table
