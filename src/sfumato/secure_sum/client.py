"""A client of the secure sum: five steps, each taken once and in order, each from bytes to bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.secure_sum import shamir
from sfumato.secure_sum.adverts import Advert, known_keys, read_advert, sign_advert
from sfumato.secure_sum.errors import BadMessage, Refused
from sfumato.secure_sum.keys import SIGNATURE, agree, derive, public_of, seal, sign, unseal
from sfumato.secure_sum.masks import add_mask, own_key, pair_key, seed_check, sign_of, to_modulus
from sfumato.secure_sum.messages import BOX, Kind, advert_size, read, read_last_table, read_table, write, write_table
from sfumato.secure_sum.power import Power
from sfumato.secure_sum.settings import SumSettings
from sfumato.secure_sum.survivors import CONFIRM, check_confirmations, check_survivors, confirmed_content

_STEPS = ("advertise", "share", "mask", "confirm", "unmask", "nothing")


@dataclass(frozen=True, repr=False)
class _Shares:
    """Of one client's mask key and seed, as another holds them."""

    of_key: bytes
    of_seed: bytes


class Client:
    """One client in one round. `key` is used for this round only and never stored: `Key.from_system()`.

    States: it sends its row under masks, and for every other client it gives away a share of the mask key or a share of the seed,
    never both, since it answers one set of survivors, once. A step that fails ends its part in the round.

    Against an active server it takes `signing`, its long-term key, and `verifying`, the others' true ones (32 bytes each), which
    must not come from the server. Whoever makes a client must make one for a session only once: else an old message would
    fit, whose keys the server may know by now.
    """

    def __init__(
        self,
        settings: SumSettings,
        number: int,
        key: Key,
        signing: Ed25519PrivateKey | None = None,
        verifying: Mapping[int, bytes] | None = None,
    ) -> None:
        if number not in settings.places:
            raise BadValue(f"client {number} is not in the cohort of this round. Make one for each client of it.")
        if settings.power is Power.ACTIVE and signing is None:
            raise BadValue(f"against an active server client {number} needs its signing key. Hand it in.")
        self.settings, self.number = settings, number
        self._signing, self._verifying = signing, known_keys(settings, verifying)
        own = key.child("secure sum", round=settings.digest.hex(), client=number)
        self._channel, self._mask, self._seed = (own.child(name).stream(32) for name in ("channel", "mask", "seed"))
        self._polynomials = own.child("polynomials")
        self._step, self._one_at_a_time = _STEPS[0], Lock()
        self._advert = b""
        self._adverts: dict[int, bytes] = {}
        self._others: dict[int, Advert] = {}
        self._received: dict[int, _Shares] = {}
        self._agreed = b""  # what was signed

    @contextmanager
    def _taking(self, step: str) -> Iterator[None]:
        """A step in its turn; if it fails, nothing follows."""
        with self._one_at_a_time:
            if self._step != step:
                raise Refused(f"client {self.number} was asked to {step}; in this round it would do {self._step}.")
            self._step = _STEPS[-1]
        try:
            yield
        except Exception:
            self._forget()
            raise
        following = _STEPS[_STEPS.index(step) + 1]
        self._step = "unmask" if following == "confirm" and self.settings.power is Power.FOLLOWS else following
        if self._step == _STEPS[-1]:
            self._forget()

    def _forget(self) -> None:
        """What was secret in this round is of no more use."""
        self._channel = self._mask = self._seed = b""
        self._polynomials = Key.from_seed(0)
        self._received = {}

    def advertise(self) -> bytes:
        """Its public keys of this round."""
        with self._taking("advertise"):
            check = seed_check(self.settings, self._seed, self.number)
            advert = Advert(public_of(self._mask), public_of(self._channel), check)
            self._advert = sign_advert(advert, self.settings, self.number, self._signing)
            return write(Kind.ADVERT, self.settings, self.number, self._advert)

    def share(self, letter: bytes) -> bytes:
        """From the neighbours' public keys, a sealed share of its secrets for each."""
        with self._taking("share"):
            settings, me = self.settings, self.number
            self._adverts = read_last_table(settings, read(letter, Kind.ADVERTS, settings, me), advert_size(settings))
            if self._adverts.get(me) != self._advert:
                raise BadMessage(f"client {me} is shown other keys as its own than it sent.")
            if strangers := self._adverts.keys() - settings.near(me):
                raise BadMessage(f"client {min(strangers)} is no neighbour of client {me}.")
            if len(self._adverts) < settings.threshold:
                raise Refused(
                    f"{len(self._adverts)} clients are there, and a secret needs {settings.threshold} shares."
                )
            self._others = {
                other: read_advert(record, settings, other, self._verifying) for other, record in self._adverts.items()
            }
            places = [settings.places[other] + 1 for other in self._adverts]
            of_key, of_seed = (
                shamir.split(shamir.polynomial(secret, settings.threshold, self._polynomials.child(name)), places)
                for name, secret in (("mask", self._mask), ("seed", self._seed))
            )
            boxes = {}
            for other, place in zip(self._adverts, places, strict=True):
                both = _Shares(shamir.to_bytes(of_key[place]), shamir.to_bytes(of_seed[place]))
                if other == me:
                    self._received[me] = both
                else:
                    boxes[other] = seal(self._box_key(me, other), both.of_key + both.of_seed)
            return write(Kind.SHARES, settings, me, write_table(settings, boxes))

    def _box_key(self, sender: int, receiver: int) -> bytes:
        """Of one direction between two clients, and of all the keys that both have seen of each other."""
        other = self._others[receiver if sender == self.number else sender]
        names = (sender.to_bytes(8, "big"), receiver.to_bytes(8, "big"))
        seen = (self._adverts[sender], self._adverts[receiver])
        return derive(agree(self._channel, other.channel), self.settings.digest, b"box", *names, *seen)

    def mask(self, row: np.ndarray, letter: bytes) -> bytes:
        """From whole numbers and the neighbours' sealed shares, the row under its own mask and those of the neighbours."""
        with self._taking("mask"):
            settings, me = self.settings, self.number
            if row.shape != (settings.dimension,) or row.dtype.kind != "i":
                raise BadValue(
                    f"a row of {row.shape} {row.dtype}: {settings.dimension} signed whole numbers are wanted."
                )
            boxes = read_last_table(settings, read(letter, Kind.BOXES, settings, me), BOX)
            if strangers := boxes.keys() - (self._adverts.keys() - {me}):
                raise BadMessage(
                    f"client {min(strangers)} shares its secrets, and has not shown its keys to client {me}."
                )
            if len(boxes) + 1 < settings.threshold:
                raise Refused(f"{len(boxes) + 1} clients have shared, and a secret needs {settings.threshold} shares.")
            masked = to_modulus(settings, row)
            add_mask(masked, own_key(settings, self._seed, me), 1)
            for other, box in boxes.items():
                opened = unseal(self._box_key(other, me), box)
                self._received[other] = _Shares(opened[: shamir.SIZE], opened[shamir.SIZE :])
                common = pair_key(settings, self._mask, self._others[other].mask, me, other)
                add_mask(masked, common, sign_of(me, other))
            return write(Kind.ROW, settings, me, masked.tobytes())

    def confirm(self, letter: bytes) -> bytes:
        """Its signature under the one set of survivors that it will answer (against an active server only)."""
        with self._taking("confirm"):
            survivors = read_last_table(self.settings, read(letter, Kind.SURVIVORS, self.settings, self.number), 0)
            check_survivors(self.settings, self.number, survivors, self._received)
            self._agreed = confirmed_content(self.settings, self._adverts, self._received, survivors)
            assert self._signing is not None, "checked when it was made"
            signature = sign(self._signing, self.settings.digest, CONFIRM, self._agreed)
            return write(Kind.CONFIRM, self.settings, self.number, signature)

    def unmask(self, letter: bytes) -> bytes:
        """From the survivors, one share for each neighbour: of its seed if it survived, of its mask key if it did not."""
        with self._taking("unmask"):
            settings, me = self.settings, self.number
            if settings.power is Power.ACTIVE:
                survivors, rest = read_table(settings, read(letter, Kind.CONFIRMED, settings, me), 0)
                signatures = read_last_table(settings, rest, SIGNATURE)
                content = confirmed_content(settings, self._adverts, self._received, survivors)
                if content != self._agreed:
                    raise Refused(f"client {me} confirmed another set of survivors.")
                check_confirmations(settings, content, survivors, signatures, self._verifying)
            else:
                survivors = read_last_table(settings, read(letter, Kind.SURVIVORS, settings, me), 0)
            check_survivors(settings, me, survivors, self._received)
            answered = write_table(settings, survivors)
            shares = {
                other: held.of_seed if other in survivors else held.of_key for other, held in self._received.items()
            }
            return write(Kind.UNMASK, settings, me, answered + write_table(settings, shares))
