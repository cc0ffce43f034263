"""What names a run, and what a replay of it must have in common: fingerprints that do not reveal what they name."""

from __future__ import annotations

import hashlib
import hmac
import os

import torch
from torch import nn

from sfumato.data.population import Population
from sfumato.engine.checkpoint import Checkpoint
from sfumato.engine.plan import Plan
from sfumato.key import Key
from sfumato.ledger.ledger import Ledger


def digest(*facts: object) -> str:
    """One name for all the facts."""
    found = hashlib.blake2b(digest_size=16)
    for fact in facts:
        found.update(fact if isinstance(fact, bytes) else repr(fact).encode())
        found.update(b"\0")
    return found.hexdigest()


def inputs_of(root: Key, population: Population, plan: Plan) -> str:
    """A name for everything that a replay must have in common, keyed so that it does not reveal the data."""
    fingerprint = population.fingerprint or os.urandom(16).hex()  # unknown data may have changed
    return mac(root, f"{fingerprint} {plan} {torch.__version__} {torch.get_num_threads()}")


def mac(root: Key, facts: str) -> str:
    """A name for the facts that only the holder of the root key can compute or test."""
    return hmac.new(root.child("inputs").stream(32), facts.encode(), hashlib.sha256).hexdigest()


def state_bytes(module: nn.Module) -> bytes:
    """A digest of everything in the module: parameters, frozen ones too, and buffers."""
    digest = hashlib.blake2b(type(module).__qualname__.encode(), digest_size=16)
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(
            value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            if isinstance(value, torch.Tensor)
            else repr(value).encode()
        )
    return digest.digest()


def attempt_of(ledger: Ledger, found: Checkpoint, inputs: str) -> int:
    """The attempt to go on with: a new one if noise was drawn after the checkpoint for inputs that may have been others."""
    later = ledger.after(found.round)
    if any(entry_inputs != inputs for _, entry_inputs in later):
        return max(attempt for attempt, _ in later) + 1
    return max([found.attempt, *(attempt for attempt, _ in later)])
