"""Convolutional layers."""

from weft.keras.layers.convolution.conv import Conv1D, Conv2D, Conv3D
from weft.keras.layers.convolution.depthwise import DepthwiseConv1D, DepthwiseConv2D
from weft.keras.layers.convolution.separable import SeparableConv1D, SeparableConv2D
from weft.keras.layers.convolution.transposed import Conv1DTranspose, Conv2DTranspose, Conv3DTranspose

# Keras' other names.
Convolution1D = Conv1D
Convolution2D = Conv2D
Convolution3D = Conv3D
Convolution1DTranspose = Conv1DTranspose
Convolution2DTranspose = Conv2DTranspose
Convolution3DTranspose = Conv3DTranspose
SeparableConvolution1D = SeparableConv1D
SeparableConvolution2D = SeparableConv2D

__all__ = [
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Convolution1D",
    "Convolution1DTranspose",
    "Convolution2D",
    "Convolution2DTranspose",
    "Convolution3D",
    "Convolution3DTranspose",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "SeparableConv1D",
    "SeparableConv2D",
    "SeparableConvolution1D",
    "SeparableConvolution2D",
]
