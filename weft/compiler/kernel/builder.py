"""The builder with which emitters write a kernel: loops and conditions are context managers, values come from methods.

    k = KernelBuilder("double")
    x = k.buffer("x", float32, 1000)
    y = k.buffer("y", float32, 1000, written=True)
    with k.loop(1000, kind=LoopKind.LANES, width=16) as i:
        value = k.load(x, i)
        k.store(y, i, k.scalars.add(value, value))
    kernel = k.finish()

Equal computations and loads, in this block or an enclosing one, are emitted once, so emitters may simply repeat them.
Loop-invariant code is hoisted: a value is defined in the innermost open block that defines one of its operands. Only
loads that may not be speculated (under a condition, from buffers that the kernel writes, or from empty buffers) stay in
the current block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.compiler.kernel import operations
from weft.compiler.kernel.ir import (
    Accumulate,
    Buffer,
    Carry,
    Compute,
    Constant,
    GroupMatmul,
    If,
    Index,
    Kernel,
    Last,
    Load,
    Loop,
    LoopKind,
    Position,
    Prefetch,
    Rank,
    ReduceLanes,
    Shift,
    Shuffle,
    Statement,
    Store,
    Term,
    TileMatmul,
    Value,
    Variable,
)
from weft.indexing.dimension import definitely_less
from weft.indexing.expression import Expression, Integer, maximum

AnyIndex: TypeAlias = "Index | Term | Integer"


class _Block:
    """Statements of an open block, and the known values of computations in it."""

    def __init__(self, carries: Sequence[Value] | None = None) -> None:
        self.statements: list[Statement] = []
        self.known: dict[Any, Value] = {}
        # Keys of loads from written buffers, which a store invalidates.
        self.loads: dict[Buffer, list[Any]] = {}
        self.carries = carries
        self.finals: tuple[Value, ...] | None = None
        self.results: tuple[Value, ...] = ()
        self.conditional = False


@dataclass(frozen=True)
class _Parts:
    """The variables that an index was unraveled to, one for each dimension, and their strides."""

    whole: Index
    variables: tuple[Variable, ...]
    strides: tuple[Integer, ...]


class Scalars:
    """The builder passed to `emit` rules of primitives: each operation, called by its name, is appended to the
    kernel.
    """

    def __init__(self, builder: KernelBuilder) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if name.startswith("__"):
            raise AttributeError(name)
        body = operations.emit_rule(name)

        def append(*operands: Value, **params: Any) -> Value:
            if body is not None:
                result: Value = body(self, *operands, **params)
                return result
            return self._builder.compute(name, *operands, **params)

        self.__dict__[name] = append
        return append

    def constant(self, value: Any, dtype: Any) -> Value:
        """Return a constant of a dtype."""
        return self._builder.constant(value, dtype)

    def convert(self, x: Value, dtype: Any) -> Value:
        """Convert a value to another dtype."""
        if x.dtype == dtype:
            return x
        return self._builder.compute("convert_element_type", x, new_dtype=dtype, weak_type=False)

    def bitcast(self, x: Value, dtype: Any) -> Value:
        """Reinterpret the bits of a value as another dtype of the same width."""
        return x if x.dtype == dtype else self._builder.compute("bitcast_convert_type", x, new_dtype=dtype)


class KernelBuilder:
    """Collects the statements of one kernel."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scalars = Scalars(self)
        self._buffers: list[Buffer] = []
        self._local: list[Buffer] = []
        self._blocks = [_Block()]
        self._variables = 0
        # Nesting depth of the block that a value or a loop variable belongs to.
        self._depths: dict[Term, int] = {}
        # Known bounds of terms: least and greatest value.
        self.ranges: dict[Term, tuple[Integer, Integer]] = {}
        # Unraveled indices, by the original index and its sizes; and by each of their variables.
        self._unraveled: dict[Any, tuple[Index, ...]] = {}
        self._parts: dict[Variable, _Parts] = {}

    def buffer(self, name: str, dtype: Any, size: Integer, written: bool = False, padded: bool = False) -> Buffer:
        """Add the next buffer of the kernel's signature."""
        buffer = Buffer(name, np.dtype(dtype), size, written, padded)
        self._buffers.append(buffer)
        return buffer

    def local(self, name: str, dtype: Any, size: int) -> Buffer:
        """Add memory that each iteration of the loop over threads has for itself."""
        buffer = Buffer(name, np.dtype(dtype), size, written=True)
        self._local.append(buffer)
        return buffer

    def finish(self) -> Kernel:
        """Return the finished kernel."""
        if len(self._blocks) != 1:
            raise InternalError(f"The kernel {self.name} must not be finished inside of a loop.")
        return Kernel(self.name, tuple(self._buffers), tuple(self._blocks[0].statements), local=tuple(self._local))

    # -- control ---------------------------------------------------------------------------------------------------

    @contextmanager
    def loop(
        self,
        stop: Integer,
        start: Integer = 0,
        step: int = 1,
        kind: LoopKind = LoopKind.SERIAL,
        width: int = 1,
        carries: Sequence[Value] = (),
        limit: AnyIndex | None = None,
    ) -> Iterator[Any]:
        """Open a loop and yield its variable, or (variable, carries inside) if it has carries. The body then ends with
        `carry`.
        """
        self._variables += 1
        variable = Variable(f"i{self._variables}")
        inside = tuple(Value(initial.dtype) for initial in carries)
        block = _Block(inside)
        # If the loop may be empty, its loads may be out of bounds, so they are not hoisted out of it.
        block.conditional = not definitely_less(start, stop)
        terms: tuple[Term, ...] = (variable, *inside)
        for term in terms:
            self._depths[term] = len(self._blocks)
        self.ranges[variable] = (start, maximum(start, start + (stop - 1 - start) // step * step))
        self._blocks.append(block)
        yield (variable, inside) if carries else variable
        self._blocks.pop()
        if carries and block.finals is None:
            raise InternalError(f"A loop of the kernel {self.name} has carries, but does not say their next values.")
        rows = zip(carries, inside, block.finals or (), block.results, strict=True)
        bound = None if limit is None else self._ravel(limit)
        self._append(
            Loop(
                variable, start, stop, tuple(block.statements), kind, step, width, tuple(Carry(*r) for r in rows), bound
            )
        )

    def carry(self, *finals: Value) -> tuple[Value, ...]:
        """Set the next values of the carries; return their values after the loop."""
        block = self._blocks[-1]
        wanted = [value.dtype for value in block.carries or ()]
        if block.finals is not None or [value.dtype for value in finals] != wanted:
            raise InternalError(f"A loop of the kernel {self.name} must carry {wanted} once; got {finals}.")
        block.finals = finals
        block.results = tuple(Value(dtype) for dtype in wanted)
        for value in block.results:
            self._depths[value] = len(self._blocks) - 2
        return block.results

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Open a block that runs only if a scalar condition holds."""
        block = _Block()
        block.conditional = True
        self._blocks.append(block)
        yield
        self._blocks.pop()
        self._append(If(condition, tuple(block.statements)))

    # -- values ----------------------------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: Any) -> Value:
        """Return a constant of a dtype, the same in all lanes."""
        if isinstance(value, Expression):
            return self.scalars.convert(self.position(value), dtype)
        exact = np.asarray(value).astype(dtype)
        key = (Constant, exact.dtype, exact.tobytes())
        return self._known(key) or self._define(key, exact.dtype, lambda result: Constant(result, exact[()]), 0)

    def position(self, index: AnyIndex, dtype: Any = dtypes.int64) -> Value:
        """Return an index as an integer value."""
        index = self._ravel(index)
        key = (Position, dtype, index.constant, frozenset(index.terms))
        return self._known(key) or self._define(
            key, np.dtype(dtype), lambda result: Position(result, index), self._index_depth(index)
        )

    def load(
        self, buffer: Buffer, index: AnyIndex, condition: Value | None = None, otherwise: Value | None = None
    ) -> Value:
        """Load an element of a buffer; lanes where the condition does not hold are `otherwise` (default zero)."""
        index = self._ravel(index)
        if condition is not None and otherwise is None:
            otherwise = self.constant(0, buffer.dtype)
        key = (buffer, index.constant, frozenset(index.terms), condition, otherwise)
        # Elements of written buffers may change between iterations of an enclosing loop.
        known = self._blocks[-1].known.get(key) if buffer.written else self._known(key)
        if known is not None:
            return known
        depth = len(self._blocks) - 1
        if buffer.written:
            self._blocks[-1].loads.setdefault(buffer, []).append(key)
        elif buffer.size:  # loads from empty buffers must not be hoisted: they never run
            lowest = max((n for n, block in enumerate(self._blocks) if block.conditional), default=0)
            depth = max(lowest, self._index_depth(index), *(self._depths[v] for v in (condition, otherwise) if v), 0)
        return self._define(key, buffer.dtype, lambda result: Load(result, buffer, index, condition, otherwise), depth)

    def store(self, buffer: Buffer, index: AnyIndex, value: Value, condition: Value | None = None) -> None:
        """Store a value, in lanes where the condition holds."""
        self._forget(buffer)
        self._append(Store(buffer, self._ravel(index), value, condition))

    def prefetch(self, buffer: Buffer, index: AnyIndex) -> None:
        """Hint that an element, which may be past the end, will be written soon."""
        self._append(Prefetch(buffer, self._ravel(index)))

    def matmul(self, statement: TileMatmul | GroupMatmul) -> None:
        """Append a matrix multiplication."""
        self._forget(statement.out)
        self._append(statement.changed(self._ravel))

    def unravel(self, index: Index, sizes: Sequence[Integer]) -> tuple[Index, ...]:
        """Split an index over several dimensions, in row-major order, into one index for each, without divisions.

        Each is a variable with the bounds of its dimension. Wherever they are used, they must combine to `index` again,
        or to a multiple of it. So bounds are known for each dimension although one loop runs over all of them.
        """
        if len(sizes) == 1:
            return (index,)
        key = (index.constant, frozenset(index.terms), tuple(sizes))
        found = self._unraveled.get(key)
        if found is None:
            variables = tuple(Variable(f"part{n}") for n in range(len(sizes)))
            for variable, size in zip(variables, sizes, strict=True):
                self.ranges[variable] = (0, maximum(0, size - 1))
            strides = tuple(math.prod(sizes[n + 1 :]) for n in range(len(sizes)))
            self._parts |= dict.fromkeys(variables, _Parts(index, variables, strides))
            found = self._unraveled[key] = tuple(Index.of(v) for v in variables)
        return found

    def digits(self, index: Index, sizes: Sequence[int]) -> tuple[Index, ...]:
        """Split an index in row-major order into indices along dimensions of these sizes, by divisions."""
        dtype = dtypes.int32 if math.prod(sizes) < 1 << 31 else dtypes.int64
        found: list[Index] = []
        rest = index
        for size in reversed(sizes[1:]):
            whole, divisor = self.position(rest, dtype), self.constant(size, dtype)
            found.append(Index.of(self.compute("rem", whole, divisor)))
            rest = Index.of(self.compute("div", whole, divisor))
        return (rest, *reversed(found))

    def _ravel(self, index: AnyIndex) -> Index:
        """Replace the variables of unraveled indices by the original index."""
        index = Index.of(index)
        for parts in {self._parts[t] for t, _ in index.terms if t in self._parts} if self._parts else ():
            stride = index.coefficient(parts.variables[-1])
            coefficients = [index.coefficient(v) for v in parts.variables]
            if coefficients != [stride * s for s in parts.strides]:
                raise InternalError(
                    f"The kernel {self.name} must not use dimensions separately that were merged into one loop."
                )
            rest = tuple((t, c) for t, c in index.terms if t not in parts.variables)
            index = Index(index.constant, rest) + parts.whole * stride
        return index

    def compute(self, op: str, *operands: Value, **params: Any) -> Value:
        """Append an elementwise operation by its name. The primitive's rule defines the dtype of the result."""
        key: Any = (op, operands, tuple(sorted(params.items(), key=lambda item: item[0])))
        return self._known(key) or self._define(
            key,
            result_dtype(op, operands, params),
            lambda result: Compute(result, op, operands, params),
            max((self._depths[v] for v in operands), default=0),
        )

    def reduce_lanes(self, op: str, vector: Value, width: int) -> Value:
        """Reduce all lanes of a vector, the result of a carry of a loop over lanes, to a scalar."""
        key = (ReduceLanes, op, vector, width)
        return self._known(key) or self._define(
            key, vector.dtype, lambda result: ReduceLanes(result, op, vector, width), len(self._blocks) - 1
        )

    def shuffle(self, vectors: Sequence[Value], lanes: Sequence[int]) -> Value:
        """Select lanes of one vector or of two concatenated ones, which are results of carries of loops over lanes."""
        operands, chosen = tuple(vectors), tuple(lanes)
        key = (Shuffle, operands, chosen)
        return self._known(key) or self._define(
            key, operands[0].dtype, lambda result: Shuffle(result, operands, chosen), len(self._blocks) - 1
        )

    def bounds(self, index: AnyIndex) -> tuple[Integer, Integer] | None:
        """Return the least and the greatest value of an index, or None if the range of a term is unknown."""
        index = Index.of(index)
        low = high = index.constant
        for term, coefficient in index.terms:
            known = self.ranges.get(term)
            if known is None:
                return None
            ends = known[0] * coefficient, known[1] * coefficient
            low, high = low + min(ends), high + max(ends)
        return low, high

    def shift(self, vector: Value, by: int, fill: Value) -> Value:
        """In a loop over lanes: shift a vector up by `by` lanes, filling with `fill`."""
        key = (Shift, vector, by, fill)
        return self._known(key) or self._define(
            key, vector.dtype, lambda result: Shift(result, vector, by, fill), len(self._blocks) - 1
        )

    def last(self, vector: Value) -> Value:
        """In a loop over lanes: broadcast the last lane of a vector to all lanes."""
        key = (Last, vector)
        return self._known(key) or self._define(
            key, vector.dtype, lambda result: Last(result, vector), len(self._blocks) - 1
        )

    def accumulate(self, buffer: Buffer, index: AnyIndex, value: Value) -> None:
        """In a loop over lanes: add an integer to an element of a local buffer, in every lane."""
        self._forget(buffer)
        self._append(Accumulate(buffer, self._ravel(index), value))

    def rank(self, buffer: Buffer, index: AnyIndex, digit: Value, bits: int) -> Value:
        """In a loop over lanes: count a digit in every lane; return how often it was counted before. See `Rank`."""
        self._forget(buffer)
        result = Value(buffer.dtype)
        self._depths[result] = len(self._blocks) - 1
        self._append(Rank(result, buffer, self._ravel(index), digit, bits))
        return result

    def recall(self, key: Any) -> Value | None:
        """Return the value remembered under a key in this block or an enclosing one, or None."""
        return self._known(key)

    def remember(self, key: Any, value: Value) -> None:
        """Remember a value under a key as long as the block that defines it is open."""
        self._blocks[self._depths[value]].known[key] = value

    def _forget(self, buffer: Buffer) -> None:
        """Invalidate known loads from a buffer that is written now."""
        for block in self._blocks:
            for key in block.loads.pop(buffer, ()):
                block.known.pop(key, None)

    def _index_depth(self, index: Index) -> int:
        return max((self._depths[term] for term, _ in index.terms), default=0)

    def _known(self, key: Any) -> Value | None:
        for block in reversed(self._blocks):
            found = block.known.get(key)
            if found is not None:
                return found
        return None

    def _define(self, key: Any, dtype: Any, statement: Callable[[Value], Statement], depth: int) -> Value:
        result = Value(dtype)
        self._append(statement(result), depth)
        self._blocks[depth].known[key] = result
        self._depths[result] = depth
        return result

    def _append(self, statement: Statement, depth: int = -1) -> None:
        block = self._blocks[depth]
        if block.finals is not None:
            raise InternalError(f"A loop of the kernel {self.name} goes on after its carries, which must come last.")
        block.statements.append(statement)


def result_dtype(op: str, operands: Sequence[Value], params: dict[str, Any]) -> Any:
    """Return the dtype of the result of an operation on values."""
    return operations.result_dtype(op, [value.dtype for value in operands], params)
