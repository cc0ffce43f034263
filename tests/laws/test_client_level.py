"""The pieces of DP-Fed-LS, DP-FedSAM and their baselines: laws, slow twins, and equality with DP-FedAvg at their neutral values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfumato import (
    AddNoise,
    Clip,
    Everyone,
    FixedSize,
    Gaussian,
    Mean,
    Plan,
    Poisson,
    PublicData,
    Records,
    Relation,
    Round,
    Sgd,
    Unit,
    UnsoundRound,
    classification,
    simulate,
)  # fmt: skip
from sfumato.account.event import FixedSizeSampled, GaussianEvent, Mixture, NonPrivate, PoissonSampled
from sfumato.claim import Claim
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.local.penalty import NormPenalty
from sfumato.local.sharpness import SharpnessAware
from sfumato.pieces.after_noise import LaplacianSmoothing, smooth
from sfumato.pieces.channel import Plain, SecureSum
from sfumato.pieces.clip import AdaptiveClip, ClipPerLayer, clipped
from sfumato.pieces.context import Context
from sfumato.pieces.mask import PreviousTopK, PublicTopK, RandomMask, SharedMask, TopK
from sfumato.pieces.noise import NoiseShare
from sfumato.pieces.protocol import ClientPiece
from sfumato.recipes import build
from sfumato.testing import check_piece, check_round
from sfumato.testing.piece import claim_for, context_for
from tests.helpers import dp_round, linear, made_up_population

PUBLIC = PublicData("public", Records(Key.from_seed(6).normal(12, 6).float(), torch.arange(12) % 3))
PEOPLE = made_up_population([5, 1, 0, 12, 7, 3, 9, 4])


def train(round: Round, **options: Any) -> Any:
    settings: dict[str, Any] = {"rounds": 3, "seed": 0, "plan": Plan("stacked", 4), **options}
    result = None
    for result in simulate(round, PEOPLE, linear(), classification(3), **settings):
        pass
    return result


# Laws


@pytest.mark.parametrize("keep", [0.1, 0.5, 1.0])
def test_sparse_rows_hold_the_laws(keep: float) -> None:
    check_piece(TopK(keep), l2=0.7)
    for by in (RandomMask(), PublicTopK(PUBLIC), PreviousTopK()):
        check_piece(SharedMask(keep, by), l2=0.7)


@pytest.mark.parametrize("bit_weight", [0.01, 0.1, 1.0])
def test_adaptive_clips_hold_the_laws(bit_weight: float) -> None:
    check_piece(AdaptiveClip(0.3, bit_weight=bit_weight))


def test_clips_per_layer_hold_the_laws() -> None:
    check_piece(ClipPerLayer((0.3,)), dimensions=(1, 2, 3))
    check_piece(ClipPerLayer((0.3, 0.4)), dimensions=(7, 1000))
    assert ClipPerLayer((3.0, 4.0)).carry(claim_for(5)).l2 == pytest.approx(5.0)


@pytest.mark.parametrize(
    "round",
    [
        dp_round(server=(AddNoise(Gaussian(1.0)), LaplacianSmoothing(1.0))),
        dp_round(server=(LaplacianSmoothing(2.0), AddNoise(Gaussian(1.0)))),
        dp_round(client=(TopK(0.4), Clip(1.0))),
        dp_round(client=(SharedMask(0.7), Clip(1.0))),
        dp_round(client=(AdaptiveClip(1.0, bit_weight=1.0),)),
        dp_round(sample=FixedSize(3), client=(Clip(1.0), NoiseShare(Gaussian(1.0), 2)), channel=SecureSum(), server=()),
        dp_round(sample=Everyone(Relation.REPLACE), client=(Clip(1.0), NoiseShare(Gaussian(1.0), 5)), server=()),
    ],
    ids=["smoothing", "smoothing before noise", "top-k", "mask", "adaptive", "shares", "shares in the open"],
)
def test_attacks_stay_under_the_guarantee(round: Round) -> None:
    check_round(round)


# Sabotage


@dataclass(frozen=True)
class Broken(ClientPiece):
    """States what a sound piece states."""

    sound: Any

    def carry(self, claim: Claim) -> Claim:
        return self.sound.carry(claim)  # type: ignore[no-any-return]

    def start(self) -> torch.Tensor:
        return self.sound.start()  # type: ignore[no-any-return]

    def undo(self, value: torch.Tensor, context: Context) -> torch.Tensor:
        return self.sound.undo(value, context)  # type: ignore[no-any-return]


class BitWithoutNorm(Broken):
    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        return torch.cat([self.sound(rows, context)[:, :-1], torch.full((len(rows), 1), 5.0)], dim=1)


class UnclippedAdaptive(Broken):
    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        out = self.sound(rows, context)
        return torch.cat([rows / 0.3, out[:, -1:]], dim=1)


def test_broken_adaptive_clips_are_caught() -> None:
    for broken in (BitWithoutNorm, UnclippedAdaptive):
        with pytest.raises(AssertionError):
            check_piece(broken(AdaptiveClip(0.3)))


class SharesOfNothing(NoiseShare):
    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        return rows


class TooFewShares(NoiseShare):
    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        return replace_noise(super().__call__(rows, context), rows, 0.2)


def replace_noise(noisy: torch.Tensor, rows: torch.Tensor, factor: float) -> torch.Tensor:
    return rows + (noisy - rows) * factor


@pytest.mark.parametrize("broken", [SharesOfNothing, TooFewShares])
def test_broken_shares_are_caught_by_an_attack(broken: type[NoiseShare]) -> None:
    round = dp_round(sample=FixedSize(3), client=(Clip(1.0), broken(Gaussian(4.0), 2)), channel=SecureSum(), server=())
    with pytest.raises(AssertionError):
        check_round(round)


class TopKAfterShares(TopK):
    """The mistake of DP-FedSAM-top_k, stated as harmless."""

    def carry(self, claim: Claim) -> Claim:
        return claim


def test_the_published_top_k_is_refused_and_runs_unproven_only() -> None:
    client = (Clip(1.0), NoiseShare(Gaussian(1.0), 2), TopK(0.4))
    with pytest.raises(UnsoundRound, match="a coordinate that few clients keep carries less noise"):
        dp_round(sample=FixedSize(3), client=client, channel=SecureSum(), server=())
    with pytest.raises(UnsoundRound, match="put NoiseShare last|may change the noise"):
        dp_round(sample=FixedSize(3), client=(*client[:2], TopKAfterShares(0.4)), channel=SecureSum(), server=())
    round = build("dp-fedsam-top-k", 8, {"mask": "published", "sample": "fixed:4"})
    assert isinstance(round.derive(population=8, dimension=10).primary.world, NonPrivate)
    assert train(round).params.isfinite().all()


# What is stated


def test_shares_in_a_secure_sum_hold_against_the_server_too() -> None:
    round = dp_round(
        sample=FixedSize(5), client=(Clip(1.0), NoiseShare(Gaussian(2.0), 4)), channel=SecureSum(), server=()
    )
    proof = round.derive(population=101, dimension=5).primary
    assert proof.world == FixedSizeSampled(0.05, GaussianEvent(1.0))
    assert proof.server == Mixture(0.05, GaussianEvent(1.0))


def test_shares_in_the_open_cost_the_server_the_noise_of_one_message() -> None:
    round = dp_round(sample=FixedSize(5), client=(Clip(1.0), NoiseShare(Gaussian(2.0), 4)), channel=Plain(), server=())
    proof = round.derive(population=101, dimension=5).primary
    assert proof.world == FixedSizeSampled(0.05, GaussianEvent(1.0))
    assert proof.server == Mixture(0.05, GaussianEvent(0.5))


def test_a_smaller_cohort_may_reply_but_nothing_is_amplified() -> None:
    client = (Clip(1.0), NoiseShare(Gaussian(2.0), 2))
    round = dp_round(sample=FixedSize(5), client=client, channel=SecureSum(smallest=3), server=())
    proof = round.derive(population=101, dimension=5).primary
    assert proof.world == Mixture(0.05, GaussianEvent(1.0))


@pytest.mark.parametrize(("sampler", "reason"), [
    (Poisson(0.5), "the size of the cohort varies"),
    (Poisson(0.5, Relation.REPLACE), "the size of the cohort varies"),
    (Everyone(), "changes with the very client"),
])  # fmt: skip
def test_shares_are_refused_where_their_number_tells(sampler: Any, reason: str) -> None:
    with pytest.raises(UnsoundRound, match=reason):
        dp_round(sample=sampler, client=(Clip(1.0), NoiseShare(Gaussian(1.0), 3)), channel=SecureSum(), server=())


def test_shares_before_the_clip_are_refused() -> None:
    with pytest.raises(UnsoundRound, match="before anything bounds a row"):
        dp_round(sample=FixedSize(3), client=(NoiseShare(Gaussian(1.0), 3), Clip(1.0)), channel=SecureSum(), server=())


def test_a_mask_from_private_data_is_refused() -> None:
    with pytest.raises(UnsoundRound, match="which is not PublicData"):
        dp_round(client=(SharedMask(0.5, PublicTopK(PEOPLE)), Clip(1.0)))


def test_adaptive_clipping_costs_one_gaussian_with_the_bit_in_it() -> None:
    proof = dp_round(client=(AdaptiveClip(0.5),)).derive(population=100, dimension=5).primary
    assert isinstance(proof.world, PoissonSampled)
    assert proof.world.event.ratio == pytest.approx(1.0)  # type: ignore[attr-defined]


def test_free_pieces_change_no_event() -> None:
    plain = dp_round().derive(population=100, dimension=50).primary.world
    for changed in (
        {"server": (AddNoise(Gaussian(1.0)), LaplacianSmoothing(3.0))},
        {"client": (TopK(0.3), Clip(1.0))},
        {"client": (SharedMask(0.3), Clip(1.0))},
        {"local": Sgd(lr=0.1, epochs=1, gradient=SharpnessAware(0.5), penalties=(NormPenalty(1.0, 0.1),), project=1.0)},
    ):
        for unit in (Unit.CLIENT,):
            assert dp_round(**changed).derive(population=100, dimension=50).units[unit].world == plain


# Slow twins


@pytest.mark.parametrize("size", [1, 2, 3, 10, 257])
@pytest.mark.parametrize("strength", [0.0, 1e-3, 1.0, 3.0, 50.0])
def test_smoothing_is_the_matrix_and_the_fft(size: int, strength: float) -> None:
    values = Key.from_seed(size).normal(size).numpy()
    shift = np.roll(np.eye(size), 1, axis=0)
    matrix = np.eye(size) + strength * (2 * np.eye(size) - shift - shift.T)
    frequencies = 1 + strength * (2 - 2 * np.cos(2 * np.pi * np.arange(size) / size))
    assert np.allclose(smooth(values, strength), np.linalg.solve(matrix, values), atol=1e-12)
    assert np.allclose(smooth(values, strength), np.fft.ifft(np.fft.fft(values) / frequencies).real, atol=1e-12)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.floats(0, 20))
def test_smoothing_grows_no_norm_and_keeps_the_sum(values: list[float], strength: float) -> None:
    row = np.array(values)
    smoothed = smooth(row, strength)
    scale = 1 + np.abs(row).sum()
    assert np.linalg.norm(smoothed) <= np.linalg.norm(row) + 1e-9 * scale
    assert np.abs(smoothed).sum() <= np.abs(row).sum() + 1e-9 * scale
    assert abs(smoothed.sum() - row.sum()) <= 1e-9 * scale


def test_smoothing_per_layer_treats_each_layer_as_a_ring() -> None:
    row = Key.from_seed(1).normal(9).float()
    context = context_for(row[None], claim_for(9))
    parts = [
        torch.from_numpy(smooth(part.double().numpy(), 2.0)) for part in torch.split(row, list(context.layout.sizes))
    ]
    assert torch.allclose(LaplacianSmoothing(2.0, per_layer=True)(row, context).double(), torch.cat(parts), atol=1e-6)


@pytest.mark.parametrize("adaptive", [False, True])
def test_sharpness_is_two_explicit_gradients(adaptive: bool) -> None:
    weights = [Key.from_seed(n).normal(2, 3, n + 1).float().requires_grad_() for n in range(2)]
    target = torch.linspace(-1, 1, 3)

    def gradients(at: list[torch.Tensor]) -> list[torch.Tensor]:
        loss: Any = sum(((w.sum(-1) - target) ** 3).sum() for w in at)
        return [g.clone() for g in torch.autograd.grad(loss, at)]

    before = [w.detach().clone() for w in weights]
    worst = SharpnessAware(0.4, adaptive).perturbed(gradients(weights), weights)
    found = gradients([w.requires_grad_() for w in worst])
    assert all(torch.equal(w, b) for w, b in zip(weights, before, strict=True))
    for client in range(2):
        own = [w[client].detach().clone().requires_grad_() for w in weights]
        first = torch.autograd.grad(sum(((w.sum(-1) - target) ** 3).sum() for w in own), own)  # type: ignore[arg-type]
        scaled = [g * w.detach().abs() if adaptive else g for g, w in zip(first, own, strict=True)]
        norm = torch.cat([s.flatten() for s in scaled]).norm()
        moved = [
            (w + 0.4 * s * (w.detach().abs() if adaptive else 1.0) / norm).detach().requires_grad_()
            for w, s in zip(own, scaled, strict=True)
        ]
        second = torch.autograd.grad(sum(((w.sum(-1) - target) ** 3).sum() for w in moved), moved)  # type: ignore[arg-type]
        for ours, theirs in zip(found, second, strict=True):
            assert torch.allclose(ours[client], theirs, rtol=1e-4, atol=1e-4)


def test_the_penalty_is_the_gradient_of_its_formula() -> None:
    start = Key.from_seed(1).normal(3, 4).float()
    weight = (start + torch.tensor([0.1, 1.1, 3.0])[:, None]).requires_grad_()
    squares = (weight - start).square().sum(1)
    (expected,) = torch.autograd.grad((1.7 / 2 * (squares - 2.0**2).clamp(min=0)).sum(), weight)
    found = [torch.zeros(3, 4)]
    NormPenalty(1.7, 2.0).add_to(found, [weight.detach()], [start])
    assert torch.allclose(found[0], expected, atol=1e-6)


def test_top_k_is_a_loop_over_layers() -> None:
    rows = Key.from_seed(2).normal(3, 11).float()
    context = context_for(rows, claim_for(11))
    found = TopK(0.5)(rows, context)
    for row, sparse in zip(rows, found, strict=True):
        start = 0
        for size in context.layout.sizes:
            part = row[start : start + size]
            kept = sorted(range(size), key=lambda i: -abs(part[i]))[: max(1, round(0.5 * size))]
            expected = torch.tensor([part[i] if i in kept else 0.0 for i in range(size)])
            assert torch.equal(sparse[start : start + size], expected)
            start += size


def test_of_equal_coordinates_the_first_are_kept_and_broken_rows_do_no_harm() -> None:
    rows = torch.ones(3, 11)
    context = context_for(rows, claim_for(11))
    rows[1] = -1.0
    rows[2, 0] = torch.nan
    found = TopK(0.5)(rows, context)
    expected = torch.cat([(torch.arange(n) < max(1, round(n / 2))).float() for n in context.layout.sizes])
    assert torch.equal(found[0], expected) and torch.equal(found[1], -expected)
    assert float(clipped(found, 1.0)[2].norm()) <= 1.0


def test_a_shared_mask_is_put_back_in_its_places() -> None:
    result = train(dp_round(client=(SharedMask(0.3), Clip(1e-6)), server=(AddNoise(Gaussian(1e3)),)), rounds=1)
    moved = (result.params - result.run.start.params).abs() > 1e-12
    assert int(moved.sum()) == max(1, round(0.3 * 21))


def test_the_mask_of_the_previous_release_follows_it() -> None:
    round = dp_round(client=(SharedMask(0.3, PreviousTopK()), Clip(1.0)))
    steps = iter(simulate(round, PEOPLE, linear(), classification(3), rounds=3, seed=0, plan=Plan()))
    first, second = next(steps), next(steps)
    start = first.run.start.params
    largest = set((first.params - start).abs().topk(6).indices.tolist())
    changed = set(torch.nonzero(second.params - first.params).flatten().tolist())
    assert changed
    assert len(changed & largest) >= len(changed) - 2  # the largest of each layer, not of the whole row


def test_a_mask_from_public_data_is_that_of_training_on_it() -> None:
    round = dp_round(client=(SharedMask(0.3, PublicTopK(PUBLIC)), Clip(1.0)))
    assert train(round).params.isfinite().all()


# The norm that adapts


def test_the_norm_goes_to_the_quantile() -> None:
    """Rows with norms 1 to 9: the median is 5, and the sign is right from above and from below."""
    rows = torch.eye(9) * torch.arange(1.0, 10.0)[:, None]
    for start in (0.2, 50.0):
        piece = AdaptiveClip(start, quantile=0.5, rate=0.3)
        state = piece.start()
        for _ in range(200):
            context = replace(context_for(rows, claim_for(9)), state=state)
            state = piece.follow(piece(rows, context).mean(0), context)
        assert 4.0 <= float(state) <= 6.0


def test_the_noise_is_scaled_by_the_norm_that_was_used() -> None:
    piece = AdaptiveClip(0.25, bit_weight=0.5)
    context = replace(context_for(torch.ones(1, 3), claim_for(3)), state=piece.start())
    value = torch.tensor([1.0, 2.0, 3.0, 0.5])
    assert torch.allclose(piece.undo(value, context), value[:3] * 0.25)
    assert float(piece.follow(value, context)) < 0.25


def test_the_adapted_norm_survives_a_resume(tmp_path: Any) -> None:
    round = dp_round(client=(AdaptiveClip(0.3),))
    whole = train(round, rounds=4, folder=tmp_path / "whole").params
    train(round, rounds=2, folder=tmp_path / "parts")
    assert torch.equal(train(round, rounds=4, folder=tmp_path / "parts", resume=True).params, whole)


# Neutral values give DP-FedAvg, through the general path


@pytest.mark.parametrize(
    "changed",
    [
        {"server": (AddNoise(Gaussian(1.0)), LaplacianSmoothing(0.0))},
        {"local": Sgd(lr=0.1, epochs=2, batch_size=4, gradient=SharpnessAware(0.0))},
        {"local": Sgd(lr=0.1, epochs=2, batch_size=4, gradient=SharpnessAware(0.0, adaptive=True))},
        {"local": Sgd(lr=0.1, epochs=2, batch_size=4, penalties=(NormPenalty(0.0, 0.1),))},
        {"client": (TopK(1.0), Clip(1.0))},
        {"client": (SharedMask(1.0), Clip(1.0))},
        {"client": (SharedMask(1.0, PreviousTopK()), Clip(1.0))},
    ],
    ids=["smoothing", "sharpness", "adaptive sharpness", "penalty", "top-k", "mask", "previous"],
)
def test_neutral_values_give_dp_fedavg(changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.engine.simulate.digest", lambda *facts: "one name, so that both draw the same noise")
    plain, found = train(dp_round()).params, train(dp_round(**changed)).params
    assert float((found - plain).norm() / plain.norm()) < 1e-6


@pytest.mark.parametrize(
    "name", ["dp-fed-ls", "dp-fedsam", "dp-fedsam-top-k", "fed-smp", "dp-fedavg-blur", "dp-fedavg-adaptive"]
)
def test_recipes_train_and_prove_what_dp_fedavg_proves(name: str) -> None:
    options = {"noise_multiplier": 1.5, "sample": "poisson:0.3"}
    ours = build(name, 8, options).derive(population=8, dimension=21).primary.world
    plain = build("dp-fedavg", 8, options).derive(population=8, dimension=21).primary.world
    assert isinstance(ours, PoissonSampled)
    assert isinstance(plain, PoissonSampled)
    assert ours.event.ratio == pytest.approx(plain.event.ratio)  # type: ignore[attr-defined]
    assert train(build(name, 8, options), rounds=2).params.isfinite().all()


def test_shares_train() -> None:
    assert train(build("dp-fedavg-shares", 8, {"sample": "fixed:4"}), rounds=2).params.isfinite().all()
    assert train(build("dp-fedavg-shares", 8, {"sample": "everyone"}), rounds=2).params.isfinite().all()


def test_convolutions_take_sharpness_and_projection() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))
    from sfumato import Population

    clients = [(Key.from_seed(n).normal(4, 1, 8, 8).float(), torch.zeros(4, dtype=torch.int64)) for n in range(3)]
    local = Sgd(lr=0.1, epochs=1, batch_size=2, gradient=SharpnessAware(0.1), project=0.05)
    round = dp_round(local=local, sample=Everyone(), aggregate=Mean(3.0), client=(Clip(0.05),))
    simulation = simulate(
        round,
        Population.from_list(clients, name="i"),
        module,
        classification(3),
        rounds=1,
        seed=0,
        plan=Plan(),
        diagnostics=True,
    )
    shown = next(iter(simulation)).diagnostics
    assert shown is not None
    assert max(shown["norms"]) <= 0.05 * 1.0001  # type: ignore[call-overload]


@pytest.mark.parametrize("late", [TopK(0.5), ClipPerLayer((1.0, 1.0))], ids=["top-k", "per layer"])
def test_layers_are_gone_after_a_mask(late: Any) -> None:
    with pytest.raises(BadValue, match="Put it before SharedMask"):
        train(dp_round(client=(SharedMask(0.5), Clip(1.0), late)))
