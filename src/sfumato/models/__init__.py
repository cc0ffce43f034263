"""Models by name, a check that nothing of a model lives outside its row, and the fix for BatchNorm."""

from sfumato.models.build import NAMES, build
from sfumato.models.check import check_loss_keeps_nothing, check_module, replace_batchnorm
from sfumato.models.mode import training_mode

__all__ = ["NAMES", "build", "check_loss_keeps_nothing", "check_module", "replace_batchnorm", "training_mode"]
