"""Several vectors of a thread, far apart, that are all loaded before the first of them is computed with.

A thread that computes for long has no loads under way meanwhile, and too few of the others have: the memory of a GPU
waits. So threads of kernels that compute much for what they load have up to four iterations, and begin with the loads
of all of them. Reading earlier changes nothing: iterations are independent, and a result that overwrites an operand
overwrites what only its own iteration reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from weft.base.errors import InternalError
from weft.compiler.kernel.ir import Compute, Constant, Index, Load, Position, Statement, Store, Value, Variable
from weft.compiler.kernel.operations import weight_of

# What a thread loads ahead at most, in bytes, and how many vectors it has at most: more take the registers of others.
MOST_BYTES, MOST_VECTORS = 64, 4
# Arithmetic of an element, in additions, that takes a good part of the time that memory takes: what has less waits for
# memory in any case, and what has more does not.
HEAVY, HEAVIEST = 24, 56
# Threads that are left for an operation: several times as many as a large GPU has at a time.
LEAST_THREADS = 1 << 19


def vectors_of_thread(body: Sequence[Statement], variable: Variable, lanes: int, counts: Sequence[int]) -> int:
    """How many iterations a thread has of loops with these counts, the innermost with this variable, whose lanes are
    vectors; each a part of the outermost loop away from the others."""
    if not all(isinstance(s, Constant | Position | Load | Compute | Store) for s in body):
        return 1
    if not HEAVY <= sum(weight_of(s.op) for s in body if isinstance(s, Compute)) < HEAVIEST:
        return 1
    loaded = sum(s.buffer.dtype.itemsize * lanes for s in _loads(body) if s.index.coefficient(variable) == 1)
    threads, vectors = math.prod(counts), MOST_VECTORS
    while vectors > 1 and (vectors * loaded > MOST_BYTES or counts[0] % vectors or threads < vectors * LEAST_THREADS):
        vectors //= 2
    return vectors if loaded else 1


def together(iterations: Sequence[Sequence[Statement]]) -> tuple[Statement, ...]:
    """Iterations one after the other, but for what can be loaded before them."""
    ahead = [s for body in iterations for s in _loads(body)]
    return (*ahead, *(s for body in iterations for s in body if s not in ahead))


def with_own_values(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """The same statements for other values."""
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
                raise InternalError(f"{type(s).__name__} is not in bodies of which threads have several.")
    return tuple(result)


def _loads(body: Sequence[Statement]) -> list[Load]:
    """The loads that need nothing that an iteration computes, of what the kernel does not write."""
    found, own = list[Load](), set[Value]()
    for s in body:
        if isinstance(s, Load) and s.condition is None and not s.buffer.written:
            if own.isdisjoint(term for term, _ in s.index.terms if isinstance(term, Value)):
                found.append(s)
        if not isinstance(s, Store):
            own.add(s.result)  # type: ignore[attr-defined]
    return found
