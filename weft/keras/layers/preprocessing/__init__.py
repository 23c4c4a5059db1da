"""Layers that prepare data."""

from weft.keras.layers.preprocessing.augment import AugMix, RandAugment
from weft.keras.layers.preprocessing.boxes import MaxNumBoundingBoxes
from weft.keras.layers.preprocessing.categories import CategoryEncoding, Discretization, HashedCrossing, Hashing
from weft.keras.layers.preprocessing.colors import (
    AutoContrast,
    Equalization,
    RandomColorDegeneration,
    RandomGrayscale,
    RandomHue,
    RandomInvert,
    RandomPosterization,
    RandomSaturation,
    RandomSharpness,
    Solarization,
)
from weft.keras.layers.preprocessing.histograms import ContrastLimitedAdaptiveHistogramEqualization
from weft.keras.layers.preprocessing.image import CenterCrop, Resizing
from weft.keras.layers.preprocessing.lookup import IntegerLookup, StringLookup
from weft.keras.layers.preprocessing.mixing import (
    CutMix,
    MixUp,
    Pipeline,
    RandomColorJitter,
    RandomErasing,
    RandomGaussianBlur,
)
from weft.keras.layers.preprocessing.normalization import Normalization, Rescaling
from weft.keras.layers.preprocessing.random_color import RandomBrightness, RandomContrast
from weft.keras.layers.preprocessing.random_geometry import (
    RandomCrop,
    RandomFlip,
    RandomRotation,
    RandomShear,
    RandomTranslation,
    RandomZoom,
)
from weft.keras.layers.preprocessing.spectrogram import MelSpectrogram, STFTSpectrogram
from weft.keras.layers.preprocessing.text import TextVectorization
from weft.keras.layers.preprocessing.warping import RandomElasticTransform, RandomPerspective

__all__ = [
    "AugMix",
    "AutoContrast",
    "CategoryEncoding",
    "CenterCrop",
    "ContrastLimitedAdaptiveHistogramEqualization",
    "CutMix",
    "Discretization",
    "Equalization",
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "MaxNumBoundingBoxes",
    "MelSpectrogram",
    "MixUp",
    "Normalization",
    "Pipeline",
    "RandAugment",
    "RandomBrightness",
    "RandomColorDegeneration",
    "RandomColorJitter",
    "RandomContrast",
    "RandomCrop",
    "RandomElasticTransform",
    "RandomErasing",
    "RandomFlip",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHue",
    "RandomInvert",
    "RandomPerspective",
    "RandomPosterization",
    "RandomRotation",
    "RandomSaturation",
    "RandomSharpness",
    "RandomShear",
    "RandomTranslation",
    "RandomZoom",
    "Rescaling",
    "Resizing",
    "STFTSpectrogram",
    "Solarization",
    "StringLookup",
    "TextVectorization",
]
