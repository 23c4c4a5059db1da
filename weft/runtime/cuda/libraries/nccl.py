"""Collectives between GPUs by NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

from weft.base.errors import JaxRuntimeError
from weft.runtime.cuda.libraries.find import load

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

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclCommInitAll": (POINTER(c_void_p), c_int, POINTER(c_int)),
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


class Nccl:
    """The library. A communicator has a handle for each of its GPUs; calls of all of them are made in one group."""

    def __init__(self, loader: Callable[[str], Any] = load) -> None:
        self._library = loader("nccl")
        for name, arguments in _FUNCTIONS.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = arguments, c_int
        self._communicators: dict[tuple[int, ...], list[Any]] = {}

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            describe = self._library.ncclGetErrorString
            describe.restype = c_char_p
            said = (describe(status) or b"no reason given").decode()
            raise JaxRuntimeError(f"NCCL reports an error in {name}: {said} ({status}).")

    def communicator(self, gpus: tuple[int, ...]) -> list[Any]:
        """A handle for each of these GPUs, which talk to each other."""
        if gpus not in self._communicators:
            handles = (c_void_p * len(gpus))()
            self._call("ncclCommInitAll", handles, len(gpus), (c_int * len(gpus))(*gpus))
            self._communicators[gpus] = list(handles)
        return self._communicators[gpus]

    def grouped(self, calls: Sequence[tuple[Any, ...]]) -> None:
        """Start calls, each with a name and arguments, of several GPUs together."""
        self._call("ncclGroupStart")
        try:
            for name, *arguments in calls:
                self._call(name, *arguments)
        finally:
            self._call("ncclGroupEnd")


def byte_messages(
    sends: Sequence[tuple[int, int]], receives: Sequence[tuple[int, int]], size: int, handle: Any, stream: Any
) -> list[tuple[Any, ...]]:
    """Calls of one GPU that send and receive so many bytes each: pairs of an address and the rank of another GPU."""
    return [("ncclSend", address, size, _BYTES, rank, handle, stream) for address, rank in sends] + [
        ("ncclRecv", address, size, _BYTES, rank, handle, stream) for address, rank in receives
    ]
