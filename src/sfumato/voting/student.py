"""The student is the optimizer of a round of votes: it learns from released votes, and says what to ask next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sfumato.claim import Claim, text
from sfumato.errors import BadValue, UnsoundRound, nearest
from sfumato.objective import Objective
from sfumato.pieces.context import StepContext
from sfumato.pieces.protocol import Optimizer, State
from sfumato.voting.labels import Argmax, Labels, Majority
from sfumato.voting.learners import Learner, Lesson
from sfumato.voting.queries import Queries

ORDERS = ("in-order", "balanced", "uncertain")
_AT_ONCE = 1000


@dataclass(frozen=True)
class Student(Optimizer):
    """Adds up what was released on each query, reads labels and weights from it, and trains on the labelled public records.

    What is asked next: `in-order` by number, `balanced` one of each class that the student predicts in turn, `uncertain` those
    first whose prediction is least sure. A query whose released votes are all exactly zero was not answered: it counts as asked, so
    that others follow, and not as a label. One that was answered several times has the mean of its answers.
    States: nothing is lost. It reads released votes, which are paid for, and public records, and never the labels that
    these may have; which queries follow is a function of the same, so that rounds compose adaptively.
    """

    queries: Queries
    learner: Learner
    labels: Labels = field(default_factory=Argmax)
    order: str = "in-order"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise BadValue(f"Student(order={self.order!r}): there is no such order. {nearest(self.order, ORDERS)}")
        if self.order == "balanced" and isinstance(self.labels, Majority):
            raise BadValue("Student(order='balanced'): attributes are no classes to take in turn. Use 'uncertain'.")

    def start(self, params: Tensor) -> State:
        begun = self.queries.start()
        return {**begun, "answered": torch.zeros_like(begun["asked"])}

    def check(self, module: nn.Module, objective: Objective, length: int) -> None:
        if objective.task and objective.task != self.labels.task:
            raise BadValue(
                f"{text(self.labels)} reads votes for {self.labels.task}, and the task is {objective.name}. Use Argmax() for "
                "classes, Majority(population) for attributes; in a recipe, attributes=N (--attributes N)."
            )
        if length != self.queries.count * (objective.outputs or length // self.queries.count):
            raise BadValue(
                f"{self.queries.count} queries with {objective.outputs} answers each do not make {length} votes. Give Votes and "
                "Student the same queries, and Votes the classes of the task."
            )
        self.learner.check(module, objective, self.queries.pool)

    def learn(self, params: Tensor, state: State, update: Tensor, context: StepContext) -> tuple[Tensor, State]:
        state = {name: value.cpu() for name, value in state.items()}  # where the public records are
        chosen = self.queries.chosen(state)  # what the clients were asked: the same function of the same state
        released = update.detach().cpu().reshape(len(chosen), -1)
        answered = (released != 0.0).any(dim=1).long()
        before = state.get("votes", released.new_zeros(len(self.queries.pool), released.shape[1]))
        after = {
            "votes": before.index_add(0, chosen, released),
            "asked": state["asked"].index_add(0, chosen, torch.ones_like(chosen)),
            "answered": state["answered"].index_add(0, chosen, answered),
        }
        module = context.module(params)
        numbers, targets, weights = self.labelled(after, context.stddev)
        if len(numbers):
            pool = self.queries.pool.cpu()
            self.learner.teach(module, Lesson(pool[numbers], targets, weights, pool), context)
            params = context.layout.row(module).to(params)
        return params, {**after, "priority": self._priority(module, after["asked"])}

    def labelled(self, state: Mapping[str, Tensor], stddev: float | None) -> tuple[Tensor, Tensor, Tensor]:
        """The numbers of the records that were answered, their labels and their weights: all of it released."""
        numbers = state["answered"].nonzero().flatten()
        times = state["answered"][numbers].double()
        votes = state["votes"][numbers].double() / times[:, None]
        return numbers, *self.labels.read(votes, (stddev or 0.0) / times.sqrt())

    def _priority(self, module: nn.Module, asked: Tensor) -> Tensor:
        if self.order == "in-order":
            return torch.zeros(len(asked))
        module.eval()
        place = next(module.parameters()).device
        with torch.no_grad():
            outputs = torch.cat([module(part.to(place)).cpu() for part in torch.split(self.queries.pool, _AT_ONCE)])
        if self.order == "uncertain":
            return -self.labels.sureness(outputs)
        return -ranks(asked * outputs.shape[1] + outputs.argmax(dim=1)).float()

    def carry(self, claim: Claim) -> Claim:
        if not claim.paid:
            raise UnsoundRound(
                f"{text(self)} learns from votes that nothing has paid for.",
                "put AddNoise(Gaussian(stddev / sqrt(queries))) into the server slot.",
            )
        return claim if self.queries.public is None else claim.assuming(self.queries.public.declared)


def ranks(groups: Tensor) -> Tensor:
    """How many of the same group come before each.

    >>> ranks(torch.tensor([7, 7, 5, 7, 5]))
    tensor([0, 1, 0, 2, 1])
    """
    order = torch.argsort(groups, stable=True)
    _, sizes = torch.unique(groups, return_counts=True)
    starts = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    return torch.empty_like(groups).index_copy(0, order, torch.arange(len(groups), device=groups.device) - starts)
