"""Programs with more parts than devices: arguments' shards are cut into parts, and results' parts are merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.program.ir import ALIGNMENT
from weft.runtime.cpu import memory
from weft.runtime.cpu.executable import Executable
from weft.runtime.cpu.spmd import DevicesExecutable
from weft.runtime.device import Placement
from weft.runtime.reproducible import Cut


class SharedExecutable:
    """Adapter of an executable for parts to the devices that share them.

    `owners` has the device of each part, as an index among those of this process.
    """

    def __init__(
        self, parts: DevicesExecutable, owners: Sequence[int], arguments: Sequence[Cut], results: Sequence[Cut]
    ) -> None:
        self._parts = parts
        self._owners = list(owners)
        self._count = len(set(owners))
        self._first = [self._owners.index(d) for d in range(self._count)]
        self._arguments = [(cut, offsets(cut)) for cut in arguments]
        self._results = results

    @property
    def executable(self) -> Executable:
        """Executable that each part runs."""
        return self._parts.executable

    def __call__(
        self, addresses: bytes, donated: Sequence[Sequence[Any]], placements: Sequence[Placement]
    ) -> list[tuple[bytes, Any]]:
        """Run on the shards of devices, as `DevicesExecutable` does; no argument is donated."""
        addressed = np.frombuffer(addresses, np.int64).reshape(-1, self._count)[:, self._owners]
        passed = addressed.copy()
        copies = []
        for i, (cut, starts) in enumerate(self._arguments):
            if starts is not None:
                passed[i] += starts
                continue
            for k, box in enumerate(cut.boxes):
                part = memory.view(int(addressed[i, k]), cut.shape, cut.dtype)[box].copy()
                copies.append(part)
                passed[i, k] = part.ctypes.data
        own = [placements[d] for d in self._owners]
        found = self._parts(passed.tobytes(), (), own)
        return [
            self._first_parts(where, allocation) if cut.whole else self._merge(cut, where, placements)
            for (where, allocation), cut in zip(found, self._results, strict=True)
        ]

    def _first_parts(self, where: bytes, allocation: Any) -> tuple[bytes, Any]:
        """Return the shards of a result whose parts on a device are all the same: the first part of each device."""
        held = [allocation[k] for k in self._first] if isinstance(allocation, list) else allocation
        return np.frombuffer(where, np.int64)[self._first].tobytes(), held

    def _merge(self, cut: Cut, where: bytes, placements: Sequence[Placement]) -> tuple[bytes, Any]:
        """Merge the parts of a result on each device."""
        dtype = cut.dtype
        size = dtype.itemsize * int(np.prod(cut.shape, dtype=np.int64))
        allocated = [p.memory.allocate(size) for p in placements]
        wholes = [memory.view(address, cut.shape, dtype) for address, _ in allocated]
        for address, owner, box in zip(np.frombuffer(where, np.int64), self._owners, cut.boxes, strict=True):
            out = wholes[owner][box]
            out[...] = memory.view(int(address), out.shape, dtype)
        return np.array([a for a, _ in allocated], np.int64).tobytes(), [m for _, m in allocated]


def offsets(cut: Cut) -> np.ndarray | None:
    """Return the byte offset of each part in its device's shard; None if parts are not contiguous there, or not
    aligned.
    """
    found = []
    strides = [cut.dtype.itemsize * int(np.prod(cut.shape[d + 1 :], dtype=np.int64)) for d in range(len(cut.shape))]
    for box in cut.boxes:
        sizes = [s.stop - s.start for s in box]
        first = next((d for d, n in enumerate(sizes) if n > 1), len(sizes))
        if any(n != whole for n, whole in zip(sizes[first + 1 :], cut.shape[first + 1 :], strict=True)):
            return None
        found.append(sum(s.start * stride for s, stride in zip(box, strides, strict=True)))
    return None if any(f % ALIGNMENT for f in found) else np.array(found, np.int64)
