"""The node's secret, and the keys that are drawn from it: 32 bytes of the system's, in a file of its own, never sent.

The key of an answer is a child of the secret by everything that the answer is computed from: the whole question, the data, what the
client remembers, and what the last bits of its arithmetic depend on. So the same noise never falls on inputs that may differ:
if anything of it changes, even if a server asks the same round again with other parameters, new noise is drawn, and it counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from sfumato.engine.checkpoint import root_key
from sfumato.engine.workers import kernels_here
from sfumato.facts import digest
from sfumato.federation.question import Question
from sfumato.key import Key


def secret_of(folder: Path) -> Key:
    """The secret in a node's folder; made, if there is none."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return root_key(folder, lambda: os.urandom(32))


def question_digest(question: Question, session: bytes = b"") -> str:
    """A name for everything in a question that an answer depends on. The plan of the run is not part of it.

    The session of a secure sum is: with the same noise in two sums of different clients, their difference would hold one share.
    """
    opening = question.opening
    shared = (
        opening.number,
        opening.key,
        sorted(opening.kept.items()),
        sorted(opening.prepared.items()),
        opening.local,
    )
    return digest(question.terms, question.hash, question.client, question.attempt, question.params, session, *shared)


def inputs_digest(fingerprint: str | None, memory: Mapping[str, torch.Tensor]) -> str:
    """A name for what is the node's own; for data that nobody named, one that no other answer has."""
    return digest(fingerprint or os.urandom(32), sorted(memory.items()), *kernels_here())


def answer_key(secret: Key, run: str, asked: str, inputs: str) -> Key:
    """What the randomness of one answer comes from."""
    return secret.child("answer", run=digest(run), question=asked, inputs=inputs)


def lasting_key(secret: Key, run: str) -> Key:
    """What the client may use again in every round of a run."""
    return secret.child("lasting", run=digest(run))
