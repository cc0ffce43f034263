"""The total is plain addition, whoever drops out and when; too few, and there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.exact_draws import discrete_gaussian
from sfumato.key import Key
from sfumato.secure_sum import GaveUp, Phase, Power, Refused, SumSettings, from_steps, to_steps
from tests.secure_sum.rounds import PHASES, agreed, plain, play, rows_of

BOTH = pytest.mark.parametrize("power", list(Power))


@BOTH
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("dimension", [1, 2, 6, 5000])
def test_the_total_is_the_plain_sum(power: Power, bits: int, dimension: int) -> None:
    settings = agreed(power=power, bits=bits, dimension=dimension)
    rows = rows_of(settings)
    assert play(settings, rows).server.total().tolist() == plain(rows, settings.clients)


@BOTH
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("gone", [{3}, {11}, {19}, {3, 7}, {7, 23}])
def test_drop_outs_in_each_phase(power: Power, phase: Phase, gone: set[int]) -> None:
    if power is Power.FOLLOWS and phase is Phase.CONFIRMATIONS:
        return
    settings = agreed(7, power=power, smallest=5)
    rows = rows_of(settings)
    server = play(settings, rows, {phase: gone}).server
    left = [one for one in settings.clients if one not in gone or phase in (Phase.CONFIRMATIONS, Phase.UNMASKING)]
    assert server.survivors == tuple(left)
    assert server.total().tolist() == plain(rows, left)


@given(st.dictionaries(st.sampled_from(range(3, 43, 4)), st.sampled_from(PHASES), max_size=4), st.booleans())
def test_any_four_of_ten_may_drop_out_at_any_time(when: dict[int, Phase], active: bool) -> None:
    power = Power.ACTIVE if active else Power.FOLLOWS
    settings = agreed(10, smallest=6, power=power, dimension=3)
    silent = {phase: {one for one, at in when.items() if at is phase} for phase in PHASES}
    rows = rows_of(settings)
    server = play(settings, rows, silent).server
    early = (Phase.ADVERTS, Phase.SHARES, Phase.ROWS)
    assert server.total().tolist() == plain(rows, [one for one in settings.clients if when.get(one) not in early])


def sparse(count: int = 130) -> SumSettings:
    settings = agreed(count, smallest=count - 20, colluding=3, dimension=2)
    assert settings.neighbours < count - 1
    return settings


def test_few_neighbours_sum_as_well_with_drop_outs_in_every_phase() -> None:
    settings = sparse()
    rows = rows_of(settings)
    who = settings.clients
    silent = {Phase.ADVERTS: who[:5], Phase.SHARES: who[20:24], Phase.ROWS: who[50:57], Phase.UNMASKING: who[90:94]}
    server = play(settings, rows, silent).server
    gone = {*silent[Phase.ADVERTS], *silent[Phase.SHARES], *silent[Phase.ROWS]}
    assert server.total().tolist() == plain(rows, [one for one in who if one not in gone])


@BOTH
@pytest.mark.parametrize("phase", PHASES)
def test_below_what_is_needed_there_is_no_total(power: Power, phase: Phase) -> None:
    if power is Power.FOLLOWS and phase is Phase.CONFIRMATIONS:
        return
    settings = agreed(7, power=power, smallest=5)
    late = phase in (Phase.CONFIRMATIONS, Phase.UNMASKING)
    needed = settings.threshold if late else settings.smallest
    rows = rows_of(settings)
    play(settings, rows, {phase: settings.clients[needed:]}).server.total()
    with pytest.raises(GaveUp):
        play(settings, rows, {phase: settings.clients[needed - 1 :]}).server.total()


def test_a_round_that_was_given_up_stays_so() -> None:
    settings = agreed()
    server = play(settings, rows_of(settings), {Phase.ADVERTS: settings.clients[2:]}, until=Phase.ADVERTS).server
    with pytest.raises(GaveUp):
        server.advance()
    for attempt in (server.advance, server.total):
        with pytest.raises(Refused):
            attempt()


@pytest.mark.parametrize("bits", [32, 64])
def test_numbers_wrap_as_they_should(bits: int) -> None:
    """Noise has no largest value: a client's number may pass the end while the sum does not."""
    settings = agreed(3, bits=bits, dimension=4, smallest=3)
    end = 2 ** (bits - 1)
    rows = {
        3: np.array([end - 1, -end, end - 1, -1]), 7: np.array([end - 1, -end, 1, 1]), 11: np.array([-end, end - 1, 0, -3])
    }  # fmt: skip
    total = play(settings, rows).server.total()
    assert total.tolist() == [end - 2, -end - 1 + 2 * end, -end, -3]  # the second and third go round


def test_the_largest_rows_that_settings_allow_do_not_wrap() -> None:
    largest = (2**31 - 1) // 3
    settings = agreed(3, bits=32, dimension=2, largest=largest, noise=0.0, smallest=3)
    rows = {client: np.array([largest, -largest]) for client in settings.clients}
    assert play(settings, rows).server.total().tolist() == [3 * largest, -3 * largest]


def test_rows_with_shares_of_discrete_noise_on_a_grid() -> None:
    grid = 2.0**-20
    settings = agreed(dimension=1000, noise=2.0**18)
    key = Key.from_seed(5)
    floats = {
        one: (rows_of(settings)[one] + discrete_gaussian(1000, 2.0**18, key.child("noise", of=one))) * grid
        for one in settings.clients
    }
    steps = {one: to_steps(row, grid) for one, row in floats.items()}
    total = from_steps(play(settings, steps).server.total(), grid)
    assert (total == sum(floats.values())).all()


def test_the_same_keys_give_the_same_messages() -> None:
    settings = agreed(power=Power.ACTIVE)
    one, two = (play(settings, rows_of(settings)) for _ in range(2))
    assert one.sent == two.sent and one.letters == two.letters


def test_settings_survive_the_journey() -> None:
    settings = agreed(noise=0.1)
    again = SumSettings.from_json(settings.to_json())
    assert again == settings and again.digest == settings.digest
    assert replace(settings, noise=0.2).digest != settings.digest
