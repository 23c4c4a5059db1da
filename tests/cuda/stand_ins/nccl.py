"""NCCL between simulated GPUs: calls of a group are matched when it ends, and done in the memory of their GPUs, or
recorded where their streams are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.cuda.stand_ins.objects import Function
from weft.base import dtypes
from weft.runtime.cuda.libraries.nccl import OPERATIONS, TYPES

_NAMES = {code: name for name, code in TYPES.items()}
_COMBINED = {OPERATIONS["sum"]: np.add, OPERATIONS["max"]: np.maximum, OPERATIONS["min"]: np.minimum}


class NcclStandIn:
    """The library, for GPUs by their ids. `calls` has a line for each group of calls."""

    def __init__(self, drivers: Sequence[Any]) -> None:
        self.drivers, self.calls = drivers, []  # type: ignore[var-annotated]
        self._members: dict[int, tuple[tuple[int, ...], int]] = {}
        self._group: list[tuple[Any, ...]] | None = None

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nccl"):
            raise AttributeError(name)
        found = self.__dict__[name] = Function(lambda *arguments: self._called(name, *arguments))
        return found

    def _called(self, name: str, *arguments: Any) -> None:
        if name == "ncclCommInitAll":
            handles, count, gpus = arguments
            assert len(set(gpus)) == count
            for rank in range(count):
                handles[rank] = 0x1000 + 16 * len(self._members)
                self._members[handles[rank]] = tuple(gpus), rank
        elif name == "ncclGroupStart":
            assert self._group is None
            self._group = []
        elif name == "ncclGroupEnd":
            group, self._group = self._group, None
            assert group
            self.calls.append(sorted({call[0] for call in group}))
            stream = group[0][-1]
            if hasattr(stream, "steps"):  # it is recorded
                stream.steps.append(("collective", (self, group)))
            else:
                self.do(group)
        else:
            assert self._group is not None
            self._group.append((name, *arguments))

    def do(self, group: Sequence[tuple[Any, ...]]) -> None:
        """Do the calls of a group: by communicator what each rank has asked for."""
        by_members: dict[tuple[int, ...], dict[int, list[tuple[Any, ...]]]] = {}
        for call in group:
            gpus, rank = self._members[call[-2]]
            by_members.setdefault(gpus, {}).setdefault(rank, []).append(call)
        for gpus, calls in by_members.items():
            names = {call[0] for own in calls.values() for call in own}
            if names <= {"ncclSend", "ncclRecv"}:
                self._messages(gpus, calls)
            else:
                assert len(names) == 1 and sorted(calls) == list(range(len(gpus))), "not all take part"
                self._collective(names.pop(), gpus, [calls[rank] for rank in range(len(gpus))])

    def _view(self, gpu: int, address: int, count: int, kind: int) -> np.ndarray:
        dtype = dtypes.storage(dtypes.as_dtype(_NAMES[kind]))
        return self.drivers[gpu].view(address, count * dtype.itemsize).view(dtype)

    def _messages(self, gpus: Sequence[int], calls: dict[int, list[tuple[Any, ...]]]) -> None:
        sent: dict[tuple[int, int], list[np.ndarray]] = {}
        for rank, own in calls.items():
            for name, address, count, kind, other, *_ in own:
                if name == "ncclSend":
                    sent.setdefault((rank, other), []).append(self._view(gpus[rank], address, count, kind).copy())
        for rank, own in calls.items():
            for name, address, count, kind, other, *_ in own:
                if name == "ncclRecv":
                    self._view(gpus[rank], address, count, kind)[:] = sent[other, rank].pop(0)
        assert not any(sent.values()), "what is sent is not received"

    def _collective(self, name: str, gpus: Sequence[int], calls: Sequence[Sequence[tuple[Any, ...]]]) -> None:
        assert all(len(own) == 1 for own in calls)
        (_, _, _, count, kind, *rest), size = calls[0][0], len(gpus)
        assert all(own[0][3:5] == (count, kind) for own in calls), "sizes differ"
        long = count * size if name == "ncclReduceScatter" else count
        operands = [self._view(g, own[0][1], long, kind).copy() for g, own in zip(gpus, calls, strict=True)]
        if name in ("ncclAllReduce", "ncclReduceScatter"):
            total = operands[0]
            for operand in operands[1:]:
                total = _COMBINED[rest[0]](total, operand)
            whole = [total] * size if name == "ncclAllReduce" else np.split(total, size)
        elif name == "ncclAllGather":
            whole = [np.concatenate(operands)] * size
        else:
            whole = [operands[rest[0]]] * size
        for gpu, own, result in zip(gpus, calls, whole, strict=True):
            self._view(gpu, own[0][2], len(result), kind)[:] = result
