"""Numbers as a reader wants them. Epsilon and delta are rounded up: none is printed below what is proven."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from sfumato.guarantee import rounded_up

MISSING = "–"
SHARES = ("accuracy", "balanced_accuracy", "macro_f1", "exact_match")
_SHORT = ("f1", "mse", "mae", "r2")


def bound(value: float | None, digits: int = 4) -> str:
    """An upper bound (epsilon, delta) to so many digits, as the guarantee's sentence has it.

    >>> bound(1.98761), bound(2.0), bound(1e-05, 3), bound(None)
    ('1.988', '2', '1e-05', '–')
    """
    return MISSING if value is None else rounded_up(value, digits)


def number(value: float | None, digits: int = 4) -> str:
    """A number to so many digits; whole numbers whole, with thousands apart.

    >>> number(0.30000000004), number(1000000.0), number(None)
    ('0.3', '1,000,000', '–')
    """
    if value is None:
        return MISSING
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    shown = Context(prec=digits).create_decimal(Decimal(value)).normalize()  # powers of ten only where they are shorter
    return f"{shown:f}" if -5 <= shown.adjusted() < 7 else f"{shown:e}".replace("e+", "e")


def share(value: float | None) -> str:
    """A share of 1 as a percentage, to four digits.

    >>> share(0.9125)
    '91.25\\xa0%'
    """
    return MISSING if value is None else f"{100 * value:.2f}\N{NO-BREAK SPACE}%"


def share_up(value: float) -> str:
    """A ceiling as a percentage of three digits that is still one.

    >>> share_up(0.05901), share_up(0.99951)
    ('5.91\\xa0%', '100\\xa0%')
    """
    return _share_of(value, ROUND_CEILING)


def share_down(value: float) -> str:
    """A floor as a percentage of three digits that is still one.

    >>> share_down(0.94099), share_down(0.0)
    ('94\\xa0%', '0\\xa0%')
    """
    return _share_of(value, ROUND_FLOOR)


def _share_of(value: float, rounding: str) -> str:
    shown = Context(prec=3, rounding=rounding).multiply(Decimal(value), Decimal(100)).normalize()
    return f"{shown:f}\N{NO-BREAK SPACE}%"


def measured(name: str, value: float | None) -> str:
    """A metric: those that are shares of 1 as a percentage, others as they are.

    >>> measured("accuracy", 0.5), measured("loss", 0.5)
    ('50.00\\xa0%', '0.5')
    """
    return share(value) if name in SHARES and value is not None and 0.0 <= value <= 1.0 else number(value)


def label(name: str) -> str:
    """A metric's name for people.

    >>> label("balanced_accuracy"), label("macro_f1"), label("mse")
    ('Balanced accuracy', 'Macro F1', 'MSE')
    """
    words = ["".join(letter if letter.isprintable() else "?" for letter in word) for word in name.split("_")]
    said = " ".join(word.upper() if word in _SHORT else word for word in words)
    return f"{said[:1].upper()}{said[1:]}"


def duration(seconds: float | None) -> str:
    """A time in words.

    >>> duration(12.34), duration(250.0), duration(7322.0)
    ('12.3 s', '4 min 10 s', '2 h 2 min')
    """
    if seconds is None or seconds < 0:
        return MISSING
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes // 60:,} h {minutes % 60} min"
