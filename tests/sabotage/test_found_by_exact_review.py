"""What a hostile reading of exact noise and of clients' own budgets found, so that it cannot come back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

import sfumato
from sfumato.account.event import GaussianEvent, Unit
from sfumato.account.inside import for_client
from sfumato.claim import Claim, Reach
from sfumato.commands.ledger import ledger as ledger_command
from sfumato.engine.checkpoint import Checkpoint
from sfumato.errors import BadValue, BudgetExceeded
from sfumato.gradients import ClippedSum
from sfumato.key import Key
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.local.dp_sgd import _one_by_one
from sfumato.pieces.context import Context
from sfumato.pieces.exact import summed_for
from sfumato.pieces.payment import ARITHMETIC
from sfumato.testing import check_piece
from sfumato.update import Layout

_MODEL = nn.Linear(5, 3), sfumato.classification(3)


def _round(**other: object) -> sfumato.Round:
    parts: dict[str, object] = {
        "sample": sfumato.Everyone(),
        "local": sfumato.Sgd(lr=0.1, steps=2, batch_size=4),
        "client": (sfumato.Clip(1.0),),
        "aggregate": sfumato.Mean(over=12.0),
        "server": (sfumato.AddNoise(sfumato.Gaussian(1.0)),),
    }
    return sfumato.Round(**{**parts, **other})  # type: ignore[arg-type]


def _people() -> sfumato.Population:
    generator = torch.Generator().manual_seed(1)
    people = [
        sfumato.Records(torch.randn(8, 5, generator=generator), torch.randint(0, 3, (8,), generator=generator))
        for _ in range(12)
    ]
    return sfumato.Population.from_list(people, name="people")


@pytest.mark.parametrize("size", [13, 785])
def test_where_a_record_lies_in_memory_does_not_change_its_row_on_the_grid(size: int) -> None:
    """Without the record before it a record lies elsewhere; kernels for rows that are not aligned round otherwise."""
    module = nn.Linear(size, 3)
    layout = Layout.of(module)
    one = Key.from_seed(0).normal(1, size).float()
    records = sfumato.Records(one.repeat(32, 1), torch.zeros(32, dtype=torch.int64))
    clipped = ClippedSum(module, layout, sfumato.classification(3).loss, 1.0, 1)
    claim = Claim(Unit.RECORD, sfumato.Relation.REPLACE, 32, layout.dimension).bounded(l2=1.0)
    fine = replace(summed_for(sfumato.RoundedGaussian(1.0), claim), grid=2.0**-40)  # so that the last bit shows
    rows = [
        _one_by_one(clipped, layout.row(module), records, torch.tensor([place]), 1.0, fine, Key.from_seed(1))
        for place in range(32)
    ]
    assert all(torch.equal(row, rows[0]) for row in rows)


def test_an_adaptive_clip_follows_the_share_of_clients_also_where_division_comes_after_the_noise(
    tmp_path: Path,
) -> None:
    """It read the sum as if it were the share, so that the norm jumped by whole steps."""
    adaptive = _round(client=(sfumato.AdaptiveClip(rate=0.5),), server=(sfumato.AddNoise(sfumato.Gaussian(1e-3)),))
    with Key.from_seed(1).seeding_torch():
        found, module = [], nn.Linear(5, 3)
    for name, round in (("float", adaptive), ("exact", sfumato.secure(adaptive))):
        folder = tmp_path / name
        run = sfumato.simulate(round, _people(), module, sfumato.classification(3), rounds=2, seed=1, folder=folder)
        list(run)
        stored = Checkpoint.read(folder)
        assert stored is not None
        found.append(float(stored.kept["client.0"]))
    assert found[1] == pytest.approx(found[0], rel=2e-3)
    assert all(0.0 < abs(math.log(norm / 0.1)) < 0.49 for norm in found)  # two whole steps would be 0.5


def test_budgets_that_name_gaussian_noise_keep_it_exact_and_others_are_refused_with_the_reason() -> None:
    local = sfumato.DpSgd(steps=2, batch=sfumato.Poisson(0.5), records=8)
    round = sfumato.secure(
        _round(local=local, client=(), server=(), unit=Unit.RECORD, aggregate=sfumato.RealisedMean())
    )
    given = {"default": (4.0, 1e-5), 3: (2.0, 1e-5, "gaussian")}
    kept = sfumato.budgets(round, given, rounds=3, population=12, dimension=18)
    assert isinstance(kept.local, sfumato.PerClient)
    assert all(isinstance(piece.law, sfumato.RoundedGaussian) for piece in kept.local.pieces)  # type: ignore[attr-defined]
    assert ARITHMETIC not in kept.derive(population=12, dimension=18).primary.assumptions
    with pytest.raises(BadValue, match="exact draws are there for Gaussian noise"):
        sfumato.budgets(round, {**given, 4: (2.0, 1e-5, "laplace")}, rounds=3, population=12, dimension=18)


def test_a_mask_after_the_clip_keeps_each_clients_own_norm() -> None:
    """It was forgotten, and a budget by clip was refused as if no norm could keep to it."""
    own = sfumato.ClipPerClient(sfumato.Clip(1.0), {3: sfumato.Clip(0.25)})
    proof = _round(client=(own, sfumato.SharedMask(0.5))).derive(population=12, dimension=18).primary
    assert for_client(proof.world, 3) == GaussianEvent(4.0)
    assert for_client(proof.world, 2) == GaussianEvent(1.0)


@dataclass(frozen=True)
class Stretched(sfumato.ClientPiece):
    """Every row at norm 1, however short it was; what is stated is true of any row."""

    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        finite = torch.nan_to_num(rows.double(), nan=0.0, posinf=0.0, neginf=0.0)
        return (finite / finite.norm(dim=1, keepdim=True).clamp(min=1e-300) * (1 - 1e-6)).to(rows.dtype)

    def carry(self, claim: Claim) -> Claim:
        return replace(claim.at_client(self), l2=1.0, l1=math.sqrt(claim.dimension))


def test_a_piece_that_stretches_short_rows_ends_a_clients_own_norm() -> None:
    """It states the norm that everybody had, and client 3, whose row it stretches tenfold, was credited its own."""
    check_piece(Stretched())
    own = sfumato.ClipPerClient(sfumato.Clip(1.0), {3: sfumato.Clip(0.1)})
    round = _round(client=(own, Stretched()))
    proof = round.derive(population=12, dimension=18).primary
    context = Context(0, Layout(("weight",), (torch.Size([18]),)), proof.before[3], Key.from_seed(0), ids=(3,))
    row = Stretched()(own(torch.ones(1, 18), context), context)
    event = for_client(proof.world, 3)
    assert isinstance(event, GaussianEvent)
    assert float(row.norm()) <= 1.0 / event.ratio


def test_a_piece_that_says_nothing_new_keeps_a_clients_own_norm() -> None:
    claim = Claim(Unit.CLIENT, sfumato.Relation.ADD_REMOVE, 12, 4).bounded(l2=1.0).narrowed(Reach(0.1, 0.2, 4))
    assert claim.with_dimension(2).row == Reach(0.1, 0.2, 2)


def _twice(folder: Path, round: sfumato.Round, lines: list[Budget], rounds: int) -> tuple[int, sfumato.Round, str]:
    """Three rounds before clients have budgets in the ledger, and a run of more after; how far it came, and why no further."""
    ledger, parts = folder / "ledger.sqlite", (_people(), nn.Linear(5, 3), sfumato.classification(3))
    list(sfumato.simulate(round, *parts, rounds=3, shared_ledger=ledger))
    book = Ledger(ledger, None)
    book.set_own_budgets(lines)
    run = sfumato.simulate(round, *parts, rounds=rounds, shared_ledger=ledger)
    done = 0
    try:
        for progress in run:
            done = progress.round
    except BudgetExceeded as stopped:
        return done, run.prepared.round, str(stopped)
    return done, run.prepared.round, ""


def _others(*who: int) -> Budget:
    return Budget(50.0, 1e-5, but=who)


def test_a_client_that_is_over_its_line_already_stops_alone(tmp_path: Path) -> None:
    """It was never drawn again, and still every round of the others was refused; also where one line is that of two clients."""
    poisson = _round(sample=sfumato.Poisson(0.5))
    own = replace(poisson, sample=sfumato.PoissonPerClient(sfumato.Presence(0.5), {4: sfumato.Presence(0.01)}))
    for name, round, lines in (
        ("one", poisson, [Budget(5.0, 1e-5, clients=(3,)), _others(3)]),
        ("two", own, [Budget(5.0, 1e-5, clients=(3, 4)), _others(3, 4)]),
    ):
        (tmp_path / name).mkdir()
        done, found, why = _twice(tmp_path / name, round, lines, rounds=4)
        assert (done, why) == (4, "")
        assert isinstance(found.sample, sfumato.PoissonPerClient)
        assert [found.sample.of(client).rounds for client in (2, 3, 4)] == [None, 0, None]


def test_a_line_that_runs_out_stops_the_whole_run_where_shares_or_a_shuffler_count_on_everybody(tmp_path: Path) -> None:
    """Without that client shares were refused as if the round were unsound, and a shuffler lost all that it gains."""
    noise = sfumato.NoiseShare(sfumato.Gaussian(5.0), 11)
    everyone: dict[str, object] = {"sample": sfumato.Everyone(sfumato.Relation.REPLACE), "server": ()}
    shares = _round(client=(sfumato.Clip(1.0), noise), channel=sfumato.SecureSum(), **everyone)
    messages = (sfumato.Clip(1.0, order=1), sfumato.AddNoise(sfumato.Laplace(4.0)))
    shuffled = _round(client=messages, channel=sfumato.Shuffler(), **everyone)
    for name, round, epsilon, rounds in (("shares", shares, 4.5, 2), ("shuffled", shuffled, 2.5, 4)):
        (tmp_path / name).mkdir()
        done, found, why = _twice(tmp_path / name, round, [Budget(epsilon, 1e-5, clients=(3,)), _others(3)], rounds=6)
        assert found.sample == sfumato.Everyone(sfumato.Relation.REPLACE)
        assert done == rounds
        assert "of client 3" in why


def test_a_ledger_takes_no_numbers_for_clients_that_have_others(tmp_path: Path) -> None:
    """A file of budgets means ids where `train` reads it; the ledger, which keeps none, took them as places."""
    people = _people().with_ids(range(11, -1, -1))
    ledger, file = tmp_path / "ledger.sqlite", tmp_path / "budgets.toml"
    file.write_text("[default]\nepsilon = 50.0\ndelta = 1e-5\n[[own]]\nclients = [0]\nepsilon = 9.0\n")
    list(sfumato.simulate(_round(), people, *_MODEL, rounds=1, shared_ledger=ledger))
    with pytest.raises(BadValue, match="ids that are numbers"):
        ledger_command(ledger, budgets=file, delta=None, unit=Unit.CLIENT, budget=None, export=None)
    list(sfumato.simulate(_round(), _people(), *_MODEL, rounds=1, shared_ledger=tmp_path / "other.sqlite"))
    ledger_command(tmp_path / "other.sqlite", budgets=file, delta=None, unit=Unit.CLIENT, budget=None, export=None)
