"""Arrays of extended dtypes, such as random keys, and data of mutable values."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.base.publish import suggest as _suggest
from weft.ir.context import EVALUATION, active
from weft.ir.primitive import lookup
from weft.primitives.random.bits import KeyDtype
from weft.runtime.held import HeldArray


class _Extended(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, HeldArray) and isinstance(instance.dtype, dtypes.ExtendedDtype)

    def __call__(cls, aval: Any, data: Any) -> Any:
        if not isinstance(aval.dtype, KeyDtype):
            what = "EArray(aval, data) makes an array of random keys, the one extended dtype that there is."
            raise ArgumentTypeError(what, received=f"dtype {dtypes.name(aval.dtype)}")
        return lookup("random_wrap")(data, impl=aval.dtype)


class EArray(metaclass=_Extended):
    """Arrays of an extended dtype: `isinstance(x, EArray)` holds for concrete arrays of random keys. `EArray(aval,
    data)` is one, of a type and from the words of its keys. All arrays are of one class; this one only tells them."""


def cur_qdd(x: Any) -> Any:
    """Return what is currently known of the contents of a mutable value, as its own `cur_qdd()` method reports it."""
    ask = getattr(x, "cur_qdd", None)
    if ask is None:
        what = "cur_qdd takes a value that says what is known of its contents, by a method `cur_qdd`."
        raise ArgumentTypeError(what, received=f"{x!r} of type {type(x).__name__}")
    with active(EVALUATION):
        return ask()


_suggest(__name__)
