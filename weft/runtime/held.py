"""`HeldArray`: the operations that all concrete arrays share, with one buffer or several."""

from __future__ import annotations

import gc
import math
from typing import Any, NoReturn

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError, DonatedArrayError, ImmutableArrayError, JaxRuntimeError
from weft.base.source import Location, user_line
from weft.base.tracebacks import boundary, conceal
from weft.runtime.dlpack import to_capsule
from weft.trace.array import Array
from weft.trace.tracer import ambiguous, ambiguous_in_jax

# The sentences of JAX, which programs match.
_JAX_TEXT_OF_INDEX = "Only integer scalar arrays can be converted to a scalar index."
_JAX_TEXT_OF_SCALAR = "Only scalar arrays can be converted to Python scalars."

# Marker in place of the line of donation, for arrays whose computation was interrupted.
INTERRUPTED = Location((lambda: None).__code__, 0)


def live_arrays() -> list[HeldArray]:
    """Return all arrays of this process that are referenced and not deleted; scans every object that gc tracks."""
    return [x for x in gc.get_objects() if isinstance(x, HeldArray) and not x.is_deleted()]


class HeldArray(Array):
    """Array with concrete elements. A subclass defines `_value`: all of them, in storage dtype."""

    __slots__ = ()

    @property
    def _value(self) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} must define _value")

    @property
    def addressable_shards(self) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define addressable_shards")

    def is_deleted(self) -> bool:
        raise NotImplementedError(f"{type(self).__name__} must define is_deleted")

    def _raise_deleted(self) -> NoReturn:
        donated: Location | None = getattr(self, "_donated_at", None)
        if donated is INTERRUPTED:
            raise JaxRuntimeError(
                "The computation of this array was interrupted, so it has no elements.",
                received=self.aval.short(),
                fix="compute it again",
            )
        if donated is not None:
            raise DonatedArrayError(
                f"This array was donated to a jitted call at {donated.describe()}, so its buffer is gone.",
                jax=f"Array has been deleted with shape={self.aval.short()}.",
                received=self.aval.short(),
                fix="use the call's result instead, or take the argument out of donate_argnums",
                at=user_line(),
            )
        raise DonatedArrayError(
            "This array was deleted, so it cannot be used.",
            jax=f"Array has been deleted with shape={self.aval.short()}.",
            received=self.aval.short(),
            fix="do not use an array after `.delete()`",
            at=user_line(),
        )

    def copy_to_host_async(self) -> None:
        """Copy the elements to the host, where they are cached."""
        self._value  # noqa: B018

    @property
    def nbytes(self) -> int:
        result: int = math.prod(self.aval.shape) * self.itemsize
        return result

    @property
    def itemsize(self) -> int:
        return dtypes.storage(self.aval.dtype).itemsize

    def on_device_size_in_bytes(self) -> int:
        return self.nbytes

    @property
    def device_buffers(self) -> list[Array]:
        """Shards on devices of this process, as arrays: an older name for `addressable_shards`."""
        return [shard.data for shard in self.addressable_shards]

    @property
    def device_buffer(self) -> Array:
        """The array on its only device, or its first shard: an older name for `addressable_data(0)`."""
        return self.device_buffers[0]

    # -- to Python and NumPy ---------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self._value
        if isinstance(self.aval.dtype, dtypes.ExtendedDtype):
            raise TypeError(f"An array of {self.aval.dtype.name} has no NumPy form; use weft.random.key_data(key).")
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ValueError("A conversion of dtype needs a copy; got copy=False.")
            return value.astype(dtype)
        if copy:
            return value.copy()
        view = value.view()
        view.flags.writeable = False
        return view

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        if not copy and max_version is not None and max_version >= (1, 0):
            return to_capsule(np.asarray(self), max_version=max_version)  # a view with the read-only flag
        if copy is False:
            raise BufferError("An array cannot be shared with a consumer that might write to it; got copy=False.")
        # Consumers of unversioned capsules ignore the read-only flag, so they get a copy.
        return to_capsule(self._value.copy())

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers.

        Returns:
            A list; a number for rank 0.

        >>> import weft.numpy as wnp
        >>> wnp.arange(3).tolist()
        [0, 1, 2]
        """
        return self._value.tolist()

    def item(self, *args: Any) -> Any:
        """Return one element as a Python number.

        Args:
            *args: its index; not needed if there is one element.

        Returns:
            A Python number.

        >>> import weft.numpy as wnp
        >>> wnp.array([7]).item()
        7
        """
        return self._value.item(*args)

    def tobytes(self, order: Any = "C") -> bytes:
        r"""Return the elements as bytes.

        Args:
            order: "C" if the last axis varies fastest, "F" if the first one does.

        Returns:
            Bytes.

        >>> import weft.numpy as wnp
        >>> wnp.array([1, 2], dtype=wnp.uint8).tobytes()
        b'\x01\x02'
        """
        return self._value.tobytes(order)

    def __bool__(self) -> bool:
        try:
            value = self._value
            if value.size != 1:
                raise ArgumentError(ambiguous(self.aval), fix="use .any() or .all()", jax=ambiguous_in_jax(self.aval))
            return bool(value)
        except Exception as error:
            conceal(error)
            raise

    def __int__(self) -> int:
        try:
            return int(self._scalar("int"))
        except Exception as error:
            conceal(error)
            raise

    def __float__(self) -> float:
        try:
            return float(self._scalar("float"))
        except Exception as error:
            conceal(error)
            raise

    def __complex__(self) -> complex:
        try:
            return complex(self._scalar("complex"))
        except Exception as error:
            conceal(error)
            raise

    def __index__(self) -> int:
        try:
            value = self._value
            if value.ndim or dtypes.kind(self.aval.dtype) not in "iu":
                raise ArgumentTypeError(
                    "Only an integer array without dimensions can be an index.",
                    received=self.aval.short(),
                    fix="x[i] for one element of an array, .astype(int) for floats",
                    jax=_JAX_TEXT_OF_INDEX,
                )
            return int(value)
        except Exception as error:
            conceal(error)
            raise

    def _scalar(self, kind: str) -> Any:
        if self.aval.shape:
            raise ArgumentTypeError(
                f"{kind}() needs an array without dimensions.",
                received=self.aval.short(),
                fix="x[0], x.sum() or x.item() of one element",
                jax=_JAX_TEXT_OF_SCALAR,
            )
        return self._value

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array(deleted, {self.aval.short()})"
        dtype = self.aval.dtype
        tail = f"dtype={dtypes.name(dtype)}" + (", weak_type=True" if self.aval.weak_type else "")
        if isinstance(dtype, dtypes.ExtendedDtype):
            return f"Array({self.aval.shape}, {tail}) overlaying:\n{dtype.physical(self._value)}"
        if 0 in self.aval.shape:
            return f"Array([], shape={self.aval.shape}, {tail})"
        body = np.array2string(self._value, separator=", ", prefix="Array(")
        last = len(body) - body.rfind("\n") - 1 + (len("Array(") if "\n" not in body else 0)
        joint = ", " if last + len(tail) + 3 <= 88 else ",\n      "
        return f"Array({body}{joint}{tail})"

    def __str__(self) -> str:
        as_repr = self.is_deleted() or isinstance(self.aval.dtype, dtypes.ExtendedDtype)
        return repr(self) if as_repr else str(self._value)

    def __format__(self, spec: str) -> str:
        is_scalar = not self.aval.shape and not isinstance(self.aval.dtype, dtypes.ExtendedDtype)
        return format(self._value[()], spec) if is_scalar else format(str(self), spec)

    @boundary
    def __setitem__(self, index: Any, value: Any) -> None:
        raise ImmutableArrayError(
            "Weft arrays are immutable: `x[index] = value` cannot change one in place.",
            received=self.aval.short(),
            fix="x = x.at[index].set(value), which returns a new array (also .add, .multiply, .min, .max, ...)",
            at=user_line(),
        )
