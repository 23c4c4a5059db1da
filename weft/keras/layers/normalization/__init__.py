"""Normalization layers."""

from weft.keras.layers.normalization.batch import BatchNormalization
from weft.keras.layers.normalization.group import GroupNormalization
from weft.keras.layers.normalization.layer import LayerNormalization
from weft.keras.layers.normalization.rms import RMSNormalization
from weft.keras.layers.normalization.spectral import SpectralNormalization
from weft.keras.layers.normalization.unit import UnitNormalization

__all__ = [
    "BatchNormalization",
    "GroupNormalization",
    "LayerNormalization",
    "RMSNormalization",
    "SpectralNormalization",
    "UnitNormalization",
]
