"""A setting in plain words."""

from __future__ import annotations

from sfumato.guarantee import largest_delta, rounded_up
from sfumato.pieces.sampler import Drawn, Everyone, FixedSize
from sfumato.planning.setting import Setting


def sampling(setting: Setting) -> str:
    """How the cohort, and the batches, are drawn."""
    hidden = not (setting.at_client or setting.batch is not None or setting.everyone)
    words = _drawn(setting.sample, "client") + (", in secret" if hidden else "")
    if setting.votes and not setting.everyone:
        words += ", anew for each query"
    if setting.batch is None:
        return words
    return f"{words}; then {setting.steps} local steps, each on {_drawn(setting.batch, 'record')}"


def _drawn(drawn: Drawn, who: str) -> str:
    sampler = drawn.sampler
    if isinstance(sampler, Everyone):
        return f"every {who}, every time"
    if not isinstance(sampler, FixedSize):
        often = f"with probability {drawn.rate:.6g}"
        return f"each client takes part {often}" if who == "client" else f"each record {often}"
    several = sampler.curious > 1
    curious = (
        f" ({sampler.curious} curious client{'s' if several else ''} may know {'their' if several else 'its'} own draw)"
    )
    curious = curious if who == "client" and sampler.curious else ""
    return f"{sampler.size} of {drawn.population} {who}s without replacement{curious}"


def assumptions(setting: Setting) -> tuple[str, ...]:
    """What has to be true for the number to hold: what the walk assumed, and what a Round would have checked."""
    return (*setting.claim().assumptions, "the sum is divided by a number fixed before the data are seen")


def caution(delta: float, units: int, unit: str) -> str:
    """What has to be said of a delta above a tenth of one over the number of units; nothing of a smaller one (PRIVACY R18).

    >>> caution(1e-5, 200, "client")
    ''
    >>> caution(1e-3, 200, "client")
    'delta 0.001 is above 0.0005 = 1/(10 n) for n = 200 clients. Publishing one client at random has delta 1/n. Lower --delta.'
    """
    most = largest_delta(units)
    if delta <= most:
        return ""
    many = f"{units:,} {unit}{'' if units == 1 else 's'}"
    return (
        f"delta {rounded_up(delta, 3)} is above {most:.3g} = 1/(10 n) for n = {many}. Publishing one {unit} at random has "
        "delta 1/n. Lower --delta."
    )
