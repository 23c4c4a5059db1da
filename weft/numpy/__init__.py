"""NumPy for arrays that can be traced, differentiated and vectorized, with the names and arguments of `jax.numpy`."""

import numpy as _numpy

from weft.base.dtypes import finfo as finfo, iinfo as iinfo, promote_types as promote_types, result_type as result_type
from weft.base.publish import publish as _publish
from weft.numpy import fft as fft, linalg as linalg
from weft.numpy.array_api import __array_api_version__, __array_namespace_info__
from weft.numpy.calculus import (
    bartlett as bartlett,
    blackman as blackman,
    convolve as convolve,
    correlate as correlate,
    cross as cross,
    diff as diff,
    ediff1d as ediff1d,
    gradient as gradient,
    hamming as hamming,
    hanning as hanning,
    interp as interp,
    kaiser as kaiser,
    trapezoid as trapezoid,
)
from weft.numpy.complex_parts import angle as angle, conj as conj, conjugate as conjugate, imag as imag, real as real
from weft.numpy.contraction import (
    dot as dot,
    einsum as einsum,
    einsum_path as einsum_path,
    inner as inner,
    kron as kron,
    matmul as matmul,
    matvec as matvec,
    outer as outer,
    tensordot as tensordot,
    vdot as vdot,
    vecdot as vecdot,
    vecmat as vecmat,
)
from weft.numpy.counting import (
    arange as arange,
    fromfunction as fromfunction,
    geomspace as geomspace,
    indices as indices,
    linspace as linspace,
    logspace as logspace,
    meshgrid as meshgrid,
)
from weft.numpy.creation import (
    array as array,
    asarray as asarray,
    astype as astype,
    copy as copy,
    empty as empty,
    empty_like as empty_like,
    from_dlpack as from_dlpack,
    frombuffer as frombuffer,
    fromfile as fromfile,
    fromiter as fromiter,
    fromstring as fromstring,
    full as full,
    full_like as full_like,
    ones as ones,
    ones_like as ones_like,
    zeros as zeros,
    zeros_like as zeros_like,
)
from weft.numpy.diagonals import (
    diag as diag,
    diag_indices as diag_indices,
    diag_indices_from as diag_indices_from,
    diagflat as diagflat,
    diagonal as diagonal,
    eye as eye,
    identity as identity,
    ix_ as ix_,
    mask_indices as mask_indices,
    ravel_multi_index as ravel_multi_index,
    trace as trace,
    tri as tri,
    tril as tril,
    tril_indices as tril_indices,
    tril_indices_from as tril_indices_from,
    triu as triu,
    triu_indices as triu_indices,
    triu_indices_from as triu_indices_from,
    unravel_index as unravel_index,
    vander as vander,
)
from weft.numpy.elementwise import (
    absolute as absolute,
    copysign as copysign,
    divide as divide,
    divmod as divmod,
    fabs as fabs,
    float_power as float_power,
    floor_divide as floor_divide,
    fmod as fmod,
    gcd as gcd,
    heaviside as heaviside,
    hypot as hypot,
    i0 as i0,
    lcm as lcm,
    mod as mod,
    modf as modf,
    positive as positive,
    pow as pow,
    power as power,
    reciprocal as reciprocal,
    remainder as remainder,
    sign as sign,
    signbit as signbit,
    square as square,
    true_divide as true_divide,
    unwrap as unwrap,
)
from weft.numpy.extremes import clip as clip, fmax as fmax, fmin as fmin
from weft.numpy.files import (
    array_repr as array_repr,
    array_str as array_str,
    load as load,
    save as save,
    savez as savez,
)
from weft.numpy.float_parts import frexp as frexp, ldexp as ldexp, nextafter as nextafter, spacing as spacing
from weft.numpy.grids import c_ as c_, index_exp as index_exp, mgrid as mgrid, ogrid as ogrid, r_ as r_, s_ as s_
from weft.numpy.insertion import delete as delete, insert as insert
from weft.numpy.joining import (
    append as append,
    array_split as array_split,
    block as block,
    column_stack as column_stack,
    concat as concat,
    concatenate as concatenate,
    dsplit as dsplit,
    dstack as dstack,
    hsplit as hsplit,
    hstack as hstack,
    split as split,
    stack as stack,
    unstack as unstack,
    vsplit as vsplit,
    vstack as vstack,
)
from weft.numpy.logic import (
    allclose as allclose,
    array_equal as array_equal,
    array_equiv as array_equiv,
    bitwise_count as bitwise_count,
    bitwise_invert as bitwise_invert,
    bitwise_left_shift as bitwise_left_shift,
    bitwise_not as bitwise_not,
    bitwise_right_shift as bitwise_right_shift,
    can_cast as can_cast,
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    invert as invert,
    isclose as isclose,
    iscomplex as iscomplex,
    iscomplexobj as iscomplexobj,
    isdtype as isdtype,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    isneginf as isneginf,
    isposinf as isposinf,
    isreal as isreal,
    isrealobj as isrealobj,
    isscalar as isscalar,
    issubdtype as issubdtype,
    iterable as iterable,
    left_shift as left_shift,
    less as less,
    less_equal as less_equal,
    logical_not as logical_not,
    not_equal as not_equal,
    packbits as packbits,
    right_shift as right_shift,
    unpackbits as unpackbits,
)
from weft.numpy.manipulation import (
    atleast_1d as atleast_1d,
    atleast_2d as atleast_2d,
    atleast_3d as atleast_3d,
    broadcast_arrays as broadcast_arrays,
    broadcast_shapes as broadcast_shapes,
    broadcast_to as broadcast_to,
    expand_dims as expand_dims,
    flip as flip,
    fliplr as fliplr,
    flipud as flipud,
    matrix_transpose as matrix_transpose,
    moveaxis as moveaxis,
    ndim as ndim,
    permute_dims as permute_dims,
    ravel as ravel,
    repeat as repeat,
    reshape as reshape,
    resize as resize,
    roll as roll,
    rollaxis as rollaxis,
    rot90 as rot90,
    shape as shape,
    size as size,
    squeeze as squeeze,
    swapaxes as swapaxes,
    tile as tile,
    transpose as transpose,
    trim_zeros as trim_zeros,
)
from weft.numpy.padding import pad as pad
from weft.numpy.polynomial import (
    poly as poly,
    polyadd as polyadd,
    polyder as polyder,
    polydiv as polydiv,
    polyfit as polyfit,
    polyint as polyint,
    polymul as polymul,
    polysub as polysub,
    polyval as polyval,
    roots as roots,
)
from weft.numpy.reductions import (
    all as all,
    amax as amax,
    amin as amin,
    any as any,
    argmax as argmax,
    argmin as argmin,
    average as average,
    count_nonzero as count_nonzero,
    max as max,
    mean as mean,
    min as min,
    nanargmax as nanargmax,
    nanargmin as nanargmin,
    nanmax as nanmax,
    nanmean as nanmean,
    nanmin as nanmin,
    nanprod as nanprod,
    nanstd as nanstd,
    nansum as nansum,
    nanvar as nanvar,
    prod as prod,
    ptp as ptp,
    std as std,
    sum as sum,
    var as var,
)
from weft.numpy.rounding import (
    around as around,
    ceil as ceil,
    floor as floor,
    nan_to_num as nan_to_num,
    rint as rint,
    round as round,
    trunc as trunc,
)
from weft.numpy.running import (
    cumprod as cumprod,
    cumsum as cumsum,
    cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum,
    nancumprod as nancumprod,
    nancumsum as nancumsum,
)
from weft.numpy.scalar_types import (
    bfloat16 as bfloat16,
    bool_ as bool_,
    cdouble as cdouble,
    complex64 as complex64,
    complex128 as complex128,
    complex_ as complex_,
    csingle as csingle,
    double as double,
    float4_e2m1fn as float4_e2m1fn,
    float6_e2m3fn as float6_e2m3fn,
    float6_e3m2fn as float6_e3m2fn,
    float8_e3m4 as float8_e3m4,
    float8_e4m3 as float8_e4m3,
    float8_e4m3b11fnuz as float8_e4m3b11fnuz,
    float8_e4m3fn as float8_e4m3fn,
    float8_e4m3fnuz as float8_e4m3fnuz,
    float8_e5m2 as float8_e5m2,
    float8_e5m2fnuz as float8_e5m2fnuz,
    float8_e8m0fnu as float8_e8m0fnu,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    float_ as float_,
    int1 as int1,
    int2 as int2,
    int4 as int4,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    int_ as int_,
    single as single,
    uint as uint,
    uint1 as uint1,
    uint2 as uint2,
    uint4 as uint4,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from weft.numpy.selection import (
    argwhere as argwhere,
    choose as choose,
    compress as compress,
    extract as extract,
    fill_diagonal as fill_diagonal,
    flatnonzero as flatnonzero,
    nonzero as nonzero,
    piecewise as piecewise,
    place as place,
    put as put,
    put_along_axis as put_along_axis,
    select as select,
    where as where,
)
from weft.numpy.setops import (
    intersect1d as intersect1d,
    isin as isin,
    setdiff1d as setdiff1d,
    setxor1d as setxor1d,
    union1d as union1d,
    unique as unique,
    unique_all as unique_all,
    unique_counts as unique_counts,
    unique_inverse as unique_inverse,
    unique_values as unique_values,
)
from weft.numpy.sorting import (
    argpartition as argpartition,
    argsort as argsort,
    bincount as bincount,
    digitize as digitize,
    histogram as histogram,
    histogram2d as histogram2d,
    histogram_bin_edges as histogram_bin_edges,
    histogramdd as histogramdd,
    lexsort as lexsort,
    partition as partition,
    searchsorted as searchsorted,
    sort as sort,
    sort_complex as sort_complex,
)
from weft.numpy.statistics import (
    corrcoef as corrcoef,
    cov as cov,
    median as median,
    nanmedian as nanmedian,
    nanpercentile as nanpercentile,
    nanquantile as nanquantile,
    percentile as percentile,
    quantile as quantile,
)
from weft.numpy.taking import take as take, take_along_axis as take_along_axis
from weft.numpy.transcendental import (
    acos as acos,
    acosh as acosh,
    arccos as arccos,
    arccosh as arccosh,
    arcsin as arcsin,
    arcsinh as arcsinh,
    arctan as arctan,
    arctan2 as arctan2,
    arctanh as arctanh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    cbrt as cbrt,
    cos as cos,
    cosh as cosh,
    deg2rad as deg2rad,
    degrees as degrees,
    exp as exp,
    exp2 as exp2,
    expm1 as expm1,
    log as log,
    log1p as log1p,
    log2 as log2,
    log10 as log10,
    rad2deg as rad2deg,
    radians as radians,
    sin as sin,
    sinc as sinc,
    sinh as sinh,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
)
from weft.numpy.ufuncs import (
    add as add,
    bitwise_and as bitwise_and,
    bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor,
    frompyfunc as frompyfunc,
    logaddexp as logaddexp,
    logaddexp2 as logaddexp2,
    logical_and as logical_and,
    logical_or as logical_or,
    logical_xor as logical_xor,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    negative as negative,
    subtract as subtract,
    ufunc as ufunc,
)
from weft.numpy.vectorize import (
    apply_along_axis as apply_along_axis,
    apply_over_axes as apply_over_axes,
    vectorize as vectorize,
)
from weft.trace.array import Array as _Array

# Aliases.
abs = absolute
bool = bool_

# Numbers.
e = _numpy.e
euler_gamma = _numpy.euler_gamma
inf = _numpy.inf
nan = _numpy.nan
newaxis = None
pi = _numpy.pi

# The dtype class, the kinds of dtypes, and how NumPy prints: NumPy's own.
ComplexWarning = _numpy.exceptions.ComplexWarning
character = _numpy.character
complexfloating = _numpy.complexfloating
dtype = _numpy.dtype
flexible = _numpy.flexible
floating = _numpy.floating
generic = _numpy.generic
get_printoptions = _numpy.get_printoptions
inexact = _numpy.inexact
integer = _numpy.integer
number = _numpy.number
object_ = _numpy.object_
printoptions = _numpy.printoptions
set_printoptions = _numpy.set_printoptions
signedinteger = _numpy.signedinteger
unsignedinteger = _numpy.unsignedinteger

ndarray = _Array

_publish(__name__)
