"""Unroll threads so that the loads of several vectors, far apart in memory, are issued before the first computation.

A thread that computes for long has no loads in flight meanwhile, and the other threads have too few to saturate the
memory of a GPU. So threads of compute-heavy kernels run up to four iterations and begin with the loads of all of them.
Reading earlier is safe: iterations are independent, and a result that overwrites an operand overwrites only elements
that its own iteration reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from weft.base.errors import InternalError
from weft.compiler.kernel.ir import Compute, Constant, Index, Load, Position, Statement, Store, Value, Variable
from weft.compiler.kernel.operations import operation_weight

# Maximum of bytes loaded ahead and of vectors per thread: more would reduce occupancy by their registers.
MOST_BYTES, MOST_VECTORS = 64, 4
# Cost of an element in additions for which arithmetic takes a good part of the time of memory: kernels with less are
# bound by memory in any case, kernels with more by arithmetic.
HEAVY, HEAVIEST = 24, 56
# Minimum of remaining threads: several times as many as a large GPU runs at a time.
LEAST_THREADS = 1 << 19


def vectors_of_thread(body: Sequence[Statement], variable: Variable, lanes: int, counts: Sequence[int]) -> int:
    """Return the number of iterations per thread for loops with trip counts `counts`; the innermost has `variable`
    and vector lanes.

    The iterations of one thread are equally spaced in the outermost loop.
    """
    if not all(isinstance(s, Constant | Position | Load | Compute | Store) for s in body):
        return 1
    if not HEAVY <= sum(operation_weight(s.op) for s in body if isinstance(s, Compute)) < HEAVIEST:
        return 1
    loaded = sum(s.buffer.dtype.itemsize * lanes for s in _loads(body) if s.index.coefficient(variable) == 1)
    threads, vectors = math.prod(counts), MOST_VECTORS
    while vectors > 1 and (vectors * loaded > MOST_BYTES or counts[0] % vectors or threads < vectors * LEAST_THREADS):
        vectors //= 2
    return vectors if loaded else 1


def together(iterations: Sequence[Sequence[Statement]]) -> tuple[Statement, ...]:
    """Concatenate iterations, with all loads that do not depend on computed values first."""
    ahead = [s for body in iterations for s in _loads(body)]
    return (*ahead, *(s for body in iterations for s in body if s not in ahead))


def with_own_values(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """Copy statements with new values in place of those that they define."""
    own: dict[Value, Value] = {}

    def named(value: Value) -> Value:
        return own.setdefault(value, Value(value.dtype))

    def used(value: Value | None) -> Value | None:
        return None if value is None else own.get(value, value)

    def index(i: Index) -> Index:
        return Index(i.constant, tuple((own.get(t, t) if isinstance(t, Value) else t, c) for t, c in i.terms))

    result: list[Statement] = []
    for s in body:
        match s:
            case Constant():
                result.append(replace(s, result=named(s.result)))
            case Position():
                result.append(replace(s, index=index(s.index), result=named(s.result)))
            case Load():
                condition, otherwise = used(s.condition), used(s.otherwise)
                loaded = replace(s, index=index(s.index), condition=condition, otherwise=otherwise)
                result.append(replace(loaded, result=named(s.result)))
            case Compute():
                result.append(replace(s, operands=tuple(own.get(v, v) for v in s.operands), result=named(s.result)))
            case Store():
                stored = own.get(s.value, s.value)
                result.append(replace(s, index=index(s.index), value=stored, condition=used(s.condition)))
            case _:
                raise InternalError(f"Threads cannot run several iterations with a {type(s).__name__}.")
    return tuple(result)


def _loads(body: Sequence[Statement]) -> list[Load]:
    """Return the unconditional loads that need no value computed in the body, from buffers that the kernel does not
    write.
    """
    found, own = list[Load](), set[Value]()
    for s in body:
        if isinstance(s, Load) and s.condition is None and not s.buffer.written:
            if own.isdisjoint(term for term, _ in s.index.terms if isinstance(term, Value)):
                found.append(s)
        if not isinstance(s, Store):
            own.add(s.result)  # type: ignore[attr-defined]
    return found
