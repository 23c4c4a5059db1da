"""Collectives between GPUs by NCCL."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from weft.base.forks import held
from weft.runtime.cuda.libraries.find import load
from weft.runtime.processes.transport import TransportError

# ncclDataType_t and ncclRedOp_t.
TYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
OPERATIONS = {"sum": 0, "max": 2, "min": 3}
IN_PROGRESS = 7
ID_BYTES = 128


class UniqueId(ctypes.Structure):
    """ncclUniqueId: identifier by which the ranks of a new communicator find each other."""

    _fields_ = (("content", ctypes.c_ubyte * ID_BYTES),)


class Config(ctypes.Structure):
    """ncclConfig_t of the first version with the field `blocking`; later versions accept it."""

    _fields_ = (("size", c_size_t), ("magic", c_uint), ("version", c_uint), ("blocking", c_int))

    def __init__(self, blocking: bool) -> None:
        super().__init__(ctypes.sizeof(Config), 0xCAFEBEEF, 21400, int(blocking))


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclGetUniqueId": (POINTER(UniqueId),),
    "ncclCommInitRankConfig": (POINTER(c_void_p), c_int, UniqueId, c_int, POINTER(Config)),
    "ncclCommGetAsyncError": (c_void_p, POINTER(c_int)),
    "ncclCommAbort": (c_void_p,),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclAllReduce": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclReduceScatter": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclAllGather": (c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p),
    "ncclBroadcast": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclSend": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclRecv": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
}
_BYTES = TYPES["int8"]
_FIX = "NCCL_DEBUG=INFO in the environment shows what NCCL does"


class Nccl:
    """Bindings to NCCL. A communicator has a handle for each of its GPUs in this process, whose calls are in one group.

    Calls of communicators with GPUs of other processes do not block: they are started, and polled. Errors raise
    `TransportError`.
    """

    def __init__(self, loader: Callable[[str], Any] = load) -> None:
        self._library = loader("nccl")
        for name, arguments in _FUNCTIONS.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = arguments, c_int
        # Another thread may abort nonblocking communicators; their handles are not used after that.
        self._lock = held(threading.RLock())
        self._far: list[Any] = []
        self._aborted: list[Any] = []

    def _call(self, name: str, *arguments: Any) -> int:
        """Call a function; return 0 or IN_PROGRESS, or raise."""
        status: int = getattr(self._library, name)(*arguments) or 0
        if status not in (0, IN_PROGRESS):
            self._raise(name, status)
        return status

    def _raise(self, name: str, status: int) -> None:
        said, more = (
            (self._text(function, argument) or "").strip()
            for function, argument in (("ncclGetErrorString", status), ("ncclGetLastError", None))
        )
        more = f"; {more}" if more else ""
        what = f"NCCL reports an error in {name}: {said or 'no reason given'} ({status}){more}"
        raise TransportError(what, fix=_FIX)

    def _text(self, name: str, argument: Any) -> str | None:
        describe = getattr(self._library, name, None)
        if describe is None:
            return None
        describe.restype = c_char_p
        found = describe(argument)
        return found.decode(errors="replace") if found else None

    def unique_id(self) -> bytes:
        """Create the identifier of a new communicator; one rank creates it for all."""
        found = UniqueId()
        self._call("ncclGetUniqueId", byref(found))
        return bytes(found.content)

    def connect(self, unique_id: bytes, count: int, members: Sequence[tuple[int, Any]], blocks: bool) -> list[Any]:
        """Create the handles of this process's members, pairs of a rank and a GPU, in a communicator of `count` ranks.

        If it does not block, the handles can be used when `has_started` returns True.
        """
        handles = [c_void_p() for _ in members]
        config, content = Config(blocks), UniqueId.from_buffer_copy(unique_id)
        with self._lock:
            self._call("ncclGroupStart")
            try:
                for (rank, gpu), handle in zip(members, handles, strict=True):
                    arguments = byref(handle), count, content, rank, byref(config)
                    gpu.in_thread(lambda arguments=arguments: self._call("ncclCommInitRankConfig", *arguments))
            finally:
                self._call("ncclGroupEnd")
            if not blocks:
                self._far += handles
        return handles

    def has_started(self, handles: Sequence[Any]) -> bool:
        """Return whether all calls for these handles are in their streams; raise if one has failed."""
        with self._lock:
            self.check(handles)
            state, goes_on = c_int(), False
            for handle in handles:
                self._call("ncclCommGetAsyncError", handle, byref(state))
                if state.value == IN_PROGRESS:
                    goes_on = True
                elif state.value:
                    self._raise("a collective", state.value)
            return not goes_on

    def start_calls(self, calls: Sequence[tuple[Any, ...]], handles: Sequence[Any]) -> None:
        """Start calls, each a name and arguments, for the GPUs with these handles as one group."""
        with self._lock:
            self.check(handles)
            self._call("ncclGroupStart")
            try:
                for name, *arguments in calls:
                    self._call(name, *arguments)
            finally:
                self._call("ncclGroupEnd")

    def abort(self) -> None:
        """Abort all collectives with other processes; their communicators cannot be used any more."""
        with self._lock:
            handles, self._far = self._far, []
            self._aborted += handles
        for handle in handles:
            self._library.ncclCommAbort(handle)  # an error here is the reason for the abort

    def check(self, handles: Sequence[Any]) -> None:
        """Raise if the communicators of these handles were aborted."""
        if any(handle is aborted for handle in handles for aborted in self._aborted):
            raise TransportError("collectives of GPUs were aborted, since something has failed", fix=_FIX)


def byte_messages(
    sends: Sequence[tuple[int, int]], receives: Sequence[tuple[int, int]], size: int, handle: Any, stream: Any
) -> list[tuple[Any, ...]]:
    """Return the calls of one GPU that send and receive messages of `size` bytes: pairs of an address and a rank."""
    return [("ncclSend", address, size, _BYTES, rank, handle, stream) for address, rank in sends] + [
        ("ncclRecv", address, size, _BYTES, rank, handle, stream) for address, rank in receives
    ]
