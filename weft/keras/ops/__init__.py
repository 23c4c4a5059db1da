"""Functions of arrays, variables and symbolic tensors. On a symbolic tensor an operation records a node of a graph."""

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.ops import image as image, linalg as linalg, nn as nn, numpy as numpy
from weft.keras.ops.classes import define as _define
from weft.keras.ops.core import (
    associative_scan as associative_scan,
    cast as cast,
    cond as cond,
    convert_to_numpy as convert_to_numpy,
    convert_to_tensor as convert_to_tensor,
    custom_gradient as custom_gradient,
    dtype as dtype,
    fori_loop as fori_loop,
    is_tensor as is_tensor,
    map as map,
    saturate_cast as saturate_cast,
    scan as scan,
    scatter as scatter,
    scatter_update as scatter_update,
    shape as shape,
    slice as slice,
    slice_update as slice_update,
    stop_gradient as stop_gradient,
    switch as switch,
    unstack as unstack,
    vectorized_map as vectorized_map,
    while_loop as while_loop,
)
from weft.keras.ops.dispatch import register_operations as _register_operations
from weft.keras.ops.einops import rearrange as rearrange
from weft.keras.ops.linalg import *  # noqa: F403
from weft.keras.ops.math import (
    cdist as cdist,
    erf as erf,
    erfc as erfc,
    erfinv as erfinv,
    extract_sequences as extract_sequences,
    fft as fft,
    fft2 as fft2,
    ifft2 as ifft2,
    in_top_k as in_top_k,
    irfft as irfft,
    istft as istft,
    logdet as logdet,
    logsumexp as logsumexp,
    rfft as rfft,
    rsqrt as rsqrt,
    segment_max as segment_max,
    segment_min as segment_min,
    segment_prod as segment_prod,
    segment_sum as segment_sum,
    stft as stft,
    top_k as top_k,
    view_as_complex as view_as_complex,
    view_as_real as view_as_real,
)
from weft.keras.ops.nn import *  # noqa: F403
from weft.keras.ops.numpy import *  # noqa: F403

_publish(__name__)
_register_operations(
    "ops",
    *_registry.functions_and_classes(__name__),
    *_registry.functions_and_classes("weft.keras.ops.image"),
    swish=nn.swish,
    hard_swish=nn.hard_swish,
)
# Where the classes of operations are in Keras.
for _module, _functions in {
    "numpy": _registry.functions_and_classes("weft.keras.ops.numpy"),
    "nn": _registry.functions_and_classes("weft.keras.ops.nn"),
    "linalg": _registry.functions_and_classes("weft.keras.ops.linalg"),
    "image": _registry.functions_and_classes("weft.keras.ops.image"),
    "core": [
        associative_scan,
        cast,
        convert_to_tensor,
        fori_loop,
        map,
        saturate_cast,
        scan,
        scatter,
        scatter_update,
        slice,
        slice_update,
        stop_gradient,
        unstack,
        vectorized_map,
        while_loop,
    ],
    "math": [
        *(cdist, erf, erfc, erfinv, extract_sequences, fft, fft2, ifft2, in_top_k, irfft, istft, logdet, logsumexp),
        *(rfft, rsqrt, segment_max, segment_min, segment_prod, segment_sum, stft, top_k),
        *(view_as_complex, view_as_real),
    ],
    "einops": [rearrange],
}.items():
    _define(f"keras.src.ops.{_module}", _functions)
