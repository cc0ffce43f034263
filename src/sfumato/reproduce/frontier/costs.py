"""What published settings cost, as their authors counted them and as their records or clients were really drawn.

Every event here is relative to the sensitivity under its relation, with C the clip norm that a noise multiplier is relative to.
"""

from __future__ import annotations

from typing import Any

from sfumato.account import accountant, calibrate_noise
from sfumato.account.event import (
    Event,
    FixedSizeSampled,
    GaussianEvent,
    PoissonSampled,
    Relation,
    Repeated,
    compose,
)
from sfumato.account.papers.dp_fed_ls import dp_fedsam_epsilon
from sfumato.errors import BadValue
from sfumato.reproduce.table import Settings, Work

_MOVES = {Relation.ZERO_OUT: 1.0, Relation.REPLACE: 2.0}  # a sum, by so many C for one record


def shuffled(settings: Settings, relation: Relation) -> Event:
    """Passes over all records in an order drawn anew, without any credit for that order.

    The order does not depend on anybody's data, and a record is in at most one batch of a pass, also where a last one is
    dropped. So, given all orders, a record that is swapped moves one sum in each pass by at most 2 C, and one whose
    gradient becomes zero by at most C; statistics of all records that were clipped and noised before are moved by as much.
    One record more or less moves the edges of all batches: under add/remove nothing is proven here.

    >>> shuffled({"noise": 3.0, "passes": 40}, Relation.REPLACE)
    Repeated(event=GaussianEvent(ratio=1.5), times=40)
    """
    if relation not in _MOVES:
        raise BadValue(f"nothing is proven for shuffled passes under {relation.words}. Use replace or zero-out.")
    far = _MOVES[relation]
    training = Repeated(GaussianEvent(settings["noise"] / far), settings["passes"])
    return compose(_statistics(settings, far), training)


def shuffled_as_accounted(settings: Settings) -> Event:
    """The same steps if every batch had been a Poisson sample at rate batch / records, which is how it was counted."""
    steps = settings["records"] // settings["batch"] * settings["passes"]
    sampled = PoissonSampled(settings["batch"] / settings["records"], GaussianEvent(settings["noise"]))
    return compose(_statistics(settings, 1.0), Repeated(sampled, steps))


def _statistics(settings: Settings, far: float) -> Event:
    """Mean and mean square of all records, each with its own noise, if features were normalised by them."""
    noise = settings.get("normalisation")
    return compose() if noise is None else Repeated(GaussianEvent(noise / far), 2)


def fixed_size(settings: Settings, relation: Relation) -> Event:
    """Cohorts of fixed size drawn without replacement, divided by that size: whoever comes displaces another, by 2 C."""
    rate = settings["cohort"] / settings["clients"]
    return Repeated(FixedSizeSampled(rate, GaussianEvent(settings["noise"] / 2), relation), settings["rounds"])


def poisson(rate: float, noise: float, rounds: int) -> Event:
    """Poisson samples under add/remove."""
    return Repeated(PoissonSampled(rate, GaussianEvent(noise)), rounds)


def cost(settings: Settings, seed: int) -> dict[str, Any]:
    """Epsilon at the published delta.

    `accounted` is the tight value of what the authors counted, `sampled` the values of what was really drawn, each with its
    relation and sampling, and `claimed` what their formula gives where they print no number. Nothing where the settings say
    nothing.
    """
    kind, delta = settings.get("sampling"), settings["delta"]

    def epsilon(event: Event) -> float:
        return accountant("auto").epsilon(event, delta)

    if kind == "shuffled":
        relations = (Relation.REPLACE, Relation.ZERO_OUT)
        sampled = [[relation.words, epsilon(shuffled(settings, relation))] for relation in relations]
        return {"accounted": epsilon(shuffled_as_accounted(settings)), "sampled": sampled}
    if kind == "fixed size":
        rate, rule = settings["cohort"] / settings["clients"], (settings["noise"], settings["rounds"])
        relations = (Relation.ADD_REMOVE, Relation.REPLACE)
        return {
            "claimed": dp_fedsam_epsilon(rate, *rule, delta)[0],
            "accounted": epsilon(poisson(rate, *rule)),
            "sampled": [[relation.words, epsilon(fixed_size(settings, relation))] for relation in relations],
        }
    if kind == "larger population":
        meant, rounds = settings["meant_cohort"] / settings["meant_population"], settings["rounds"]
        noise = calibrate_noise(lambda found: poisson(meant, found, rounds), settings["epsilon"], delta)
        real = settings["cohort"] / settings["clients"]
        scaled = noise * settings["cohort"] / settings["meant_cohort"]
        return {
            "accounted": epsilon(poisson(meant, noise, rounds)),
            "sampled": [[f"add/remove, if Poisson at {real:g}", epsilon(poisson(real, scaled, rounds))]],
        }
    return {"accounted": None, "sampled": []}


COST = Work("sfumato.reproduce.frontier.cost", cost)
