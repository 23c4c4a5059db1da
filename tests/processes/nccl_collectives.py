"""Whole collectives by a stand-in for NCCL, which records the calls as NCCL's C API would get them.

`NcclCollectives` is what a transport for GPUs will be: one communicator for each group of devices, made once; for each
collective ncclGroupStart, the calls of each device of this process, ncclGroupEnd; all from one thread, in the order of
the program. Devices are those of the CPU, and what NCCL would carry goes by the transport beneath.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.runtime.cpu import memory
from weft.runtime.processes.transport import GroupCollective, Message, Messages, NothingBorrowed, Request, Transport
from weft.runtime.processes.world import digest_of

OPERATIONS = {"psum": ("ncclSum", np.add), "pmax": ("ncclMax", np.maximum), "pmin": ("ncclMin", np.minimum)}
TYPES = {
    **{f"{sign}int{bits}": f"nccl{sign.capitalize()}int{bits}" for sign in ("", "u") for bits in (8, 32, 64)},
    **{"float16": "ncclFloat16", "float32": "ncclFloat32", "float64": "ncclFloat64", "bfloat16": "ncclBfloat16"},
    "bool": "ncclUint8",
}
TYPES |= {"int8": "ncclInt8", "int32": "ncclInt32", "int64": "ncclInt64"}
FIRST_TAG = 1 << 16


class Communicator:
    """What ncclCommInitRank makes for one device: all devices of a group, and this one's rank among them."""

    def __init__(self, index: int, devices: Sequence[int], processes: Sequence[int], rank: int) -> None:
        self.index, self.devices, self.processes, self.rank = index, tuple(devices), tuple(processes), rank


# A call: for whom, which, what it sends, where it receives, and its operation, root or peer.
_Operation = tuple[Communicator, str, np.ndarray, np.ndarray, Any]


class Nccl:
    """The calls of this process, and what they do: calls of a group are started together."""

    def __init__(self, beneath: Transport) -> None:
        self.beneath = beneath
        self.calls: list[tuple[Any, ...]] = []
        self._group: list[_Operation] | None = None

    def comm_init_rank(self, communicator: Communicator) -> None:
        self.calls.append(
            ("ncclCommInitRank", communicator.index, len(communicator.devices), communicator.rank, communicator.devices)
        )

    def group_start(self) -> None:
        assert self._group is None, "one thread launches"
        self._group = []
        self.calls.append(("ncclGroupStart",))

    def call(self, name: str, send: np.ndarray, recv: np.ndarray, communicator: Communicator, *more: Any) -> None:
        """One of ncclAllReduce, ncclAllGather, ncclReduceScatter, ncclBroadcast, ncclSend, ncclRecv: what it sends,
        where it receives, and the operation, root or peer."""
        assert self._group is not None, "calls for several devices from one thread are in a group"
        count, kind = (recv if name in ("ncclReduceScatter", "ncclRecv") else send).size, TYPES[str(send.dtype)]
        self.calls.append((name, count, kind, *more, communicator.index, communicator.rank))
        self._group.append((communicator, name, send, recv, more[0] if more else None))

    def group_end(self) -> Request:
        assert self._group is not None
        group, self._group = self._group, None
        self.calls.append(("ncclGroupEnd",))
        return _Operations(self.beneath, group)


class _Operations(NothingBorrowed):
    """The calls of a group. Every process is sent what the devices of others contribute."""

    def __init__(self, beneath: Transport, group: Sequence[_Operation]) -> None:
        self._group = group
        self._sent: dict[Any, np.ndarray] = {}  # what a device sends, to all or to one: by communicator and ranks
        sends, receives = [], []
        for communicator, name, send, recv, peer in group:
            tag = lambda source, c=communicator: FIRST_TAG + 64 * c.index + source
            others = {p for p in communicator.processes if p != beneath.rank}
            if name == "ncclSend":
                self._sent[communicator.index, communicator.rank, peer] = send
                others &= {communicator.processes[peer]}
            elif name == "ncclRecv":
                if communicator.processes[peer] != beneath.rank:
                    self._receive(receives, communicator, tag(peer), peer, communicator.rank, recv)
                continue
            else:
                self._sent[communicator.index, communicator.rank, None] = send
            sends += [Message(p, tag(communicator.rank), send.ctypes.data, send.nbytes) for p in sorted(others)]
        for communicator in {c.index: c for c, name, *_ in group if name not in ("ncclSend", "ncclRecv")}.values():
            (like,) = {(x.shape, x.dtype) for c, _, x, *_ in group if c.index == communicator.index}
            for source, process in enumerate(communicator.processes):
                if process != beneath.rank:
                    tag_of = FIRST_TAG + 64 * communicator.index + source
                    self._receive(receives, communicator, tag_of, source, None, np.empty(*like))
        self._request = beneath.start(sends, receives) if sends or receives else None

    def _receive(
        self, receives: list[Message], communicator: Communicator, tag: int, source: int, to: int | None, x: np.ndarray
    ) -> None:
        self._sent[communicator.index, source, to] = x
        receives.append(Message(communicator.processes[source], tag, x.ctypes.data, x.nbytes))

    def test(self) -> bool:
        if self._request is not None and not self._request.test():
            return False
        for communicator, name, _, recv, option in self._group:
            contributions = lambda c=communicator: [self._sent[c.index, r, None] for r in range(len(c.devices))]
            match name:
                case "ncclAllReduce":
                    recv[...] = reduced(contributions(), option)
                case "ncclReduceScatter":
                    recv[...] = reduced(contributions(), option)[communicator.rank]
                case "ncclAllGather":
                    recv[...] = np.stack(contributions())
                case "ncclBroadcast":
                    recv[...] = contributions()[option]
                case "ncclRecv":
                    recv[...] = self._sent[communicator.index, option, communicator.rank]
        return True


def reduced(values: Sequence[np.ndarray], operation: str) -> np.ndarray:
    """One after the other, as a ring does it: another order than ours."""
    (function,) = [f for name, f in OPERATIONS.values() if name == operation]
    found = values[0]
    for value in values[1:]:
        found = function(found, value)
    return found


class NcclCollectives(Messages):
    """A transport that does collectives of devices by NCCL. What NCCL has no call for is done in parts, by messages."""

    collects = True

    def __init__(self, beneath: Transport) -> None:
        self.beneath, self.nccl = beneath, Nccl(beneath)
        self.rank, self.size, self.tags = beneath.rank, beneath.size, FIRST_TAG
        self.name = f"stand-in for NCCL over {beneath.name}"
        self.start, self.close = beneath.start, beneath.close
        self._communicators: dict[tuple[int, ...], list[Communicator]] = {}

    def communicators(self, devices: Sequence[int], processes: Sequence[int]) -> list[Communicator]:
        """Those of a group for the devices of this process, made when they are first needed."""
        key = tuple(devices)
        if key not in self._communicators:
            own = [r for r, process in enumerate(processes) if process == self.rank]
            index = int(digest_of(str(key))[:4], 16)  # the same in all processes, as an ncclUniqueId
            found = self._communicators[key] = [Communicator(index, devices, processes, r) for r in own]
            self.nccl.group_start()
            for communicator in found:
                self.nccl.comm_init_rank(communicator)
            self.nccl.group_end()
        return self._communicators[key]

    def collective(self, of: GroupCollective) -> _Collective | None:
        if of.primitive not in _Collective.CALLS or str(of.operands[0].dtype) not in TYPES:
            return None
        return _Collective(self, of)


class _Collective:
    """One collective of a group, as calls of NCCL for each device of this process."""

    CALLS = frozenset({*OPERATIONS, "all_gather", "reduce_scatter", "all_to_all", "ppermute", "pbroadcast"})

    def __init__(self, transport: NcclCollectives, of: GroupCollective) -> None:
        self.nccl, self.of = transport.nccl, of
        groups = of.params.get("axis_index_groups") or [range(len(of.devices))]
        # Communicators of the members of this process, in the order of the group.
        found = {
            group[c.rank]: c
            for group in groups
            for c in transport.communicators([of.devices[i] for i in group], [of.processes[i] for i in group])
        }
        self.members = [found[i] for i in sorted(found)]

    def start(self, operands: Sequence[int], results: Sequence[int]) -> Request:
        (into, out), count = (self.of.operands[0], self.of.results[0]), len(self.members)
        inputs = [memory.view(a, into.shape, into.dtype) for a in operands[:count]]
        finishes = []
        self.nccl.group_start()
        for communicator, x in zip(self.members, inputs, strict=True):
            finishes.append(getattr(self, f"_{self.of.primitive}", self._reduce)(communicator, x))
        request = self.nccl.group_end()
        outputs = [memory.view(a, out.shape, out.dtype) for a in results[:count]]
        return _Finished(request, list(zip(outputs, finishes, strict=True)))

    def _reduce(self, communicator: Communicator, x: np.ndarray) -> Any:
        recv = np.empty_like(x)
        self.nccl.call("ncclAllReduce", x, recv, communicator, OPERATIONS[self.of.primitive][0])
        return lambda: recv

    def _all_gather(self, communicator: Communicator, x: np.ndarray) -> Any:
        recv = np.empty((len(communicator.devices), *x.shape), x.dtype)
        self.nccl.call("ncclAllGather", x, recv, communicator)
        dim, tiled = self.of.params["all_gather_dimension"], self.of.params["tiled"]
        return lambda: np.concatenate(recv, dim) if tiled else np.moveaxis(recv, 0, dim)

    def _reduce_scatter(self, communicator: Communicator, x: np.ndarray) -> Any:
        count, dim = len(communicator.devices), self.of.params["scatter_dimension"]
        parts = np.stack(np.split(x, count, dim)) if self.of.params["tiled"] else np.moveaxis(x, dim, 0)
        send = np.ascontiguousarray(parts)
        recv = np.empty(send.shape[1:], x.dtype)
        self.nccl.call("ncclReduceScatter", send, recv, communicator, "ncclSum")
        return lambda: recv

    def _all_to_all(self, communicator: Communicator, x: np.ndarray) -> Any:
        send = np.ascontiguousarray(np.moveaxis(x, self.of.params["split_axis"], 0))
        recv = np.empty_like(send)
        for peer in range(len(communicator.devices)):
            self.nccl.call("ncclSend", send[peer], send[peer], communicator, peer)
            self.nccl.call("ncclRecv", recv[peer], recv[peer], communicator, peer)
        return lambda: np.moveaxis(recv, 0, self.of.params["concat_axis"])

    def _ppermute(self, communicator: Communicator, x: np.ndarray) -> Any:
        recv = np.zeros_like(x)
        for source, target in self.of.params["perm"]:
            if source == communicator.rank:
                self.nccl.call("ncclSend", x, x, communicator, target)
            if target == communicator.rank:
                self.nccl.call("ncclRecv", recv, recv, communicator, source)
        return lambda: recv

    def _pbroadcast(self, communicator: Communicator, x: np.ndarray) -> Any:
        recv = np.empty_like(x)
        self.nccl.call("ncclBroadcast", x, recv, communicator, self.of.params["source"])
        return lambda: recv


class _Finished(NothingBorrowed):
    """Calls under way, and what is done with what they have received: a kernel behind them on the stream."""

    def __init__(self, request: Request, results: Sequence[tuple[np.ndarray, Any]]) -> None:
        self._request, self._results = request, results

    def test(self) -> bool:
        if not self._request.test():
            return False
        for out, finish in self._results:
            out[...] = finish()
        return True
