"""Layers that prepare data."""

from weft.keras.layers.preprocessing.categories import CategoryEncoding, Discretization, HashedCrossing, Hashing
from weft.keras.layers.preprocessing.image import CenterCrop, Resizing
from weft.keras.layers.preprocessing.lookup import IntegerLookup, StringLookup
from weft.keras.layers.preprocessing.normalization import Normalization, Rescaling
from weft.keras.layers.preprocessing.random_color import RandomBrightness, RandomContrast
from weft.keras.layers.preprocessing.random_geometry import (
    RandomCrop,
    RandomFlip,
    RandomRotation,
    RandomTranslation,
    RandomZoom,
)
from weft.keras.layers.preprocessing.text import TextVectorization

__all__ = [
    "CategoryEncoding",
    "CenterCrop",
    "Discretization",
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "Normalization",
    "RandomBrightness",
    "RandomContrast",
    "RandomCrop",
    "RandomFlip",
    "RandomRotation",
    "RandomTranslation",
    "RandomZoom",
    "Rescaling",
    "Resizing",
    "StringLookup",
    "TextVectorization",
]
