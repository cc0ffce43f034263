"""A score of a trained model on clients' own records that is paid for: one more round, with one number from each client."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from sfumato.account.event import Relation, Unit
from sfumato.claim import Claim, Reach
from sfumato.errors import BadValue
from sfumato.pieces.keep_release import KeepRelease
from sfumato.pieces.law import Gaussian
from sfumato.pieces.mean import Sum
from sfumato.pieces.noise import AddNoise
from sfumato.pieces.protocol import LocalPiece
from sfumato.pieces.sampler import Everyone
from sfumato.round import Round

if TYPE_CHECKING:
    from sfumato.data.population import Records
    from sfumato.gradients import LossPerRecord
    from sfumato.local.task import Task
    from sfumato.update import Layout

_AT_ONCE = 1024  # records in work at once
_MOST = 10**6  # records of one sum


def right(outputs: Tensor, y: Tensor) -> Tensor:
    """How right each record's prediction is, from 0 to 1: 1/2 plus half the margin of the right class, cut off at both ends.

    It counts records that are clearly right, and it is continuous: a rounding of the outputs moves it by as little, where a
    plain count would turn over every tie. A target that is no class, which a loss may pass over, is never right.

    >>> right(torch.tensor([[3.0, 0.0], [0.5, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 0]))
    tensor([1.0000, 0.7500, 0.0000])
    """
    known = (y >= 0) & (y < outputs.shape[-1])
    place = torch.where(known, y, 0).unsqueeze(-1)
    own = outputs.gather(-1, place).squeeze(-1)
    others = outputs.scatter(-1, place, float("-inf")).amax(-1)
    found = (0.5 + (own - others) / 2).clamp(0.0, 1.0).nan_to_num(0.0) * known
    return found.flatten(1).mean(1) if found.ndim > 1 else found


@dataclass(frozen=True)
class Score(LocalPiece):
    """A client's row is one number from 0 to 1: how right the model is on its records (`right`).

    With `records`, a declared number, it is their sum over that number, cut off at 1; else their mean.
    States: rows are at most 1 long and at most 1 apart, since all lie between 0 and 1. One record moves a sum over `records` by
    at most 1/records, whether it is swapped, added or taken away (`relation`); a mean it may move by 1.
    """

    records: int = 0
    relation: Relation = Relation.REPLACE
    one_by_one: ClassVar[bool] = True
    fresh_rows: ClassVar[bool] = True
    keeps_distances: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.records > _MOST:
            raise BadValue(f"{self}: in a sum over more than {_MOST:,} records one is below what float32 tells apart.")
        if self.records < 0 or (not self.records and self.relation is not Relation.REPLACE):
            raise BadValue(f"{self}: records are swapped in a mean; for add_remove, declare how many there are.")

    def message_length(self, layout: Layout) -> int:
        return 1

    def check(self, module: nn.Module, loss: LossPerRecord, example: Records) -> None:
        with torch.no_grad():
            outputs = module(example.x)
        if example.y.dtype is not torch.int64 or outputs.shape[:-1] != example.y.shape:
            raise BadValue(
                f"targets of {example.y.dtype} are no classes, so there is no share of right answers to choose by. Use --proxy."
            )

    def trial(self) -> None:
        """Nothing: it runs once."""
        return

    def train(self, task: Task) -> Tensor:
        module = copy.deepcopy(task.forward.module).eval()
        task.layout.write(task.params, module)
        rows = [self._row(module, records) for records in task.clients]
        return torch.tensor(rows, dtype=torch.float32, device=task.params.device).reshape(-1, 1)

    def _row(self, module: nn.Module, records: Records) -> float:
        if not records.count:
            return 0.0
        total = 0.0
        with torch.no_grad():
            for x, y in zip(*(torch.split(part, _AT_ONCE) for part in records), strict=True):
                total += float(right(module(x), y).double().sum())
        return min(1.0, total / (self.records or records.count))

    def carry(self, claim: Claim) -> Claim:
        if claim.unit is Unit.RECORD and not claim.relation_is_asked:
            claim = replace(claim, relation=self.relation)
        one = Reach(1.0, 1.0, 1)
        rows = replace(claim, dimension=1).bounded(l2=1.0, l1=1.0)
        return rows.closer(one, one.scaled(1.0 / (self.records or 1)))


def scoring_round(trained: Round, noise_multiplier: float, records: int = 0) -> Round:
    """The round that scores what `trained` trains: everyone answers, and the server adds noise to the sum.

    It hides the same unit under the same relation, so that both add up. `records` are declared where those are hidden.
    """
    relation = trained.derive(population=10**9, dimension=1000).primary.relation
    clients = trained.unit is Unit.CLIENT
    return Round(
        sample=Everyone(relation=relation) if clients else Everyone(),
        local=Score() if clients else Score(records, relation),
        channel=trained.channel,  # whoever is trusted with the rows is trusted with the scores
        aggregate=Sum(),
        server=(AddNoise(Gaussian(noise_multiplier)),),
        optimizer=KeepRelease(),
        unit=trained.unit,
    )
