"""Dtypes: those of NumPy and ml_dtypes, and extended ones such as random keys; canonicalization and promotion.

Three ideas run through this file:

* **canonical**: unless `enable_x64` is on, a 64-bit dtype means the 32-bit dtype of its kind;
* **weak**: a Python number has a kind but no width, so it takes the width of the array it is combined with;
* **checked narrowing** (`conversion.py`): a 64-bit number whose value does not fit into 32 bits raises an error.
"""

from __future__ import annotations

import builtins
import difflib
import functools
import warnings
from collections.abc import Hashable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    TypePromotionError,
)
from weft.base.promotion import DTYPES as DTYPES, INTEGERS_BELOW_A_BYTE, SMALL_FLOATS, Node, join, node_name, weak_node
from weft.base.settings import config
from weft.base.source import user_line, user_stacklevel

# ------------------------------------------------------------------------------------------------- the types themselves


class extended(np.generic):
    """The abstract type of all extended dtypes, for `issubdtype`."""


class prng_key(extended):
    """The abstract type above the dtypes of random keys, for `issubdtype`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> wnp.issubdtype(weft.random.key(0).dtype, weft.dtypes.prng_key)
    True
    """


class ExtendedDtype:
    """A dtype whose elements are not plain numbers, such as random keys.

    Arrays of it are stored as NumPy arrays of the dtype `storage` with the same shape, so indexing, reshaping,
    concatenating and the like need no special case. Two extended dtypes are equal if their class and name are.
    """

    type: builtins.type = extended
    name: str
    storage: np.dtype[Any]

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return self.storage.itemsize

    def physical(self, array: np.ndarray) -> np.ndarray:
        """Convert elements in storage to the plain numbers that they consist of, for printing."""
        return array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExtendedDtype) and type(self) is type(other) and self.name == other.name

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __repr__(self) -> str:
        return self.name


Dtype: TypeAlias = "np.dtype[Any] | ExtendedDtype"

bool_ = DTYPES["bool"]
int32 = DTYPES["int32"]
int64 = DTYPES["int64"]
uint32 = DTYPES["uint32"]
uint64 = DTYPES["uint64"]
bfloat16 = DTYPES["bfloat16"]
float16 = DTYPES["float16"]
float32 = DTYPES["float32"]
float64 = DTYPES["float64"]
complex64 = DTYPES["complex64"]
complex128 = DTYPES["complex128"]

float0 = np.dtype([("float0", np.void, 0)])
"""The type of tangents of integers: one possible value, no bytes."""

_PYTHON_DTYPES: dict[type, np.dtype[Any]] = {bool: bool_, int: int64, float: float64, complex: complex128}
_WEAK_SCALARS: set[type] = {int, float, complex}

# The canonical dtype of every supported one, while `enable_x64` is on and while it is off.
WITH_X64: dict[Hashable, np.dtype[Any]] = {dtype: dtype for dtype in (*DTYPES.values(), float0)}
WITHOUT_X64: dict[Hashable, np.dtype[Any]] = WITH_X64 | {
    int64: int32,
    uint64: uint32,
    float64: float32,
    complex128: complex64,
}
WIDE_DTYPES = {WITHOUT_X64[wide]: wide for wide in (int64, uint64, float64, complex128)}
"""The 64-bit dtype of each 32-bit dtype that replaces one."""


def register_integer(kind: type) -> None:
    """Give instances of a class the dtype of Python integers."""
    _PYTHON_DTYPES[kind] = int64
    _WEAK_SCALARS.add(kind)


def storage(dtype: Dtype) -> np.dtype[Any]:
    """Return the NumPy dtype in which elements of `dtype` are stored."""
    return dtype.storage if isinstance(dtype, ExtendedDtype) else dtype


def as_dtype(specifier: Any) -> Dtype:
    """Return the dtype for a name, a dtype, a Python or NumPy scalar type, or a class with a `dtype` attribute."""
    if isinstance(specifier, (np.dtype, ExtendedDtype)):
        return specifier
    if isinstance(specifier, str):
        return DTYPES.get(specifier) or _numpy_dtype(specifier)
    if isinstance(specifier, type) and specifier in _PYTHON_DTYPES:
        return _PYTHON_DTYPES[specifier]
    inner = getattr(specifier, "dtype", None)
    return inner if isinstance(inner, (np.dtype, ExtendedDtype)) else _numpy_dtype(specifier)


def _numpy_dtype(specifier: Any) -> np.dtype[Any]:
    try:
        result: np.dtype[Any] = np.dtype(specifier)
        return result
    except TypeError as error:
        near = difflib.get_close_matches(str(specifier), DTYPES, n=1)
        raise ArgumentTypeError(
            "The argument must be a dtype.",
            received=f"{specifier!r}: {error}",
            fix=f"{near[0]!r}" if near else "a name such as 'float32' or 'int32', or weft.numpy.float32",
        ) from None


def dtype(x: Any, *, canonicalize: bool = False) -> Dtype:
    """Return the dtype of a value (array, Python or NumPy scalar), or the dtype that `x` names."""
    found = _dtype_and_weak(x)[0]
    return canonicalize_dtype(found, allow_extended_dtype=True) if canonicalize else found


_WIDE = frozenset(WIDE_DTYPES.values())


def is_canonical(dtype: Any) -> bool:
    """Return whether NumPy values of this dtype keep it in a program; 64-bit ones do only with `enable_x64` on."""
    return dtype not in _WIDE or config.enable_x64


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Dtype:
    """Return the dtype that arrays have if `dtype` is requested: 64-bit types become 32-bit ones unless `enable_x64` is
    on.

    Args:
        dtype: a dtype, its name or a scalar type.
        allow_extended_dtype: whether dtypes of random keys are accepted.

    Returns:
        A dtype.

    >>> import weft
    >>> weft.dtypes.canonicalize_dtype("float64")
    dtype('float32')
    """
    try:
        found = (WITH_X64 if config.enable_x64 else WITHOUT_X64).get(dtype)
    except TypeError:  # not hashable
        found = None
        dtype = as_dtype(dtype)
    if found is not None:
        return found
    resolved = float64 if dtype is None else as_dtype(dtype)
    if isinstance(resolved, ExtendedDtype):
        if allow_extended_dtype:
            return resolved
        raise ArgumentError(f"The dtype must be that of numbers or booleans; got the extended dtype {resolved}.")
    found = (WITH_X64 if config.enable_x64 else WITHOUT_X64).get(native(resolved))
    if found is None:
        raise ArgumentTypeError(
            f"The dtype {resolved} is not supported: an array holds booleans, integers, floats or complex.",
            jax=f"Dtype {resolved} is not a valid JAX array type. Only arrays of numeric types are supported by "
            f"JAX: it "
            "is not a valid JAX type.",
        )
    return found


def native(dtype: Any) -> Any:
    """Return the dtype in the byte order of this machine."""
    return dtype if isinstance(dtype, ExtendedDtype) or dtype.isnative else dtype.newbyteorder("=")


def requested_dtype(dtype: Any, function: str) -> Dtype:
    """Return the canonical dtype for one that a user passed to `function`. Warn or raise, as `explicit_x64_dtypes`
    says, if it is narrower than requested.

    Python's `int`, `float` and `complex` name a kind without a width, so they are never too wide.
    """
    canonical = canonicalize_dtype(dtype, allow_extended_dtype=True)
    if config.enable_x64 or isinstance(canonical, ExtendedDtype) or dtype is None:
        return canonical
    if isinstance(dtype, type) and dtype in _PYTHON_DTYPES:
        return canonical
    asked = as_dtype(dtype)
    if asked.itemsize > canonical.itemsize:
        text = f"Explicitly requested dtype {asked} of {function} is not available while enable_x64 is off"
        fix = "weft.config.update('enable_x64', True), `with weft.enable_x64(True):` or WEFT_ENABLE_X64=1 in the shell"
        if config.explicit_x64_dtypes == "error":
            raise ArgumentError(f"{text}. Ask for {canonical}, or keep 64 bits with {fix}.")
        warnings.warn(f"{text}, so the result is {canonical}. To keep 64 bits: {fix}.", stacklevel=user_stacklevel())
    return canonical


def default_int_dtype() -> np.dtype[Any]:
    """Return the dtype of a Python int: int64 with `enable_x64`, else int32."""
    return int64 if config.enable_x64 else int32


def default_uint_dtype() -> np.dtype[Any]:
    """Return the unsigned dtype of default width."""
    return uint64 if config.enable_x64 else uint32


def default_float_dtype() -> np.dtype[Any]:
    """Return the dtype of a Python float: float64 with `enable_x64`, else float32."""
    return float64 if config.enable_x64 else float32


def default_complex_dtype() -> np.dtype[Any]:
    """Return the dtype of a Python complex: complex128 with `enable_x64`, else complex64."""
    return complex128 if config.enable_x64 else complex64


# ----------------------------------------------------------------------------------------------- kinds, sizes and names

_SMALL_FLOAT_TYPES = frozenset(DTYPES[name].type for name in (*SMALL_FLOATS, "bfloat16"))
_SMALL_SIGNED_TYPES = frozenset(DTYPES[name].type for name in INTEGERS_BELOW_A_BYTE if name[0] == "i")
_SMALL_UNSIGNED_TYPES = frozenset(DTYPES[name].type for name in INTEGERS_BELOW_A_BYTE if name[0] == "u")


@functools.lru_cache(maxsize=4096)
def issubdtype(a: Any, b: Any) -> bool:
    """Return whether the dtype `a` is `b` or, if `b` is an abstract type such as `np.floating`, of that kind.

    Args:
        a: a dtype.
        b: a dtype or an abstract type.

    Returns:
        A Python bool.

    >>> import numpy as np
    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.dtypes.issubdtype(wnp.bfloat16, np.floating)
    True
    """
    if isinstance(b, ExtendedDtype):
        result: bool = a == b
        return result
    above = b if isinstance(b, type) and issubclass(b, np.generic) else as_dtype(b).type
    scalar = a if isinstance(a, type) and issubclass(a, np.generic) else as_dtype(a).type
    # Types of ml_dtypes are subclasses of np.generic only, so their kind is looked up.
    if scalar in _SMALL_FLOAT_TYPES:
        return scalar is above or issubclass(np.floating, above)
    if scalar in _SMALL_SIGNED_TYPES:
        return scalar is above or issubclass(np.signedinteger, above)
    if scalar in _SMALL_UNSIGNED_TYPES:
        return scalar is above or issubclass(np.unsignedinteger, above)
    return issubclass(scalar, above)


@functools.lru_cache(maxsize=256)
def kind(dtype: Dtype) -> str:
    """Return a letter for the kind of elements: b(ool), i(nt), u(nsigned), f(loat), c(omplex), k(ey), v(oid).

    NumPy's own `kind` calls most types of ml_dtypes void. Every extended dtype counts as a key.
    """
    if isinstance(dtype, ExtendedDtype):
        return "k"
    for letter, above in (
        ("i", np.signedinteger),
        ("u", np.unsignedinteger),
        ("f", np.floating),
        ("c", np.complexfloating),
    ):
        if issubdtype(dtype, above):
            return letter
    return "b" if dtype == bool_ else "v"


def name(dtype: Dtype) -> str:
    """Return the name of a dtype as users write it, such as `float32`."""
    return "float0" if dtype == float0 else dtype.name


def scalar_dtype(kind: builtins.type) -> np.dtype[Any]:
    """Return the canonical dtype of a Python scalar type."""
    wide = _PYTHON_DTYPES[kind]
    return wide if config.enable_x64 else WITHOUT_X64[wide]


def scalar_type_of(x: Any) -> type:
    """Return the Python type (`bool`, `int`, `float` or `complex`) of one element of `x`, a value or a dtype."""
    found = _dtype_and_weak(x)[0]
    for abstract, python in ((np.bool_, bool), (np.integer, int), (np.floating, float), (np.complexfloating, complex)):
        if issubdtype(found, abstract):
            return python
    raise ArgumentTypeError(f"The dtype must be that of numbers or booleans; got {found}.")


def itemsize_bits(dtype: Any) -> int:
    """Return the number of bits of one element; a bool has 8, an int4 has 4."""
    found = as_dtype(dtype)
    if isinstance(found, ExtendedDtype) or found == float0:
        raise ArgumentError(f"An element of dtype {found} has no width in bits.")
    if found.name in INTEGERS_BELOW_A_BYTE:
        result: int = iinfo(found).bits
        return result
    if found.name in SMALL_FLOATS:
        return finfo(found).bits
    return found.itemsize * 8


def finfo(dtype: Any) -> np.finfo:
    """Return the limits of a floating-point dtype (`max`, `min`, `eps`, `tiny`, `bits`, ...); for a complex dtype,
    those of its parts.

    Args:
        dtype: a floating-point or complex dtype, bfloat16 and eight-bit floats too.

    Returns:
        An object with the limits as attributes.

    >>> import weft.numpy as wnp
    >>> wnp.finfo(wnp.float16).max
    np.float16(6.55e+04)
    """
    found = _dtype_and_weak(dtype)[0]
    if kind(found) not in "fc":
        raise ArgumentError(f"finfo needs a floating-point dtype, got {name(found)}.", fix="wnp.iinfo   for integers")
    return ml_dtypes.finfo(found)


def iinfo(int_type: Any) -> Any:
    """Return the limits of an integer dtype: `min`, `max`, `bits`, `dtype`.

    Args:
        int_type: an integer dtype, int4 too.

    Returns:
        An object with the limits as attributes.

    >>> import weft.numpy as wnp
    >>> wnp.iinfo(wnp.int8).max
    127
    """
    found = _dtype_and_weak(int_type)[0]
    if kind(found) not in "iu":
        raise ArgumentError(f"iinfo needs an integer dtype, got {name(found)}.", fix="wnp.finfo   for floats")
    return ml_dtypes.iinfo(found)


_SHORT_PREFIX = (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c"))


@functools.lru_cache(maxsize=256)
def short_name(dtype: Dtype) -> str:
    """Return the name used in jaxprs: f32, bf16, i32, u8, bool, c64, f8_e4m3fn, float0, key<fry>."""
    if dtype == float0:
        return "float0"
    name = dtype.name
    if isinstance(dtype, ExtendedDtype):
        return name
    for long, short in _SHORT_PREFIX:
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name


_BY_SHORT_NAME: dict[str, Dtype] = {short_name(dtype): dtype for dtype in (*DTYPES.values(), float0)}


def register_extended_dtype(dtype: ExtendedDtype) -> None:
    """Make `from_short_name` find an extended dtype by its name."""
    _BY_SHORT_NAME[dtype.name] = dtype


def from_short_name(name: str) -> Dtype:
    """Return the dtype with the given `short_name`."""
    try:
        return _BY_SHORT_NAME[name]
    except KeyError:
        raise ArgumentError(f"Unknown short dtype name {name!r}; known are {', '.join(_BY_SHORT_NAME)}.") from None


# -------------------------------------------------------------------------------------------------- related types


def to_inexact_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the float dtype for an integer or boolean one (64-bit for 64-bit, else float32); return inexact dtypes
    unchanged."""
    found = as_dtype(dtype)
    if isinstance(found, ExtendedDtype):
        raise ArgumentTypeError(f"The dtype {found} has no floating-point counterpart.")
    if issubdtype(found, np.inexact):
        return found
    return float64 if found.itemsize == 8 and found != float0 else float32


def to_floating_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the real floating-point dtype for any number dtype; for a complex one, the dtype of its parts."""
    found = to_inexact_dtype(dtype)
    return {complex64: float32, complex128: float64}.get(found, found)


def to_real_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of the real part: for a complex dtype that of its parts, else the dtype itself."""
    found = as_dtype(dtype)
    return to_floating_dtype(found) if issubdtype(found, np.complexfloating) else found  # type: ignore[return-value]


def to_complex_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the complex dtype whose parts can hold numbers of `dtype`; at least complex64."""
    return complex128 if to_inexact_dtype(dtype) in (float64, complex128) else complex64


def to_numeric_dtype(dtype: Any) -> np.dtype[Any]:
    """Return int32 for bool, and any other dtype unchanged."""
    found = as_dtype(dtype)
    if isinstance(found, ExtendedDtype):
        raise ArgumentTypeError(f"The dtype {found} has no numeric counterpart.")
    return int32 if found == bool_ else found


_ACCUMULATION: dict[np.dtype[Any], np.dtype[Any]] = {
    DTYPES[name]: float32 for name in (*SMALL_FLOATS, "bfloat16", "float16")
}


def accumulation_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which sums and contractions of `dtype` are accumulated: float32 for narrower floats, else the
    dtype itself."""
    return _ACCUMULATION.get(dtype, dtype)


# ------------------------------------------------------------------------------------------------------- promotion

_promoted: dict[str, dict[tuple[Dtype, bool, Dtype, bool], tuple[Dtype, bool]]] = {"standard": {}, "strict": {}}


def _dtype_and_weak(x: Any) -> tuple[Dtype, bool]:
    """Return the dtype of a value, or the dtype that it names, before canonicalization; and whether it is weak."""
    kind = type(x)
    if kind in _PYTHON_DTYPES:
        return _PYTHON_DTYPES[kind], kind in _WEAK_SCALARS
    if isinstance(x, (np.ndarray, np.generic)):
        refuse_masked(x)
        return native(x.dtype), False
    if isinstance(x, (np.dtype, ExtendedDtype)):
        return native(x), False
    if isinstance(x, (str, type)) or x is None:
        return (float64 if x is None else native(as_dtype(x))), x in _WEAK_SCALARS
    found = getattr(x, "dtype", None)
    if isinstance(found, (np.dtype, ExtendedDtype)):
        return found, bool(getattr(x, "weak_type", False))
    for python in (bool, int, float, complex):
        if isinstance(x, python):
            return _PYTHON_DTYPES[python], python in _WEAK_SCALARS
    raise ArgumentTypeError(f"Cannot determine the dtype of {x!r}; an array, a number or a dtype is expected.")


def refuse_masked(value: Any) -> None:
    """Raise for an array of `numpy.ma`: arrays have no mask, so masked elements would be used as values."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(
            "An array of numpy.ma cannot become an array: its mask would be lost.",
            at=user_line(),
            received=f"a masked array of shape {value.shape} and dtype {value.dtype}",
            jax="numpy masked arrays are not supported as direct inputs to JAX functions. Use arr.filled() to convert "
            "the value to a standard numpy array.",
            fix="x.filled(value), or weft.numpy.where with the mask as an array",
        )


def is_weakly_typed(x: Any) -> bool:
    """Return whether the dtype of `x` is weak: a Python int, float or complex, or an array computed from such numbers
    only."""
    kind = type(x)
    if kind in _PYTHON_DTYPES:
        return kind in _WEAK_SCALARS
    if isinstance(x, np.generic):
        return False
    return bool(getattr(x, "weak_type", False)) or (isinstance(x, (int, float, complex)) and kind is not bool)


def promote_pair(first: Dtype, first_weak: bool, second: Dtype, second_weak: bool) -> tuple[Dtype, bool]:
    """Return the dtype and weak type that two operands promote to, before canonicalization.

    Only the kind of a weak operand matters, and a weak result has the default dtype of its kind.
    """
    if first is second and not (first_weak and second_weak):
        return first, False
    mode = config.numpy_dtype_promotion
    cache = _promoted[mode]
    key = (first, first_weak, second, second_weak)
    found = cache.get(key)
    if found is None:
        found = cache[key] = _promote(mode, *key)
    return found


def _promote(mode: str, first: Dtype, first_weak: bool, second: Dtype, second_weak: bool) -> tuple[Dtype, bool]:
    if first == second and not (first_weak and second_weak):
        return first, False
    if first not in WITH_X64 or second not in WITH_X64 or float0 in (first, second):
        if float0 in (first, second):
            raise ArgumentTypeError(
                f"An array of float0, the tangent of integers, does not combine with "
                f"{name(second if first == float0 else first)}.",
                fix="leave derivatives of integers out of computations",
                at=user_line(),
                jax="Called add with a float0 array. float0s do not support any operations by design because "
                "they are not "
                "compatible with non-trivial vector spaces. No implicit dtype conversion is done.",
            )
        raise TypePromotionError(
            f"{name(first)} and {name(second)} have no common type.",
            at=user_line(),
            fix="combine arrays of the same dtype, or numbers with numbers",
        )
    assert isinstance(first, np.dtype) and isinstance(second, np.dtype)
    nodes = (weak_node(first) if first_weak else first, weak_node(second) if second_weak else second)
    common = join(mode, *nodes)
    if common is None:
        raise _no_promotion(mode, nodes)
    if isinstance(common, np.dtype):
        return common, False
    return _PYTHON_DTYPES[common], True


def _no_promotion(mode: str, nodes: tuple[Node, Node]) -> TypePromotionError:
    first, second = map(node_name, nodes)
    standard = join("standard", *nodes)
    if mode == "strict" and standard is not None:
        reason = f"{first} and {second} do not combine while numpy_dtype_promotion is 'strict'."
        target = standard.name if isinstance(standard, np.dtype) else f"default {standard.__name__}"
        fix = [
            f"x.astype(...) to one dtype, such as {target}",
            "with weft.numpy_dtype_promotion('standard'):   to promote by itself",
        ]
    else:
        reason = f"{first} and {second} have no common type: numbers below 8 bits and 8-bit floats do not promote."
        fix = ["x.astype(...) to one dtype, such as float32"]
    return TypePromotionError(reason, at=user_line(), fix=fix)


def promote_types(a: Any, b: Any) -> Dtype:
    """Return the dtype that two dtypes promote to; `int`, `float` and `complex` stand for Python numbers.

    The result is 64-bit if an argument is, even while `enable_x64` is off; narrower types then never promote to 64
    bits.

    Args:
        a, b: dtypes, or Python's `int`, `float` and `complex`.

    Returns:
        A dtype. Unlike NumPy, an integer and a short float yield the short float.

    >>> import weft.numpy as wnp
    >>> wnp.promote_types(wnp.int32, wnp.bfloat16) == wnp.bfloat16
    True
    """
    if a is b and a in WITH_X64:
        same: np.dtype[Any] | ExtendedDtype = a
        return same
    first, second = native(as_dtype(a)), native(as_dtype(b))
    for found in (first, second):
        if found not in WITH_X64 and not isinstance(found, ExtendedDtype):
            raise ArgumentError(f"The dtype {found} does not promote: it must be a boolean or number type.")
    found, weak = promote_pair(first, a in _WEAK_SCALARS, second, b in _WEAK_SCALARS)
    if found is int64 and not weak and not config.enable_x64 and int64 not in (first, second):
        return int32  # uint32 and a signed type: the only pair whose common type is wider than both
    return found


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """Return the canonical dtype that the arguments, values or dtypes, promote to; with the flag, also whether it is
    weak.

    Args:
        *args: arrays, numbers or dtypes.
        return_weak_type_flag: whether to return a pair.

    Returns:
        A dtype, or a pair of it and a bool.

    >>> import weft.numpy as wnp
    >>> wnp.result_type(wnp.arange(2), 1.5)
    dtype('float32')
    """
    if not args:
        raise ArgumentError("result_type needs at least one array or dtype.")
    canonical = WITH_X64 if config.enable_x64 else WITHOUT_X64
    found, weak = _dtype_and_weak(args[0])
    if weak:
        found, weak = promote_pair(found, weak, found, weak)
    found = canonical.get(found, found)
    for arg in args[1:]:
        next_found, next_weak = _dtype_and_weak(arg)
        found, weak = promote_pair(found, weak, canonical.get(next_found, next_found), next_weak)
    found = canonical.get(found) or canonicalize_dtype(found, allow_extended_dtype=True)
    return (found, weak) if return_weak_type_flag else found
