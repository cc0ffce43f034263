"""The sum of per-record gradients, each clipped: what DP-SGD adds its noise to.

    ClippedSum(module, Layout.of(module), loss, norm=1.0)(row, x, y)

Which way the gradients are computed never changes the result, only the time: see `ClippedSum`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from sfumato.errors import BadValue
from sfumato.gradients.masks import KeyedMasks
from sfumato.gradients.per_record_check import refuse_batch_statistics
from sfumato.gradients.per_record_passes import (
    NoRule,
    Pieces,
    Problem,
    chained,
    one_by_one,
    one_pass,
    one_pass_channels_last,
    vectorised,
)
from sfumato.gradients.recordwise import LossPerRecord
from sfumato.key import Key
from sfumato.update import Layout

_SHRINK = 1.0 + 2.0**-20
_PROBE = 4  # records on which a fast way must agree with the loop before it is used
_TOLERANCE = 1e-2

Way = Callable[[Problem, Tensor, Tensor, Tensor], Pieces]


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


class ClippedSum:
    """`sum_i g_i min(1, norm / |g_i|)` over the records' gradients `g_i`, as one float32 row.

    One record moves it by at most `norm` in L2: each term is no longer than that, also as rounded to float32, and depends on
    its own record only, up to rounding: kernels may round a record's own numbers otherwise when others stand beside it. A record
    whose gradient is not finite, longer than the largest float32 number or 2^100 times too long adds exactly zero.

    It is a pure function of its arguments. It works on copies of the module as it was when this was built (mode, buffers,
    frozen parameters), one for each thread that calls; the module itself is never touched. At most `micro_batch` records
    are in work at once.

    The first batch chooses the way, by made-up records of its shapes, so that the choice is the same in every worker and after
    a restart (where inputs are no real numbers, by its own records, once it has three): one pass with layer rules if every
    trainable parameter belongs to a layer with a rule (without autograd if the module is a plain chain of layers), else
    `vmap(grad)`. Either is taken only if it agrees on a few records, in two orders, with autograd on each record alone; and
    that loop is taken when neither does, and for a batch in which a layer turns out to be used as its rule does not cover.
    """

    def __init__(
        self, module: nn.Module, layout: Layout, loss: LossPerRecord, norm: float, micro_batch: int = 64
    ) -> None:
        if not (math.isfinite(norm) and norm > 0):
            raise BadValue(f"ClippedSum(norm={norm}): the norm must be positive. Use what a record may add, e.g. 1.0.")
        if micro_batch < 1:
            raise BadValue(f"ClippedSum(micro_batch={micro_batch}): at least one record must fit. Use e.g. 64.")
        if Layout.of(module) != layout:
            raise BadValue("the layout is not the module's: names or shapes differ. Use Layout.of(module).")
        for name, layer in module.named_modules():
            if "forward" in vars(layer):
                raise BadValue(
                    f"layer {name!r} has a forward of its own, which a copy would share. Write it as a class."
                )
        refuse_batch_statistics(module)
        self.module, self.layout, self.loss = copy.deepcopy(module), layout, loss
        self.norm, self.micro_batch = norm, micro_batch
        self._idle: list[Problem] = []  # copies of the module that no thread uses just now
        self._chosen: Way | None = None
        self._random = False  # whether there is dropout; set before the way is chosen

    def __call__(self, row: Tensor, x: Tensor, y: Tensor, key: Key | None = None) -> Tensor:
        """The clipped sum at the parameters `row`; zeros for no records. Only dropout needs the key."""
        return self.with_norms(row, x, y, key)[0]

    def with_norms(self, row: Tensor, x: Tensor, y: Tensor, key: Key | None = None) -> tuple[Tensor, Tensor]:
        """The clipped sum, and each record's norm before the clip in float64. The norms are not private."""
        if row.shape != (self.layout.dimension,):
            raise BadValue(f"the row has shape {tuple(row.shape)}, the layout's is ({self.layout.dimension},).")
        if len(x) != len(y):
            raise BadValue(f"{len(x)} records with {len(y)} targets. Give one target for each record.")
        total = torch.zeros(self.layout.dimension)
        if len(x) == 0:
            return total, torch.zeros(0, dtype=torch.float64)
        with self._copy() as copied:
            way = self._way(copied, row, x, y)
            problem = copied
            if self._chosen is None or self._random:
                problem = replace(copied, masks=KeyedMasks(None if key is None else key.generator()))
            size = 1 if way is one_by_one else self.micro_batch
            parts = zip(torch.split(x, size), torch.split(y, size), strict=True)
            norms = [self._add(total, way, problem, row, some, of) for some, of in parts]
        return total, norms[0] if len(norms) == 1 else torch.cat(norms)

    def way(self) -> str:
        """How the gradients are computed; "undecided" before the first batch with three records."""
        return "undecided" if self._chosen is None else self._chosen.__name__

    @contextmanager
    def _copy(self) -> Iterator[Problem]:
        try:
            problem = self._idle.pop()
        except IndexError:
            problem = Problem.of(copy.deepcopy(self.module), self.layout, self.loss)
        yield problem
        self._idle.append(problem)

    def _add(self, total: Tensor, way: Way, problem: Problem, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        try:
            pieces = way(problem, row, x, y)
        except NoRule:
            each = [slice(i, i + 1) for i in range(len(x))]
            return torch.cat([self._add(total, one_by_one, problem, row, x[i], y[i]) for i in each])
        norms = _norms(pieces, len(x))
        usable = norms <= _longest(self.norm)
        if not usable.all():
            # Zero times infinity is not zero: the others are summed without these records.
            if usable.any():
                norms[usable] = self._add(total, way, problem, row, x[usable], y[usable])
            return norms
        _add_pieces(total, self.layout, pieces, clip_factors(norms, self.norm))
        return norms

    def _way(self, copied: Problem, row: Tensor, x: Tensor, y: Tensor) -> Way:
        if self._chosen is not None:
            return self._chosen
        row, x, y = _probe(row, x, y)
        if len(x) < 3:
            return one_by_one
        masks = KeyedMasks(off=True)  # masks would differ between batch sizes
        problem = replace(copied, masks=masks)
        truth = one_by_one(problem, row, x.clone(), y)  # a first layer may work in place
        norms = _norms(truth, len(x))
        if not ((norms > 0.0) & norms.isfinite()).all():
            return one_by_one  # nothing to compare by: a later batch chooses
        ways: tuple[Way, ...] = (one_pass_channels_last, one_pass, vectorised) if problem.layers else (vectorised,)
        ways = (chained, *ways) if problem.chain else ways
        found = next((way for way in ways if self._agrees(way, truth, problem, row, x, y)), one_by_one)
        self._random = masks.asked
        self._chosen = found
        return found

    def _agrees(self, way: Way, truth: Pieces, problem: Problem, row: Tensor, x: Tensor, y: Tensor) -> bool:
        if way is vectorised and any(isinstance(layer, nn.RNNBase) for layer in problem.module.modules()):
            return False  # torch batches these one by one itself, with a warning
        norms = _norms(truth, len(x))
        weights = torch.linspace(0.5, 1.0, len(x), dtype=torch.float64) / norms.clamp(min=1e-30)
        expected = torch.zeros(self.layout.dimension)
        _add_pieces(expected, self.layout, truth, weights)
        for order in (torch.arange(len(x)), torch.arange(len(x)).flip(0)):
            try:
                pieces = way(problem, row, x[order], y[order])
            except Exception:
                return False  # vmap cannot batch it, a view cannot be taken of channels that come last
            found = torch.zeros(self.layout.dimension)
            _add_pieces(found, self.layout, pieces, weights[order])
            if not torch.allclose(_norms(pieces, len(x)), norms[order], rtol=_TOLERANCE):
                return False
            pairs = zip(*(self.layout.split(row).values() for row in (found, expected)), strict=True)
            if not all((one - two).square().sum() <= _TOLERANCE**2 * two.square().sum() + 1e-12 for one, two in pairs):
                return False
        return True


def _probe(row: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters and a few records to compare the ways by: real numbers are made up, words are not.

    The parameters are moved a little, so that a model that begins at zero has gradients too.
    """
    key = Key.from_seed(0).child("probe")
    row = row + 0.05 * key.child("row").normal(len(row)).to(row)
    if not x.is_floating_point():
        return row, x[:_PROBE], y[:_PROBE]
    return row, key.normal(_PROBE, *x.shape[1:]).to(x), y[:1].expand(_PROBE, *y.shape[1:]).contiguous()


def _norms(pieces: Pieces, records: int) -> Tensor:
    if not pieces:
        return torch.zeros(records, dtype=torch.float64)
    return torch.stack([piece.squares() for piece in pieces.values()]).sum(0).sqrt()


def _add_pieces(total: Tensor, layout: Layout, pieces: Pieces, factors: Tensor) -> None:
    factors = factors.float()
    for name, view in layout.split(total).items():
        if name in pieces:
            pieces[name].add_to(view, factors)
