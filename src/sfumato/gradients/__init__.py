"""The gradients of local training, behind two functions: each client's mean gradient, and the sum of its records' clipped ones.

Everything else in this folder makes them fast, and nobody outside imports it.
"""

from sfumato.gradients.clipped_sum import ClippedSum
from sfumato.gradients.forward import Batch, OneByOne, Stacked
from sfumato.gradients.masks import DropoutMasks, KeyedMasks
from sfumato.gradients.mean_gradients import MeanGradients
from sfumato.gradients.per_record_check import check_records_do_not_mix
from sfumato.gradients.product import Product, written_out
from sfumato.gradients.recordwise import LossPerRecord

__all__ = [
    "Batch",
    "ClippedSum",
    "DropoutMasks",
    "KeyedMasks",
    "LossPerRecord",
    "MeanGradients",
    "OneByOne",
    "Product",
    "Stacked",
    "check_records_do_not_mix",
    "written_out",
]
