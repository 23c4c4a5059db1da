"""Convolutional layers."""

from weft.errors import export as _export
from weft.keras.layers.convolution.conv import Conv1D as Conv1D, Conv2D as Conv2D, Conv3D as Conv3D
from weft.keras.layers.convolution.depthwise import (
    DepthwiseConv1D as DepthwiseConv1D,
    DepthwiseConv2D as DepthwiseConv2D,
)
from weft.keras.layers.convolution.separable import (
    SeparableConv1D as SeparableConv1D,
    SeparableConv2D as SeparableConv2D,
)
from weft.keras.layers.convolution.transposed import (
    Conv1DTranspose as Conv1DTranspose,
    Conv2DTranspose as Conv2DTranspose,
    Conv3DTranspose as Conv3DTranspose,
)

# Keras' other names.
Convolution1D = Conv1D
Convolution2D = Conv2D
Convolution3D = Conv3D
Convolution1DTranspose = Conv1DTranspose
Convolution2DTranspose = Conv2DTranspose
Convolution3DTranspose = Conv3DTranspose
SeparableConvolution1D = SeparableConv1D
SeparableConvolution2D = SeparableConv2D

_export(__name__)
