"""Primitive operations with JAX's names and signatures: the layer that `weft.numpy` is written in."""

from typing import Any as _Any

from weft.api.shardings import with_sharding_constraint as with_sharding_constraint
from weft.base.publish import MissingNameError as _MissingNameError, publish as _publish
from weft.lax import linalg as linalg
from weft.lax.associative import associative_scan as associative_scan
from weft.lax.barriers import optimization_barrier as optimization_barrier
from weft.lax.bits import (
    bitwise_and as bitwise_and,
    bitwise_not as bitwise_not,
    bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor,
    clz as clz,
    eq as eq,
    ge as ge,
    gt as gt,
    is_finite as is_finite,
    le as le,
    lt as lt,
    mulhi as mulhi,
    ne as ne,
    population_count as population_count,
    shift_left as shift_left,
    shift_right_arithmetic as shift_right_arithmetic,
    shift_right_logical as shift_right_logical,
)
from weft.lax.contraction import (
    DotAlgorithm as DotAlgorithm,
    DotAlgorithmPreset as DotAlgorithmPreset,
    DotDimensionNumbers as DotDimensionNumbers,
    Precision as Precision,
    PrecisionLike as PrecisionLike,
    RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
    batch_matmul as batch_matmul,
    dot as dot,
    dot_general as dot_general,
    ragged_dot as ragged_dot,
    ragged_dot_general as ragged_dot_general,
)
from weft.lax.control_flow import (
    cond as cond,
    fori_loop as fori_loop,
    map as map,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from weft.lax.convolution import (
    ConvDimensionNumbers as ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers as ConvGeneralDilatedDimensionNumbers,
    conv as conv,
    conv_dimension_numbers as conv_dimension_numbers,
    conv_general_dilated as conv_general_dilated,
    conv_general_dilated_local as conv_general_dilated_local,
    conv_general_dilated_patches as conv_general_dilated_patches,
    conv_general_permutations as conv_general_permutations,
    conv_general_shape_tuple as conv_general_shape_tuple,
    conv_shape_tuple as conv_shape_tuple,
    conv_transpose as conv_transpose,
    conv_transpose_shape_tuple as conv_transpose_shape_tuple,
    conv_with_general_padding as conv_with_general_padding,
)
from weft.lax.elementwise import (
    RoundingMethod as RoundingMethod,
    abs as abs,
    add as add,
    bitcast_convert_type as bitcast_convert_type,
    ceil as ceil,
    clamp as clamp,
    complex as complex,
    conj as conj,
    convert_element_type as convert_element_type,
    div as div,
    dtype as dtype,
    floor as floor,
    imag as imag,
    integer_pow as integer_pow,
    max as max,
    min as min,
    mul as mul,
    neg as neg,
    nextafter as nextafter,
    real as real,
    reciprocal as reciprocal,
    reduce_precision as reduce_precision,
    rem as rem,
    round as round,
    select as select,
    select_n as select_n,
    sign as sign,
    square as square,
    stop_gradient as stop_gradient,
    sub as sub,
)
from weft.lax.fft import FftType as FftType, fft as fft
from weft.lax.parallel import (
    all_gather as all_gather,
    all_to_all as all_to_all,
    axis_index as axis_index,
    axis_size as axis_size,
    pbroadcast as pbroadcast,
    pcast as pcast,
    pmax as pmax,
    pmean as pmean,
    pmin as pmin,
    ppermute as ppermute,
    pshuffle as pshuffle,
    psum as psum,
    psum_scatter as psum_scatter,
    pswapaxes as pswapaxes,
)
from weft.lax.primitive_objects import LAX as _PRIMITIVES, primitive_object as _primitive_object
from weft.lax.ragged import ragged_all_to_all as ragged_all_to_all
from weft.lax.random import (
    RandomAlgorithm as RandomAlgorithm,
    rng_bit_generator as rng_bit_generator,
    rng_uniform as rng_uniform,
)
from weft.lax.reductions import (
    argmax as argmax,
    argmin as argmin,
    cumlogsumexp as cumlogsumexp,
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    cumsum as cumsum,
    reduce as reduce,
    reduce_and as reduce_and,
    reduce_max as reduce_max,
    reduce_min as reduce_min,
    reduce_or as reduce_or,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
    reduce_xor as reduce_xor,
)
from weft.lax.scaled import AccuracyMode as AccuracyMode, Tolerance as Tolerance, scaled_dot as scaled_dot
from weft.lax.sending import precv as precv, psend as psend
from weft.lax.shape import (
    broadcast as broadcast,
    broadcast_in_dim as broadcast_in_dim,
    broadcast_like as broadcast_like,
    broadcast_shapes as broadcast_shapes,
    broadcast_to_rank as broadcast_to_rank,
    broadcasted_iota as broadcasted_iota,
    collapse as collapse,
    concatenate as concatenate,
    empty as empty,
    expand_dims as expand_dims,
    full as full,
    full_like as full_like,
    iota as iota,
    pad as pad,
    reshape as reshape,
    rev as rev,
    shape_as_value as shape_as_value,
    split as split,
    squeeze as squeeze,
    stack as stack,
    tile as tile,
    transpose as transpose,
    unstack as unstack,
    zeros_like_array as zeros_like_array,
)
from weft.lax.slicing import (
    GatherDimensionNumbers as GatherDimensionNumbers,
    GatherScatterMode as GatherScatterMode,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
    dynamic_index_in_dim as dynamic_index_in_dim,
    dynamic_slice as dynamic_slice,
    dynamic_slice_in_dim as dynamic_slice_in_dim,
    dynamic_update_index_in_dim as dynamic_update_index_in_dim,
    dynamic_update_slice as dynamic_update_slice,
    dynamic_update_slice_in_dim as dynamic_update_slice_in_dim,
    gather as gather,
    index_in_dim as index_in_dim,
    index_take as index_take,
    scatter as scatter,
    scatter_add as scatter_add,
    scatter_apply as scatter_apply,
    scatter_max as scatter_max,
    scatter_min as scatter_min,
    scatter_mul as scatter_mul,
    scatter_sub as scatter_sub,
    slice as slice,
    slice_in_dim as slice_in_dim,
)
from weft.lax.solvers import custom_linear_solve as custom_linear_solve, custom_root as custom_root
from weft.lax.sorting import (
    approx_max_k as approx_max_k,
    approx_min_k as approx_min_k,
    sort as sort,
    sort_key_val as sort_key_val,
    top_k as top_k,
)
from weft.lax.staging import (
    after_all as after_all,
    composite as composite,
    create_token as create_token,
    dce_sink as dce_sink,
    platform_dependent as platform_dependent,
    stage as stage,
)
from weft.lax.transcendental import (
    acos as acos,
    acosh as acosh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    bessel_i0e as bessel_i0e,
    bessel_i1e as bessel_i1e,
    betainc as betainc,
    cbrt as cbrt,
    cos as cos,
    cosh as cosh,
    digamma as digamma,
    erf as erf,
    erf_inv as erf_inv,
    erfc as erfc,
    exp as exp,
    exp2 as exp2,
    expm1 as expm1,
    igamma as igamma,
    igamma_grad_a as igamma_grad_a,
    igammac as igammac,
    lgamma as lgamma,
    log as log,
    log1p as log1p,
    logistic as logistic,
    polygamma as polygamma,
    pow as pow,
    random_gamma_grad as random_gamma_grad,
    rsqrt as rsqrt,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
    zeta as zeta,
)
from weft.lax.windows import (
    padtype_to_pads as padtype_to_pads,
    reduce_window as reduce_window,
    reduce_window_shape_tuple as reduce_window_shape_tuple,
)


def __getattr__(name: str) -> _Any:
    if name not in _PRIMITIVES:
        raise _MissingNameError(__name__, name)
    return _primitive_object(name, _PRIMITIVES)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PRIMITIVES])


_publish(__name__, later=_PRIMITIVES)
