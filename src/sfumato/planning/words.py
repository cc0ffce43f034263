"""A setting in plain words."""

from __future__ import annotations

from sfumato.pieces.sampler import Drawn, Everyone, FixedSize
from sfumato.planning.setting import Setting

_MUCH = 0.1


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


def views(setting: Setting) -> dict[str, str]:
    """Who sees what, for the world and for the server (PRIVACY R1: the server knows the cohort)."""
    own = "each message carries its own noise, so this holds against whoever sees the messages and who took part"
    if setting.batch is not None:
        own = "noise is added in every local step, so this holds against whoever sees the client's updates and who took part"
    if setting.shuffled:
        own = "this holds against whoever sees the permuted messages and who took part, but not against the shuffler"
    if setting.batch is not None or setting.at_client:
        return {"world": own, "server": own}
    hidden = "" if setting.everyone else ", but not who took part"
    return {
        "world": f"everyone who sees the released models{hidden}",
        "server": "no guarantee: the noise is added at the server, which sees the updates without it and must be trusted",
    }


def assumptions(setting: Setting) -> list[str]:
    """What has to be true for the number to hold: what the walk assumed, and what a Round would have checked."""
    return [*setting.claim().assumptions, "the sum is divided by a number fixed before the data are seen"]


def caution(delta: float, units: int, unit: str) -> str:
    """What has to be said of a delta that promises next to nothing; nothing where it is below one over the number of units, and
    below a tenth.

    >>> caution(1e-3, 200, "client")
    ''
    >>> caution(0.2, 3, "client")
    'delta 0.2 is the chance with which nothing at all is promised. Choose --delta well below, e.g. 1e-5.'
    """
    if delta * units < 1:
        said = f"delta {delta:.4g} is the chance with which nothing at all is promised. Choose --delta well below, e.g. 1e-5."
        return said if delta >= _MUCH else ""
    return (
        f"delta {delta} is not below 1/{units}: a mechanism that publishes one {unit} in the open could meet it. "
        "Choose --delta well below."
    )
