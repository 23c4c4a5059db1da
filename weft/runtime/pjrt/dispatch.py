"""Calls of executables: of single operations, and the part of a dispatcher that starts a program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.codegen import Source
from weft.base.errors import NotSupportedError
from weft.base.source import user_location
from weft.ir.types import ArrayType
from weft.runtime.array import ConcreteArray, PlacedArray, array_at, put
from weft.runtime.device import Placement
from weft.runtime.execute import get_equation_jaxpr, get_executable
from weft.runtime.pjrt import parts
from weft.runtime.pjrt.executable import PjrtExecutable, eager_operand, operand


def eager_call(
    executable: PjrtExecutable, types: Sequence[ArrayType], results: Sequence[ArrayType], placement: Placement
) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function of arrays that runs the executable of one operation; see `ExecutionBackend.eager_call`.

    Elementwise operations are requested for arrays in a row; the same operation on the arrays as they are replaces it.
    """
    (equation,) = executable.compilation.traced.eqns
    if any(a.shape != b.shape for a, b in zip(executable.in_types, types, strict=True)):
        jaxpr = get_equation_jaxpr(equation.primitive, types, equation.params)
        executable = get_executable(jaxpr, device=placement.device)  # type: ignore[assignment]
    try:
        _ = executable.compilation.text
    except NotSupportedError:
        return parts.host_call(equation, types, results, placement)

    def run(args: Sequence[Any]) -> list[Any]:
        operands = [eager_operand(a, t, placement) for a, t in zip(args, types, strict=True)]
        found = executable.start(operands, placement)
        return [array_at(placement, None, t, b, b.address) for t, b in zip(results, found, strict=True)]

    return run


def write_call(
    source: Source,
    executable: PjrtExecutable,
    constants: Sequence[ConcreteArray],
    leaves: Sequence[str],
    donated: Sequence[bool],
    placement: Placement,
) -> list[str]:
    """Write the call on constants and the arrays of these names; return expressions for the results."""
    there = tuple(put(constant, placement) for constant in constants)
    types = executable.in_types[len(constants) :]
    source.names |= {
        "Placed": PlacedArray,
        "PLACEMENT": placement,
        "constants": there,
        "operand": operand,
        "start": functools.partial(executable.start, placement=placement),
        "donated_memory": placement.memory_backend.donated_memory,
        "user_location": user_location,
    }
    for name, aval, flag in zip(leaves, types, donated, strict=True):
        if not flag:  # donated arrays are on the device already
            moved = f"operand({name}, {source.constant(aval)}, PLACEMENT)"
            source.line(f"if {name}._placement is not PLACEMENT: {name} = {moved}")
    if leaves:  # deleted arrays have no memory: the general way raises
        source.line(f"if not ({' and '.join(f'{name}._pointer' for name in leaves)}): return MISS")
    if any(donated):
        # A donated array must not be another argument too: the general way finds out.
        names = ", ".join(f"{name}._pointer" for name in leaves)
        source.line(f"if len({{{names}}}) != {len(leaves)}: return MISS")
    passed = []
    aliases = executable.compilation.aliases[len(constants) :]
    for i, name in enumerate(leaves):
        if donated[i] and aliases and aliases[i] is not None:
            source.line(f"{name}_taken = donated_memory({name})")
            passed.append(f"{name}_taken")
        else:
            passed.append(name)
    source.line(f"buffers = start((*constants, {''.join(f'{text}, ' for text in passed)}))")
    deleted = [name for name, flag in zip(leaves, donated, strict=True) if flag]
    if deleted:
        source.line("where = user_location()")
    for name in deleted:
        source.line(f"{name}._buffer = {name}._memory = None")
        source.line(f"{name}._pointer, {name}._donated_at = 0, where")
    return [
        f"Placed(None, {source.constant(aval)}, buffers[{i}], buffers[{i}].address, PLACEMENT)"
        for i, aval in enumerate(executable.out_types)
    ]
