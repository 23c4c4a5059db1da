"""`ConcreteArray`: an immutable array that holds its numbers, on the CPU in a NumPy buffer nobody else may write."""

from __future__ import annotations

import math
import sys
from typing import Any, NoReturn

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError, DonatedArrayError, ImmutableArrayError
from weft.base.source import Location, user_line
from weft.base.tracebacks import boundary, conceal
from weft.ir.types import ArrayType, array_type, type_of
from weft.runtime.device import CPU
from weft.runtime.memory import SMALL, Block, Chunk, pool
from weft.sharding import SingleDeviceSharding
from weft.sharding.device import Device
from weft.trace.array import Array
from weft.trace.tracer import ambiguous


class ConcreteArray(Array):
    """A concrete array: its type and its buffer. Operators and methods come from `Array`."""

    __slots__ = ("_buffer", "_donated_at", "_memory", "_pointer", "aval")

    def __init__(self, buffer: np.ndarray | None, aval: ArrayType, memory: Chunk | None = None, pointer: int = 0):
        # The results of programs are memory and an address in it; the NumPy array is made when somebody asks for it.
        self._buffer = buffer
        self.aval = aval
        self._memory = memory
        self._pointer = pointer

    @property
    def _value(self) -> np.ndarray:
        """The numbers, in storage dtype."""
        buffer = self._buffer
        if buffer is None:
            if self._memory is None:
                self._raise_deleted()
            aval = self.aval
            buffer = self._buffer = self._memory.view(self._pointer, aval.shape, dtypes.storage(aval.dtype))
        return buffer

    def _address(self) -> int:
        """Where the numbers are, one after the other; remembered in `_pointer`."""
        array = self._value
        if type(array) is not np.ndarray or not array.flags.c_contiguous:  # a NumPy scalar has no address of its own
            array = self._buffer = np.ascontiguousarray(array).reshape(self.aval.shape)
        pointer: int = array.__array_interface__["data"][0]
        self._pointer = pointer
        return pointer

    def _raise_deleted(self) -> NoReturn:
        donated: Location | None = getattr(self, "_donated_at", None)
        if donated is not None:
            raise DonatedArrayError(
                f"This array was donated to a jitted call at {donated.describe()}, so its buffer is gone.",
                received=self.aval.short(),
                fix="use the call's result instead, or take the argument out of donate_argnums",
                at=user_line(),
            )
        raise DonatedArrayError(
            "This array was deleted.",
            received=self.aval.short(),
            fix="do not use an array after `.delete()`",
            at=user_line(),
        )

    # -- life cycle ------------------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Free the buffer; using the array afterwards is an error."""
        self._buffer = self._memory = None
        self._pointer = 0

    def _donate(self, location: Location | None) -> None:
        self.delete()
        self._donated_at = location

    def _give(self) -> Block:
        """Memory with the numbers of this array that a program may overwrite: its own block, if nobody else sees that,
        else a copy."""
        block = self._memory
        # References that are known: the slot of this array, the local variable and the argument of getrefcount.
        if type(block) is Block and sys.getrefcount(block) <= 3:
            views = sys.getrefcount(block.array) - 2  # those that NumPy has of the memory
            if not views or (views == 1 and self._buffer is not None and sys.getrefcount(self._buffer) <= 2):
                return block
        value = self._value
        return copied_block(value, value.shape)

    def is_deleted(self) -> bool:
        return self._buffer is None and self._memory is None

    def block_until_ready(self) -> ConcreteArray:
        """Wait until the numbers are there; gives the array back."""
        if self.is_deleted():
            self._raise_deleted()
        return self

    def is_ready(self) -> bool:
        return not self.is_deleted()

    def copy_to_host_async(self) -> None:
        """The numbers are on the host already."""
        self._value  # noqa: B018

    # -- where it lives --------------------------------------------------------------------------------------------

    def devices(self) -> set[Device]:
        return {CPU}

    @property
    def device(self) -> Device:
        return CPU

    @property
    def sharding(self) -> SingleDeviceSharding:
        return SingleDeviceSharding(CPU)

    @property
    def committed(self) -> bool:
        return False

    @property
    def is_fully_addressable(self) -> bool:
        return True

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def addressable_data(self, index: int) -> ConcreteArray:
        return [self][index]

    @property
    def nbytes(self) -> int:
        return self._value.nbytes

    @property
    def itemsize(self) -> int:
        return self._value.itemsize

    def on_device_size_in_bytes(self) -> int:
        return self._value.nbytes

    def unsafe_buffer_pointer(self) -> int:
        return self._value.__array_interface__["data"][0]

    # -- to Python and NumPy ---------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self._value
        if isinstance(self.aval.dtype, dtypes.ExtendedDtype):
            raise TypeError(f"An array of {self.aval.dtype.name} has no NumPy form; use weft.random.key_data(key).")
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ValueError("A conversion of dtype needs a copy, but copy=False was asked for.")
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
            try:
                return np.asarray(self).__dlpack__(max_version=max_version)  # a view that says it is read-only
            except TypeError:  # NumPy 2.0 knows no versions
                pass
        if copy is False:
            raise BufferError("An array cannot be shared with a consumer that might write to it; allow a copy.")
        # Who cannot be told that a buffer is read-only gets one of its own.
        return self._value.copy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()

    def tolist(self) -> Any:
        return self._value.tolist()

    def item(self, *args: Any) -> Any:
        return self._value.item(*args)

    def tobytes(self, order: Any = "C") -> bytes:
        return self._value.tobytes(order)

    def __bool__(self) -> bool:
        try:
            value = self._value
            if value.size != 1:
                raise ArgumentError(ambiguous(self.aval), fix="use .any() or .all()")
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
                )
            return int(value)
        except Exception as error:
            conceal(error)
            raise

    def _scalar(self, kind: str) -> Any:
        if self.aval.shape:
            raise ArgumentTypeError(
                f"{kind}() takes an array without dimensions.",
                received=self.aval.short(),
                fix="x[0], x.sum() or x.item() of one element",
            )
        return self._value

    def __reduce__(self) -> Any:
        return _rebuild, (np.asarray(self._value), self.aval)

    def __copy__(self) -> ConcreteArray:
        return ConcreteArray(self._value, self.aval)  # of its own, in that deleting one leaves the other

    def __deepcopy__(self, memo: Any) -> ConcreteArray:
        return ConcreteArray(self._value.copy(), self.aval)

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
        return repr(self) if self.is_deleted() else str(self._value)

    def __format__(self, spec: str) -> str:
        return format(self._value[()], spec) if not self.aval.shape else format(str(self), spec)

    @boundary
    def __setitem__(self, index: Any, value: Any) -> None:
        raise ImmutableArrayError(
            "Weft arrays are immutable: `x[index] = value` cannot change one in place.",
            received=self.aval.short(),
            fix="x = x.at[index].set(value), which gives a new array (also .add, .multiply, .min, .max, ...)",
            at=user_line(),
        )


def _rebuild(buffer: np.ndarray, aval: ArrayType) -> ConcreteArray:
    return wrap(buffer, aval)


def wrap(buffer: Any, aval: ArrayType) -> ConcreteArray:
    """An array over a buffer that nobody else will write."""
    return ConcreteArray(np.asarray(buffer), aval)


def from_numpy(value: Any, weak_type: bool = False, copy: bool = True) -> ConcreteArray:
    """An array from NumPy or Python numbers, in canonical dtype. The numbers are copied, since NumPy arrays can
    change."""
    converted = dtypes.canonical_array(value)
    aval = array_type(converted.shape, converted.dtype, weak_type)
    return _copied(converted, aval) if copy and converted is value else ConcreteArray(converted, aval)


def _copied(value: np.ndarray, aval: ArrayType) -> ConcreteArray:
    """An array over a copy of its own."""
    return ConcreteArray(value.copy(), aval) if value.nbytes <= SMALL else full_of(value, aval)


def full_of(value: np.ndarray, aval: ArrayType) -> ConcreteArray:
    """An array of a type with the numbers of another one, which may be a single one for all; in memory as that of
    results is: vectors do not straddle cache lines in it."""
    shape: Any = aval.shape
    size = math.prod(shape) * value.itemsize
    if size <= SMALL:
        return ConcreteArray(np.full(shape, value), aval)
    block = copied_block(value, shape)
    return ConcreteArray(None, aval, block, block.address)


def copied_block(value: np.ndarray, shape: Any) -> Block:
    """A block with the numbers of an array, broadcast to a shape."""
    block = pool.take(math.prod(shape) * value.itemsize)
    block.view(block.address, shape, value.dtype)[...] = value
    return block


def lift(value: Any, aval: ArrayType | None = None) -> ConcreteArray:
    """A NumPy value or a Python number as an array; numbers are weakly typed. `aval` is the type, where it is known."""
    if aval is not None:
        return ConcreteArray(value, aval)
    found = type_of(value)
    assert isinstance(found, ArrayType)
    converted = dtypes.canonical_array(value)
    if converted is value and converted.flags.writeable:  # the caller may write to it later
        return _copied(converted, found)
    return ConcreteArray(converted, found)
