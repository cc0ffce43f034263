"""Events say what happened; accountants say what it costs. Nothing here needs torch."""

from sfumato.account.calibrate import calibrate_noise as calibrate_noise
from sfumato.account.protocol import Accountant as Accountant
from sfumato.account.protocol import accountant as accountant
