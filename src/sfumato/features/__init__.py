"""Maps of single records, fixed before training: `--features scattering,pca:200`, `parse_features(...)`."""

from sfumato.features.basis import PublicPCA
from sfumato.features.cache import cached, mapped
from sfumato.features.chain import STEPS, Features, Step, learns, parse_features
from sfumato.features.fit import Fit
from sfumato.features.group_norm import GroupNorm
from sfumato.features.pictures import Box, Grey, Hog, Pixels, RandomConv, Resize, UnitNorm
from sfumato.features.private_basis import Parted, PrivatePCA, PrivateWord, Unlearnt
from sfumato.features.scattering import Scattering
from sfumato.features.text import LastCharacters

__all__ = [
    "STEPS",
    "Box",
    "Features",
    "Fit",
    "Grey",
    "GroupNorm",
    "Hog",
    "LastCharacters",
    "Parted",
    "Pixels",
    "PrivatePCA",
    "PrivateWord",
    "PublicPCA",
    "RandomConv",
    "Resize",
    "Scattering",
    "Step",
    "UnitNorm",
    "Unlearnt",
    "cached",
    "learns",
    "mapped",
    "parse_features",
]
