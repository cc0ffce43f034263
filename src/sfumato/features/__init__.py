"""Maps of single records, fixed before training: `--features resize:16,random-conv:64`, `parse_features(...)`."""

from sfumato.features.chain import STEPS, Features, Own, Step, parse_features
from sfumato.features.fit import Fit
from sfumato.features.pictures import Box, Grey, Hog, Pixels, RandomConv, Resize, UnitNorm

__all__ = [
    "STEPS",
    "Box",
    "Features",
    "Fit",
    "Grey",
    "Hog",
    "Own",
    "Pixels",
    "RandomConv",
    "Resize",
    "Step",
    "UnitNorm",
    "parse_features",
]
