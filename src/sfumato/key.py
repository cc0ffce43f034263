"""Randomness as a value: a key has a path, gives children, and is drawn from once.

A key is 32 bytes. A child is BLAKE2b(parent, name and numbers), so the noise of round 3 or the batches of client 17
depend on the root secret and their own path, never on the order of draws. All bytes come from one generator, the
ChaCha20 keystream of those 32 bytes: without the root, they cannot be told from uniform ones.
This is the only module that draws random numbers; `torch.manual_seed` and `numpy.random` appear nowhere else.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sfumato.chacha import BLOCK, Keystream

if TYPE_CHECKING:
    import torch

_SIZE = 32
_RADIUS, _ANGLE = 2**63 - 1, 2**53 - 1  # bits of a word


@dataclass(frozen=True)
class Key:
    """A node in the tree of randomness. `repr` shows its path, never its bytes.

    >>> root = Key.from_seed(0)
    >>> root.child("noise", round=3)
    Key('/noise:round=3')
    >>> root.child("noise", round=3).uniform(2) == root.child("noise", round=3).uniform(2)
    array([ True,  True])
    """

    _bytes: bytes = field(repr=False)
    path: str = "/"

    @staticmethod
    def from_secret(secret: bytes) -> Key:
        """The root of a run, from 32 secret bytes."""
        if len(secret) != _SIZE:
            raise ValueError(f"a root secret has {_SIZE} bytes, this one has {len(secret)}.")
        return Key(secret)

    @staticmethod
    def from_system() -> Key:
        """A fresh root from the operating system."""
        return Key(os.urandom(_SIZE))

    @staticmethod
    def from_seed(seed: int) -> Key:
        """A root that anybody can make again: for simulations, public splits and initial weights."""
        return Key(hashlib.blake2b(f"seed {int(seed)}".encode(), digest_size=_SIZE, person=b"sfumato-seed").digest())

    def child(self, name: str, **numbers: int | str) -> Key:
        """The key at a path below this one."""
        step = name + "".join(f":{word}={value}" for word, value in sorted(numbers.items()))
        digest = hashlib.blake2b(step.encode(), key=self._bytes, digest_size=_SIZE, person=b"sfumato-key").digest()
        return Key(digest, self.path.rstrip("/") + "/" + step)

    def __repr__(self) -> str:
        return f"Key({self.path!r})"

    def to_bytes(self) -> bytes:
        """The key itself, to be handed to whoever may draw from it."""
        return self._bytes

    @property
    def digest(self) -> str:
        """A name for this key that does not reveal it."""
        return hashlib.blake2b(self._bytes, digest_size=16, person=b"sfumato-name").hexdigest()

    def stream(self, size: int) -> bytes:
        """The first `size` bytes of this key's keystream."""
        return bytes(Keystream(self._bytes).read(size))

    def blocks(self, size: int) -> Iterator[bytearray]:
        """The same bytes, in blocks of at most 1 MiB."""
        stream = Keystream(self._bytes)
        return (stream.read(min(BLOCK, size - start)) for start in range(0, size, BLOCK))

    def integers(self, count: int) -> np.ndarray:
        """`count` uniform 64-bit words."""
        return np.frombuffer(self.stream(8 * count), dtype="<u8")

    def uniform(self, count: int) -> np.ndarray:
        """`count` numbers uniform in (0, 1), with 53 bits each."""
        return ((self.integers(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def permutations(self, count: int, size: int) -> np.ndarray:
        """`count` random orders of `size` things, one per row."""
        return np.argsort(self.integers(count * size).reshape(count, size), axis=1, kind="stable")

    def normal(self, *shape: int, stddev: float = 1.0) -> torch.Tensor:
        """Normal float64 numbers by Box and Muller: two from a word of radius and a word of angle.

        The radius is stddev sqrt(-2 ln u) with u = (k + 1/2) / 2^63, so it reaches 9.4 times stddev; the angle is a half-step
        between 2^53 places on the circle. Both are as fine as float64 has them: pairs that lie on a coarse set of rays would still
        lie there after rounding to float32, and whoever guesses what was released could see whether the guess fits.
        """
        import torch

        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=torch.float64)
        pairs = (count + 1) // 2
        both = torch.empty(2, pairs, dtype=torch.float64)
        start = 0
        for block in self.blocks(16 * pairs):
            first, second = torch.frombuffer(block, dtype=torch.int64).view(2, -1)
            cosine, sine = both[:, start : start + len(first)]
            start += len(first)
            radius = (first & _RADIUS).double().add_(0.5).mul_(2.0**-63).log_().mul_(-2.0).sqrt_().mul_(stddev)
            angle = (second & _ANGLE).double().add_(0.5).mul_(2.0 * math.pi * 2.0**-53)
            torch.cos(angle, out=cosine).mul_(radius)
            torch.sin(angle, out=sine).mul_(radius)
        return both.view(-1)[:count].reshape(shape)

    def laplace(self, *shape: int, stddev: float = 1.0) -> torch.Tensor:
        """Laplace float64 numbers: the logarithm of a uniform number of 63 bits, with a sign from the 64th."""
        import torch

        words = torch.from_numpy(self.integers(math.prod(shape)).view(np.int64).copy())
        size = (words & _RADIUS).double().add_(0.5).mul_(2.0**-63).log_().mul_(stddev / math.sqrt(2.0))
        return torch.where(words < 0, size, -size).reshape(shape)

    def generator(self) -> torch.Generator:
        """A torch generator for what hides nothing: initial weights, dropout masks."""
        import torch

        return torch.Generator().manual_seed(self._seed())

    def _seed(self) -> int:
        return int(self.integers(1)[0] >> np.uint64(1))

    def dirichlet(self, concentrations: np.ndarray, count: int) -> np.ndarray:
        """`count` points of the simplex, one per row.

        A gamma variate of shape a is one of shape a + 1 times a uniform to the power 1/a; kept as logarithms, small
        concentrations do not underflow.
        """
        from scipy.special import gammaincinv

        shape = (count, len(concentrations))
        uniform = self.uniform(2 * count * len(concentrations)).reshape(2, *shape)
        logs = np.log(gammaincinv(concentrations + 1.0, uniform[0])) + np.log(uniform[1]) / concentrations
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    @contextmanager
    def seeding_torch(self) -> Iterator[None]:
        """Code that asks torch's global generator, as users' models do, gets numbers of this key; afterwards the
        generator is as it was.
        """
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self._seed())
            yield
