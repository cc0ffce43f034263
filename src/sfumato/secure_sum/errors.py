"""What the secure sum refuses.

SecureSumError
├── BadMessage   bytes that are not the message that is due: another length, version, round or sender; a broken seal or signature
├── Refused      what a client will not do, because more than the sum could be learnt, or because it is not its turn
└── GaveUp       too few clients are left: there is no sum in this round

No text of these errors holds a row, a secret or a share.
"""

from __future__ import annotations

from sfumato.errors import SfumatoError


class SecureSumError(SfumatoError):
    """A round of the secure sum that cannot go on as it was asked to."""


class BadMessage(SecureSumError):
    """Bytes that are not the message that is due."""


class Refused(SecureSumError):
    """What a client will not do."""


class GaveUp(SecureSumError):
    """Too few clients are left."""
