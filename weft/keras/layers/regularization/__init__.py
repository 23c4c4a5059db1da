"""Layers that change their inputs at random, or penalize them, in training."""

from weft.errors import export as _export
from weft.keras.layers.regularization.dropout import (
    ActivityRegularization as ActivityRegularization,
    AlphaDropout as AlphaDropout,
    Dropout as Dropout,
    GaussianDropout as GaussianDropout,
    GaussianNoise as GaussianNoise,
    SpatialDropout1D as SpatialDropout1D,
    SpatialDropout2D as SpatialDropout2D,
    SpatialDropout3D as SpatialDropout3D,
)

_export(__name__)
