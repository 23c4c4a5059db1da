"""cuDNN's graphs: operations on tensors that are compiled to one plan, which is made once and run with addresses.

All objects of the library are descriptors with attributes, which are arrays of one type. A graph says what is computed;
the library proposes engines for it, of which some are compiled when a plan is made.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import Any, NamedTuple

from weft.base import dtypes
from weft.base.errors import JaxRuntimeError
from weft.base.forks import held

# cudnnDataType_t
DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "int8": 3, "int32": 4, "bfloat16": 9, "int64": 10, "bool": 11}
# cudnnBackendDescriptorType_t
(
    POINTWISE, CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTIC, PLAN, OPERATION_FORWARD, OPERATION_WEIGHTS,
    OPERATION_DATA, OPERATION_POINTWISE, GRAPH, VARIANT, TENSOR, MATMUL, OPERATION_MATMUL, REDUCTION,
    OPERATION_REDUCTION, OPERATION_RESHAPE,
) = (0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 15, 16, 17, 18, 19, 21, 22, 31)  # fmt: skip
# cudnnBackendAttributeType_t, and the types of elements.
(
    HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, DOUBLE, POINTER_TYPE, CONVOLUTION_MODE, HEURISTIC_MODE, NAN_MODE, NOTE,
    POINTWISE_MODE, DESCRIPTOR, REDUCTION_MODE, CHARACTER,
) = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 18, 24)  # fmt: skip
_ELEMENTS = {
    HANDLE: c_void_p, DATA_TYPE: c_int, BOOLEAN: c_bool, INT64: c_int64, FLOAT: c_float, DOUBLE: c_double,
    POINTER_TYPE: c_void_p, CONVOLUTION_MODE: c_int, HEURISTIC_MODE: c_int, NAN_MODE: c_int, NOTE: c_int,
    POINTWISE_MODE: c_int, DESCRIPTOR: c_void_p, REDUCTION_MODE: c_int,
}  # fmt: skip
CROSS_CORRELATION = 1
KEEP_NAN = 1  # cudnnNanPropagation_t
# Heuristics: the best one, and the fallback, which always has an answer.
BEST, FALLBACK = 3, 2
# Numerical notes of engines.
TENSOR_CORES, DOWN_CONVERTS, REDUCED_SUMS, BY_FFT, NOT_DETERMINISTIC, WINOGRAD = 0, 1, 2, 3, 4, 5
# Engines that are queried: many are rejected for their notes.
MOST_PROPOSALS = 64
# Attribute of a plan with its serialization; and the engine of a deserialized plan, which is unknown.
PLAN_TEXT, STORED = 405, -1
# Largest alignment of tensors that matters, in bytes.
MOST_ALIGNMENT = 16

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (POINTER(c_void_p),),
    "cudnnSetStream": (c_void_p, c_void_p),
    "cudnnBackendCreateDescriptor": (c_int, POINTER(c_void_p)),
    "cudnnBackendDestroyDescriptor": (c_void_p,),
    "cudnnBackendSetAttribute": (c_void_p, c_int, c_int, c_int64, c_void_p),
    "cudnnBackendGetAttribute": (c_void_p, c_int, c_int, c_int64, POINTER(c_int64), c_void_p),
    "cudnnBackendFinalize": (c_void_p,),
    "cudnnBackendExecute": (c_void_p, c_void_p, c_void_p),
    "cudnnGetLastErrorString": (c_char_p, c_size_t),
}


class CudnnError(JaxRuntimeError):
    """Error of the library; one of a proposal is ignored."""


class Cudnn:
    """Library opened for a GPU. Runs hold the lock, since the handle has the stream."""

    def __init__(self, library: Any) -> None:
        self._functions = {name: getattr(library, name) for name in _FUNCTIONS}
        for name, arguments in _FUNCTIONS.items():
            self._functions[name].argtypes, self._functions[name].restype = arguments, c_int
        self._functions["cudnnGetLastErrorString"].restype = None
        library.cudnnGetVersion.restype = c_size_t
        self.version = int(library.cudnnGetVersion())
        self.process = os.getpid()
        self.lock = held(threading.RLock())
        self.handle = c_void_p()
        self("cudnnCreate", byref(self.handle))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; raise if it reports an error."""
        status = self._functions[name](*arguments)
        if status:
            text = ctypes.create_string_buffer(1024)
            self._functions["cudnnGetLastErrorString"](text, len(text))
            said = text.value.decode(errors="replace")
            raise CudnnError(f"cuDNN reports an error in {name}: {said or 'no reason given'} ({status}).")

    def descriptor(self, kind: int, attributes: Mapping[int, tuple[int, Any]]) -> Descriptor:
        """Create and finalize a descriptor; its attributes are (type, value or values)."""
        found = Descriptor(self, kind)
        for name, (type_, values) in attributes.items():
            found.set(name, type_, values if isinstance(values, (list, tuple)) else [values])
        self("cudnnBackendFinalize", found.handle)
        return found

    def deserialize_plan(self, content: bytes) -> Plan:
        """Deserialize a plan from `Plan.content`."""
        found = Descriptor(self, PLAN)
        found.set(400, HANDLE, [self.handle.value])
        self("cudnnBackendSetAttribute", found.handle, PLAN_TEXT, CHARACTER, len(content), content)
        self("cudnnBackendFinalize", found.handle)
        return Plan(self, found, STORED)


class Descriptor:
    """Descriptor of the library; it keeps those that it refers to alive."""

    def __init__(self, lib: Cudnn, kind: int) -> None:
        self._lib = lib
        self._retained: list[Any] = []
        self.handle = c_void_p()
        lib("cudnnBackendCreateDescriptor", kind, byref(self.handle))

    def set(self, name: int, type_: int, values: Sequence[Any]) -> None:
        """Set an attribute."""
        self._retained += values
        elements: list[Any] = [v.handle.value if isinstance(v, Descriptor) else v for v in values]
        array = (_ELEMENTS[type_] * len(elements))(*elements)
        self._lib("cudnnBackendSetAttribute", self.handle, name, type_, len(elements), array)

    def get(self, name: int, type_: int, most: int) -> list[Any]:
        """Get an attribute that is not a descriptor."""
        array, count = (_ELEMENTS[type_] * most)(), c_int64()
        self._lib("cudnnBackendGetAttribute", self.handle, name, type_, most, byref(count), array)
        return list(array[: min(count.value, most)])

    def descriptors(self, name: int, kind: int, most: int) -> list[Descriptor]:
        """Get an attribute of descriptors."""
        found = [Descriptor(self._lib, kind) for _ in range(most)]
        array, count = (c_void_p * most)(*(d.handle.value for d in found)), c_int64()
        self._lib("cudnnBackendGetAttribute", self.handle, name, DESCRIPTOR, most, byref(count), array)
        return found[: min(count.value, most)]

    def __del__(self) -> None:
        if self.handle and self._lib.process == os.getpid() and not sys.is_finalizing():
            self._lib._functions["cudnnBackendDestroyDescriptor"](self.handle)


class Tensor(NamedTuple):
    """Tensor of a graph, with its unique id; virtual tensors have no address."""

    descriptor: Descriptor
    identity: int
    shape: tuple[int, ...]


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a row-major tensor."""
    return tuple(math.prod(shape[n + 1 :]) for n in range(len(shape)))


class Graph:
    """Operations, and the tensors between them, whose addresses have these alignments."""

    def __init__(self, lib: Cudnn, alignments: Sequence[int]) -> None:
        self.lib = lib
        self.alignment = math.gcd(MOST_ALIGNMENT, *alignments)
        self.operations: list[Descriptor] = []
        self._tensors = 0

    def tensor(
        self,
        shape: Sequence[int],
        dtype: Any,
        strides: Sequence[int] | None = None,
        virtual: bool = False,
        by_value: bool = False,
    ) -> Tensor:
        """Create a tensor. A `virtual` one is never in memory, one `by_value` is a scalar of the host."""
        self._tensors += 1
        attributes: dict[int, tuple[int, Any]] = {
            900: (INT64, self.alignment),
            901: (DATA_TYPE, DATA_TYPES[dtypes.name(dtype)]),
            902: (INT64, list(shape)),
            903: (INT64, list(dense(shape) if strides is None else strides)),
            906: (INT64, self._tensors),
        }
        if virtual:
            attributes[907] = (BOOLEAN, True)
        if by_value:
            attributes[908] = (BOOLEAN, True)
        return Tensor(self.lib.descriptor(TENSOR, attributes), self._tensors, tuple(shape))

    def add(self, kind: int, attributes: Mapping[int, tuple[int, Any]]) -> None:
        """Add an operation."""
        self.operations.append(self.lib.descriptor(kind, attributes))

    def pointwise(
        self, mode: int, out: Tensor, x: Tensor, y: Tensor | None = None, z: Tensor | None = None, **more: Any
    ) -> Tensor:
        """Add a pointwise operation; `axis` is that of an index, `computed` the compute type.

        `nans` requests the propagation of NaN, which not all engines respect.
        """
        computed = dtypes.name(more.get("computed", dtypes.float32))
        attributes: dict[int, tuple[int, Any]] = {
            0: (POINTWISE_MODE, mode),
            1: (DATA_TYPE, DATA_TYPES[computed]),
        }
        if "nans" in more:
            attributes[2] = (NAN_MODE, more["nans"])
        if "axis" in more:
            attributes[9] = (INT64, more["axis"])
        kind = self.lib.descriptor(POINTWISE, attributes)
        operands = {750: kind, 751: x.descriptor, 753: out.descriptor}
        operands |= {} if y is None else {752: y.descriptor}
        operands |= {} if z is None else {758: z.descriptor}
        self.add(OPERATION_POINTWISE, {name: (DESCRIPTOR, d) for name, d in operands.items()})
        return out

    def proposals(self, most: int) -> Iterator[Descriptor]:
        """Yield engine configurations in the order of the heuristics.

        A query takes a while, so the fallback is queried only when the others are used up.
        """
        graph = self.lib.descriptor(GRAPH, {801: (DESCRIPTOR, self.operations), 800: (HANDLE, self.lib.handle.value)})
        for mode in (BEST, FALLBACK):
            try:
                asked = self.lib.descriptor(HEURISTIC, {201: (DESCRIPTOR, graph), 200: (HEURISTIC_MODE, mode)})
            except CudnnError:
                continue
            for config in asked.descriptors(202, ENGINE_CONFIG, most):
                config._retained.append(asked)
                yield config

    def plans(self, most: int, refused: frozenset[int], first: bool = False) -> list[Plan]:
        """Make at most `most` plans by engines without the `refused` notes; with `first`, only the first one."""
        found: list[Plan] = []
        why = "no engine is proposed"
        for config in self.proposals(MOST_PROPOSALS):
            if len(found) == (1 if first else most):
                break
            (engine,) = config.descriptors(300, ENGINE, 1)
            notes = engine.get(1303, NOTE, 16)
            if refused & set(notes):
                why = f"engines have notes {notes}"
                continue
            try:
                attributes = {401: (DESCRIPTOR, config), 400: (HANDLE, self.lib.handle.value)}
                found.append(Plan(self.lib, self.lib.descriptor(PLAN, attributes), engine.get(1301, INT64, 1)[0]))
            except CudnnError as error:
                why = str(error)
        if not found:
            raise CudnnError(f"cuDNN cannot plan the graph: {why}")
        return found


class Plan:
    """Plan of a graph by an engine."""

    def __init__(self, lib: Cudnn, descriptor: Descriptor, engine: int) -> None:
        self._lib, self._descriptor = lib, descriptor
        self.engine = engine
        (self.workspace,) = (int(size) for size in descriptor.get(402, INT64, 1))

    def content(self) -> bytes | None:
        """Serialize the plan for other processes; return None if the library does not support that."""
        count = c_int64()
        arguments = (self._descriptor.handle, PLAN_TEXT, CHARACTER)
        try:
            self._lib("cudnnBackendGetAttribute", *arguments, 0, byref(count), None)
            text = ctypes.create_string_buffer(count.value)
            self._lib("cudnnBackendGetAttribute", *arguments, count.value, byref(count), text)
        except CudnnError:
            return None
        return text.raw

    def start(self, stream: Any, tensors: Sequence[int], addresses: Sequence[int], workspace: int) -> None:
        """Start the plan in a stream; `tensors` are the unique ids of the tensors at these addresses."""
        attributes: dict[int, tuple[int, Any]] = {
            1000: (INT64, list(tensors)),
            1001: (POINTER_TYPE, list(addresses)),
            1003: (POINTER_TYPE, workspace),
        }
        with self._lib.lock:
            pack = self._lib.descriptor(VARIANT, attributes)
            self._lib("cudnnSetStream", self._lib.handle, stream)
            self._lib("cudnnBackendExecute", self._lib.handle, self._descriptor.handle, pack.handle)
