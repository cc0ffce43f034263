"""Against which server a secure sum is to hold."""

from __future__ import annotations

from enum import Enum


class Power(Enum):
    """What the server may do besides reading all that it is sent, alone or with the clients that collude with it."""

    FOLLOWS = "follows the protocol"
    ACTIVE = "active"
