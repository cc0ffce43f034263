"""Sfumato trains models on data that stay with many clients, with differential privacy, and prints only proven guarantees.

The public names are loaded when first used: `import sfumato` loads no torch.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.version import __version__

if TYPE_CHECKING:
    from sfumato.account import accountant as accountant
    from sfumato.account.event import Relation as Relation
    from sfumato.account.event import Unit as Unit
    from sfumato.budget.budgets import Budgets as Budgets
    from sfumato.budget.budgets import ClientBudget as ClientBudget
    from sfumato.budget.plan import budgets as budgets
    from sfumato.calibration import calibrate as calibrate
    from sfumato.data.columns import Columns as Columns
    from sfumato.data.load import load as load_data
    from sfumato.data.population import Population as Population
    from sfumato.data.population import PublicData as PublicData
    from sfumato.data.population import Records as Records
    from sfumato.engine.plan import Plan as Plan
    from sfumato.errors import SfumatoError as SfumatoError
    from sfumato.errors import UnsoundRound as UnsoundRound
    from sfumato.exact_round import secure as secure
    from sfumato.features.chain import Features as Features
    from sfumato.features.chain import parse_features as parse_features
    from sfumato.guarantee import Guarantee as Guarantee
    from sfumato.key import Key as Key
    from sfumato.ledger.ledger import Ledger as Ledger
    from sfumato.local.dp_sgd import DpSgd as DpSgd
    from sfumato.local.nbafl import NbaflNoise as NbaflNoise
    from sfumato.local.nbafl import WithinBall as WithinBall
    from sfumato.local.penalty import NormPenalty as NormPenalty
    from sfumato.local.per_client import PerClient as PerClient
    from sfumato.local.sgd import Sgd as Sgd
    from sfumato.local.sharpness import SharpnessAware as SharpnessAware
    from sfumato.objective import Objective as Objective
    from sfumato.objective import classification as classification
    from sfumato.objective import evaluate as evaluate
    from sfumato.objective import multi_label as multi_label
    from sfumato.objective import next_character as next_character
    from sfumato.objective import regression as regression
    from sfumato.pieces.after_noise import LaplacianSmoothing as LaplacianSmoothing
    from sfumato.pieces.after_noise import PostProcess as PostProcess
    from sfumato.pieces.channel import OneHolder as OneHolder
    from sfumato.pieces.channel import Plain as Plain
    from sfumato.pieces.channel import SecureSum as SecureSum
    from sfumato.pieces.channel import Shuffler as Shuffler
    from sfumato.pieces.clip import AdaptiveClip as AdaptiveClip
    from sfumato.pieces.clip import Clip as Clip
    from sfumato.pieces.clip import ClipPerLayer as ClipPerLayer
    from sfumato.pieces.clip_per_client import ClipPerClient as ClipPerClient
    from sfumato.pieces.connectivity import Curve as Curve
    from sfumato.pieces.connectivity import MeanThenPublic as MeanThenPublic
    from sfumato.pieces.connectivity import ModeConnectivity as ModeConnectivity
    from sfumato.pieces.connectivity import ensemble as ensemble
    from sfumato.pieces.exact import DiscreteGaussian as DiscreteGaussian
    from sfumato.pieces.exact import RoundedGaussian as RoundedGaussian
    from sfumato.pieces.grid import Grid as Grid
    from sfumato.pieces.law import Gaussian as Gaussian
    from sfumato.pieces.law import Laplace as Laplace
    from sfumato.pieces.mask import PreviousTopK as PreviousTopK
    from sfumato.pieces.mask import PublicTopK as PublicTopK
    from sfumato.pieces.mask import RandomMask as RandomMask
    from sfumato.pieces.mask import SharedMask as SharedMask
    from sfumato.pieces.mask import TopK as TopK
    from sfumato.pieces.mean import Divide as Divide
    from sfumato.pieces.mean import Mean as Mean
    from sfumato.pieces.mean import RealisedMean as RealisedMean
    from sfumato.pieces.mean import Sum as Sum
    from sfumato.pieces.noise import AddNoise as AddNoise
    from sfumato.pieces.noise import NoiseShare as NoiseShare
    from sfumato.pieces.of_messages import GeometricMedian as GeometricMedian
    from sfumato.pieces.of_messages import Median as Median
    from sfumato.pieces.of_messages import TowardWeakest as TowardWeakest
    from sfumato.pieces.of_messages import TrimmedMean as TrimmedMean
    from sfumato.pieces.optimizer import Adam as Adam
    from sfumato.pieces.optimizer import Averaged as Averaged
    from sfumato.pieces.optimizer import GradientDescent as GradientDescent
    from sfumato.pieces.optimizer import Momentum as Momentum
    from sfumato.pieces.personal import ControlVariates as ControlVariates
    from sfumato.pieces.personal import HelperBlend as HelperBlend
    from sfumato.pieces.presence import PoissonPerClient as PoissonPerClient
    from sfumato.pieces.presence import Presence as Presence
    from sfumato.pieces.protocol import Aggregate as Aggregate
    from sfumato.pieces.protocol import Channel as Channel
    from sfumato.pieces.protocol import ClientPiece as ClientPiece
    from sfumato.pieces.protocol import ControlPiece as ControlPiece
    from sfumato.pieces.protocol import FreshSampler as FreshSampler
    from sfumato.pieces.protocol import LocalPiece as LocalPiece
    from sfumato.pieces.protocol import MessageAggregate as MessageAggregate
    from sfumato.pieces.protocol import Optimizer as Optimizer
    from sfumato.pieces.protocol import PersonalPiece as PersonalPiece
    from sfumato.pieces.protocol import Sampler as Sampler
    from sfumato.pieces.protocol import ServerPiece as ServerPiece
    from sfumato.pieces.protocol import StepRule as StepRule
    from sfumato.pieces.sampler import Everyone as Everyone
    from sfumato.pieces.sampler import FixedSize as FixedSize
    from sfumato.pieces.sampler import Poisson as Poisson
    from sfumato.pieces.staircase import Staircase as Staircase
    from sfumato.pieces.weight import WeightByExamples as WeightByExamples
    from sfumato.planning.match import match as match
    from sfumato.planning.numbers import delta as delta
    from sfumato.planning.numbers import epsilon as epsilon
    from sfumato.planning.numbers import noise_multiplier as noise_multiplier
    from sfumato.planning.numbers import steps as steps
    from sfumato.round import Round as Round
    from sfumato.round import Unproven as Unproven
    from sfumato.run.folder import load as load
    from sfumato.session import Session as Session
    from sfumato.session import private as private
    from sfumato.simulation import simulate as simulate
    from sfumato.voting.adaptation import Adversarial as Adversarial
    from sfumato.voting.adaptation import Coral as Coral
    from sfumato.voting.adaptation import Standardised as Standardised
    from sfumato.voting.bounds import Bounds as Bounds
    from sfumato.voting.labels import Argmax as Argmax
    from sfumato.voting.labels import Majority as Majority
    from sfumato.voting.learners import Fit as Fit
    from sfumato.voting.learners import Learner as Learner
    from sfumato.voting.learners import Lesson as Lesson
    from sfumato.voting.learners import Ridge as Ridge
    from sfumato.voting.neighbours import Neighbours as Neighbours
    from sfumato.voting.queries import Queries as Queries
    from sfumato.voting.screening import Screened as Screened
    from sfumato.voting.student import Student as Student
    from sfumato.voting.teacher import Teacher as Teacher
    from sfumato.voting.virtual import VirtualAdversarial as VirtualAdversarial
    from sfumato.voting.votes import Voter as Voter
    from sfumato.voting.votes import Votes as Votes

# One list serves type checkers, which read the imports above, and `__getattr__`, which reads them from this file.
_IMPORTS = [node for node in ast.walk(ast.parse(Path(__file__).read_text())) if isinstance(node, ast.ImportFrom)]
_HOMES = {one.asname: (str(node.module), one.name) for node in _IMPORTS for one in node.names if one.asname}

__all__ = ["__version__", "load_data", *sorted(_HOMES.keys() - {"load_data"})]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sfumato' has no attribute {name!r}")
    home, own = _HOMES[name]
    return getattr(import_module(home), own)


def __dir__() -> list[str]:
    return sorted(__all__)
