"""The sum of per-record gradients, each clipped: what DP-SGD adds its noise to."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from sfumato.data.faults import Fault, out_of_memory
from sfumato.errors import BadValue
from sfumato.gradients.choice import Choice, Way, chosen
from sfumato.gradients.masks import KeyedMasks
from sfumato.gradients.micro_batch import suited
from sfumato.gradients.per_record_check import refuse_batch_statistics
from sfumato.gradients.per_record_passes import one_by_one
from sfumato.gradients.problem import NoRule, Problem
from sfumato.gradients.record_gradients import add_pieces, record_norms, record_sizes
from sfumato.gradients.recordwise import LossPerRecord
from sfumato.key import Key
from sfumato.update import Layout

_SHRINK = 1.0 + 2.0**-20


def clip_factors(norms: Tensor, norm: float) -> Tensor:
    """`min(1, norm / (norms * (1 + 2^-20)))`, and zero for a norm that float32 cannot hold or that is 2^100 times too long.

    The shrinking by 2^-20 is more than what rounding the factor and the product to float32 can add; a smaller factor than
    2^-100 would have too few bits left.

    >>> clip_factors(torch.tensor([0.0, 0.5, 4.0, float("nan")], dtype=torch.float64), 1.0)[[0, 1, 3]]
    tensor([1., 1., 0.], dtype=torch.float64)
    """
    factors = (norm / (norms * _SHRINK)).clamp(max=1.0)
    return torch.where(norms <= _longest(norm), factors, 0.0)


def _longest(norm: float) -> float:
    """The longest gradient that is clipped; longer ones add nothing."""
    return min(torch.finfo(torch.float32).max, norm * 2.0**100)


def _refuse_coarse_products() -> None:
    """TF32 and bfloat16 round a term of the sum by up to 2^-8 of it, and the factors leave it 2^-20."""
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # it was set for some backends
        precision = "other for some backends"
    if precision != "highest":
        raise BadValue(
            f"the precision of float32 products is {precision}: a clipped gradient would be rounded to more than its norm. Call "
            'torch.set_float32_matmul_precision("highest").'
        )


class ClippedSum:
    """`sum_i g_i min(1, norm / |g_i|)` over the records' gradients `g_i`, as one float32 row: ClippedSum(...)(row, x, y).

    |g_i| is the L2 norm, or the L1 norm (`order` 1). One record moves it by at most `norm` in that norm: each term is no
    longer than that, also as rounded to float32, and depends on its own record only, up to rounding: kernels may round a
    record's own numbers otherwise when others stand beside it. A record whose gradient is not
    finite, longer than the largest float32 number or 2^100 times too long adds exactly zero.

    It is a pure function of its arguments. It works on copies of the module as it was when this was built (mode, buffers,
    frozen parameters), one for each thread that calls; the module itself is never touched. At most `micro_batch` records
    are in work at once; 0 lets the first batch say how many suit (`suited`).

    The first batch chooses the way, by made-up records of its shapes, so that the choice is the same in every worker and after
    a restart (where inputs are no real numbers, by its own records, once it has three): one pass with layer rules if every
    trainable parameter belongs to a layer with a rule (without autograd if the module is a plain chain of layers), else
    `vmap(grad)`. Either is taken only if it agrees on a few records, in two orders, with autograd on each record alone; and
    that loop is taken when neither does, for a batch in which a layer turns out to be used as its rule does not cover, and where
    a `micro_batch` is one record: then nothing at all of a term depends on other records.
    """

    def __init__(
        self, module: nn.Module, layout: Layout, loss: LossPerRecord, norm: float, micro_batch: int = 64, order: int = 2
    ) -> None:
        if not (math.isfinite(norm) and norm > 0):
            raise BadValue(f"ClippedSum(norm={norm}): the norm must be positive. Use what a record may add, e.g. 1.0.")
        if micro_batch < 0:
            raise BadValue(f"ClippedSum(micro_batch={micro_batch}): at least one record must fit. Use e.g. 64.")
        if Layout.of(module) != layout:
            raise BadValue("the layout is not the module's: names or shapes differ. Use Layout.of(module).")
        for name, layer in module.named_modules():
            if "forward" in vars(layer):
                raise BadValue(f"layer {name!r} has a forward of its own, which copies would share. Write a class.")
        refuse_batch_statistics(module)
        self.module, self.layout, self.loss = copy.deepcopy(module), layout, loss
        self.norm, self.micro_batch, self.order = norm, micro_batch, order
        self._idle: list[Problem] = []  # copies of the module that no thread uses just now
        self._choice: Choice | None = None

    def __call__(self, row: Tensor, x: Tensor, y: Tensor, key: Key | None = None, fault: Fault | None = None) -> Tensor:
        """The clipped sum at the parameters `row`; zeros for no records. Only dropout needs the key.

        With `fault`, a record that raises adds zero and is told to it: where a batch raises, each of its records is computed
        alone. All others add what they add without it (PRIVACY R15).
        """
        if row.shape != (self.layout.dimension,):
            raise BadValue(f"the row has shape {tuple(row.shape)}, the layout's is ({self.layout.dimension},).")
        if len(x) != len(y):
            raise BadValue(f"{len(x)} records with {len(y)} targets. Give one target for each record.")
        _refuse_coarse_products()
        total = torch.zeros(self.layout.dimension, device=row.device)
        if len(x) == 0:
            return total
        with self._copy() as copied:
            self.micro_batch = self.micro_batch or suited(copied.module, x, self.layout.dimension)
            choice = self._choice
            if choice is None and self.micro_batch > 1:
                choice = self._chosen(copied, row, x, y, fault)
                self._choice = choice or self._choice  # another thread may have had a batch to choose by
            way, problem = one_by_one if choice is None else choice.way, copied
            if choice is None or choice.random:
                problem = replace(copied, masks=KeyedMasks(None if key is None else key.generator()))
            size = 1 if way is one_by_one else self.micro_batch
            places = torch.arange(len(x), device=x.device)
            for some, of, own in zip(*(torch.split(part, size) for part in (x, y, places)), strict=True):
                self._add(total, way, problem, row, some, of, own, fault)
        return total

    def way(self) -> str:
        """How the gradients are computed; "undecided" before the first batch with three records."""
        return "undecided" if self._choice is None else self._choice.way.__name__

    @contextmanager
    def _copy(self) -> Iterator[Problem]:
        try:
            problem = self._idle.pop()
        except IndexError:
            problem = Problem.of(copy.deepcopy(self.module), self.layout, self.loss)
        yield problem
        self._idle.append(problem)

    @staticmethod
    def _chosen(problem: Problem, row: Tensor, x: Tensor, y: Tensor, fault: Fault | None) -> Choice | None:
        """The way for records like these; none yet, if one of those that it would be chosen by raises."""
        try:
            return chosen(problem, row, x, y)
        except Exception as error:
            if fault is None or out_of_memory(error):
                raise
            return None

    def _add(
        self,
        total: Tensor,
        way: Way,
        problem: Problem,
        row: Tensor,
        x: Tensor,
        y: Tensor,
        places: Tensor,
        fault: Fault | None,
    ) -> None:
        try:
            pieces = way(problem, row, x, y)
        except Exception as error:
            if not isinstance(error, NoRule):
                if fault is None or out_of_memory(error):
                    raise
                if len(x) == 1:
                    fault(int(places), error)
                    return
            for one, of, own in zip(*(torch.split(part, 1) for part in (x, y, places)), strict=True):
                self._add(total, one_by_one, problem, row, one, of, own, fault)
            return
        norms = (record_sizes if self.order == 1 else record_norms)(pieces, x)
        usable = norms <= _longest(self.norm)
        if usable.all():
            add_pieces(total, self.layout, pieces, clip_factors(norms, self.norm))
        elif usable.any():  # zero times infinity is not zero: the others are summed without these records
            self._add(total, way, problem, row, x[usable], y[usable], places[usable], fault)
