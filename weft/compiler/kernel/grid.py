"""Map kernels to a grid of threads, each with a few elements that are adjacent in memory.

for threads i in 512:                             for threads t in 512 * 192:
  for lanes j in 768:                       ->      i = t / 192; j = t % 192
    y[768 i + j] = x[768 i + j] + b[j]              for lanes k in 4:
                                                      y[768 i + 4 j + k] = x[768 i + 4 j + k] + b[4 j + k]

Consecutive loops inside of one become separate kernels. A loop is mapped if its iterations are independent: loops over
threads and over lanes always are; for serial loops it is derived from their stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.kernel.ahead import together, vectors_of_thread, with_own_values
from weft.compiler.kernel.ir import (
    Accumulate,
    Buffer,
    Compute,
    Constant,
    If,
    Index,
    Kernel,
    Last,
    Load,
    Loop,
    LoopKind,
    Matmul,
    Position,
    Prefetch,
    Rank,
    ReduceLanes,
    Shift,
    Shuffle,
    Statement,
    Store,
    Value,
    Variable,
)
from weft.compiler.kernel.substitute import substitute

# Statements that compute values and have no effects.
PURE = (Constant, Position, Load, Compute)


@dataclass(frozen=True)
class Nest:
    """Nested loops, outermost first. `before` are the statements of outer loops, which every thread runs redundantly,
    `body` those of the innermost iteration.
    """

    loops: tuple[Loop, ...]
    before: tuple[Statement, ...]
    body: tuple[Statement, ...]


def map_to_grid(kernel: Kernel, vector_bytes: int, distribute: bool = True) -> list[Kernel]:
    """Map a kernel to kernels, run one after the other, with a thread for each iteration or for each `vector_bytes` of
    elements.

    Several kernels are returned only with `distribute`. A kernel is returned unchanged if its iterations depend on each
    other or it has local memory. It must not have symbolic sizes.
    """
    if kernel.local:
        return [kernel]
    written = {b for b in kernel.buffers if b.written}
    found = _nests((), (), kernel.body, written)
    if not found or (len(found) > 1 and not distribute) or any(not loop.count for n in found for loop in n.loops):
        return [kernel]
    return [_kernel(kernel, nest, vector_bytes) for nest in found]


# -- which loops -------------------------------------------------------------------------------------------------------


def _nests(
    loops: tuple[Loop, ...], before: tuple[Statement, ...], body: Sequence[Statement], written: set[Buffer]
) -> list[Nest]:
    """Return the nests of loops that iterations of `loops` consist of: at least these loops themselves, if there are
    any.
    """
    here = [Nest(loops, before, tuple(body))] if loops else []
    inner = [s for s in body if isinstance(s, Loop)]
    pure = tuple(s for s in body if not isinstance(s, Loop))
    if not inner or not all(_is_pure(s, written) for s in pure) or not all(map(_is_plain, inner)):
        return here
    found: list[Nest] = []
    for loop in inner:
        around = (*loops, loop)
        if loop.kind is LoopKind.SERIAL and not _are_independent(around, written):
            return here
        found += _nests(around, (*before, *pure), loop.body, written)
    return found


def _is_pure(statement: Statement, written: set[Buffer]) -> bool:
    return isinstance(statement, PURE) and not (isinstance(statement, Load) and statement.buffer in written)


def _is_plain(loop: Loop) -> bool:
    return loop.start == 0 and loop.step == 1 and not loop.carries and loop.limit is None


def _are_independent(loops: Sequence[Loop], written: set[Buffer]) -> bool:
    """Return whether no two iterations of nested loops access an element that one of them stores.

    Each term of an index must be worth more than all lower ones together, like the digits of a number, so that
    different iterations store different elements; and an element that is stored may be read only at the index of a
    store in the same iteration.
    """
    known: dict[Variable, Loop] = {loop.variable: loop for loop in loops}
    stores: dict[Buffer, list[Index]] = {}
    loads: list[Load] = []
    for statement, inside in accesses(loops[-1].body):
        if not isinstance(statement, Load | Store):
            return False
        known.update((loop.variable, loop) for loop in inside)
        if isinstance(statement, Store):
            stores.setdefault(statement.buffer, []).append(statement.index)
        elif statement.buffer in written:
            loads.append(statement)
    own = [loop.variable for loop in loops]
    return all(_are_distinct(indices, known, own) for indices in stores.values()) and all(
        load.index in stores.get(load.buffer, ()) for load in loads
    )


def _are_distinct(indices: Sequence[Index], loops: dict[Variable, Loop], own: Sequence[Variable]) -> bool:
    """Return whether iterations that differ in a variable of `own` have different indices."""
    terms: dict[Any, Any] = dict(indices[0].terms)
    if any(dict(index.terms) != terms for index in indices) or not all(isinstance(t, Variable) for t in terms):
        return False
    if any(loops[v].count > 1 and not terms.get(v) for v in own):
        return False
    digits: list[tuple[Any, Any]] = [
        (abs(c) * loops[t].step, loops[t].count) for t, c in terms.items() if isinstance(t, Variable)
    ]
    offsets: set[Any] = {index.constant for index in indices}
    digits += _offset_digits(sorted(offsets))
    reach = 0
    for worth, count in sorted(digits):
        if worth <= reach:
            return False
        reach += worth * (count - 1)
    return True


def _offset_digits(offsets: list[int]) -> list[tuple[int, int]]:
    """Split sorted offsets into digits (worth, number of values), or into a single digit if they are no such sums.

    {0, 1, 8, 9} are a digit worth 1 with two values and one worth 8 with two.
    """
    if len(offsets) == 1:
        return []
    step = offsets[1] - offsets[0]
    count = next((n for n, o in enumerate(offsets) if o != offsets[0] + n * step), len(offsets))
    firsts = offsets[::count]
    if offsets != [first + n * step for first in firsts for n in range(count)]:
        step = math.gcd(*(o - offsets[0] for o in offsets))
        return [(step, (offsets[-1] - offsets[0]) // step + 1)]
    return [(step, count), *_offset_digits(firsts)]


def repeats(loop: Loop) -> bool:
    """Return whether an iteration of a loop may access an element that another one stores."""
    known: dict[Variable, Loop] = {loop.variable: loop}
    stores: dict[Buffer, list[Index]] = {}
    loads: set[Buffer] = set()
    for statement, inside in accesses(loop.body):
        if not isinstance(statement, Load | Store):
            return True
        known.update((inner.variable, inner) for inner in inside)
        if isinstance(statement, Store):
            stores.setdefault(statement.buffer, []).append(statement.index)
        else:
            loads.add(statement.buffer)
    defined: set[Value] = set()
    _visit_results(loop.body, defined.add)

    def of_iterations(index: Index) -> Index:
        """Drop the terms that are the same in all iterations."""
        return Index(index.constant, tuple((t, c) for t, c in index.terms if t in known or t in defined))

    return any(
        buffer in loads or not _are_distinct([of_iterations(i) for i in indices], known, [loop.variable])
        for buffer, indices in stores.items()
    )


def _visit_results(body: Sequence[Statement], visit: Callable[[Value], None]) -> None:
    """Call a function for every value that statements define."""
    for statement in body:
        if isinstance(statement, Loop):
            for carry in statement.carries:
                visit(carry.inside)
                visit(carry.result)
        if isinstance(statement, Loop | If):
            _visit_results(statement.body, visit)
        elif not isinstance(statement, Store | Prefetch | Accumulate | Matmul):
            visit(statement.result)  # type: ignore[attr-defined]


def accesses(body: Sequence[Statement], inside: tuple[Loop, ...] = ()) -> Iterator[tuple[Statement, tuple[Loop, ...]]]:
    """Iterate over the statements that access memory, each with the loops that contain it."""
    for statement in body:
        match statement:
            case Loop():
                yield from accesses(statement.body, (*inside, statement))
            case If():
                yield from accesses(statement.body, inside)
            case Load() | Store() | Matmul() | Prefetch() | Accumulate() | Rank():
                yield statement, inside


# -- the kernel --------------------------------------------------------------------------------------------------------


def _kernel(kernel: Kernel, nest: Nest, vector_bytes: int) -> Kernel:
    """Build the kernel of one nest."""
    body = (*_live_statements(nest.before, nest.body), *nest.body)
    last = nest.loops[-1]
    lanes = _lanes(last, nest.body, vector_bytes)
    while len(nest.loops) > 1 and last.count % lanes:
        lanes //= 2
    chunks = -(-last.count // lanes)
    counts: list[Any] = [*(loop.count for loop in nest.loops[:-1]), chunks]
    whole = lanes > 1 and last.count % lanes == 0
    vectors = vectors_of_thread(body, last.variable, lanes, counts) if whole else 1
    counts[0] //= vectors
    thread, lane = Variable("thread"), Variable("lane")
    decoded, digits = _digits(thread, counts)
    around: list[Statement] = []
    iterations: list[tuple[Statement, ...]] = []
    for n in range(vectors):
        own = with_own_values(body) if n else body
        first = digits if not n else [digits[0] + n * counts[0], *digits[1:]]
        for loop, digit in zip(nest.loops[:-1], first, strict=False):
            own = substitute(own, loop.variable, digit)
        around += own[: len(body) - len(nest.body)]
        element = first[-1] * lanes
        iterations.append(
            substitute(own[len(body) - len(nest.body) :], last.variable, element if lanes == 1 else element + lane)
        )
    inner = together(iterations) if vectors > 1 else iterations[0]
    if lanes > 1:
        limit = None if whole else Index(last.count) - digits[-1] * lanes
        inner = (Loop(lane, 0, lanes, inner, LoopKind.LANES, width=lanes, limit=limit),)
    threads = Loop(thread, 0, math.prod(counts), (*decoded, *around, *inner), LoopKind.THREADS)
    used = {s.buffer for s, _ in accesses((threads,)) if isinstance(s, Load | Store | Prefetch)}
    used |= {b for s, _ in accesses((threads,)) if isinstance(s, Matmul) for b, _ in s.accesses()}
    return replace(kernel, buffers=tuple(b for b in kernel.buffers if b in used), body=(threads,))


def _lanes(loop: Loop, body: Sequence[Statement], vector_bytes: int) -> int:
    """Return the number of innermost iterations per thread: more than one if their elements are adjacent in memory.

    Elements that are accessed once, before or after inner loops, may be anywhere.
    """
    loops = _serial_loops(body)
    if loops is None or (loops and loop.kind is not LoopKind.LANES):
        return 1
    touched = [s for s, inside in accesses(body) if isinstance(s, Load | Store) and (inside or not loops)]
    apart = {s.index.coefficient(loop.variable) for s in touched}
    sizes = [s.buffer.dtype.itemsize for s in touched if s.index.coefficient(loop.variable) == 1]
    if not sizes or apart - {0, 1}:
        return 1
    lanes: int = max(1, vector_bytes // max(sizes))
    while lanes > (loop.width if loops else loop.count):
        lanes //= 2
    return lanes


def _serial_loops(body: Sequence[Statement]) -> list[Loop] | None:
    """Return the loops among statements that otherwise compute, load and store; None if there are other statements."""
    found: list[Loop] = []
    for statement in body:
        if isinstance(statement, Loop) and statement.kind is LoopKind.SERIAL:
            inside = _serial_loops(statement.body)
            if inside is None:
                return None
            found += [statement, *inside]
        elif not isinstance(statement, (*PURE, Store)):
            return None
    return found


def _digits(thread: Variable, counts: Sequence[int]) -> tuple[list[Statement], list[Index]]:
    """Return the index of each loop for a thread, and the statements that compute them."""
    if len(counts) == 1:
        return [], [Index.of(thread)]
    dtype = dtypes.int32 if math.prod(counts) < 1 << 31 else dtypes.int64
    rest = Value(dtype)
    statements: list[Statement] = [Position(rest, Index.of(thread))]
    found: list[Index] = []
    for count in reversed(counts[1:]):
        size, digit, above = Value(dtype), Value(dtype), Value(dtype)
        statements += [
            Constant(size, dtype.type(count)),
            Compute(digit, "rem", (rest, size)),
            Compute(above, "div", (rest, size)),
        ]
        found.append(Index.of(digit))
        rest = above
    return statements, [Index.of(rest), *reversed(found)]


def _live_statements(before: Sequence[Statement], body: Sequence[Statement]) -> tuple[Statement, ...]:
    """Return the statements of `before` whose values others use."""
    used: set[Value] = set()
    _visit_values(body, used.add)
    result: list[Statement] = []
    for statement in reversed(before):
        if statement.result in used:  # type: ignore[attr-defined]
            result.append(statement)
            _visit_values((statement,), used.add)
    return tuple(reversed(result))


def _visit_values(body: Sequence[Statement], visit: Callable[[Value], None]) -> None:
    """Call a function for every value that statements use."""

    def index(i: Index | None) -> None:
        for term, _ in i.terms if i is not None else ():
            if isinstance(term, Value):
                visit(term)

    for s in body:
        operands: tuple[Value | None, ...] = ()
        match s:
            case Position() | Prefetch():
                index(s.index)
            case Load():
                index(s.index)
                operands = (s.condition, s.otherwise)
            case Store():
                index(s.index)
                operands = (s.value, s.condition)
            case Accumulate():
                index(s.index)
                operands = (s.value,)
            case Rank():
                index(s.index)
                operands = (s.digit,)
            case Compute():
                operands = s.operands
            case ReduceLanes() | Last():
                operands = (s.vector,)
            case Shuffle():
                operands = s.vectors
            case Shift():
                operands = (s.vector, s.fill)
            case Matmul():
                for i in s.indices():
                    index(i)
            case If():
                operands = (s.condition,)
                _visit_values(s.body, visit)
            case Loop():
                index(s.limit)
                operands = tuple(v for c in s.carries for v in (c.initial, c.final))
                _visit_values(s.body, visit)
        for value in operands:
            if value is not None:
                visit(value)
