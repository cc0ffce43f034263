"""What UDP-FL and its sources print about shuffling, to be shown beside `ShuffledEvent`. No accountant uses any of it."""

from __future__ import annotations

import math

from sfumato.account.checks import check_delta
from sfumato.account.event import Real
from sfumato.errors import BadValue, CannotAccount


def lemma_2(epsilon: Real, count: int, order: int) -> float:
    """UDP-FL's Lemma 2, an upper bound on the Renyi divergence of `count` shuffled messages. FALSE as printed.

    log(1 + C(a, 2) 4 (e^epsilon - 1)^2 / N) / (a - 1), "for any gamma and any mechanism". Its source (Girgis et al. 2021) needs
    epsilon to be the pure epsilon of a whole message under replace, and a^4 e^(5 epsilon) below about N / 9, which fails for
    every order at the paper's 10 to 144 clients. Counter-example: ten randomised bits of epsilon 1, nine of them 0, have a
    divergence of 0.657 at order 10, and the lemma says

    >>> round(lemma_2(1.0, 10, 10), 4)
    0.4435
    """
    _check(epsilon, count, order)
    return math.log1p(math.comb(order, 2) * 4 * math.expm1(epsilon) ** 2 / count) / (order - 1)


def lemma_3(epsilon: Real, count: int, order: int) -> float:
    """UDP-FL's Lemma 3: log(1 + C(a, 2) (e^epsilon - 1)^2 / (N e^epsilon)) / (a - 1), which randomised bits attain.

    So no bound for all mechanisms lies below it; it guarantees nothing.

    >>> round(lemma_3(1.0, 1000, 2), 6)
    0.001086
    """
    _check(epsilon, count, order)
    return math.log1p(math.comb(order, 2) * math.expm1(epsilon) ** 2 / (count * math.exp(epsilon))) / (order - 1)


def clones_closed_form(epsilon: Real, count: int, delta: Real) -> float:
    """Feldman, McMillan and Talwar 2021, Theorem 3.1 in closed form: true where epsilon <= log(count / (16 log(2 / delta))).

    >>> round(clones_closed_form(0.5, 1000, 1e-6), 6)
    0.272638
    """
    check_delta(delta)
    _check(epsilon, count, 2)
    if epsilon > math.log(count / (16 * math.log(2 / delta))):
        raise CannotAccount(
            f"the closed form needs epsilon <= log(count / (16 log(2 / delta))), which {epsilon} at {count} messages is not. "
            "Use ShuffledEvent, which needs no condition."
        )
    grown = math.exp(epsilon)
    spread = 8 * math.sqrt(grown * math.log(4 / delta) / count) + 8 * grown / count
    return math.log1p((grown - 1) / (grown + 1) * spread)


def _check(epsilon: Real, count: int, order: int) -> None:
    if not (epsilon > 0.0 and count >= 1 and order >= 2 and int(order) == order):
        raise BadValue(f"epsilon={epsilon}, count={count}, order={order}: positive numbers and a whole order from 2.")
