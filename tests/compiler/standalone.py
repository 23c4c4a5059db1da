"""Programs as functions of libraries, loaded by the JIT and called with guard pages around all of their memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.compile import compile_program
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.standalone.failures import Failures
from weft.compiler.target.cpu.standalone.machines import find_machine
from weft.compiler.target.cpu.standalone.unit import Entry, Place, Unit
from weft.ir.jaxpr import Jaxpr
from weft.runtime.cpu.guarded import Edge, Guarded, Layout

POINTER = ctypes.c_void_p


def storage_bytes(v: Any) -> int:
    return int(np.prod(v.aval.shape, dtype=int)) * dtypes.storage(v.aval.dtype).itemsize


def entry_of(jaxpr: Jaxpr, machine: str = "host") -> tuple[Entry, Unit, Failures]:
    """The unit with one function `f_run` of a jaxpr."""
    target = find_machine(machine).targets[-1][1]
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), target).program

    def places(some: Sequence[Any]) -> list[Place]:
        return [Place(1, True) for _ in some]

    entry = Entry("f", [program], range(len(jaxpr.invars)), [], places(jaxpr.invars), places(jaxpr.outvars))
    unit, failures = Unit(target), Failures()
    unit.add(entry, "f_run", failures)
    return entry, unit, failures


def call(jaxpr: Jaxpr, arrays: Sequence[np.ndarray], edge: Edge) -> list[bytes]:
    """The bytes of the results. Arguments may not be written; beside the results and the workspace nothing is."""
    entry, unit, _ = entry_of(jaxpr)
    code = link.make_object(unit.text(), unit.target, Tier.LIGHT)
    assert not code.imports, code.imports
    sizes = [a.nbytes for a in arrays] + [storage_bytes(v) for v in jaxpr.outvars] + [entry.workspace_bytes]
    memory = Guarded(Layout.of(sizes, edge))
    for i, array in enumerate(arrays):
        memory.put(i, np.ascontiguousarray(array))
    memory.forbid_writing(range(len(arrays)))
    addresses = [memory.address + offset for offset in memory.layout.offsets]
    count = len(arrays)
    tables = [(POINTER * (len(some) + 1))(*some) for some in (addresses[:count], addresses[count:-1])]
    function = link.load(code).function("f_run", ctypes.c_int32, *[POINTER] * 4)
    assert function(*tables, addresses[-1], None) == 0
    for i, size in enumerate(sizes):
        assert memory.is_poisoned_around(i, size), f"something beside piece {i} is written"
    offsets = memory.layout.offsets
    return [memory.array[offsets[i] : offsets[i] + sizes[i]].tobytes() for i in range(count, len(sizes) - 1)]
