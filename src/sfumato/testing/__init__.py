"""The laws that every piece, noise, sampler, accountant and round must hold, as functions that raise AssertionError.

Check your own piece with them before you believe its guarantee: `check_piece(MyClip(1.0))`.
"""

from sfumato.testing.channel import check_shuffler
from sfumato.testing.mechanism import MechanismAudit, audit_mechanism
from sfumato.testing.noise import check_noise
from sfumato.testing.piece import check_piece
from sfumato.testing.records import check_records
from sfumato.testing.replay import Moved, Pair, check_replay, pairs_of_rows, replay
from sfumato.testing.round import check_round
from sfumato.testing.sampler import check_sampler

__all__ = [
    "MechanismAudit",
    "Moved",
    "Pair",
    "audit_mechanism",
    "check_noise",
    "check_piece",
    "check_records",
    "check_replay",
    "check_round",
    "check_sampler",
    "check_shuffler",
    "pairs_of_rows",
    "replay",
]
