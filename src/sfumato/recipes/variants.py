"""DP-FedAvg with one thing changed. What each of these proves, its own derivation says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sfumato
from sfumato.account.papers.claimed import DpFedSamClaim
from sfumato.errors import BadValue, nearest
from sfumato.pieces.sampler import parse_sampler
from sfumato.recipes import usual
from sfumato.recipes.dp_fedavg import dp_fedavg, parts

if TYPE_CHECKING:
    from sfumato.round import Round


def dp_fed_ls(
    population: int, *, strength: float = 1.0, per_layer: bool = False, project: bool = False, **common: Any
) -> Round:
    """Laplacian smoothing of the noisy aggregate, which is free (Liang et al. 2020).

    `project` clips after every local step, as they do.
    """
    base = dp_fedavg(population, **common)
    local, clip, _ = parts(base)
    local = replace(local, project=clip) if project else local
    return replace(base, local=local, server=(*base.server, sfumato.LaplacianSmoothing(strength, per_layer)))


def dp_fedsam(population: int, *, radius: float = 0.5, adaptive_radius: bool = False, **common: Any) -> Round:
    """Sharpness-aware local steps (Shi et al. 2023): flat minima move less, so clipping and noise hurt less.

    `adaptive_radius` measures relative to the weights, as the released code does.
    """
    base = dp_fedavg(population, **common)
    local, _, _ = parts(base)
    return replace(base, local=replace(local, gradient=sfumato.SharpnessAware(radius, adaptive_radius)))


def dp_fedsam_top_k(population: int, *, keep: float = 0.4, mask: str = "dense", **common: Any) -> Round:
    """Sparse updates. `mask`: dense (own choice, noise everywhere), random, previous; published is false, and runs unproven."""
    base = dp_fedsam(population, **common)
    if mask == "dense":
        return replace(base, client=(sfumato.TopK(keep), *base.client))
    if mask in ("random", "previous"):
        return replace(base, client=(_shared_mask(mask, keep), *base.client))
    if mask != "published":
        raise BadValue(f"mask={mask!r}: {nearest(mask, ['dense', 'random', 'previous', 'published'])}")
    (_, _, noise), cohort = parts(base), base.sample.expected(population)
    claimed = DpFedSamClaim(cohort / population, noise.noise_multiplier)
    step = "each client drops coordinates after adding its share of the noise, so what it keeps is hidden by few shares"
    return replace(
        base,
        client=(*base.client, sfumato.NoiseShare(noise, max(1, round(cohort))), sfumato.TopK(keep)),
        channel=sfumato.SecureSum(),
        server=(),
        unproven=sfumato.Unproven("DP-FedSAM (Shi et al. 2023)", step, claimed),
    )


def fed_smp(population: int, *, keep: float = 0.4, mask: str = "random", **common: Any) -> Round:
    """All clients send the same few coordinates, so the noise covers only those (Hu et al. 2022).

    The mask is random, or the largest coordinates of the previous release. In Python, `SharedMask(keep, PublicTopK(data))`
    takes it from public data, as Fed-SMP top_k does.
    """
    if mask not in ("random", "previous"):
        raise BadValue(f"mask={mask!r}: there is no such mask. {nearest(mask, ['random', 'previous'])}")
    base = dp_fedavg(population, **common)
    return replace(base, client=(_shared_mask(mask, keep), *base.client))


def _shared_mask(name: str, keep: float) -> sfumato.SharedMask:
    return sfumato.SharedMask(keep, sfumato.RandomMask() if name == "random" else sfumato.PreviousTopK())


def dp_fedavg_blur(population: int, *, penalty: float = 1.0, keep: float = 1.0, **common: Any) -> Round:
    """A penalty on updates longer than the clip (BLUR); below `keep` 1, each client's largest coordinates only (LUS).

    A penalty is no bound and sparsity hides nothing: the clip and the dense noise prove the guarantee.
    """
    base = dp_fedavg(population, **common)
    local, clip, _ = parts(base)
    penalties = (*local.penalties, sfumato.NormPenalty(penalty, clip))
    return replace(base, local=replace(local, penalties=penalties), client=(sfumato.TopK(keep), *base.client))


def dp_fedavg_adaptive(
    population: int, *, quantile: float = 0.5, clip_rate: float = 0.2, bit_weight: float = 0.1, **common: Any
) -> Round:
    """The clip norm follows a quantile of the updates' norms, and its bit is paid for (Andrew et al. 2021).

    `clip` is the norm of the first round.
    """
    base = dp_fedavg(population, **common)
    _, clip, _ = parts(base)
    return replace(base, client=(sfumato.AdaptiveClip(clip, quantile, clip_rate, bit_weight), *base.client[1:]))


def dp_fedavg_shares(
    population: int, *, sample: str = "fixed:50", relation: str = usual.OWN_RELATION, smallest: int = 0, **common: Any
) -> Round:
    """No trusted server: each client adds a share of the noise, and only a secure sum is seen; here it is simulated.

    `smallest` is the smallest cohort that may reply (0: all of it).
    """
    sampler = parse_sampler(sample, relation or ("replace" if sample == "everyone" else ""))
    base = dp_fedavg(population, sample=sample, relation=relation, **common)
    honest = (smallest or round(sampler.expected(population))) - getattr(sampler, "curious", 1)
    _, _, law = parts(base)
    client = (*base.client, sfumato.NoiseShare(law, max(1, honest)))
    return replace(base, sample=sampler, client=client, channel=sfumato.SecureSum(smallest), server=())
