"""Primitive operations with JAX's names and signatures: the layer that `weft.numpy` is written in."""

from typing import Any as _Any

from weft.api.shardings import with_sharding_constraint
from weft.base.publish import MissingNameError as _MissingNameError, publish as _publish
from weft.lax import linalg
from weft.lax.associative import associative_scan
from weft.lax.barriers import optimization_barrier
from weft.lax.bits import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    clz,
    eq,
    ge,
    gt,
    is_finite,
    le,
    lt,
    mulhi,
    ne,
    population_count,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
)
from weft.lax.contraction import (
    DotAlgorithm,
    DotAlgorithmPreset,
    DotDimensionNumbers,
    Precision,
    PrecisionLike,
    RaggedDotDimensionNumbers,
    batch_matmul,
    dot,
    dot_general,
    ragged_dot,
    ragged_dot_general,
)
from weft.lax.control_flow import cond, fori_loop, map, scan, switch, while_loop
from weft.lax.convolution import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    conv,
    conv_dimension_numbers,
    conv_general_dilated,
    conv_general_dilated_local,
    conv_general_dilated_patches,
    conv_general_permutations,
    conv_general_shape_tuple,
    conv_shape_tuple,
    conv_transpose,
    conv_transpose_shape_tuple,
    conv_with_general_padding,
)
from weft.lax.elementwise import (
    RoundingMethod,
    abs,
    add,
    bitcast_convert_type,
    ceil,
    clamp,
    complex,
    conj,
    convert_element_type,
    div,
    dtype,
    floor,
    imag,
    integer_pow,
    max,
    min,
    mul,
    neg,
    nextafter,
    real,
    reciprocal,
    reduce_precision,
    rem,
    round,
    select,
    select_n,
    sign,
    square,
    stop_gradient,
    sub,
)
from weft.lax.fft import FftType, fft
from weft.lax.parallel import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pbroadcast,
    pcast,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
)
from weft.lax.primitive_objects import LAX as _PRIMITIVES, primitive_object as _primitive_object
from weft.lax.ragged import ragged_all_to_all
from weft.lax.random import RandomAlgorithm, rng_bit_generator, rng_uniform
from weft.lax.reductions import (
    argmax,
    argmin,
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    reduce,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
)
from weft.lax.scaled import AccuracyMode, Tolerance, scaled_dot
from weft.lax.sending import precv, psend
from weft.lax.shape import (
    broadcast,
    broadcast_in_dim,
    broadcast_like,
    broadcast_shapes,
    broadcast_to_rank,
    broadcasted_iota,
    collapse,
    concatenate,
    empty,
    expand_dims,
    full,
    full_like,
    iota,
    pad,
    reshape,
    rev,
    shape_as_value,
    split,
    squeeze,
    stack,
    tile,
    transpose,
    unstack,
    zeros_like_array,
)
from weft.lax.slicing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    gather,
    index_in_dim,
    index_take,
    scatter,
    scatter_add,
    scatter_apply,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
    slice,
    slice_in_dim,
)
from weft.lax.solvers import custom_linear_solve, custom_root
from weft.lax.sorting import approx_max_k, approx_min_k, sort, sort_key_val, top_k
from weft.lax.staging import after_all, composite, create_token, dce_sink, platform_dependent, stage
from weft.lax.transcendental import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bessel_i0e,
    bessel_i1e,
    betainc,
    cbrt,
    cos,
    cosh,
    digamma,
    erf,
    erf_inv,
    erfc,
    exp,
    exp2,
    expm1,
    igamma,
    igamma_grad_a,
    igammac,
    lgamma,
    log,
    log1p,
    logistic,
    polygamma,
    pow,
    random_gamma_grad,
    rsqrt,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    zeta,
)
from weft.lax.windows import padtype_to_pads, reduce_window, reduce_window_shape_tuple


def __getattr__(name: str) -> _Any:
    if name not in _PRIMITIVES:
        raise _MissingNameError(__name__, name)
    return _primitive_object(name, _PRIMITIVES)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PRIMITIVES])


_publish(__name__, later=_PRIMITIVES)
