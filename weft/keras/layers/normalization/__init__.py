"""Normalization layers."""

from weft.errors import export as _export
from weft.keras.layers.normalization.batch import BatchNormalization as BatchNormalization
from weft.keras.layers.normalization.group import GroupNormalization as GroupNormalization
from weft.keras.layers.normalization.layer import LayerNormalization as LayerNormalization
from weft.keras.layers.normalization.rms import RMSNormalization as RMSNormalization
from weft.keras.layers.normalization.spectral import SpectralNormalization as SpectralNormalization
from weft.keras.layers.normalization.unit import UnitNormalization as UnitNormalization

_export(__name__)
