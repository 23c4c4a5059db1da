"""Scalar types such as `float32`: usable as the dtype, and callable to create an array of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.promotion import DTYPES
from weft.numpy.creation import asarray
from weft.trace.array import Array


class ScalarType(type):
    """Metaclass of `float32` and the like: equal to NumPy's scalar type of the same name, with a `dtype`."""

    dtype: np.dtype[Any]

    def __call__(cls, x: Any = 0) -> Array:
        """Create an array of this dtype from a number, an array or nested lists."""
        return asarray(x, dtype=cls.dtype)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.dtype.type == other or (isinstance(other, np.dtype) and cls.dtype == other)

    def __ne__(cls, other: object) -> bool:
        return not cls == other

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'weft.numpy.{cls.__name__}'>"


def scalar_type(name: str) -> Any:
    """Create the scalar type of a dtype by name; None if the installed ml_dtypes is too old to have it."""
    dtype = DTYPES.get(name)
    if dtype is None:
        return None
    cls = ScalarType(name, (), {"dtype": dtype, "__module__": "weft.numpy"})
    cls.__doc__ = f"""The dtype {name}; `{name}(x)` makes an array of it.

    Args:
        x: a number, an array or nested lists.

    Returns:
        An array of this dtype (the 32-bit one of its kind for 64 bits, unless `enable_x64` is on).

    >>> import weft.numpy as wnp
    >>> wnp.dtype(wnp.{name}).itemsize
    {np.dtype(dtype).itemsize}
    """
    return cls


bool_ = scalar_type("bool")
int1 = scalar_type("int1")
int2 = scalar_type("int2")
int4 = scalar_type("int4")
int8 = scalar_type("int8")
int16 = scalar_type("int16")
int32 = scalar_type("int32")
int64 = scalar_type("int64")
uint1 = scalar_type("uint1")
uint2 = scalar_type("uint2")
uint4 = scalar_type("uint4")
uint8 = scalar_type("uint8")
uint16 = scalar_type("uint16")
uint32 = scalar_type("uint32")
uint64 = scalar_type("uint64")
float4_e2m1fn = scalar_type("float4_e2m1fn")
float6_e2m3fn = scalar_type("float6_e2m3fn")
float6_e3m2fn = scalar_type("float6_e3m2fn")
float8_e3m4 = scalar_type("float8_e3m4")
float8_e4m3 = scalar_type("float8_e4m3")
float8_e4m3b11fnuz = scalar_type("float8_e4m3b11fnuz")
float8_e4m3fn = scalar_type("float8_e4m3fn")
float8_e4m3fnuz = scalar_type("float8_e4m3fnuz")
float8_e5m2 = scalar_type("float8_e5m2")
float8_e5m2fnuz = scalar_type("float8_e5m2fnuz")
float8_e8m0fnu = scalar_type("float8_e8m0fnu")
bfloat16 = scalar_type("bfloat16")
float16 = scalar_type("float16")
float32 = scalar_type("float32")
float64 = scalar_type("float64")
complex64 = scalar_type("complex64")
complex128 = scalar_type("complex128")

# Aliases: a type without a width is the widest one, which is the default one while `enable_x64` is off.
int_ = int64
uint = uint64
float_ = double = float64
complex_ = cdouble = complex128
single = float32
csingle = complex64
