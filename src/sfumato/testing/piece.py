"""What a piece of the client slot must hold."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sfumato.account.event import Relation, Unit
from sfumato.claim import Claim
from sfumato.key import Key
from sfumato.pieces.context import Context, Facts
from sfumato.pieces.protocol import ClientPiece
from sfumato.pieces.sampler import Poisson
from sfumato.update import Layout


def claim_for(dimension: int, l2: float = float("inf")) -> Claim:
    """A claim as it reaches the client slot."""
    claim = Claim(Unit.CLIENT, Relation.ADD_REMOVE, 1000, dimension, sampling=Poisson(0.1))
    return claim if l2 == float("inf") else claim.bounded(l2=l2)


def context_for(rows: Tensor, claim: Claim, seed: int = 0) -> Context:
    """A context for some rows, with a key and a size for each."""
    root = Key.from_seed(seed)
    dimension = rows.shape[1]
    layout = layout_for(dimension)
    keys = tuple(root.child("client", id=number) for number in range(len(rows)))
    sizes, ids = torch.arange(1, len(rows) + 1) * 7, tuple(range(len(rows)))
    return Context(0, layout, claim, root.child("shared"), sizes, keys, ids)


def _ready(piece: ClientPiece, context: Context) -> Context:
    """The context with what the piece prepares and keeps."""
    previous = Key.from_seed(8).normal(context.layout.dimension).float()
    facts = Facts(context.layout, Key.from_seed(9), previous, lambda data: previous)
    return replace(context, prepared=piece.prepare(facts), state=piece.start())


def layout_for(dimension: int) -> Layout:
    """One layer, or two where there is room."""
    if dimension < 4:
        return Layout(("weight",), (torch.Size([dimension]),))
    return Layout(("weight", "bias"), (torch.Size([dimension - 2]), torch.Size([2])))


def nasty_rows(dimension: int) -> Tensor:
    """Zeros, one huge value, the largest floats, denormals, NaN, infinities, ordinary rows of all scales."""
    huge = torch.finfo(torch.float32).max
    rows = torch.zeros(16, dimension)
    rows[1, 0] = huge
    rows[2] = huge
    rows[3] = 1e-45
    rows[4, -1] = float("nan")
    rows[5, 0] = float("inf")
    rows[6] = -float("inf")
    rows[7] = float("nan")
    scales = torch.logspace(-30, 30, 8)
    rows[8:] = Key.from_seed(3).normal(8, dimension).float() * scales[:, None]
    return rows


def check_piece(
    piece: ClientPiece,
    *,
    l2: float = float("inf"),
    dimensions: tuple[int, ...] = (1, 2, 7, 1000),
    grid: float | None = None,
) -> None:
    """Shape and type kept; rows independent; same key, same result; the stated radius holds on every nasty row.

    `l2` is the bound that rows already have when they reach the piece, `grid` the step of which they are whole multiples. What
    comes out lies on the grid that is stated, if the piece says that it keeps to one.
    """
    for dimension in dimensions:
        claim = replace(claim_for(dimension, l2), grid=grid)
        rows = nasty_rows(dimension)
        if l2 != float("inf"):
            rows = _within(rows, l2)
        if grid is not None:
            rows = (rows / grid).trunc() * grid
        _check_at(piece, rows, claim)


def _within(rows: Tensor, l2: float) -> Tensor:
    rows = torch.nan_to_num(rows.double(), nan=0.0, posinf=0.0, neginf=0.0)
    norms = rows.norm(dim=1, keepdim=True).clamp(min=1e-300)
    factor: Tensor = (l2 * (1 - 1e-6) / norms).clamp(max=1.0)
    return (rows * factor).float()


def _check_at(piece: ClientPiece, rows: Tensor, claim: Claim) -> None:
    context = _ready(piece, context_for(rows, claim))
    kept = rows.clone()
    out = piece(rows, context)
    name = f"{piece} at dimension {rows.shape[1]}"
    assert torch.equal(torch.nan_to_num(rows), torch.nan_to_num(kept)), f"{name} changes its input in place"
    after = piece.carry(claim)
    assert len(out) == len(rows), f"{name} changes the number of rows"
    assert out.shape[1] <= after.dimension, f"{name} gives {out.shape[1]} coordinates and states {after.dimension}"
    assert out.dtype == rows.dtype, f"{name} changes the type"
    again = piece(rows, _ready(piece, context_for(rows, claim)))
    assert torch.equal(torch.nan_to_num(out), torch.nan_to_num(again)), f"{name} gives two results for one key"
    over = piece(rows.clone(), replace(_ready(piece, context_for(rows, claim)), spare=True))
    assert torch.equal(torch.nan_to_num(out), torch.nan_to_num(over)), f"{name} gives another result on rows to spare"
    _check_rows_are_independent(piece, rows, out, claim, name)
    assert piece.undo(out[0], context).shape == rows[0].shape, f"{name} is not undone to the row's own shape"
    if after.grid is not None and piece.keeps_grid:
        check_on_grid(out, after.grid, name)
    norms = torch.linalg.vector_norm(out, dim=1, dtype=torch.float64)
    if after.l2 != float("inf"):
        assert bool((norms <= after.l2).all()), f"{name} states L2 norm {after.l2} but a row has {norms.max().item()}"
        for client in {client for who in piece.named for client in who if client < len(rows)}:
            own, norm = piece.carry(replace(claim, client=client)).row.l2, norms[client].item()
            assert norm <= own, f"{name} states L2 norm {own} for client {client}, whose row has {norm}"
    if after.l1 != float("inf"):
        sums = out.double().abs().sum(1)
        assert (sums <= after.l1 * (1 + 1e-9)).all(), f"{name} states L1 norm {after.l1} but a row has {sums.max()}"


def check_on_grid(values: Tensor, step: float, name: str) -> None:
    """Every value is a whole number of steps."""
    steps = values.double() / step
    assert torch.equal(steps, steps.round()), f"{name} leaves the grid of step {step}"


def _check_rows_are_independent(piece: ClientPiece, rows: Tensor, out: Tensor, claim: Claim, name: str) -> None:
    context = _ready(piece, context_for(rows, claim))
    assert context.sizes is not None
    for one in (0, len(rows) // 2, len(rows) - 1):
        alone = replace(
            context,
            sizes=context.sizes[one : one + 1],
            keys=context.keys[one : one + 1],
            ids=context.ids[one : one + 1],
        )
        single = piece(rows[one : one + 1], alone)
        same = torch.allclose(torch.nan_to_num(single[0]), torch.nan_to_num(out[one]), rtol=1e-6, atol=0)
        assert same, f"{name} lets one client's row depend on another's"
