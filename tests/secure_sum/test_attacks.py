"""What a server may try. Active attacks are refused where that is promised; one is shown to work where it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sfumato.key import Key
from sfumato.secure_sum import Phase, Power, Refused, SumSettings, shamir
from sfumato.secure_sum.keys import agree, derive, public_of, seal
from sfumato.secure_sum.messages import BOX, Kind, read, read_last_table, write, write_table
from tests.secure_sum.rounds import agreed, play, rows_of

BOTH = pytest.mark.parametrize("power", list(Power))


def put_in_the_middle(settings: SumSettings) -> Callable[[Phase, int, bytes], bytes]:
    """A server that shows client 3 keys of its own in place of client 7's, and seals shares as if it were client 7."""
    own = Key.from_seed(99)
    mask, channel = own.child("mask").stream(32), own.child("channel").stream(32)
    records: dict[int, bytes] = {}

    def change(phase: Phase, client: int, letter: bytes) -> bytes:
        if client != 3 or phase not in (Phase.SHARES, Phase.ROWS):
            return letter
        if phase is Phase.SHARES:
            size = 96 if settings.power is Power.FOLLOWS else 160
            records.update(read_last_table(settings, read(letter, Kind.ADVERTS, settings, 3), size))
            records[7] = public_of(mask) + public_of(channel) + records[7][64:]
            return write(Kind.ADVERTS, settings, 3, write_table(settings, records))
        boxes = read_last_table(settings, read(letter, Kind.BOXES, settings, 3), BOX)
        names = ((7).to_bytes(8, "big"), (3).to_bytes(8, "big"))
        key = derive(agree(channel, records[3][32:64]), settings.digest, b"box", *names, records[7], records[3])
        boxes[7] = seal(key, bytes(2 * shamir.SIZE))
        return write(Kind.BOXES, settings, 3, write_table(settings, boxes))

    return change


def test_other_keys_in_place_of_a_clients_are_noticed_where_keys_are_signed() -> None:
    """An active server is refused. One that must follow the protocol could do it, which is why that is assumed of it."""
    active, follows = agreed(power=Power.ACTIVE), agreed()
    seen = play(active, rows_of(active), down=put_in_the_middle(active), until=Phase.SHARES).refused
    assert set(seen) == {3} and "signature" in str(seen[3])
    assert 3 not in play(follows, rows_of(follows), down=put_in_the_middle(follows), until=Phase.ROWS).refused


@BOTH
def test_a_client_is_not_shown_other_keys_as_its_own(power: Power) -> None:
    settings = agreed(power=power)
    other = play(settings, rows_of(settings), seed=1, until=Phase.ADVERTS).sent[Phase.ADVERTS][3][42:]

    def change(phase: Phase, client: int, letter: bytes) -> bytes:
        if phase is not Phase.SHARES or client != 3:
            return letter
        records = read_last_table(settings, read(letter, Kind.ADVERTS, settings, 3), len(other))
        return write(Kind.ADVERTS, settings, 3, write_table(settings, records | {3: other}))

    assert "other keys as its own" in str(play(settings, rows_of(settings), down=change).refused[3])


def sealed(settings: SumSettings, sender: int, receiver: int) -> bytes:
    whole = play(settings, rows_of(settings), until=Phase.SHARES).sent[Phase.SHARES]
    return read_last_table(settings, read(whole[sender], Kind.SHARES, settings, sender), BOX)[receiver]


@BOTH
@pytest.mark.parametrize(("sender", "receiver"), [(3, 7), (7, 11), (11, 3)])
def test_a_box_opens_for_one_receiver_from_one_sender(power: Power, sender: int, receiver: int) -> None:
    """Client 3 is handed its own box, one for somebody else, or one of another sender, as if client 7 had sent it."""
    settings = agreed(power=power)
    box = sealed(settings, sender, receiver)

    def change(phase: Phase, client: int, letter: bytes) -> bytes:
        if phase is not Phase.ROWS or client != 3:
            return letter
        boxes = read_last_table(settings, read(letter, Kind.BOXES, settings, 3), BOX)
        return write(Kind.BOXES, settings, 3, write_table(settings, boxes | {7: box}))

    assert "sealed for somebody or something else" in str(play(settings, rows_of(settings), down=change).refused[3])


def test_strangers_are_no_neighbours() -> None:
    """Everybody works the neighbours out from the session: a server cannot give a client others, or a box of its own as one."""
    settings = agreed(130, smallest=110, colluding=3, dimension=1)
    me = settings.clients[0]
    stranger = next(one for one in settings.clients if one not in settings.near(me))
    records = play(settings, rows_of(settings), until=Phase.ADVERTS).sent[Phase.ADVERTS]

    def foreign(phase: Phase, client: int, letter: bytes) -> bytes:
        if client != me or phase is not Phase.SHARES:
            return letter
        table = read_last_table(settings, read(letter, Kind.ADVERTS, settings, me), 96) | {
            stranger: records[stranger][42:]
        }
        return write(Kind.ADVERTS, settings, me, write_table(settings, table))

    assert "no neighbour" in str(play(settings, rows_of(settings), down=foreign, until=Phase.SHARES).refused[me])

    def reflected(phase: Phase, client: int, letter: bytes) -> bytes:
        if client != me or phase is not Phase.ROWS:
            return letter
        boxes = read_last_table(settings, read(letter, Kind.BOXES, settings, me), BOX)
        return write(Kind.BOXES, settings, me, write_table(settings, boxes | {me: bytes(BOX)}))

    assert "has not shown its keys" in str(
        play(settings, rows_of(settings), down=reflected, until=Phase.ROWS).refused[me]
    )


@BOTH
@pytest.mark.parametrize("phase", [Phase.SHARES, Phase.ROWS])
def test_a_client_among_too_few_stops(power: Power, phase: Phase) -> None:
    settings = agreed(7, smallest=5, colluding=1, power=power)
    few = settings.clients[: settings.threshold - 1]
    size = BOX if phase is Phase.ROWS else 96 if power is Power.FOLLOWS else 160
    kind = Kind.BOXES if phase is Phase.ROWS else Kind.ADVERTS

    def change(now: Phase, client: int, letter: bytes) -> bytes:
        if now is not phase or client != 3:
            return letter
        table = read_last_table(settings, read(letter, kind, settings, 3), size)
        return write(kind, settings, 3, write_table(settings, {one: table[one] for one in few if one in table}))

    refusal = play(settings, rows_of(settings), down=change).refused[3]
    assert isinstance(refusal, Refused) and f"needs {settings.threshold} shares" in str(refusal)
