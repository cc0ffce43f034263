"""Sets of survivors: one, large enough, answered once; two are shown to work only where the server follows the protocol."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace

import pytest

from sfumato.secure_sum import BadMessage, Client, Phase, Power, Refused, SumSettings, shamir
from sfumato.secure_sum.keys import sign
from sfumato.secure_sum.masks import add_mask, from_modulus, own_key, pair_key, sign_of
from sfumato.secure_sum.messages import Kind, read, read_last_table, read_table, write, write_set, write_table
from sfumato.secure_sum.survivors import CONFIRM, confirmed_content
from tests.secure_sum.laws import masked
from tests.secure_sum.rounds import Played, agreed, play, rows_of, signing

BOTH = pytest.mark.parametrize("power", list(Power))


def up_to(settings: SumSettings, phase: Phase) -> Played:
    """A round in which nobody has answered in this phase yet."""
    return play(settings, rows_of(settings), {phase: settings.clients}, until=phase)


def survivors(settings: SumSettings, client: int, who: Collection[int]) -> bytes:
    return write(Kind.SURVIVORS, settings, client, write_set(settings, who))


def answer(settings: SumSettings) -> Callable[[Client, bytes], bytes]:
    """The step in which a set of survivors is told first."""
    return Client.unmask if settings.power is Power.FOLLOWS else Client.confirm


def told_first(settings: SumSettings) -> Phase:
    return Phase.UNMASKING if settings.power is Power.FOLLOWS else Phase.CONFIRMATIONS


@BOTH
@pytest.mark.parametrize(
    ("gone", "match"),
    [({3}, "its masks would be shown"), ({11, 15}, "the smallest is of 4"), ({3, 7, 11, 15, 19}, "client 3")],
)
def test_sets_of_survivors_that_are_refused(power: Power, gone: set[int], match: str) -> None:
    settings = agreed(power=power)
    client = up_to(settings, told_first(settings)).clients[3]
    with pytest.raises(Refused, match=match):
        answer(settings)(client, survivors(settings, 3, set(settings.clients) - gone))


@BOTH
def test_a_survivor_that_never_shared_is_refused(power: Power) -> None:
    settings = agreed(power=power)
    phase = told_first(settings)
    client = play(settings, rows_of(settings), {Phase.SHARES: {19}, phase: {3}}, until=phase).clients[3]
    with pytest.raises(Refused, match="never shared its keys"):
        answer(settings)(client, survivors(settings, 3, settings.clients))


def test_too_few_neighbours_left_are_refused() -> None:
    settings = agreed(130, smallest=110, colluding=3, dimension=1)
    me = settings.clients[0]
    gone = sorted(settings.near(me) - {me})[:20]
    left = settings.near(me) - frozenset(gone)
    assert len(left) < settings.threshold
    client = up_to(settings, Phase.UNMASKING).clients[me]
    with pytest.raises(Refused, match=f"only {len(left)} neighbours are left"):
        client.unmask(survivors(settings, me, set(settings.clients) - set(gone)))


def test_nobody_gives_both_secrets_of_one_client() -> None:
    """First it is said to have survived, then to have dropped out, or the other way round: the second is not answered."""
    settings = agreed(6, smallest=4)
    everybody, without = settings.clients, settings.clients[:-1]
    for first, second in ((everybody, without), (without, everybody), (everybody, everybody)):
        client = up_to(settings, Phase.UNMASKING).clients[3]
        client.unmask(survivors(settings, 3, first))
        with pytest.raises(Refused, match="it would do nothing"):
            client.unmask(survivors(settings, 3, second))


def test_a_client_cannot_be_copied_to_answer_twice() -> None:
    client = up_to(agreed(), Phase.UNMASKING).clients[3]
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="pickle"):
            copied(client)


def test_an_answer_for_another_set_or_of_other_shares_is_refused_by_the_server() -> None:
    settings = agreed(5)
    played = play(settings, rows_of(settings), {Phase.UNMASKING: {3, 7}}, until=Phase.UNMASKING)
    with pytest.raises(BadMessage, match="another set of survivors"):
        played.server.take(3, played.clients[3].unmask(survivors(settings, 3, settings.clients[:-1])))
    shares = given(played.clients[7].unmask(survivors(settings, 7, settings.clients)), settings, 7)
    del shares[11]
    body = write_set(settings, settings.clients) + write_table(settings, shares)
    with pytest.raises(BadMessage, match="gives shares of others"):
        played.server.take(7, write(Kind.UNMASK, settings, 7, body))
    assert len(played.server.total()) == settings.dimension  # the other three are enough


def test_a_client_forgets_its_secrets_when_it_is_done() -> None:
    settings = agreed()
    played = play(settings, rows_of(settings), {Phase.UNMASKING: {7}})
    failed = played.clients[7]
    with pytest.raises(Refused):
        failed.unmask(survivors(settings, 7, {7}))
    for client in (played.clients[3], failed):
        assert (client._channel, client._mask, client._seed, client._received) == (b"", b"", b"", {})


def test_a_client_that_refused_says_nothing_more() -> None:
    settings = agreed()
    client = up_to(settings, Phase.UNMASKING).clients[3]
    with pytest.raises(Refused):
        client.unmask(survivors(settings, 3, {3}))
    with pytest.raises(Refused, match="it would do nothing"):
        client.unmask(survivors(settings, 3, settings.clients))


@BOTH
def test_steps_are_taken_in_order_and_once(power: Power) -> None:
    settings = agreed(power=power)
    whole = play(settings, rows_of(settings))
    fresh = up_to(settings, Phase.ADVERTS).clients[3]
    for phase, early in (
        (Phase.SHARES, fresh.share),
        (Phase.UNMASKING, fresh.unmask),
        (Phase.UNMASKING, fresh.confirm),
    ):
        with pytest.raises(Refused, match="it would do advertise"):
            early(whole.letters[phase][3])
    fresh.advertise()
    with pytest.raises(Refused, match="it would do share"):
        fresh.advertise()
    with pytest.raises(Refused, match="it would do share"):
        fresh.mask(rows_of(settings)[3], whole.letters[Phase.ROWS][3])
    fresh.share(whole.letters[Phase.SHARES][3])
    with pytest.raises(Refused, match="it would do mask"):
        fresh.share(whole.letters[Phase.SHARES][3])


def given(message: bytes, settings: SumSettings, client: int) -> dict[int, bytes]:
    _, rest = read_table(settings, read(message, Kind.UNMASK, settings, client), 0)
    return read_last_table(settings, rest, shamir.SIZE)


def test_two_sets_of_survivors_show_a_row_to_a_server_that_breaks_the_protocol() -> None:
    """Why a low threshold is for a server that follows the protocol: this is the attack, and it works there.

    Half of the clients are told that client 3 survived, the others that it dropped out: both its secrets come back, and the
    masks that it has in common with others are made with one of them.
    """
    settings = replace(agreed(8, smallest=4, colluding=1), threshold=3)
    played = up_to(settings, Phase.UNMASKING)
    row = rows_of(settings)[3]
    sent = play(settings, rows_of(settings), until=Phase.ROWS)
    seed, key = (
        shamir.secret_of(
            {
                settings.places[one] + 1: shamir.from_bytes(
                    given(played.clients[one].unmask(survivors(settings, one, who)), settings, one)[3]
                )
                for one in asked
            }
        )
        for asked, who in ((settings.clients[1:4], settings.clients), (settings.clients[4:7], settings.clients[1:]))
    )
    found = masked(sent, 3).copy()
    add_mask(found, own_key(settings, seed, 3), -1)
    for other in settings.clients[1:]:
        public = sent.sent[Phase.ADVERTS][other][42:74]
        add_mask(found, pair_key(settings, key, public, 3, other), -sign_of(3, other))
    assert (from_modulus(settings, found) == row).all()


def test_an_active_server_cannot_have_two_sets_of_survivors_confirmed() -> None:
    """However it divides the honest clients between two sets, and though the colluders sign both."""
    settings = agreed(7, power=Power.ACTIVE, smallest=6, colluding=2)
    assert settings.threshold == 5
    colluders, honest = settings.clients[:2], settings.clients[2:]
    one, two = settings.clients, settings.clients[:-1]
    for size in range(len(honest) + 1):
        played = up_to(settings, Phase.CONFIRMATIONS)
        signatures: dict[tuple[int, ...], dict[int, bytes]] = {one: {}, two: {}}
        for place, client in enumerate(honest):
            who = one if place < size or client not in two else two
            message = played.clients[client].confirm(survivors(settings, client, who))
            signatures[who][client] = bytes(read(message, Kind.CONFIRM, settings, client))
            with pytest.raises(Refused):  # never a second one
                played.clients[client].confirm(survivors(settings, client, two))
        for who in (one, two):
            content = _content(settings, played, who)
            signatures[who] |= {bad: sign(signing(bad), settings.digest, CONFIRM, content) for bad in colluders}
        assert min(map(len, signatures.values())) < settings.threshold
        answered = set()
        for who in (one, two):
            for client in set(honest) & signatures[who].keys():
                body = write_set(settings, who) + write_table(settings, signatures[who])
                with suppress(Refused):
                    played.clients[client].unmask(write(Kind.CONFIRMED, settings, client, body))
                    answered.add(who)
        assert len(answered) <= 1
        assert answered or size not in (0, len(honest))  # all agree: then it works


def _content(settings: SumSettings, played: Played, who: Collection[int]) -> bytes:
    return confirmed_content(settings, played.server._records, settings.clients, who)


def test_an_answer_is_for_the_set_that_was_confirmed() -> None:
    """Signed by all for the others, unknown to this client, which signed another."""
    settings = agreed(7, power=Power.ACTIVE, smallest=6, colluding=2)
    played = up_to(settings, Phase.CONFIRMATIONS)
    two = settings.clients[:-1]
    played.clients[3].confirm(survivors(settings, 3, settings.clients))
    content = _content(settings, played, two)
    forged = {one: sign(signing(one), settings.digest, CONFIRM, content) for one in two}
    body = write_set(settings, two) + write_table(settings, forged)
    with pytest.raises(Refused, match="confirmed another set"):
        played.clients[3].unmask(write(Kind.CONFIRMED, settings, 3, body))


def confirmed(change: Callable[[dict[int, bytes]], dict[int, bytes]]) -> Callable[[], bytes]:
    """The letter with everybody's signatures, changed, to client 3."""
    settings = agreed(5, power=Power.ACTIVE)
    whole = play(settings, rows_of(settings), {Phase.UNMASKING: {3}, Phase.ROWS: {19}})
    read_set, rest = read_table(settings, read(whole.letters[Phase.UNMASKING][3], Kind.CONFIRMED, settings, 3), 0)
    changed = change(read_last_table(settings, rest, 64))
    letter = write(Kind.CONFIRMED, settings, 3, write_table(settings, read_set) + write_table(settings, changed))
    return lambda: whole.clients[3].unmask(letter)


def test_signatures_that_are_refused() -> None:
    settings = agreed(5, power=Power.ACTIVE)
    confirmed(lambda found: found)()
    with pytest.raises(Refused, match="4 are needed"):
        confirmed(lambda found: {one: found[one] for one in (3, 7, 11)})()
    with pytest.raises(BadMessage, match="does not hold"):
        confirmed(lambda found: found | {7: found[11]})()
    with pytest.raises(Refused, match="in which it is not"):
        confirmed(lambda found: {**found, 19: found[3]})()
    advert = play(settings, rows_of(settings), until=Phase.ADVERTS).sent[Phase.ADVERTS][7]
    with pytest.raises(BadMessage, match="does not hold"):  # a signature for another purpose
        confirmed(lambda found: found | {7: advert[-64:]})()
