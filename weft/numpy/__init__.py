"""NumPy for arrays that can be traced, differentiated and vectorized, with the names and arguments of `jax.numpy`."""

import numpy as _numpy

from weft.base.dtypes import finfo, iinfo, promote_types, result_type
from weft.base.publish import publish as _publish
from weft.numpy import fft, linalg
from weft.numpy.array_api import __array_api_version__, __array_namespace_info__
from weft.numpy.calculus import (
    bartlett,
    blackman,
    convolve,
    correlate,
    cross,
    diff,
    ediff1d,
    gradient,
    hamming,
    hanning,
    interp,
    kaiser,
    trapezoid,
)
from weft.numpy.complex_parts import angle, conj, conjugate, imag, real
from weft.numpy.contraction import (
    dot,
    einsum,
    einsum_path,
    inner,
    kron,
    matmul,
    matvec,
    outer,
    tensordot,
    vdot,
    vecdot,
    vecmat,
)
from weft.numpy.counting import arange, fromfunction, geomspace, indices, linspace, logspace, meshgrid
from weft.numpy.creation import (
    array,
    asarray,
    astype,
    copy,
    empty,
    empty_like,
    from_dlpack,
    frombuffer,
    fromfile,
    fromiter,
    fromstring,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from weft.numpy.diagonals import (
    diag,
    diag_indices,
    diag_indices_from,
    diagflat,
    diagonal,
    eye,
    identity,
    ix_,
    mask_indices,
    ravel_multi_index,
    trace,
    tri,
    tril,
    tril_indices,
    tril_indices_from,
    triu,
    triu_indices,
    triu_indices_from,
    unravel_index,
    vander,
)
from weft.numpy.elementwise import (
    absolute,
    copysign,
    divide,
    divmod,
    fabs,
    float_power,
    floor_divide,
    fmod,
    gcd,
    heaviside,
    hypot,
    i0,
    lcm,
    mod,
    modf,
    positive,
    pow,
    power,
    reciprocal,
    remainder,
    sign,
    signbit,
    square,
    true_divide,
    unwrap,
)
from weft.numpy.extremes import clip, fmax, fmin
from weft.numpy.files import array_repr, array_str, load, save, savez
from weft.numpy.float_parts import frexp, ldexp, nextafter, spacing
from weft.numpy.grids import c_, index_exp, mgrid, ogrid, r_, s_
from weft.numpy.insertion import delete, insert
from weft.numpy.joining import (
    append,
    array_split,
    block,
    column_stack,
    concat,
    concatenate,
    dsplit,
    dstack,
    hsplit,
    hstack,
    split,
    stack,
    unstack,
    vsplit,
    vstack,
)
from weft.numpy.logic import (
    allclose,
    array_equal,
    array_equiv,
    bitwise_count,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_right_shift,
    can_cast,
    equal,
    greater,
    greater_equal,
    invert,
    isclose,
    iscomplex,
    iscomplexobj,
    isdtype,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    isreal,
    isrealobj,
    isscalar,
    issubdtype,
    iterable,
    left_shift,
    less,
    less_equal,
    logical_not,
    not_equal,
    packbits,
    right_shift,
    unpackbits,
)
from weft.numpy.manipulation import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    flip,
    fliplr,
    flipud,
    matrix_transpose,
    moveaxis,
    ndim,
    permute_dims,
    ravel,
    repeat,
    reshape,
    resize,
    roll,
    rollaxis,
    rot90,
    shape,
    size,
    squeeze,
    swapaxes,
    tile,
    transpose,
    trim_zeros,
)
from weft.numpy.padding import pad
from weft.numpy.polynomial import poly, polyadd, polyder, polydiv, polyfit, polyint, polymul, polysub, polyval, roots
from weft.numpy.reductions import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    average,
    count_nonzero,
    max,
    mean,
    min,
    nanargmax,
    nanargmin,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
    prod,
    ptp,
    std,
    sum,
    var,
)
from weft.numpy.rounding import around, ceil, floor, nan_to_num, rint, round, trunc
from weft.numpy.running import cumprod, cumsum, cumulative_prod, cumulative_sum, nancumprod, nancumsum
from weft.numpy.scalar_types import (
    bfloat16,
    bool_,
    cdouble,
    complex64,
    complex128,
    complex_,
    csingle,
    double,
    float4_e2m1fn,
    float6_e2m3fn,
    float6_e3m2fn,
    float8_e3m4,
    float8_e4m3,
    float8_e4m3b11fnuz,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    float_,
    int1,
    int2,
    int4,
    int8,
    int16,
    int32,
    int64,
    int_,
    single,
    uint,
    uint1,
    uint2,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
)
from weft.numpy.selection import (
    argwhere,
    choose,
    compress,
    extract,
    fill_diagonal,
    flatnonzero,
    nonzero,
    piecewise,
    place,
    put,
    put_along_axis,
    select,
    where,
)
from weft.numpy.setops import (
    intersect1d,
    isin,
    setdiff1d,
    setxor1d,
    union1d,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from weft.numpy.sorting import (
    argpartition,
    argsort,
    bincount,
    digitize,
    histogram,
    histogram2d,
    histogram_bin_edges,
    histogramdd,
    lexsort,
    partition,
    searchsorted,
    sort,
    sort_complex,
)
from weft.numpy.statistics import corrcoef, cov, median, nanmedian, nanpercentile, nanquantile, percentile, quantile
from weft.numpy.taking import take, take_along_axis
from weft.numpy.transcendental import (
    acos,
    acosh,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cbrt,
    cos,
    cosh,
    deg2rad,
    degrees,
    exp,
    exp2,
    expm1,
    log,
    log1p,
    log2,
    log10,
    rad2deg,
    radians,
    sin,
    sinc,
    sinh,
    sqrt,
    tan,
    tanh,
)
from weft.numpy.ufuncs import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    frompyfunc,
    logaddexp,
    logaddexp2,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    subtract,
    ufunc,
)
from weft.numpy.vectorize import apply_along_axis, apply_over_axes, vectorize
from weft.trace.array import Array as ndarray

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

# fmt: off
__all__ = [
    "ComplexWarning", "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "angle", "any",
    "append", "apply_along_axis", "apply_over_axes", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort", "argwhere", "around", "array", "array_equal",
    "array_equiv", "array_repr", "array_split", "array_str", "asarray", "asin", "asinh", "astype", "atan", "atan2",
    "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett", "bfloat16", "bincount", "bitwise_and",
    "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "blackman", "block", "bool", "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "c_",
    "can_cast", "cbrt", "cdouble", "ceil", "character", "choose", "clip", "column_stack", "complex128", "complex64",
    "complex_", "complexfloating", "compress", "concat", "concatenate", "conj", "conjugate", "convolve", "copy",
    "copysign", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov", "cross", "csingle", "cumprod",
    "cumsum", "cumulative_prod", "cumulative_sum", "deg2rad", "degrees", "delete", "diag", "diag_indices",
    "diag_indices_from", "diagflat", "diagonal", "diff", "digitize", "divide", "divmod", "dot", "double", "dsplit",
    "dstack", "dtype", "e", "ediff1d", "einsum", "einsum_path", "empty", "empty_like", "equal", "euler_gamma", "exp",
    "exp2", "expand_dims", "expm1", "extract", "eye", "fabs", "fft", "fill_diagonal", "finfo", "flatnonzero",
    "flexible", "flip", "fliplr", "flipud", "float16", "float32", "float4_e2m1fn", "float64", "float6_e2m3fn",
    "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float_", "float_power", "floating", "floor", "floor_divide",
    "fmax", "fmin", "fmod", "frexp", "from_dlpack", "frombuffer", "fromfile", "fromfunction", "fromiter",
    "frompyfunc", "fromstring", "full", "full_like", "gcd", "generic", "geomspace", "get_printoptions", "gradient",
    "greater", "greater_equal", "hamming", "hanning", "heaviside", "histogram", "histogram2d", "histogram_bin_edges",
    "histogramdd", "hsplit", "hstack", "hypot", "i0", "identity", "iinfo", "imag", "index_exp", "indices", "inexact",
    "inf", "inner", "insert", "int1", "int16", "int2", "int32", "int4", "int64", "int8", "int_", "integer", "interp",
    "intersect1d", "invert", "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isin", "isinf", "isnan",
    "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_", "kaiser", "kron",
    "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort", "linalg", "linspace", "load", "log", "log10",
    "log1p", "log2", "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logspace",
    "mask_indices", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean", "median", "meshgrid", "mgrid",
    "min", "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile",
    "nanstd", "nansum", "nanvar", "ndarray", "ndim", "negative", "newaxis", "nextafter", "nonzero", "not_equal",
    "number", "object_", "ogrid", "ones", "ones_like", "outer", "packbits", "pad", "partition", "percentile",
    "permute_dims", "pi", "piecewise", "place", "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint",
    "polymul", "polysub", "polyval", "positive", "pow", "power", "printoptions", "prod", "promote_types", "ptp",
    "put", "put_along_axis", "quantile", "r_", "rad2deg", "radians", "ravel", "ravel_multi_index", "real",
    "reciprocal", "remainder", "repeat", "reshape", "resize", "result_type", "right_shift", "rint", "roll",
    "rollaxis", "roots", "rot90", "round", "s_", "save", "savez", "searchsorted", "select", "set_printoptions",
    "setdiff1d", "setxor1d", "shape", "sign", "signbit", "signedinteger", "sin", "sinc", "single", "sinh", "size",
    "sort", "sort_complex", "spacing", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum",
    "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "trace", "transpose", "trapezoid",
    "tri", "tril", "tril_indices", "tril_indices_from", "trim_zeros", "triu", "triu_indices", "triu_indices_from",
    "true_divide", "trunc", "ufunc", "uint", "uint1", "uint16", "uint2", "uint32", "uint4", "uint64", "uint8",
    "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unpackbits",
    "unravel_index", "unsignedinteger", "unstack", "unwrap", "vander", "var", "vdot", "vecdot", "vecmat", "vectorize",
    "vsplit", "vstack", "where", "zeros", "zeros_like",
]
# fmt: on

_publish(__name__)
