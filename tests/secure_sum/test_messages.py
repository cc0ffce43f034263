"""Every changed byte is refused or does nothing; old, strange and repeated messages are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfumato.errors import BadValue
from sfumato.secure_sum import BadMessage, Phase, Power, Refused, SecureSumError, Server, SumSettings
from sfumato.secure_sum.messages import Kind, read_last_table, write, write_set
from tests.secure_sum.rounds import PHASES, agreed, client_of, plain, play, rows_of, step

HEAD = 42


def small(power: Power) -> SumSettings:
    return replace(agreed(3, dimension=2, smallest=2, colluding=0, power=power), threshold=2)


def _phases(power: Power) -> list[Phase]:
    return [phase for phase in PHASES if power is Power.ACTIVE or phase is not Phase.CONFIRMATIONS]


@pytest.mark.parametrize("power", list(Power))
@pytest.mark.parametrize("upwards", [True, False])
def test_every_changed_byte_is_refused_or_does_nothing(power: Power, upwards: bool) -> None:
    """Of each message to or from one client, at each place; a masked row alone is no better protected than the row was."""
    settings = small(power)
    rows = rows_of(settings)
    whole = play(settings, rows)
    target = settings.clients[1]
    refused = 0
    for phase in _phases(power):
        messages = whole.sent[phase] if upwards else whole.letters[phase]
        for place in range(0, len(messages[target]), 1 if power is Power.FOLLOWS else 3):

            def change(now: Phase, client: int, message: bytes) -> bytes:
                if (now, client) != (phase, target):  # noqa: B023
                    return message
                changed = bytearray(message)
                changed[place] ^= 1 << place % 8  # noqa: B023
                return bytes(changed)

            ways = {"up": change} if upwards else {"down": change}
            if not upwards and play(settings, rows, until=phase, **ways).refused:
                refused += 1
                continue
            try:
                played = play(settings, rows, **ways)
                total = played.server.total()
            except SecureSumError:  # the round is given up
                refused += 1
                continue
            expected = np.array(plain(rows, played.server.survivors))
            if upwards and phase is Phase.ROWS and place >= HEAD:
                assert (total != expected).sum() == 1 and not played.refused
            else:
                assert (total == expected).all()
                assert played.refused, f"{phase} {place}: nobody noticed"
                refused += 1
    assert refused > 300


@pytest.mark.parametrize("power", list(Power))
def test_every_message_cut_short_or_too_long_is_refused(power: Power) -> None:
    settings = small(power)
    rows = rows_of(settings)
    whole = play(settings, rows)
    me = settings.clients[0]
    for phase in _phases(power):
        before = play(settings, rows, {phase: {me}}, until=phase).server
        message = whole.sent[phase][me]
        for wrong in (b"", message[:20], message[:HEAD], message[:-1], message + b"\0"):
            with pytest.raises(BadMessage):
                before.take(me, wrong)
        before.take(me, message)
        with pytest.raises(BadMessage, match="not awaited"):
            before.take(me, message)
        letter = whole.letters[phase][me]
        for wrong in (b"", letter[:20], letter[:HEAD], letter[:-1], letter + b"\0"):
            if phase is not Phase.ADVERTS:
                client = play(settings, rows, {phase: {me}}, until=phase).clients[me]
                with pytest.raises(BadMessage):
                    step(client, phase, rows[me], wrong)


def test_heads() -> None:
    settings = agreed()
    server = Server(settings)
    message = client_of(settings, 7).advertise()
    for wrong, match in (
        (b"\x02" + message[1:], "version 2"),
        (message[:1] + b"\x05" + message[2:], "kind 5 where advert is due"),
        (message[:2] + bytes(32) + message[34:], "another round"),
        (message[:34] + (3).to_bytes(8, "big") + message[42:], "of client 3 where one of client 7"),
    ):
        with pytest.raises(BadMessage, match=match):
            server.take(7, wrong)
    with pytest.raises(BadMessage, match="not awaited"):
        server.take(8, message)
    server.take(7, message)


def test_a_table_names_nobody_outside_the_cohort() -> None:
    settings = agreed(5)
    assert read_last_table(settings, memoryview(write_set(settings, {3, 19})), 0) == {3: b"", 19: b""}
    with pytest.raises(BadMessage, match="outside the cohort"):
        read_last_table(settings, memoryview(b"\x01"), 0)


LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),  # zero again
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


@pytest.mark.parametrize("point", LOW_ORDER)
@pytest.mark.parametrize("which", [0, 32])
def test_points_of_low_order_are_refused_by_server_and_clients(point: bytes, which: int) -> None:
    settings = agreed()

    def bad(phase: Phase, client: int, message: bytes) -> bytes:
        if phase is not Phase.ADVERTS or client != 7:
            return message
        return message[: HEAD + which] + point + message[HEAD + which + 32 :]

    played = play(settings, rows_of(settings), up=bad)
    assert "low order" in str(played.refused[7])
    assert played.server.total().tolist() == plain(rows_of(settings), [3, 11, 15, 19])

    def worse(phase: Phase, client: int, message: bytes) -> bytes:
        if phase is not Phase.SHARES or client != 3:
            return message
        start = HEAD + 1 + 96 + which  # the second advert
        return message[:start] + point + message[start + 32 :]

    assert "low order" in str(play(settings, rows_of(settings), down=worse).refused[3])


@pytest.mark.parametrize("power", list(Power))
def test_messages_of_an_old_round_are_refused(power: Power) -> None:
    """With the same clients, rows and even the same key handed in twice."""
    old, new = agreed(power=power), agreed(power=power, session=bytes(32))
    rows = rows_of(old)
    before = play(old, rows)
    for phase in _phases(power):
        now = play(new, rows, {phase: {7}}, until=phase)
        with pytest.raises(BadMessage, match="another round"):
            now.server.take(7, before.sent[phase][7])
        if phase is not Phase.ADVERTS:
            with pytest.raises(BadMessage, match="another round"):
                step(now.clients[7], phase, rows[7], before.letters[phase][7])


def test_messages_under_other_settings_are_refused() -> None:
    settings = agreed()
    server = Server(replace(settings, colluding=2, threshold=3))
    with pytest.raises(BadMessage, match="other settings"):
        server.take(3, client_of(settings, 3).advertise())


def test_wrong_shares_are_noticed_by_what_they_give() -> None:
    """A client that gives a wrong share of a seed, or of a mask key: there is no total, rather than a wrong one."""
    settings = agreed(smallest=4)
    rows = rows_of(settings)
    for gone, owner in (((), 0), ((19,), 4)):

        def lie(phase: Phase, client: int, message: bytes) -> bytes:
            if phase is not Phase.UNMASKING or client != 3:
                return message
            changed = bytearray(message)
            changed[HEAD + 2 + 66 * owner + 65] ^= 1  # noqa: B023
            return bytes(changed)

        played = play(settings, rows, {Phase.ROWS: gone}, up=lie)
        with pytest.raises(BadMessage, match="do not fit|give another"):
            played.server.total()


@pytest.mark.parametrize(
    "row", [np.zeros(6), np.zeros(5, np.int64), np.zeros((6, 1), np.int64), np.zeros(6, np.uint64), np.zeros(6, bool)]
)
def test_only_rows_of_signed_whole_numbers_are_masked(row: np.ndarray) -> None:
    settings = agreed()
    played = play(settings, rows_of(settings), {Phase.ROWS: {3}}, until=Phase.ROWS)
    with pytest.raises(BadValue, match="signed whole numbers"):
        played.clients[3].mask(row, played.letters[Phase.ROWS][3])
    with pytest.raises(Refused):  # and it is out of the round
        played.clients[3].mask(rows_of(settings)[3], played.letters[Phase.ROWS][3])


def test_a_share_of_a_box_for_others_is_refused_by_the_server() -> None:
    settings = agreed()
    played = play(settings, rows_of(settings), {Phase.SHARES: {3}}, until=Phase.SHARES)
    message = write(Kind.SHARES, settings, 3, write_set(settings, ()))
    with pytest.raises(BadMessage, match="others than its neighbours"):
        played.server.take(3, message)
