"""Bindings to NVIDIA's driver (`libcuda`) by ctypes. No CUDA toolkit or package of NVIDIA is needed.

All work of a device is in one stream, in the order in which it was started. So memory that is freed and reused is
overwritten by later work only.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from weft.base.errors import InternalError, JaxRuntimeError, OutOfMemoryError
from weft.base.forks import held
from weft.base.lazy import lazy
from weft.compiler.kernel.ir import Kernel
from weft.compiler.target.cuda.loop_code import LoopCode
from weft.compiler.target.cuda.node_code import NodeCode
from weft.compiler.target.target import Target
from weft.runtime.cuda import records
from weft.runtime.cuda.code import Code, GpuCode
from weft.runtime.cuda.copies import Copies
from weft.runtime.cuda.graph_plan import known_nodes
from weft.runtime.cuda.interrupts import Interrupts
from weft.runtime.cuda.libraries.calls import LibraryCalls, PreparedCall
from weft.runtime.cuda.libraries.find import present
from weft.runtime.cuda.libraries.routines import ROUTINES
from weft.runtime.cuda.unfinished import wait_for_others

if TYPE_CHECKING:
    from weft.compiler.target.cuda import lower, ptx
else:
    lower = lazy("weft.compiler.target.cuda.lower")
    ptx = lazy("weft.compiler.target.cuda.ptx")

Made = TypeVar("Made")

# The argument types of the driver's functions. Names have the version that this was written for.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetUuid_v2": (c_char_p, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamQuery": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemcpy2DAsync_v2": (c_void_p, c_void_p),
    "cuMemsetD8Async": (c_uint64, ctypes.c_ubyte, c_size_t, c_void_p),
    "cuMemsetD32Async": (c_uint64, c_uint, c_size_t, c_void_p),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "cuGraphInstantiateWithFlags": (POINTER(c_void_p), c_void_p, ctypes.c_ulonglong),
    "cuGraphUpload": (c_void_p, c_void_p),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphExecDestroy": (c_void_p,),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecordWithFlags": (c_void_p, c_void_p, c_uint),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventQuery": (c_void_p,),
    "cuEventSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuLinkCreate_v2": (c_uint, POINTER(c_int), POINTER(c_void_p), POINTER(c_void_p)),
    "cuLinkAddData_v2": (
        *(c_void_p, c_int, c_char_p, c_size_t, c_char_p, c_uint),
        *(POINTER(c_int), POINTER(c_void_p)),
    ),
    "cuLinkComplete": (c_void_p, POINTER(c_void_p), POINTER(c_size_t)),
    "cuLinkDestroy": (c_void_p,),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), c_void_p, c_int, c_size_t),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
}
_OUT_OF_MEMORY, _NOT_READY = 2, 600
_OTHER_CONTEXT = (201, 400)  # no context, or a handle of another one
_NON_BLOCKING = 1
_DEVICE = 2  # memory of a GPU
_NOT_TIMED = 2
_RECORDED_EVENT = 1  # an event that a graph records each time it runs
_RELAXED = 2  # capture mode: other threads are not restricted
# Input type and options of the linker: its log of errors.
_PTX, _ERROR_LOG, _ERROR_LOG_SIZE, _LOG_SIZE = 1, 5, 6, 4096
_MAJOR, _MINOR, _PROCESSORS, _MOST_THREADS = 75, 76, 16, 39
_SHARED_AT_LAUNCH = 8  # attribute: most dynamic shared bytes of a launch
_OF_KERNELS = {"registers": 4, "local_bytes": 3, "shared_bytes": 1}


@functools.cache
def library() -> Any | None:
    """Load the driver; return None if there is none."""
    names = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}
    try:
        found = ctypes.CDLL(names.get(sys.platform, "libcuda.so.1"))
    except OSError:
        return None
    _declare(found, _FUNCTIONS)
    if found.cuInit(0):
        return None
    if known_nodes(_version(found)):
        _declare(found, records.FUNCTIONS)
    return found


def _declare(found: Any, functions: Mapping[str, tuple[Any, ...]]) -> None:
    for name, arguments in functions.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, c_int


def _version(found: Any) -> int:
    """Return the CUDA version of a driver, such as 12040 for 12.4."""
    version = c_int()
    found.cuDriverGetVersion(byref(version))
    return version.value


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver; raise if it reports an error."""
    status = getattr(library(), name)(*arguments)
    if status:
        raise_error(name, status)


def raise_error(name: str, status: int) -> None:
    """Raise the error for a status of the driver."""
    if status == _OUT_OF_MEMORY:
        raise OutOfMemoryError("There is no memory left on the GPU.")
    text = c_char_p()
    library().cuGetErrorString(status, byref(text))  # type: ignore[union-attr]
    said = text.value.decode() if text.value else "no reason given"
    raise JaxRuntimeError(f"The driver of the GPU reports an error in {name}: {said} ({status}).")


def count() -> int:
    """Return the number of GPUs."""
    if library() is None:
        return 0
    found = c_int()
    call("cuDeviceGetCount", byref(found))
    return found.value


@functools.cache
def driver_release() -> str:
    """Return the release of the driver if the system has it; several releases have one CUDA version."""
    try:
        return pathlib.Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""


def get_name(index: int) -> str:
    """Return the name of a GPU."""
    device, text = c_int(), ctypes.create_string_buffer(256)
    call("cuDeviceGet", byref(device), index)
    call("cuDeviceGetName", text, len(text), device)
    return text.value.decode()


def get_uuid(index: int) -> str:
    """Return the UUID of a GPU."""
    device, content = c_int(), ctypes.create_string_buffer(16)
    call("cuDeviceGet", byref(device), index)
    call("cuDeviceGetUuid_v2", content, device)
    return content.raw.hex()


class Stream:
    """Stream of the driver: work starts when all earlier work of the stream has ended."""

    _event_flags = 0

    def __init__(self) -> None:
        self.handle = c_void_p()
        call("cuStreamCreate", byref(self.handle), _NON_BLOCKING)

    def copy(self, target: int, source: int, size: int) -> None:
        """Start a copy within the GPU."""
        call("cuMemcpyDtoDAsync_v2", target, source, size, self.handle)

    def copy_rows(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int) -> None:
        """Start a 2D copy within the GPU: rows of `width` bytes at these pitches."""
        what = records.Rows(0, 0, _DEVICE, None, source, None, source_pitch)
        what.target_memory, what.target, what.target_pitch = _DEVICE, target, target_pitch
        what.width, what.rows = width, rows
        call("cuMemcpy2DAsync_v2", byref(what), self.handle)

    def copy_in(self, target: int, source: int, size: int) -> None:
        """Start a copy from pinned memory to the GPU."""
        call("cuMemcpyHtoDAsync_v2", target, source, size, self.handle)

    def copy_out(self, target: int, source: int, size: int) -> None:
        """Start a copy from the GPU to pinned memory."""
        call("cuMemcpyDtoHAsync_v2", target, source, size, self.handle)

    def fill(self, target: int, size: int) -> None:
        """Start filling memory with zeros."""
        call("cuMemsetD8Async", target, 0, size, self.handle)

    def set_word(self, address: int, value: int) -> None:
        """Start writing a 32-bit word."""
        call("cuMemsetD32Async", address, value & 0xFFFF_FFFF, 1, self.handle)

    def launch(self, entry: Entry, addresses: Sequence[int]) -> None:
        """Start a kernel on buffers at these addresses, or a loop on addresses and counters."""
        values = (c_uint64 * len(addresses))(*addresses)
        base, size = ctypes.addressof(values), ctypes.sizeof(c_uint64)
        parameters = (c_void_p * len(addresses))(*(base + size * n for n in range(len(addresses))))
        shape = entry.blocks, 1, 1, entry.threads, 1, 1, entry.shared
        call("cuLaunchKernel", entry.handle, *shape, self.handle, parameters, None)

    def call(self, prepared: PreparedCall, addresses: Sequence[int], workspace: int) -> None:
        """Start a call of a library."""
        prepared(self.handle, addresses, workspace)

    def mark(self, event: Event) -> None:
        """Record an event: it happens when all earlier work has ended."""
        call("cuEventRecordWithFlags", event.handle, self.handle, self._event_flags)

    def wait(self, event: Event) -> None:
        """Make later work wait for an event."""
        call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def synchronize(self) -> None:
        """Wait until all work of the stream has ended."""
        call("cuStreamSynchronize", self.handle)


class RecordingStream(Stream):
    """Stream whose work is captured as a graph of a context. Loops and branches are conditional nodes, whose bodies are
    captured in another stream."""

    _event_flags = _RECORDED_EVENT

    def __init__(self, context: c_void_p) -> None:
        super().__init__()
        self._context = context

    @functools.cached_property
    def _inner(self) -> RecordingStream:
        return RecordingStream(self._context)

    def _capture_info(self) -> tuple[c_void_p, c_void_p, int]:
        """Return the graph that is being captured, and the nodes that the next one depends on with their number."""
        status, identity, count = c_int(), c_uint64(), c_size_t()
        graph, nodes = c_void_p(), c_void_p()
        call(
            "cuStreamGetCaptureInfo_v2",
            *(self.handle, byref(status), byref(identity), byref(graph), byref(nodes), byref(count)),
        )
        return graph, nodes, count.value

    def condition(self) -> int:
        """Create the handle of a conditional node, which kernels set."""
        handle = c_uint64()
        call("cuGraphConditionalHandleCreate", byref(handle), self._capture_info()[0], self._context, 0, 0)
        return handle.value

    def conditional(self, handle: int, kind: str, bodies: Sequence[Callable[[RecordingStream], None]]) -> None:
        """Capture a conditional node. Each of `bodies` starts work in the stream that it receives.

        A "while" node repeats its body while the value of the handle is not zero; a "switch" node runs the body with
        that index.
        """
        graph, before, count = self._capture_info()
        parameters, node = records.node_parameters(handle, kind, len(bodies), self._context), c_void_p()
        call("cuGraphAddNode", byref(node), graph, before, count, byref(parameters))
        call("cuStreamUpdateCaptureDependencies", self.handle, byref(node), 1, records.ONLY_THESE)
        for body, inside in zip(bodies, records.body_graphs(parameters), strict=True):
            call("cuStreamBeginCaptureToGraph", self._inner.handle, inside, None, None, 0, _RELAXED)
            try:
                body(self._inner)
            finally:
                call("cuStreamEndCapture", self._inner.handle, byref(c_void_p()))


class Entry:
    """Kernel that is loaded on a GPU as long as this object exists, and the shape of its grid."""

    def __init__(self, driver: Driver, module: c_void_p, handle: c_void_p, code: Code) -> None:
        self._driver, self._module, self.handle = driver, module, handle
        self.blocks, self.threads, self.shared = code.blocks, code.threads, code.shared
        self.size = len(code.binary)

    def __del__(self) -> None:
        if self._driver.process == os.getpid() and library is not None:  # otherwise the process ends, or is a fork
            self._driver._release("cuModuleUnload", self._module)


class Graph:
    """Instantiated graph of captured work."""

    def __init__(self, driver: Driver, handle: c_void_p) -> None:
        self._driver, self.handle = driver, handle

    def __del__(self) -> None:
        if self._driver.process == os.getpid() and library is not None:  # otherwise the process ends, or is a fork
            self._driver._release("cuGraphExecDestroy", self.handle)


class Event:
    """Event in the work of a GPU; it has a time if it is `timed`. An event that was never recorded has happened."""

    def __init__(self, driver: Driver, timed: bool = True) -> None:
        self._driver, self.handle = driver, c_void_p()
        call("cuEventCreate", byref(self.handle), 0 if timed else _NOT_TIMED)

    def synchronize(self) -> None:
        """Wait until the event has happened."""
        call("cuEventSynchronize", self.handle)

    def has_happened(self) -> bool:
        """Return whether the event has happened."""
        return bool(library().cuEventQuery(self.handle) != _NOT_READY)  # type: ignore[union-attr]

    def __del__(self) -> None:
        if self._driver.process == os.getpid() and library is not None:  # otherwise the process ends, or is a fork
            self._driver._release("cuEventDestroy_v2", self.handle)


class _Current(threading.local):
    """The GPU whose context is current in this thread."""

    driver: Driver | None = None


_current = _Current()


class Driver:
    """GPU of this process: its context, the stream of its work, and one for captures."""

    def __init__(self, index: int) -> None:
        self.process = os.getpid()
        device, context = c_int(), c_void_p()
        call("cuDeviceGet", byref(device), index)
        call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._device, self._context = device, context
        self._enter()
        self._stream, self._recording = Stream(), RecordingStream(context)
        self._recording_lock = held(threading.RLock())
        # Objects that are kept alive, and the events that release them.
        self._holding: deque[tuple[Event, Any]] = deque()
        # Number of synchronizations: work of an earlier epoch has ended.
        self.epoch = 0
        # Waits for pending collectives with other processes, if there are any.
        self.with_others: Callable[[Callable[[], bool]], None] | None = None
        self._start = library().cuGraphLaunch  # type: ignore[union-attr]

    def _enter(self) -> None:
        """Make the context of this GPU current in this thread."""
        if self.process != os.getpid():
            raise JaxRuntimeError(
                "A process that was forked from one that uses a GPU cannot use the GPU.",
                fix="start processes before the GPU is used, or with multiprocessing's method 'spawn'",
            )
        call("cuCtxSetCurrent", self._context)
        _current.driver = self

    def _release(self, name: str, handle: Any) -> None:
        """Destroy a handle. Errors are ignored: after an error of the GPU there is no remedy."""
        self._enter()
        getattr(library(), name)(handle)

    def in_thread(self, work: Callable[[], Made]) -> Made:
        """Call a function with the context of this GPU current, in any thread."""
        self._enter()
        return work()

    @functools.cached_property
    def capability(self) -> tuple[int, int]:
        """Compute capability, such as (9, 0)."""
        return self.attribute(_MAJOR), self.attribute(_MINOR)

    # -- memory ----------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        """Allocate memory; return its address."""
        self._enter()
        address = c_uint64()
        call("cuMemAlloc_v2", byref(address), size)
        return address.value

    def free(self, address: int) -> None:
        """Free memory. This waits for all work."""
        self._enter()
        call("cuMemFree_v2", address)

    def memory_left(self) -> tuple[int, int]:
        """Return the free and the total bytes."""
        self._enter()
        free, total = c_size_t(), c_size_t()
        call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def copy_in(self, address: int, value: np.ndarray) -> None:
        """Copy a contiguous array of the host to an address. The array may change when this returns."""
        self._enter()
        self.copies.copy_in(address, value)

    def copy_out(self, value: np.ndarray, address: int) -> None:
        """Copy device memory to a contiguous array of the host, after all earlier work has ended."""
        self._enter()
        self._wait_for_work()
        self.copies.copy_out(value, address)

    def copy_out_together(self, pairs: Sequence[tuple[np.ndarray, int]]) -> None:
        """Copy device memory to several small arrays, with one wait."""
        self._enter()
        wait_for_others(self)
        self.copies.copy_out_together(pairs)

    def copy_out_later(self, value: np.ndarray, address: int, holds: Any) -> Future[None]:
        """Copy device memory to an array in another thread, which keeps `holds` alive until then."""
        self._enter()
        return self.copies.copy_out_later(value, address, holds)

    @functools.cached_property
    def copies(self) -> Copies:
        """Copies between this GPU and the host."""
        return Copies(self, self._enter)

    def allocate_pinned(self, size: int) -> int:
        """Allocate page-locked memory of the host; return its address."""
        address = c_void_p()
        call("cuMemHostAlloc", byref(address), size, 0)
        assert address.value is not None
        return address.value

    @property
    def stream(self) -> Stream:
        """Stream of all work."""
        return self._stream

    def new_stream(self) -> Stream:
        """Create another stream, whose work runs concurrently."""
        self._enter()
        return Stream()

    @functools.cached_property
    def beside(self) -> Stream:
        """Stream of collectives that run concurrently with programs."""
        return self.new_stream()

    def begin_beside(self) -> None:
        """Make later work of the stream `beside` wait for all work so far."""
        event = self.event(timed=False)
        self._stream.mark(event)
        self.beside.wait(event)

    def mark_beside(self) -> Event:
        """Return an event that happens when the work so far of the stream `beside` has ended."""
        event = self.event(timed=False)
        self.beside.mark(event)
        return event

    def follow_beside(self, event: Event) -> None:
        """Make later work wait for an event of the stream `beside`."""
        self._enter()
        self._stream.wait(event)

    def copy(self, target: int, source: int, size: int) -> None:
        """Start a copy within the GPU."""
        self._enter()
        self._stream.copy(target, source, size)

    def copy_rows(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int) -> None:
        """Start a 2D copy within the GPU: rows of `width` bytes at these pitches."""
        self._enter()
        self._stream.copy_rows(target, target_pitch, source, source_pitch, width, rows)

    @property
    def handle(self) -> c_void_p:
        """Handle of the stream of all work, for libraries."""
        return self._stream.handle

    def fill(self, target: int, size: int) -> None:
        """Start filling memory with zeros."""
        self._enter()
        self._stream.fill(target, size)

    def set_word(self, address: int, value: int) -> None:
        """Start writing a 32-bit word."""
        self._enter()
        self._stream.set_word(address, value)

    # -- kernels ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def code(self) -> GpuCode:
        """Kernels that are loaded on this GPU."""
        return GpuCode(self)

    @functools.cached_property
    def code_version(self) -> str:
        """Key of the assembler and the GPU, on which machine code depends besides its text."""
        version = _version(library())
        return f"driver {version} {driver_release()} sm_{self.capability[0]}{self.capability[1]}"

    def make_code(self, sources: Mapping[str, Kernel | LoopCode | NodeCode], target: Target) -> dict[str, Code]:
        """Compile kernels, loops and nodes, by name: one module each, so that several threads can work."""
        shapes = {
            name: (*lower.launch_shape(each, target), lower.launch_bytes(each, target))
            for name, each in sources.items()
        }
        texts = {name: functools.partial(lower.source_text, name, source, target) for name, source in sources.items()}
        deciding = [name for name, source in sources.items() if isinstance(source, NodeCode)]
        # Code that sets conditional handles calls a function that the driver resolves when it loads PTX; its linker
        # does not.
        found = {name: ptx.ptx(texts.pop(name)(), target).encode() + b"\0" for name in deciding}
        found |= zip(texts, ptx.assemble_all(list(texts.values()), target, self._assemble), strict=True)
        return {name: Code(found[name], *shape) for name, shape in shapes.items()}

    def _assemble(self, text: str) -> bytes:
        """Assemble PTX to machine code by the driver; several threads may do so at once."""
        self._enter()
        log = ctypes.create_string_buffer(_LOG_SIZE)
        options = (c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_SIZE)
        state, result, size = c_void_p(), c_void_p(), c_size_t()
        call("cuLinkCreate_v2", 2, options, values, byref(state))
        try:
            content = text.encode()
            status = library().cuLinkAddData_v2(  # type: ignore[union-attr]
                state, _PTX, content, len(content) + 1, b"kernel", 0, None, None
            )
            if status:
                said = log.value.decode(errors="replace") or f"error {status}"
                raise InternalError(f"The driver of the GPU does not accept PTX: {said}", stage="ptx", text=text)
            call("cuLinkComplete", state, byref(result), byref(size))
            return ctypes.string_at(result, size.value)
        finally:
            call("cuLinkDestroy", state)

    def load(self, name: str, code: Code) -> Entry:
        """Load code to the GPU."""
        self._enter()
        module, function = c_void_p(), c_void_p()
        call("cuModuleLoadData", byref(module), code.binary)
        call("cuModuleGetFunction", byref(function), module, name.encode())
        if code.shared:
            call("cuFuncSetAttribute", function, _SHARED_AT_LAUNCH, code.shared)
        return Entry(self, module, function, code)

    @functools.cached_property
    def name(self) -> str:
        """Number and name of the GPU."""
        return f"GPU {self._device.value}: {get_name(self._device.value)}"

    def attribute(self, index: int) -> int:
        """Return a device attribute of the driver."""
        found = c_int()
        call("cuDeviceGetAttribute", byref(found), index, self._device)
        return found.value

    @functools.cached_property
    def processors(self) -> int:
        """Number of multiprocessors."""
        return self.attribute(_PROCESSORS)

    def figures(self, entry: Entry) -> dict[str, float]:
        """Return the resources of a kernel: registers and local bytes of a thread, shared bytes of a block, and the
        occupancy."""
        self._enter()
        found = {"blocks": float(entry.blocks), "threads": float(entry.threads)}
        value = c_int()
        for name, attribute in _OF_KERNELS.items():
            call("cuFuncGetAttribute", byref(value), attribute, entry.handle)
            found[name] = float(value.value)
        found["shared_bytes"] += entry.shared
        call("cuOccupancyMaxActiveBlocksPerMultiprocessor", byref(value), entry.handle, entry.threads, entry.shared)
        return {**found, "occupancy": value.value * entry.threads / self.attribute(_MOST_THREADS)}

    def launch(self, entry: Entry, addresses: Sequence[int]) -> None:
        """Start a kernel on buffers at these addresses, or a loop on addresses and counters."""
        self._enter()
        self._stream.launch(entry, addresses)

    # -- libraries -------------------------------------------------------------------------------------------------

    @functools.cached_property
    def libraries(self) -> LibraryCalls:
        """Calls of libraries on this GPU."""
        self._enter()
        return LibraryCalls(self, ROUTINES, gpu=get_name(self._device.value))

    @property
    def library_names(self) -> frozenset[str]:
        """Names of the installed libraries."""
        return present()

    def call(self, prepared: PreparedCall, addresses: Sequence[int], workspace: int) -> None:
        """Start a call of a library."""
        self._enter()
        self._stream.call(prepared, addresses, workspace)

    def copy_in_stream(self, stream: Any, target: int, source: int, size: int) -> None:
        """Start a copy within the GPU in a given stream."""
        call("cuMemcpyDtoDAsync_v2", target, source, size, stream)

    @contextmanager
    def scratch(self, size: int) -> Iterator[int]:
        """Allocate memory in the block, filled with numbers that are not large in any float format; yield its address.

        They are random: a GPU that multiplies the same numbers repeatedly needs less power, and is faster.
        """
        rng = np.random.default_rng(0)
        words = rng.choice(np.array([0x3C00, 0xBC00], np.uint16), 1 << 16) | rng.integers(0, 256, 1 << 16, np.uint16)
        whole = -(-max(size, 1) // words.nbytes) * words.nbytes
        address = self.allocate(whole)
        try:
            self.copy_in(address, words)
            done = words.nbytes
            while done < whole:
                more = min(done, whole - done)
                self.copy(address + done, address, more)
                done += more
            yield address
        finally:
            self.free(address)

    def measure_seconds(self, work: Callable[[Any], None], repetitions: int, rounds: int, hopeless: float) -> float:
        """Return the seconds of the work that a function starts in a stream, the best of several rounds of repetitions.

        The rounds end early if one takes longer than `hopeless`. The work is captured, so that the GPU does not wait
        for the host, which may be compiling.
        """
        self._enter()
        work(self._stream.handle)  # loads what libraries load on first use
        first, last = Event(self), Event(self)

        def repeat(stream: Stream) -> None:
            stream.mark(first)
            for _ in range(repetitions):
                work(stream.handle)
            stream.mark(last)

        graph = self.record(repeat)
        best = float("inf")
        for _ in range(rounds):
            self.start(graph)
            self.synchronize()
            best = min(best, 1e-9 * self.nanoseconds_between(first, last) / repetitions)
            if best > hopeless:
                break
        return best

    # -- graphs ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def conditional_nodes(self) -> frozenset[str]:
        """Kinds of conditional nodes that the driver supports in graphs."""
        return known_nodes(_version(library()))

    def record(self, work: Callable[[RecordingStream], None]) -> Graph:
        """Capture the work that a function starts in the stream that it receives, without running it."""
        self._enter()
        graph, handle = c_void_p(), c_void_p()
        with self._recording_lock:
            call("cuStreamBeginCapture_v2", self._recording.handle, _RELAXED)
            try:
                work(self._recording)
            finally:
                call("cuStreamEndCapture", self._recording.handle, byref(graph))
        try:
            call("cuGraphInstantiateWithFlags", byref(handle), graph, 0)
        finally:
            call("cuGraphDestroy", graph)
        result = Graph(self, handle)
        call("cuGraphUpload", handle, self._stream.handle)
        return result

    def start(self, graph: Graph) -> None:
        """Start a graph."""
        if _current.driver is not self:
            self._enter()
        status = self._start(graph.handle, self._stream.handle)
        if status in _OTHER_CONTEXT:
            # Another library has changed the current context of this thread.
            self._enter()
            status = self._start(graph.handle, self._stream.handle)
        if status:
            raise_error("cuGraphLaunch", status)

    # -- streams of other libraries --------------------------------------------------------------------------------

    @property
    def stream_handle(self) -> int:
        """Handle of the stream of all work as an integer, for other libraries."""
        handle = self._stream.handle.value
        assert handle is not None
        return handle

    def precede(self, stream: int) -> None:
        """Make a stream of another library wait for all work so far."""
        event = self.event(timed=False)
        self._stream.mark(event)
        call("cuStreamWaitEvent", stream, event.handle, 0)

    def follow(self, stream: int) -> None:
        """Make later work wait for the work of another library's stream. A stream that does not exist any more has
        none."""
        if self.process != os.getpid() or library is None:  # the process ends, or is a fork
            return
        event = self.event(timed=False)
        if not library().cuEventRecordWithFlags(event.handle, stream, 0):  # type: ignore[union-attr]
            self._stream.wait(event)

    def hold(self, value: Any) -> None:
        """Keep an object alive until all work so far has ended."""
        if self.process != os.getpid() or library is None:
            return
        event = self.event(timed=False)
        self._stream.mark(event)
        self._holding.append((event, value))
        while self._holding and self._holding[0][0].has_happened():
            self._holding.popleft()

    # -- times -----------------------------------------------------------------------------------------------------

    def event(self, timed: bool = True) -> Event:
        """Create an event."""
        self._enter()
        return Event(self, timed)

    def mark(self, event: Event) -> None:
        """Record an event: it happens when all earlier work has ended."""
        self._enter()
        self._stream.mark(event)

    def nanoseconds_between(self, first: Event, last: Event) -> int:
        """Return the time between two events that have happened, to about half a microsecond."""
        self._enter()
        milliseconds = c_float()
        call("cuEventElapsedTime", byref(milliseconds), first.handle, last.handle)
        return round(1e6 * milliseconds.value)

    # -- waiting ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def interrupts(self) -> Interrupts:
        """Interruption of loops that are one kernel; created with the first such loop."""
        self._enter()
        return Interrupts(self)

    def _wait_for_work(self) -> None:
        """Wait until all work has ended, if that must notice failures of other processes in collectives, or signals
        during long loops."""
        wait_for_others(self)
        if "interrupts" in self.__dict__:
            self.interrupts.wait()
            self.epoch += 1

    def synchronize(self) -> None:
        """Wait until all work has ended."""
        self._enter()
        self._wait_for_work()
        call("cuStreamSynchronize", self._stream.handle)
        self._holding.clear()
        self.epoch += 1

    def is_idle(self) -> bool:
        """Return whether all work has ended."""
        self._enter()
        status = library().cuStreamQuery(self._stream.handle)  # type: ignore[union-attr]
        return bool(status != _NOT_READY)
