"""The k nearest points, by an order in which two points stand the same way whatever other points there are.

A vote's sensitivity rests on this: where one record is changed, all others keep their order. A matrix product does not give
that, since its rounding depends on the shapes, blocks and threads that it is computed with, nor does `torch.topk`, which takes any
of those that tie. So a product only finds candidates, generously, and the distances of pairs decide.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.errors import BadValue

UNIT = 2.0**-53  # how far float64 rounds, relatively
WIDEST = 64  # how many points share one minimum
SCORES = 2**24  # numbers in a block of the product
PARTS = 2**20  # numbers in a block of pairs


def nearest(questions: Tensor, points: Tensor, k: int) -> Tensor:
    """The numbers of the `min(k, n)` points nearest to each question, the nearest first: `[q, d]` and `[n, d]` give `[q, k]`.

    Numbers count as float32. Point a comes before b for a question if (its `pair_distances`, its number) is smaller. That is a
    total order, and how a and b stand in it depends on the question, a, b and which of them has the smaller number, on nothing
    else. Adding or removing a point shifts numbers but keeps their order, so all other points stand as they stood.

    Why the candidates hold all of them. Write u = 2^-53, Q and P for a question and a point minus the questions' mean as it was
    computed, in real numbers, A and B for their norms, D for the distance as `pair_distances` rounds it, and s for the score
    |P|^2 - 2 Q.P as the product rounds it. P and Q carry one rounding in each number, |P|^2 at most d + 2 in all, and d more
    where the product begins with it; each of the product's d terms at most d + 3, in whatever order they are added, fused or
    not. D has at most d + 3. Nothing over- or underflows: float32 squared is far inside the range of float64. So, with
    g(n) = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical Algorithms, 3.1),

        |s + A^2 - D| <= g(2 d + 4) (B^2 + 2 A B) + g(d + 3) (A + B)^2 <= e(B) / 2,  e(B) = 8 (d + 4) u (A + B)^2,

    of which a quarter is to spare for the roundings of A, e and t + e. Let k points have s <= t. As s + A^2 is |P - Q|^2 but for
    roundings, and B <= A + |P - Q|, they have B <= R = 1.01 (A + sqrt(A^2 + t)), so D <= t + A^2 + e(R) / 2. A point among the k
    nearest has no larger D than the last of those, so its B is at most R too (for d up to 2^20 the roundings are far below
    1 %), and s <= t + e(R). All points with s <= t + e(R) are candidates; t is the k-th smallest of the least scores in
    groups of points. An outlier among the points widens nothing, since R does not depend on it.

    Of equal points only the first k are looked at: they come before the others.
    """
    questions, points = (_numbers(name, value) for name, value in (("questions", questions), ("points", points)))
    if questions.shape[1] != points.shape[1] or not 0 < points.shape[1] <= 2**20:
        raise BadValue(
            f"questions have {questions.shape[1]} numbers and points {points.shape[1]}. Give both equally many, from 1 to 2^20."
        )
    k = min(k, len(points))
    found = torch.empty(len(questions), k, dtype=torch.int64, device=points.device)
    if found.numel() == 0:
        return found
    kept = _first_of_equal(points, k)
    points = points[kept].double()
    width = max(1, min(WIDEST, len(points) // (4 * k)))
    centre = questions.double().mean(0)
    moved = torch.nn.functional.pad(points - centre, (0, 0, 0, -len(points) % width))
    squares = (moved * moved).sum(1)
    squares[len(points) :] = torch.inf
    rows = max(1, SCORES // len(moved))
    scores = torch.empty(min(rows, len(questions)), len(moved), dtype=torch.float64, device=points.device)
    for start in range(0, len(questions), rows):
        asked = questions[start : start + rows].double()
        block = torch.addmm(squares, asked - centre, moved.T, alpha=-2, out=scores[: len(asked)])
        row, number = _candidates(block.view(len(asked), -1, width), asked - centre, k)
        order = _in_order(row, pair_distances(asked, points, row, number))
        first = torch.searchsorted(row, torch.arange(len(asked), device=row.device))
        found[start : start + rows] = kept[number[order]][first[:, None] + torch.arange(k, device=row.device)]
    return found


def pair_distances(questions: Tensor, points: Tensor, row: Tensor, number: Tensor) -> Tensor:
    """The squared distances of the pairs `questions[row], points[number]`, each a function of the two rows alone.

    Differences and squares are elementwise, and so is every addition: the second half is added to the first until one number
    is left. IEEE rounds each of these in one way, which no shape, block or thread changes.
    """
    size, wide = max(1, PARTS // points.shape[1]), points.shape[1]
    distances = torch.empty(len(row), dtype=torch.float64, device=points.device)
    for start in range(0, len(row), size):
        own = slice(start, start + size)
        parts = questions[row[own]].sub_(points[number[own]])
        parts, left = parts.mul_(parts), wide
        while left > 1:
            half = (left + 1) // 2
            parts[:, : left - half] += parts[:, half:left]
            left = half
        distances[own] = parts[:, 0]
    return distances


def _numbers(name: str, value: Tensor) -> Tensor:
    value = value.detach().float()
    if value.ndim != 2 or not bool(value.isfinite().all()):
        raise BadValue(f"{name} of shape {tuple(value.shape)} must be a matrix of finite numbers, one row for each.")
    return value


def _first_of_equal(points: Tensor, k: int) -> Tensor:
    """The numbers of all points that fewer than k equal ones come before, in order."""
    _, group = torch.unique(points, dim=0, return_inverse=True)
    together, order = group.sort(stable=True)
    place = torch.arange(len(points), device=points.device)
    kept: Tensor = order[place - torch.searchsorted(together, together) < k]
    return kept.sort().values


def _candidates(scores: Tensor, asked: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Row and number of every point that may be among the k nearest, by row and then by number."""
    least = scores.amin(2)
    limit = least.kthvalue(k, 1).values
    norm = asked.norm(dim=1)
    radius = 1.01 * (norm + (norm * norm + limit).clamp(min=0.0).sqrt())
    limit = limit + 8 * (asked.shape[1] + 4) * UNIT * (norm + radius).square()
    row, group = (least <= limit[:, None]).nonzero(as_tuple=True)
    place, member = (scores[row, group] <= limit[row, None]).nonzero(as_tuple=True)
    return row[place], group[place] * scores.shape[2] + member


def _in_order(row: Tensor, distances: Tensor) -> Tensor:
    """Pairs by row, then by distance, then as they stood."""
    nearer = distances.argsort(stable=True)
    return nearer[row[nearer].argsort(stable=True)]
