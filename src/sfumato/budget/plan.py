"""From budgets to a round that keeps to all of them, calibrated together: every candidate goes through the derivation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sfumato.account import accountant, calibrate_noise
from sfumato.account.calibrate import most_rounds
from sfumato.account.event import Event, Unit
from sfumato.account.inside import for_client
from sfumato.account.protocol import Accountant
from sfumato.budget.budgets import Budgets, ClientBudget
from sfumato.calibration import check_needs_no_dimension, with_noise
from sfumato.claim import text
from sfumato.data.population import Population
from sfumato.derive import pieces
from sfumato.errors import BadValue, CannotAccount
from sfumato.local.dp_sgd import DpSgd
from sfumato.local.per_client import PerClient
from sfumato.pieces.clip import Clip
from sfumato.pieces.clip_per_client import ClipPerClient
from sfumato.pieces.exact import ExactLaw
from sfumato.pieces.law import Gaussian
from sfumato.pieces.law_names import law_named
from sfumato.pieces.presence import PoissonPerClient, Presence
from sfumato.pieces.protocol import LocalPiece
from sfumato.pieces.sampler import Everyone, Poisson
from sfumato.round import Round


@dataclass(frozen=True)
class Settings:
    """What is a client's own in a round; None: as in the round."""

    local: LocalPiece | None = None
    clip: Clip | None = None
    presence: Presence | None = None


def budgets(
    round: Round,
    given: Any,
    *,
    rounds: int,
    population: Population | int,
    dimension: int | None = None,
    noise_multiplier: float | None = None,
) -> Round:
    """The round in which each client spends no more than its own budget in `rounds` rounds, and about as much.

    `given` is a file, a mapping from client to (epsilon, delta) with one for "default", or `Budgets`. At record level each
    client gets noise of its own. At client level one noise hides all: it is what the largest budget needs with the round's
    clip and rate (or `noise_multiplier`), and clients with smaller ones get a smaller clip or rate. A budget that is kept to
    by `rounds` changes nothing else: its client stops earlier, at a round that is known before the first. `dimension`, the
    number of trained parameters, is needed where the cost of a client's noise depends on it.
    """
    size, ids = (population.size, population.ids) if isinstance(population, Population) else (population, ())
    found = planned(round, Budgets.of(given, size, ids), rounds, size, dimension or 1, noise_multiplier)
    if dimension is None:
        check_needs_no_dimension(found, size)
    return found


def planned(
    round: Round,
    given: Budgets,
    rounds: int,
    population: int,
    dimension: int,
    noise: float | None = None,
    by: Accountant | None = None,
) -> Round:
    """The same, of budgets by number; `by` prices what is spent of them, by default the tight accountants."""
    if round.nonprivate or round.unproven:
        raise BadValue("budgets: this round proves nothing, so no budget can be kept to. Use one that is proven.")
    if any(piece.named for _, piece in pieces(round)):
        raise BadValue("budgets: clients have settings of their own in this round already. Give one that has none.")
    groups = given.groups(population)
    own_noise = round.unit is Unit.RECORD and round.local.noise_and_norm() is not None
    ways = {budget: _way(budget, own_noise) for _, budget in groups}
    plan = Planning(round, rounds, population, dimension, by=by or accountant("auto"))
    needed = plan.noises(list(ways))
    shared = any(way != "noise" for way in ways.values())
    if noise is not None and not shared:
        raise BadValue(
            f"noise_multiplier={noise}: each client's budget finds its own noise here. Leave it out, or let budgets be kept by "
            "'rate' or 'rounds'."
        )
    if shared:
        chosen = min(needed.values()) if noise is None else noise
        plan = replace(plan, round=with_noise(round, chosen), noise=chosen)
    settings = {budget: plan.settings(budget, way, needed[budget]) for budget, way in ways.items()}
    return plan.checked([(who, budget, settings[budget]) for who, budget in groups])


def _way(budget: ClientBudget, own_noise: bool) -> str:
    usual, other = ("noise", "clip") if own_noise else ("clip", "noise")
    if budget.by == other:
        why = "each record is hidden by its client's own noise" if own_noise else "one noise hides all clients"
        raise BadValue(f"a budget by {other!r}: {why}, so it is kept by {usual!r}, 'rate' or 'rounds'.")
    if budget.law and not own_noise:
        raise BadValue(f"a budget with the law {budget.law!r}: one noise hides all clients. Give the round that law.")
    return budget.by or usual


@dataclass(frozen=True)
class Planning:
    """A round whose settings are being found, and over how many rounds; `noise` is what hides all, where one does."""

    round: Round
    rounds: int
    population: int
    dimension: int
    noise: float = 1.0
    by: Accountant = field(kw_only=True)

    def noises(self, wanted: list[ClientBudget]) -> dict[ClientBudget, float]:
        """The noise that each budget alone would need, each search beginning where the last one ended."""
        found: dict[ClientBudget, float] = {}
        guess, last = 1.0, 0.0
        for budget in sorted(set(wanted), key=lambda one: one.epsilon):
            guess *= (last / budget.epsilon) ** 0.75 if last else 1.0
            guess = self._found(budget, "noise", lambda noise: with_noise(self.round, noise), guess)
            found[budget], last = guess, budget.epsilon
        return found

    def settings(self, budget: ClientBudget, way: str, needed: float) -> Settings:
        """What keeps one client to its budget."""
        stop = None if budget.rounds is None or budget.rounds >= self.rounds else budget.rounds
        base = Settings(presence=None if stop is None else Presence(self._rate, stop))
        if way == "rounds":
            last = self._last(base, budget)
            return base if last == self.rounds else Settings(presence=Presence(self._rate, last))

        def other(factor: float) -> Settings:
            match way:
                case "noise":
                    return replace(base, local=_with_law(self.round.local, budget).with_noise(factor))
                case "clip":
                    return replace(base, clip=replace(self._clip, norm=self._clip.norm / factor))
            return replace(base, presence=Presence(self._rate / factor, stop))

        if way != "noise" and self._epsilon(base, budget) <= budget.epsilon:
            return base
        start = needed if way == "noise" else max(needed / self.noise, 1.0)
        return other(self._found(budget, way, lambda factor: self._probe(other(factor)), start))

    def checked(self, found: list[tuple[tuple[int, ...], ClientBudget, Settings]]) -> Round:
        """The round with everybody's own settings; every budget is looked at once more, in the round itself."""
        largest = max(found, key=lambda one: len(one[0]) or self.population)
        whole = self._round(largest[2], [(who, settings) for who, _, settings in found if who])
        event = whole.derive(population=self.population, dimension=self.dimension).primary.after(self.rounds)
        for who, budget, _ in found:
            spent = self.by.epsilon(for_client(event, who[0] if who else None), budget.delta)
            if spent > budget.epsilon:
                raise CannotAccount(
                    f"budgets: {spent:.6g} would be spent of {budget.epsilon:g}, which is a mistake of ours."
                )
        return whole

    def _found(self, budget: ClientBudget, way: str, of: Callable[[float], Round], guess: float) -> float:
        def event(factor: float) -> Event:
            return self._cost(of(factor), min(budget.rounds or self.rounds, self.rounds))

        try:
            return calibrate_noise(event, budget.epsilon, budget.delta, guess=guess, by=self.by)
        except CannotAccount as error:
            why = str(error)
            if way == "clip" and not isinstance(self.round.sample, Poisson | Everyone):
                why = (
                    f"with {text(self.round.sample)} a client displaces another, whose own norm counts too. Use Poisson "
                    "sampling, or larger budgets."
                )
            raise CannotAccount(
                f"the budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} cannot be kept by {way!r}: {why}"
            ) from None

    def _cost(self, round: Round, rounds: int) -> Event:
        proof = round.derive(population=self.population, dimension=self.dimension).primary
        return for_client(proof.after(rounds), 0)

    def _probe(self, settings: Settings) -> Round:
        """The round with one client's own settings."""
        return self._round(Settings(), [((0,), settings)])

    def _epsilon(self, settings: Settings, budget: ClientBudget) -> float:
        event = self._cost(self._probe(settings), min(budget.rounds or self.rounds, self.rounds))
        return self.by.epsilon(event, budget.delta)

    def _last(self, settings: Settings, budget: ClientBudget) -> int:
        """How many rounds the budget lasts."""
        probe, most = self._probe(settings), min(budget.rounds or self.rounds, self.rounds)
        last = most_rounds(lambda count: self._cost(probe, count), budget.epsilon, budget.delta, most, self.by)
        if last == 0:
            raise BadValue(
                f"the budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} does not last one round. Raise it, or "
                "the noise, or keep to it in another way."
            )
        return last

    @property
    def _clip(self) -> Clip:
        found = [piece for piece in self.round.client if isinstance(piece, Clip)]
        if not found:
            raise BadValue(
                "a budget by 'clip' needs a Clip(norm) in the client slot, to make it smaller. Keep to it by 'rate' or 'rounds'."
            )
        return found[-1]

    @property
    def _rate(self) -> float:
        sample = self.round.sample
        if isinstance(sample, Poisson | Everyone):
            return sample.rate if isinstance(sample, Poisson) else 1.0
        raise BadValue(
            f"{text(sample)}: a client that is drawn less often, or stops, would change everybody else's chance here, so "
            "budgets are not kept by 'rate' or 'rounds'. Use Poisson sampling, or everyone."
        )

    def _round(self, usual: Settings, own: list[tuple[tuple[int, ...], Settings]]) -> Round:
        """The round with settings for all, and those of groups of clients."""
        every, changed = [usual, *(settings for _, settings in own)], dict[str, Any]()
        round = self.round
        if any(settings.local for settings in every):
            local = round.local
            others = [(who, one.local or local) for who, one in own]
            changed["local"] = PerClient(usual.local or local, others) if own else usual.local
        if any(settings.clip for settings in every):
            slot, clip = list(round.client), self._clip
            norms = ClipPerClient(usual.clip or clip, [(who, one.clip or clip) for who, one in own])
            slot[slot.index(clip)] = norms
            changed["client"] = tuple(slot)
            if norms.norm < clip.norm:  # the noise is a multiple of the widest norm, and stays as large as it was
                round = with_noise(round, self.noise * clip.norm / norms.norm * (1.0 + 1e-9))
        if any(settings.presence for settings in every):
            always = Presence(self._rate)
            presences = [(who, one.presence or always) for who, one in own]
            changed["sample"] = PoissonPerClient(usual.presence or always, presences, round.sample.relation)
        return replace(round, **changed)


def _with_law(local: LocalPiece, budget: ClientBudget) -> LocalPiece:
    """The client's local training with its own law, under the clip that goes with it."""
    if not budget.law:
        return local
    if not isinstance(local, DpSgd):
        raise BadValue(f"a budget with the law {budget.law!r}: {text(local)} takes none. Use DpSgd, or leave it out.")
    law, order = law_named(budget.law, 1.0)
    if isinstance(local.law, ExactLaw) and type(law) is not Gaussian:
        raise BadValue(f"a budget with the law {budget.law!r}: exact draws are there for Gaussian noise. Leave it out.")
    return local if isinstance(local.law, ExactLaw) else replace(local, law=law, order=order)
