"""Who pays what for noise, by where it is added: at the server, at the client, in shares of a sum, or in local steps.

The only place where a claim turns into events. `sfumato account` and the pieces of a Round both go through here, so what is
priced without training is what is derived for training. Nothing here needs torch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from sfumato.account.event import Event, Mixture, Relation, Repeated, Unit
from sfumato.account.shuffled import ShuffledEvent, pure_epsilon
from sfumato.claim import Claim, text
from sfumato.errors import UnsoundRound
from sfumato.guarantee import rounded_up
from sfumato.pieces.exact import ExactLaw, SharesOf, summed_for
from sfumato.pieces.law import Law
from sfumato.pieces.sampler import FixedSize, Sampler

ARITHMETIC = "exact real-number arithmetic (floating point is not covered)"
HONEST_SERVER = "the server samples honestly"


def _arithmetic(law: object) -> tuple[str, ...]:
    """What is assumed of the numbers: nothing, where whole steps of a grid are added exactly."""
    return () if isinstance(law, ExactLaw | SharesOf) else (ARITHMETIC,)


def pay_at_server(claim: Claim, law: Law, who: object) -> Claim:
    """The world pays the sampler's amplified event; the server saw the rows before the noise, so nothing is proven there."""
    stddev = _bounded(claim, law, who)
    world = claim.amplified(partial(law.event, stddev))
    claim = replace(claim, world=world, stddev=stddev, noise_sensitivity=law.distance(claim.reach()))
    return claim.assuming(*_arithmetic(law), "the server is trusted")


def pay_at_client(claim: Claim, law: Law, who: object) -> Claim:
    """Both views pay the unsampled event of one message whenever the client takes part, never the amplified one (R4)."""
    stddev = _bounded(claim, law, who)
    if claim.presence_is_hidden:
        raise UnsoundRound(
            f"{text(who)} in the client slot hides what a message says, not that it was sent: under add/remove the "
            "number of messages, and with it the noise in their sum, tells whether the client is there.",
            "use relation='replace' or 'zero_out' in the sampler, or add the noise in the server slot.",
        )
    release = partial(law.event, stddev)
    observed = claim.observed(release)
    paid = replace(claim, world=observed, server=observed, chooser=claim.taking_part(release), stddev=stddev)
    paid = replace(paid, nearer=claim.moved != claim.rows_apart)
    # The message is the row plus noise: no norm of it is bounded any more.
    return replace(paid, noise_sensitivity=law.distance(claim.reach(seen=True)), l2=math.inf, l1=math.inf).assuming(
        *_arithmetic(law), HONEST_SERVER
    )


def check_honest(who: object, shares: int, claim: Claim, smallest: int = 0) -> int:
    """Refuse noise that was divided among more clients than are sure to be honest and to reply; the size of the cohort."""
    assert claim.sampling is not None, "the sampler comes first"
    size = claim.sampling.cohort_size(claim)
    if size is None:
        raise UnsoundRound(
            f"{text(who)}: the size of the cohort varies, and with it the noise in the sum.",
            "use FixedSize(size) or Everyone(), where all reply, or AddNoise in the server slot.",
        )
    if smallest > size:
        raise UnsoundRound(f"{text(who)}: the cohort has only {size} clients.", f"let smallest be at most {size}.")
    honest = (smallest or size) - claim.sampling.curious
    if shares > honest:
        raise UnsoundRound(
            f"{text(who)}: the noise is divided into {shares} shares, but only {honest} honest clients are sure to add theirs, so "
            "the sum would carry less noise than is accounted.",
            f"use NoiseShare(law, clients={max(honest, 1)}).",
        )
    return size


def pay_by_shares(claim: Claim, seen: float | None, full: bool = True) -> Claim:
    """The world pays for the noise in the sum; the server, who sees the cohort, for the noise in what it has `seen` (R3).

    Unless all reply (`full`), the number of shares in the sum varies: nothing is amplified, and add/remove is refused,
    because a client that drops out whenever it is drawn would change that number.
    """
    assert claim.share_law is not None and claim.stddev is not None and seen is not None, "shares come first"
    law = claim.share_law
    of_sum, of_seen = partial(law.event, claim.stddev), partial(law.event, seen)
    if not full and claim.presence_is_hidden:
        raise UnsoundRound(
            "a cohort may fall short of its size here, and under add/remove a client that drops out whenever it is drawn changes "
            "how many shares of noise are in the sum: the noise itself tells whether it is there.",
            "let smallest be the whole cohort, use relation='replace' or 'zero_out', or add the noise in the server slot.",
        )
    world = claim.amplified(of_sum) if full else claim.observed(of_sum)
    paid = replace(claim, world=world, noise_sensitivity=law.distance(claim.reach(seen=not full)))
    if not claim.presence_is_hidden:  # who took part is plain to the server
        paid = replace(paid, server=claim.observed(of_seen), chooser=claim.taking_part(of_seen))
    return paid.assuming(
        *_arithmetic(law),
        "enough honest clients add their share, and a cohort that falls short is given up",
        HONEST_SERVER,
    )


def pay_shuffled(claim: Claim, smallest: int, who: object) -> Claim:
    """What messages cost that were permuted before anybody saw them: less, where the clones bound holds (`ShuffledEvent`).

    It needs that every message is pure-epsilon private as a whole under replace, whoever sent it and by the same rule; that a
    known number of honest ones arrive; and that nobody's next message tells which of the last ones was its own. That epsilon
    must hold between the messages of any two clients, since it says how often another's looks like the victim's: where one
    record moves a message less far than that, the record's own epsilon says nothing of the others' messages. Where
    something is missing, what held before still holds, since a permutation is post-processing. Fewer than one expected clone
    can cost more than the message's own event, so there that one is kept.
    """
    assert claim.sampling is not None and claim.chooser is not None, "the message is paid for at the client"
    size, epsilon = claim.sampling.cohort_size(claim), pure_epsilon(claim.chooser)
    if smallest and (size is None or smallest > size):
        raise UnsoundRound(
            f"{text(who)}: {'the size of the cohort varies' if size is None else f'the cohort has only {size} clients'}.",
            "leave smallest out, or use a cohort of a fixed size that is at least so large.",
        )
    count = (smallest or size or 0) - claim.sampling.curious
    missing = {
        "the messages are not pure-epsilon private as a whole": epsilon is None,
        "neighbours are not those of replace": claim.relation is not Relation.REPLACE,
        "how many messages arrive is not known beforehand": size is None,
        "clients do different things with their data or their messages, which tells these apart": not claim.alike,
        "one record moves a message by less than two messages may be apart, so others' need not look like it": claim.nearer,
        "clients remember something, which may tell which message was theirs": claim.remembers,
        "too few honest messages are sure to arrive": epsilon is not None and (count - 1) * math.exp(-epsilon) < 1.0,
    }
    why = next((reason for reason, holds in missing.items() if holds), None)
    if why is not None:
        return claim.assuming(f"the shuffler hides who sent a message, which lowers no epsilon here: {why}")
    assert epsilon is not None, "private as a whole"
    event = ShuffledEvent(epsilon, count)
    observed = claim.observed(lambda _: event)
    return replace(claim, world=observed, server=observed, chooser=event).assuming(
        f"the shuffler permutes at random, and tells nobody how (against the shuffler itself only epsilon "
        f"{rounded_up(epsilon, 4)} holds for each message)",
        f"at least {count} honest messages arrive, and a cohort that falls short is given up",
    )


def pay_in_local_steps(
    claim: Claim, law: Law, clip: float, order: int, batch: Sampler, records: int, steps: int
) -> Claim:
    """Each of `steps` adds noise to a sum of drawn records' gradients, clipped in the norm of this order: it pays for a record,
    and for no client.

    One step is a round of its own, whose rows are the records of one client: the same sampler states the same things
    about them (`records` is the fewest that a client has, in both neighbouring worlds), and no record tells whether it was drawn.
    All steps happen only when the client takes part, which everybody may see. It holds against the server too.
    """
    if claim.unit is Unit.CLIENT:
        return claim
    relation = claim.relation if claim.relation_is_asked else batch.relation
    check_batch(batch)
    drawn = replace(batch, curious=0) if isinstance(batch, FixedSize) else batch
    step = drawn.carry(Claim(Unit.CLIENT, relation, records, claim.dimension)).clipped(clip, order)
    step = summed_for(law, step)
    stddev = law.stddev(step)
    cost = Repeated(step.amplified(partial(law.event, stddev)), steps)

    def all_steps(_: object) -> Event:
        return cost

    observed = claim.observed(all_steps)
    honest = (HONEST_SERVER,) if isinstance(observed, Mixture) else ()
    also = ", also without any one of them" if relation is Relation.ADD_REMOVE else ""
    declared = (
        (f"each client has at least the declared number of records{also}",) if isinstance(batch, FixedSize) else ()
    )
    return replace(
        claim,
        relation=relation,
        world=observed,
        server=observed,
        chooser=claim.taking_part(all_steps),
        local_paid=True,
        stddev=stddev,
        noise_sensitivity=law.distance(step.reach()),
    ).assuming(*_arithmetic(law), *honest, *declared)


def check_batch(batch: object) -> None:
    """Refuse batches for which nothing is proven."""
    if not isinstance(batch, Sampler):
        raise UnsoundRound(
            f"DpSgd(batch={batch!r}): records that take turns in shuffled epochs are not drawn independently, so the "
            "amplification that is proven for random batches does not hold.",
            "use batch=Poisson(rate) or batch=FixedSize(size), which draw anew in every step.",
        )
    if batch.relation is Relation.ZERO_OUT:
        raise UnsoundRound(
            "DpSgd hides a record that is there or not, or is swapped; zero-out is about clients' messages.",
            "use batch=Poisson(rate) or relation='replace'.",
        )


def _bounded(claim: Claim, law: Law, who: object) -> float:
    stddev = law.stddev(claim)
    if math.isinf(stddev):
        raise UnsoundRound(
            f"{text(who)} comes before anything bounds a row: one client can move the value without limit, so no amount of "
            "noise hides it.",
            "put Clip(norm) into the client slot, before the noise.",
        )
    return stddev
