"""`ffi_call`: calls of functions written in C, or anything that has C's calling convention, by their address.

The function gets a struct of buffers, which `weft/include/weft_ffi.h` declares; the classes here have the same layout.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError, JaxRuntimeError
from weft.ir.context import current_line
from weft.ir.primitive import Axis, No, Params, primitive
from weft.ir.types import ArrayType, Type
from weft.primitives.control.callback import IO, Callback, bind_batch

VERSION = 1
MESSAGE_SIZE = 1024
# The numbers of dtypes in `weft_ffi.h`.
_NAMES: tuple[str, ...] = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
)
_NAMES += ("float32", "float64", "complex64", "complex128")
CODES = {name: code for code, name in enumerate(_NAMES, 1)}
TEXT = 16


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int64),
        ("dtype", ctypes.c_int64),
    )


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("dtype", ctypes.c_int64),
    )


class _Call(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int64),
        ("arg_count", ctypes.c_int64),
        ("args", ctypes.POINTER(_Buffer)),
        ("result_count", ctypes.c_int64),
        ("results", ctypes.POINTER(_Buffer)),
        ("attribute_count", ctypes.c_int64),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("message", ctypes.c_void_p),
        ("message_size", ctypes.c_int64),
    )


Function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_Call))


class Target(NamedTuple):
    """Function that can be called by its name; `owner` keeps its code loaded."""

    address: int
    owner: Any


_targets: dict[tuple[str, str], Target] = {}


def register_target(name: str, platform: str, target: Target) -> None:
    """Register a function under a name, for a platform; the same one may be registered again."""
    known = _targets.setdefault((name, platform), target)
    if known.address != target.address:
        what = f"There is another function named {name!r} for {platform} already."
        raise ArgumentError(what, fix="another name: programs that were compiled have this one")


def find_target(name: str, platform: str = "cpu") -> Target:
    """Return the function of a name; raise if none is registered."""
    found = _targets.get((name, platform))
    if found is None:
        there = ", ".join(repr(n) for n, p in _targets if p == platform) or "none"
        raise ArgumentError(
            f"There is no function named {name!r} for {platform}.",
            received=f"a call of {name!r}; there are: {there}",
            fix="weft.ffi.register_ffi_target(name, weft.ffi.pycapsule(function))",
        )
    return found


# ----------------------------------------------------------------------------------------------------- attributes


def as_attribute(name: str, value: Any) -> Any:
    """Convert an attribute to a parameter: a bool, an int, a float, a string, or an array as its dtype, shape and
    bytes."""
    if isinstance(value, (bool, int, float, str)) and type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (np.ndarray, np.generic, list, tuple)):
        array = np.ascontiguousarray(value)
        if array.dtype.name in CODES and not array.dtype.hasobject:
            return (array.dtype.name, array.shape, array.tobytes())
    raise ArgumentTypeError(
        f"The attribute {name} cannot be passed to a function in C.",
        received=f"{value!r} of type {type(value).__name__}",
        fix="a bool, an int, a float, a string, or a NumPy array of numbers; arrays of Weft are arguments",
    )


def _attribute_bytes(value: Any) -> tuple[bytes, int, int]:
    """Return the bytes of an attribute, the number of its elements, and the number of their dtype."""
    if isinstance(value, bool):
        return bytes([value]), 1, CODES["bool"]
    if isinstance(value, int):
        return np.int64(value).tobytes(), 1, CODES["int64"]
    if isinstance(value, float):
        return np.float64(value).tobytes(), 1, CODES["float64"]
    if isinstance(value, str):
        return value.encode() + b"\0", len(value.encode()), TEXT
    name, shape, content = value
    return content, int(np.prod(shape)), CODES[name]


# ------------------------------------------------------------------------------------------------------- the call


def _buffer(array: np.ndarray, shape: Sequence[Any], code: int) -> _Buffer:
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    return _Buffer(array.ctypes.data, sizes, len(shape), code)


def call_target(
    target: str,
    arrays: Sequence[np.ndarray],
    result_types: Sequence[ArrayType],
    attributes: Sequence[tuple[str, Any]],
    layouts: tuple[Sequence[Any], Sequence[Any]],
    aliases: Sequence[tuple[int, int]],
) -> list[np.ndarray]:
    """Call a function in C on NumPy arrays and return its results. An array with a layout is stored with its dimensions
    in that order, the slowest first."""
    function = Function(find_target(target).address)
    inputs = [np.ascontiguousarray(a if o is None else a.transpose(o)) for a, o in zip(arrays, layouts[0], strict=True)]
    outputs = []
    for aval, order in zip(result_types, layouts[1], strict=True):
        shape = [aval.shape[i] for i in (range(aval.ndim) if order is None else order)]
        outputs.append(np.zeros(shape, dtypes.storage(aval.dtype)))
    for i, k in aliases:
        outputs[k][...] = inputs[i]
        inputs[i] = outputs[k]
    args = [_buffer(x, a.shape, CODES[dtypes.name(a.dtype)]) for x, a in zip(inputs, arrays, strict=True)]
    results = [_buffer(x, t.shape, CODES[dtypes.name(t.dtype)]) for x, t in zip(outputs, result_types, strict=True)]
    contents = [(name.encode(), *_attribute_bytes(value)) for name, value in attributes]
    held = [ctypes.create_string_buffer(data, len(data)) for _, data, _, _ in contents]
    named = [
        _Attribute(name, ctypes.addressof(memory), count, code)
        for (name, _, count, code), memory in zip(contents, held, strict=True)
    ]
    message = ctypes.create_string_buffer(MESSAGE_SIZE)
    call = _Call(
        VERSION,
        len(args),
        (_Buffer * max(len(args), 1))(*args),
        len(results),
        (_Buffer * max(len(results), 1))(*results),
        len(named),
        (_Attribute * max(len(named), 1))(*named),
        ctypes.addressof(message),
        MESSAGE_SIZE,
    )
    status = function(ctypes.byref(call))
    if status:
        said = message.value.decode(errors="replace") or f"it returned {status}"
        raise JaxRuntimeError(f"The function {target!r} failed: {said}", at=current_line())
    orders = [None if o is None else np.argsort(o) for o in layouts[1]]
    return [x if o is None else x.transpose(o) for x, o in zip(outputs, orders, strict=True)]


@primitive
class ffi_call(Callback):
    """Call of a registered function in C. `layouts` are the orders of dimensions of operands and results in memory,
    `aliases` pairs of an operand and a result that share memory. A `masked` call has a flag as first operand; without
    the flag the function is not called and the results are zeros."""

    jvp = No("a function in C has no derivative of its own; wrap the call in custom_jvp or custom_vjp")

    def type(self, *types: Type, result_types: tuple[ArrayType, ...], **params: Any) -> list[Type]:
        for aval in (*types, *result_types):
            if not isinstance(aval, ArrayType) or dtypes.name(aval.dtype) not in CODES:
                what = "A function in C takes and returns arrays of numbers."
                raise ArgumentTypeError(what, received=aval.short(), fix=f"one of {', '.join(CODES)}")
        return list(result_types)

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        return frozenset([IO]) if params["has_side_effect"] else frozenset()

    def eval(
        self,
        *arrays: Any,
        target: str,
        result_types: tuple[ArrayType, ...],
        attributes: tuple[Any, ...],
        layouts: tuple[Any, Any],
        aliases: tuple[Any, ...],
        masked: bool,
        **params: Any,
    ) -> list[Any]:
        if masked:
            flag, *arrays = arrays  # type: ignore[assignment]
            if not flag:
                return [np.zeros(t.shape, dtypes.storage(t.dtype)) for t in result_types]
        return call_target(target, [np.asarray(a) for a in arrays], result_types, attributes, layouts, aliases)

    def batch(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
        return bind_batch(self, axis, args, dims, **params)

    def batch_params(self, params: Params, grown: Sequence[bool]) -> Params:
        inputs, outputs = params["layouts"]
        if params["masked"]:  # the flag has no layout
            grown = grown[1:]
        deeper = [
            tuple(o if o is None or not g else (0, *(d + 1 for d in o)) for o, g in zip(orders, flags, strict=True))
            for orders, flags in ((inputs, grown), (outputs, [True] * len(outputs)))
        ]
        return {**params, "layouts": tuple(deeper)}


def as_pairs(aliases: Mapping[int, int] | None) -> tuple[tuple[int, int], ...]:
    """Convert aliases to pairs of an operand and a result."""
    return tuple(sorted((aliases or {}).items()))
