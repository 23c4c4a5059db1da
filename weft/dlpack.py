"""Arrays shared with other libraries by DLPack, without a copy if possible.

Other libraries import an array of Weft by `torch.from_dlpack(x)` or `numpy.from_dlpack(x)`. Libraries that support
read-only memory share it; others get a copy. Arrays on GPUs are always shared, and work on both sides is ordered.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.api.devices import device_put
from weft.base import conversion
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.publish import publish as _publish
from weft.ir.types import array_type
from weft.runtime.array import adopt_array, copy_array
from weft.runtime.borrowing import from_device, from_host
from weft.runtime.device import default_placement
from weft.runtime.dlpack import is_exchanged
from weft.trace.array import Array


def is_supported_dtype(dtype: Any) -> bool:
    """Return whether arrays of a dtype can be exchanged: booleans, integers, floats (also bfloat16 and 8-bit floats)
    and complex numbers.
    """
    return is_exchanged(np.dtype(dtype))


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Array:
    """Return an array over the memory of another library's array, which has `__dlpack__`.

    The memory is shared: the other array must not be written while this one is used. With `copy=True` it is copied. It
    is also copied if necessary, unless `copy=False` forbids it: for 64-bit types while `enable_x64` is off, and for
    another `device` (or sharding).

    Args:
        external_array: an array of another library.
        device: a device or sharding for the result; by default that of the other array.
        copy: True to copy, False to raise if a copy is necessary, None to copy if necessary.

    Returns:
        An array.

    >>> import numpy, weft
    >>> ones = numpy.ones(3, numpy.float32)
    >>> x = weft.dlpack.from_dlpack(ones)
    >>> numpy.shares_memory(numpy.asarray(x), ones)
    True
    """
    if not hasattr(external_array, "__dlpack__"):
        what = "The argument of from_dlpack must be an array of a library that has DLPack."
        fix = "weft.numpy.asarray(x)   for everything that NumPy understands"
        raise ArgumentTypeError(what, received=f"an object of type {type(external_array).__name__}", fix=fix)
    if isinstance(external_array, Array) and not copy:
        return external_array if device is None else device_put(external_array, device)
    value = from_host(external_array)
    if value is None:
        found = from_device(external_array, copy)
        return found if device is None else device_put(found, device)
    converted = conversion.canonical_array(value)
    if converted is not value and copy is False:
        raise ArgumentError(
            f"An array of {value.dtype} cannot become one of {converted.dtype} without a copy; got copy=False.",
            fix="weft.config.update('enable_x64', True), or leave out copy",
        )
    aval = array_type(converted.shape, converted.dtype)
    make = copy_array if copy and converted is value else adopt_array
    array = make(converted, aval, default_placement())
    return array if device is None else device_put(array, device)


_publish(__name__)
