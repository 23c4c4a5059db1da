"""NCCL between simulated GPUs: calls of a group are matched when it ends, and done in the memory of their GPUs, or
recorded where their streams are. Those of a communicator with other processes become work of their GPUs, which a
network does."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.cuda.simulated import SimulatedDriver
from tests.cuda.stand_ins.network import Address, Network
from tests.cuda.stand_ins.objects import Function
from weft.base import dtypes
from weft.runtime.cuda.libraries.nccl import ID_BYTES, IN_PROGRESS, OPERATIONS, TYPES, UniqueId

_NAMES = {code: name for name, code in TYPES.items()}
_OPERATIONS = {code: name for name, code in OPERATIONS.items()}
_COMBINED = {OPERATIONS["sum"]: np.add, OPERATIONS["max"]: np.maximum, OPERATIONS["min"]: np.minimum}
_MESSAGES = ("ncclSend", "ncclRecv")
# How often one has to ask before calls that do not block have been started.
ASKED = 3


@dataclass
class _Communicator:
    """Ranks that found each other by an id: the GPUs of those in this process, and how many calls there were."""

    address: Address
    count: int
    blocks: bool
    drivers: dict[int, Any] = field(default_factory=dict)
    calls: int = 0
    messages: dict[tuple[int, int, int], int] = field(default_factory=dict)  # of a rank from one to another
    asked: int = 0  # since calls that are not started
    waiting: list[Any] = field(default_factory=list)  # what is not started
    is_aborted: bool = False

    @property
    def is_here(self) -> bool:
        """Whether all ranks are in this process."""
        return len(self.drivers) == self.count


class NcclStandIn:
    """The library. `calls` has the names of the calls of each group, and `lines` all calls as text."""

    def __init__(self, network: Network | None = None) -> None:
        self.network = network
        self.calls: list[list[str]] = []
        self.lines: list[str] = []
        self._communicators: dict[Address, _Communicator] = {}
        self._members: dict[int, tuple[_Communicator, int]] = {}
        self._group: list[tuple[Any, ...]] | None = None

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nccl"):
            raise AttributeError(name)
        if name in ("ncclGetErrorString", "ncclGetLastError"):
            return lambda argument: f"what {name} says".encode()
        function = getattr(type(self), "_" + name, None)
        if function is None:
            found = Function(lambda *arguments: self._call(name, *arguments))
        else:
            found = Function(lambda *arguments: function(self, *arguments))
        self.__dict__[name] = found
        return found

    # -- communicators ---------------------------------------------------------------------------------------------

    def _ncclGetUniqueId(self, target: Any) -> None:
        host, port = ("", 0) if self.network is None else self.network.listen()
        text = f"{host} {port} {secrets.token_hex(8)}".encode().ljust(ID_BYTES, b" ")
        target._obj.content[:] = text
        self.lines.append("ncclGetUniqueId")

    def _ncclCommInitRankConfig(self, target: Any, count: int, unique_id: UniqueId, rank: int, config: Any) -> int:
        assert self._group is not None and 0 <= rank < count
        host, port, token = bytes(unique_id.content).decode().split(" ")[:3]
        blocks = bool(config._obj.blocking)
        communicator = self._communicators.setdefault(
            (host, int(port), token), _Communicator((host, int(port), token), count, blocks)
        )
        assert communicator.count == count and communicator.blocks == blocks and rank not in communicator.drivers
        gpu = SimulatedDriver.entered
        assert gpu not in communicator.drivers.values(), "a GPU twice"
        communicator.drivers[rank] = gpu
        target._obj.value = 0x1000 + 16 * len(self._members)
        self._members[target._obj.value] = communicator, rank
        self.lines.append(f"ncclCommInitRankConfig rank {rank} of {count}{'' if blocks else ', not blocking'}")
        self._group.append(("ncclCommInitRankConfig", communicator))
        return 0 if blocks else IN_PROGRESS

    def _ncclCommGetAsyncError(self, handle: Any, state: Any) -> None:
        communicator, _ = self._members[handle.value]
        assert not communicator.is_aborted, "its memory is gone"
        state._obj.value = 0
        if communicator.waiting:
            communicator.asked += 1
            ready = communicator.asked >= ASKED and (communicator.calls or self._hello(communicator))
            if ready:
                for work in communicator.waiting:
                    work()
                communicator.waiting, communicator.asked = [], 0
            state._obj.value = 0 if ready else IN_PROGRESS

    def _hello(self, communicator: _Communicator) -> bool:
        """Whether all ranks of a new communicator are there."""
        assert self.network is not None
        return self.network.received(communicator.address, 0) is not None

    def _ncclCommAbort(self, handle: Any) -> None:
        communicator, rank = self._members[handle.value]
        communicator.is_aborted = True
        self.lines.append(f"ncclCommAbort rank {rank} of {communicator.count}")

    # -- calls -----------------------------------------------------------------------------------------------------

    def _ncclGroupStart(self) -> None:
        assert self._group is None
        self._group = []
        self.lines.append("ncclGroupStart")

    def _ncclGroupEnd(self) -> int:
        group, self._group = self._group, None
        self.lines.append("ncclGroupEnd")
        if not group:  # its calls were refused
            return 0
        if group[0][0] == "ncclCommInitRankConfig":
            for communicator in {id(call[1]): call[1] for call in group}.values():
                if communicator.blocks:
                    assert communicator.is_here, "it would wait for ever"
                else:
                    assert self.network is not None
                    self.network.send(communicator.address, communicator.count, 0, dict.fromkeys(communicator.drivers))
                    communicator.waiting.append(lambda: None)
                    return IN_PROGRESS
            return 0
        self.calls.append(sorted({call[0] for call in group}))
        stream = group[0][-1]
        (communicator,) = {id(m): m for m, _ in (self._members[call[-2].value] for call in group)}.values()
        assert not communicator.waiting, "calls before it was ready"
        if not communicator.blocks:
            communicator.waiting.append(lambda: self._started(communicator, group))
            return IN_PROGRESS
        if hasattr(stream, "steps"):  # it is recorded
            stream.steps.append(("collective", (self, group)))
        elif hasattr(stream, "enqueue"):
            self._started(communicator, group)
        else:
            self.do(group)
        return 0

    def _call(self, name: str, *arguments: Any) -> int:
        assert self._group is not None
        *options, handle, _ = arguments
        communicator, rank = self._members[handle.value]
        self._group.append((name, *arguments))
        self.lines.append(f"{name} {_described(name, options)}; rank {rank} of {communicator.count}")
        return 0 if communicator.blocks else IN_PROGRESS

    def do(self, group: Sequence[tuple[Any, ...]]) -> None:
        """Do the calls of a group in this process: by communicator what each rank has asked for."""
        communicator, calls = self._by_rank(group)
        assert communicator.is_here
        contributed = {rank: self._contribution(communicator, rank, own) for rank, own in calls.items()}
        for rank, own in calls.items():
            self._finish(communicator, rank, own, contributed)
        unread = [rest for what, sent in contributed.values() if what == "messages" for rest in sent.values()]
        assert not any(unread), "what is sent is not received"

    def _by_rank(self, group: Sequence[tuple[Any, ...]]) -> tuple[_Communicator, dict[int, list[tuple[Any, ...]]]]:
        calls: dict[int, list[tuple[Any, ...]]] = {}
        for call in group:
            communicator, rank = self._members[call[-2].value]
            calls.setdefault(rank, []).append(call)
        return communicator, calls

    def _started(self, communicator: _Communicator, group: Sequence[tuple[Any, ...]]) -> None:
        """Have the GPUs of this process do the calls of a group with those of others, each when it comes to it."""
        communicator.calls += 1
        _, calls = self._by_rank(group)
        work = _Together(self, communicator, communicator.calls, calls)
        for rank, own in calls.items():
            own[0][-1].enqueue(lambda rank=rank: work.arrive(rank))

    # -- what a rank contributes, and what becomes of it -----------------------------------------------------------

    def _view(self, gpu: Any, address: int, count: int, kind: int) -> np.ndarray:
        dtype = dtypes.storage(dtypes.as_dtype(_NAMES[kind]))
        return gpu.view(address, count * dtype.itemsize).view(dtype)

    def _contribution(
        self, communicator: _Communicator, rank: int, calls: Sequence[tuple[Any, ...]]
    ) -> tuple[Any, Any]:
        """What the others get of a rank: what its calls are, and by receiver, or for all, what it sends."""
        gpu, sent = communicator.drivers[rank], {}  # type: ignore[var-annotated]
        for name, address, *rest in calls:
            if name == "ncclSend":
                count, kind, other = rest[:3]
                sent.setdefault(other, []).append(self._view(gpu, address, count, kind).copy())
            elif name != "ncclRecv":
                _, count, kind = rest[:3]
                long = count * communicator.count if name == "ncclReduceScatter" else count
                sent.setdefault(None, []).append(self._view(gpu, address, long, kind).copy())
        if calls[0][0] in _MESSAGES:
            assert all(call[0] in _MESSAGES for call in calls)
            return "messages", sent
        return tuple((call[0], *call[3:-2]) for call in calls), sent

    def _finish(
        self, communicator: _Communicator, rank: int, calls: Sequence[Any], contributed: dict[int, Any]
    ) -> None:
        """Write what a rank receives, of what all have contributed."""
        gpu = communicator.drivers[rank]
        if contributed[rank][0] == "messages":
            for name, address, count, kind, other, *_ in calls:
                if name == "ncclRecv":
                    self._view(gpu, address, count, kind)[:] = contributed[other][1][rank].pop(0)
            return
        assert sorted(contributed) == list(range(communicator.count)), "not all take part"
        assert len({what for what, _ in contributed.values()}) == 1, "calls differ"
        for i, (name, _, target, _, kind, *rest) in enumerate(calls):
            operands = [contributed[r][1][None][i] for r in range(communicator.count)]
            if name in ("ncclAllReduce", "ncclReduceScatter"):
                result = operands[0]
                for operand in operands[1:]:
                    result = _COMBINED[rest[0]](result, operand)
                if name == "ncclReduceScatter":
                    result = np.split(result, communicator.count)[rank]
            else:
                result = np.concatenate(operands) if name == "ncclAllGather" else operands[rest[0]]
            self._view(gpu, target, len(result), kind)[:] = result


class _Together:
    """Calls of a communicator with other processes: when a GPU comes to them, what it contributes is sent; it goes on
    when that of all others is there, or of those that it sends to and receives from, or everything is aborted."""

    def __init__(self, library: NcclStandIn, communicator: _Communicator, index: int, calls: dict[int, Any]) -> None:
        self._library, self._communicator, self._index, self._calls = library, communicator, index, calls
        assert library.network is not None
        self._network: Network = library.network

    def arrive(self, rank: int) -> None:
        """A rank of this process has come to its calls."""
        what, sent = self._library._contribution(self._communicator, rank, self._calls[rank])
        if what == "messages":
            contributed = self._messages(rank, sent)
        else:
            self._network.send(self._communicator.address, self._communicator.count, self._index, {rank: (what, sent)})
            contributed = self._received(self._index)
        if contributed is not None:
            self._library._finish(self._communicator, rank, self._calls[rank], contributed)

    def _received(self, index: Any) -> dict[int, Any] | None:
        while not self._communicator.is_aborted:
            found = self._network.received(self._communicator.address, index, 0.01)
            if found is not None:
                return found
        return None

    def _messages(self, rank: int, sent: dict[int, list[np.ndarray]]) -> dict[int, Any] | None:
        """What others send to a rank, by sender, when both sides of all messages are there; they match by order."""
        contributed: dict[int, Any] = {rank: ("messages", {rank: sent.get(rank, [])})}
        indices = []
        for name, _, _, _, other, *_ in self._calls[rank]:
            if other != rank:
                ends = (rank, other) if name == "ncclSend" else (other, rank)
                count = self._communicator.messages[rank, *ends] = self._communicator.messages.get((rank, *ends), 0) + 1
                indices.append((*ends, count))
                data = sent[other].pop(0) if name == "ncclSend" else None
                self._network.send(self._communicator.address, 2, indices[-1], {rank: data})
        for source, target, count in indices:
            found = self._received((source, target, count))
            if found is None:
                return None
            if target == rank:
                contributed.setdefault(source, ("messages", {rank: []}))[1][rank].append(found[source])
        return contributed


def _described(name: str, options: Sequence[Any]) -> str:
    """The arguments of a call without addresses."""
    if name in _MESSAGES:
        _, count, kind, other = options
        return f"{count} {_NAMES[kind]}, {'to' if name == 'ncclSend' else 'from'} {other}"
    _, _, count, kind, *rest = options
    more = {"ncclBroadcast": lambda root: f", of {root}", "ncclAllGather": lambda: ""}
    return f"{count} {_NAMES[kind]}{more.get(name, lambda code: f', {_OPERATIONS[code]}')(*rest)}"
