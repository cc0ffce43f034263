"""Sfumato trains models on data that stays with many clients, and prints only privacy guarantees that are true.

The public names, listed by hand and loaded when first used: `import sfumato` loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sfumato.version import __version__

if TYPE_CHECKING:
    from sfumato.account import accountant as accountant
    from sfumato.account.event import Relation as Relation
    from sfumato.account.event import Unit as Unit
    from sfumato.account.ledger import Ledger as Ledger
    from sfumato.calibration import calibrate as calibrate
    from sfumato.client import Clip as Clip
    from sfumato.client import WeightByExamples as WeightByExamples
    from sfumato.clipping import AdaptiveClip as AdaptiveClip
    from sfumato.clipping import ClipPerLayer as ClipPerLayer
    from sfumato.data.load import load as load_data
    from sfumato.data.population import Population as Population
    from sfumato.data.population import PublicData as PublicData
    from sfumato.data.population import Records as Records
    from sfumato.engine.plan import Plan as Plan
    from sfumato.engine.simulate import simulate as simulate
    from sfumato.errors import SfumatoError as SfumatoError
    from sfumato.errors import UnsoundRound as UnsoundRound
    from sfumato.guarantee import Guarantee as Guarantee
    from sfumato.key import Key as Key
    from sfumato.local.dp_sgd import DpSgd as DpSgd
    from sfumato.local.gradients import NormPenalty as NormPenalty
    from sfumato.local.gradients import SharpnessAware as SharpnessAware
    from sfumato.local.per_client import PerClient as PerClient
    from sfumato.local.sgd import Sgd as Sgd
    from sfumato.noise import AddNoise as AddNoise
    from sfumato.noise import Gaussian as Gaussian
    from sfumato.objective import Objective as Objective
    from sfumato.objective import classification as classification
    from sfumato.objective import evaluate as evaluate
    from sfumato.objective import multi_label as multi_label
    from sfumato.objective import next_character as next_character
    from sfumato.objective import regression as regression
    from sfumato.optimizer import Adam as Adam
    from sfumato.optimizer import Averaged as Averaged
    from sfumato.optimizer import GradientDescent as GradientDescent
    from sfumato.optimizer import Momentum as Momentum
    from sfumato.personal import HelperBlend as HelperBlend
    from sfumato.round import Round as Round
    from sfumato.round import Unproven as Unproven
    from sfumato.run_folder import load as load
    from sfumato.sample import Everyone as Everyone
    from sfumato.sample import FixedSize as FixedSize
    from sfumato.sample import Poisson as Poisson
    from sfumato.server import Mean as Mean
    from sfumato.server import Plain as Plain
    from sfumato.server import PostProcess as PostProcess
    from sfumato.server import RealisedMean as RealisedMean
    from sfumato.shares import NoiseShare as NoiseShare
    from sfumato.shares import SecureSum as SecureSum
    from sfumato.smoothing import LaplacianSmoothing as LaplacianSmoothing
    from sfumato.sparsify import PreviousTopK as PreviousTopK
    from sfumato.sparsify import PublicTopK as PublicTopK
    from sfumato.sparsify import RandomMask as RandomMask
    from sfumato.sparsify import SharedMask as SharedMask
    from sfumato.sparsify import TopK as TopK

_HOMES = {
    "account": "accountant",
    "account.event": "Relation Unit",
    "account.ledger": "Ledger",
    "calibration": "calibrate",
    "client": "Clip WeightByExamples",
    "clipping": "AdaptiveClip ClipPerLayer",
    "data.population": "Population PublicData Records",
    "engine.plan": "Plan",
    "engine.simulate": "simulate",
    "errors": "SfumatoError UnsoundRound",
    "guarantee": "Guarantee",
    "key": "Key",
    "local.dp_sgd": "DpSgd",
    "local.per_client": "PerClient",
    "local.gradients": "NormPenalty SharpnessAware",
    "local.sgd": "Sgd",
    "noise": "AddNoise Gaussian",
    "objective": "Objective classification evaluate multi_label next_character regression",
    "optimizer": "Adam Averaged Momentum GradientDescent",
    "personal": "HelperBlend",
    "round": "Round Unproven",
    "run_folder": "load",
    "sample": "Everyone FixedSize Poisson",
    "shares": "NoiseShare SecureSum",
    "smoothing": "LaplacianSmoothing",
    "sparsify": "PreviousTopK PublicTopK RandomMask SharedMask TopK",
    "server": "Mean Plain PostProcess RealisedMean",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
_ELSEWHERE = {"load_data": ("data.load", "load")}

__all__ = ["__version__", "load_data", *sorted(_HOME)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        home, own = _ELSEWHERE[name]
        return getattr(import_module(f"sfumato.{home}"), own)
    if name in _HOME:
        return getattr(import_module(f"sfumato.{_HOME[name]}"), name)
    raise AttributeError(f"module 'sfumato' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
