"""Layers that change shapes."""

from weft.keras.layers.reshaping.padding import (
    Cropping1D,
    Cropping2D,
    Cropping3D,
    ZeroPadding1D,
    ZeroPadding2D,
    ZeroPadding3D,
)
from weft.keras.layers.reshaping.shapes import Flatten, Permute, RepeatVector, Reshape
from weft.keras.layers.reshaping.up_sampling import UpSampling1D, UpSampling2D, UpSampling3D

__all__ = [
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "Flatten",
    "Permute",
    "RepeatVector",
    "Reshape",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
]
