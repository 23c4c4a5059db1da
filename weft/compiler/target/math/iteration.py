"""Iterating functions: each is a function of its own in the module, over vectors of float64, that others call.

A converged lane keeps its values while others continue, so that no result depends on neighbouring lanes. Every loop has
a limit, because inactive lanes may hold anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from weft.compiler.target.llvm import Function, Parameter, ptr, void
from weft.compiler.target.math.term import Term

# Result of an iteration: whether each lane is done, and the values for the next iteration.
Iteration = tuple[Term, Sequence[Term]]


def call_in_double(name: str, body: Callable[..., Term], *operands: Term) -> Term:
    """Compute `body` on the operands in float64, as a call; float32 results are rounded once."""
    f = operands[0].function
    wide = [x.long() if x.bits == 32 else x for x in operands]
    call = f.call_in_double if hasattr(f, "call_in_double") else functools.partial(call_by_memory, f)
    found = call(name, body, wide)
    return found.short() if operands[0].bits == 32 else found


def call_by_memory(f: Function, name: str, body: Callable[..., Term], wide: Sequence[Term]) -> Term:
    """Compute `body` in a function of LLVM: operands and the result are passed in memory."""
    kind = wide[0].type
    full = f"weft.{name}.{kind.count}"
    if full not in f.module.functions:
        parameters = [Parameter(f"x{n}", ptr) for n in range(len(wide))]
        helper = f.module.function(full, void, [*parameters, Parameter("y", ptr)], linkage="internal")
        *addresses, result = helper.arguments
        value = body(*(Term(helper, helper.load(kind, address, 8)) for address in addresses))
        helper.store(value.value, result, 8)
        helper.ret()
    rooms = [f.alloca(kind) for _ in range(len(wide) + 1)]
    for x, room in zip(wide, rooms, strict=False):
        f.store(x.value, room, 8)
    f.call(full, void, *rooms)
    return Term(f, f.load(kind, rooms[-1], 8))


def repeat(active: Term, start: Sequence[Term], body: Callable[..., Iteration], limit: int) -> list[Term]:
    """Iterate `body(n, *values)` for n = 1, 2, ... until each lane that is active at the start is done; return its
    values."""
    f = active.function
    one = start[0].of(1)
    with f.repeat(active.value, one.value, *(x.value for x in start)) as region:
        going, n, *values = (Term(f, value) for value in region.values)
        done, found = body(n, *values)
        selected = [going.select(new, old) for new, old in zip(found, values, strict=True)]
        left = going & ~done & (n < float(limit))
        region.again(left.any(), left.value, (n + 1).value, *(x.value for x in selected))
    return [Term(f, value) for value in region.results[2:]]
