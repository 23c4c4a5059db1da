"""The kernel language. A kernel is a block of statements over buffers; values are defined once.

An index is affine in loop variables and integer values. Inside a loop over lanes every value is a vector, one lane per
iteration; whether a load is contiguous, uniform or a gather follows from the coefficient of the lane variable in its
index. The tail of a loop over lanes is masked by the loop itself: a store there writes only lanes below the bound, and
a reduction counts only those.

A kernel for many sizes has expressions over symbols in place of integers: constants and coefficients of indices, bounds
of loops, sizes of buffers (`sizes.py`). Steps and widths of loops are always integers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.memo import cached_property
from weft.indexing.expression import Expression, Integer, maximum


@dataclass(frozen=True, eq=False)
class Buffer:
    """A flat array of `size` elements of a (storage) dtype that the kernel reads or writes.

    A `padded` buffer also has elements for the lanes beyond the bound of a loop: vectors of it are read whole, which is
    faster than masked.
    """

    name: str
    dtype: Any
    size: Integer
    written: bool = False
    padded: bool = False


@dataclass(frozen=True, eq=False)
class Variable:
    """A loop variable, an integer. Arithmetic on it returns an `Index`."""

    name: str

    def __add__(self, other: Index | Term | int) -> Index:
        return Index.of(self) + other

    def __sub__(self, other: Index | Term | int) -> Index:
        return Index.of(self) - other

    def __mul__(self, by: Integer) -> Index:
        return Index.of(self) * by


@dataclass(frozen=True, eq=False)
class Value:
    """A scalar (a vector inside a loop over lanes) of a dtype."""

    dtype: Any


Term = Variable | Value


@dataclass(frozen=True)
class Index:
    """constant + sum of coefficient * term: an offset in a buffer or an index along an axis."""

    constant: Integer = 0
    terms: tuple[tuple[Term, Integer], ...] = ()

    @staticmethod
    def of(thing: Index | Term | Integer) -> Index:
        """Convert a term or an integer to an index."""
        if isinstance(thing, Index):
            return thing
        if isinstance(thing, Variable | Value):
            return Index(0, ((thing, 1),))
        return Index(thing if isinstance(thing, Expression) else int(thing))

    def coefficient(self, term: Term) -> Integer:
        """Return the coefficient of a term, 0 if the index does not have it."""
        return next((c for t, c in self.terms if t is term), 0)

    def __add__(self, other: Index | Term | Integer) -> Index:
        other = Index.of(other)
        if not other.terms:
            return self if is_zero(other.constant) else Index(self.constant + other.constant, self.terms)
        if not self.terms:
            return other if is_zero(self.constant) else Index(self.constant + other.constant, other.terms)
        total: dict[Term, Integer] = dict(self.terms)
        for term, coefficient in other.terms:
            total[term] = total.get(term, 0) + coefficient
        return Index(self.constant + other.constant, tuple((t, c) for t, c in total.items() if not is_zero(c)))

    def __mul__(self, by: Integer) -> Index:
        if not isinstance(by, Expression) and by == 1:
            return self
        return Index(self.constant * by, () if is_zero(by) else tuple([(t, c * by) for t, c in self.terms]))

    def __sub__(self, other: Index | Term | Integer) -> Index:
        return self + Index.of(other) * -1


def is_zero(value: Integer) -> bool:
    """Return whether an integer is zero for all sizes. An expression in normal form never is."""
    return not isinstance(value, Expression) and value == 0


class LoopKind(Enum):
    """How the iterations of a loop are executed."""

    SERIAL = "serial"
    LANES = "lanes"
    THREADS = "threads"


# A tile: 16 rows of 64 bytes.
TILE_ROWS, TILE_ROW_BYTES = 16, 64
TILE_BYTES = TILE_ROWS * TILE_ROW_BYTES


class Statement:
    """One statement of a kernel."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Constant(Statement):
    """`result = value` of its dtype, the same in all lanes."""

    result: Value
    value: Any


@dataclass(frozen=True, eq=False)
class Position(Statement):
    """`result = index`, as an integer value (int64, or int32 where it is known to fit)."""

    result: Value
    index: Index


@dataclass(frozen=True, eq=False)
class Load(Statement):
    """`result = buffer[index]`. With a condition, lanes where it does not hold are `otherwise` and do not touch
    memory."""

    result: Value
    buffer: Buffer
    index: Index
    condition: Value | None = None
    otherwise: Value | None = None


@dataclass(frozen=True, eq=False)
class Store(Statement):
    """`buffer[index] = value`, in lanes where the condition holds."""

    buffer: Buffer
    index: Index
    value: Value
    condition: Value | None = None


@dataclass(frozen=True, eq=False)
class Prefetch(Statement):
    """A hint, without effect on results, that `buffer[index]` or memory near it will be written soon.

    The index may be past the end. Only outside of loops over lanes.
    """

    buffer: Buffer
    index: Index


@dataclass(frozen=True, eq=False)
class Compute(Statement):
    """`result = op(operands)`: an elementwise primitive by name, with its parameters."""

    result: Value
    op: str
    operands: tuple[Value, ...]
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Carry:
    """An accumulator of a loop: starts as `initial`, is `inside` in the body, becomes `final` of each iteration, ends
    as `result`."""

    initial: Value
    inside: Value
    final: Value
    result: Value


@dataclass(frozen=True, eq=False)
class Loop(Statement):
    """A loop over `variable` from `start` in steps of `step` below `stop` and `limit`. A loop over lanes runs `width`
    iterations at a time.

    A carry of a loop over lanes has one accumulator per lane; its result is a vector, which `ReduceLanes` reduces.
    """

    variable: Variable
    start: Integer
    stop: Integer
    body: tuple[Statement, ...]
    kind: LoopKind = LoopKind.SERIAL
    step: int = 1
    width: int = 1
    carries: tuple[Carry, ...] = ()
    limit: Index | None = None

    @property
    def count(self) -> Integer:
        """Trip count; with a limit, its maximum."""
        count = -((self.start - self.stop) // self.step)
        return maximum(0, count) if isinstance(count, Expression) else max(0, count)


@dataclass(frozen=True, eq=False)
class ReduceLanes(Statement):
    """`result` = all lanes of `vector` combined by the binary op, in a fixed tree (halves onto each other)."""

    result: Value
    op: str
    vector: Value
    width: int


@dataclass(frozen=True, eq=False)
class Shuffle(Statement):
    """`result` = the lanes with indices `lanes` of one vector or of two concatenated ones.

    Only outside of loops over lanes, on results of their carries.
    """

    result: Value
    vectors: tuple[Value, ...]
    lanes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Shift(Statement):
    """In a loop over lanes with carries: `result` is `vector` shifted up by `by` lanes; its first lanes are `fill`."""

    result: Value
    vector: Value
    by: int
    fill: Value


@dataclass(frozen=True, eq=False)
class Last(Statement):
    """In a loop over lanes with carries: all lanes of `result` are the last lane of `vector`. In the tail, which may
    lack that lane, they are arbitrary.
    """

    result: Value
    vector: Value


# Number of consecutive lanes that are ranked together.
RANKED_LANES = 32


@dataclass(frozen=True, eq=False)
class Accumulate(Statement):
    """`buffer[index] += value` in every lane, for integers, so that the order does not matter.

    Several lanes may have the same index. Only for local buffers, in a loop over lanes.
    """

    buffer: Buffer
    index: Index
    value: Value


@dataclass(frozen=True, eq=False)
class Rank(Statement):
    """Lane after lane: `result = buffer[index + digit]`, followed by an increment of that element.

    Only for local buffers, in a loop over lanes without partial vectors. `digit` is below `2 ** bits`, and `index` is
    the same in each run of `RANKED_LANES` consecutive lanes; no two runs of a vector may count the same elements.
    """

    result: Value
    buffer: Buffer
    index: Index
    digit: Value
    bits: int


class Matmul(Statement, ABC):
    """A matrix multiplication in memory: `TileMatmul` or `GroupMatmul`."""

    __slots__ = ()

    @abstractmethod
    def accesses(self) -> Iterator[tuple[Buffer, Index]]:
        """Iterate over known accesses: for each buffer the first accessed element, and the last one if it is known."""

    def indices(self) -> Iterator[Index]:
        """Iterate over all indices that the statement depends on."""
        return (index for _, index in self.accesses())

    @abstractmethod
    def changed(self, index: Callable[[Index], Index], buffers: Mapping[Buffer, Buffer] | None = None) -> Matmul:
        """Return the statement with each index mapped by `index`, and its buffers replaced where `buffers` has them."""


@dataclass(frozen=True, eq=False)
class TileMatmul(Matmul):
    """`out = left @ right` by the tile registers of the machine, for `rows` by `columns` (1 or 2 each) tiles of 16 x 16
    sums, over `steps` tiles along K; with `accumulate`, `out += left @ right`. Only outside of loops over lanes.

    `out` begins at `index`, with rows `stride` elements apart. A tile of an operand has 16 rows of 64 bytes. A row of a
    tile of `left` is a row of the matrix; rows are `left_row` elements apart, tiles along K `left_step`, and the second
    row of tiles begins `left_stride` elements after the first. `right` is packed, tile after tile along K: a row has 4
    bytes for each column, which follow each other along K; the second column of tiles begins `right_stride` elements
    after the first. `dtypes` are those of the elements; packed bfloat16 is stored as uint16.
    """

    out: Buffer
    index: Index
    stride: int
    left: Buffer
    left_index: Index
    left_stride: int
    left_row: int
    left_step: int
    right: Buffer
    right_index: Index
    right_stride: int
    rows: int
    columns: int
    steps: int
    dtypes: tuple[Any, Any]
    accumulate: bool = False

    def accesses(self) -> Iterator[tuple[Buffer, Index]]:
        """Iterate over the first and the last accessed element of each buffer."""
        last = (TILE_ROWS * self.rows - 1) * self.stride + TILE_ROWS * self.columns - 1
        yield from ((self.out, self.index), (self.out, self.index + last))
        row = TILE_ROW_BYTES // self.left.dtype.itemsize
        last = (self.rows - 1) * self.left_stride + (TILE_ROWS - 1) * self.left_row
        yield self.left, self.left_index
        yield self.left, self.left_index + (last + (self.steps - 1) * self.left_step + row - 1)
        last = (self.columns - 1) * self.right_stride + self.steps * TILE_BYTES // self.right.dtype.itemsize - 1
        yield from ((self.right, self.right_index), (self.right, self.right_index + last))

    def changed(self, index: Callable[[Index], Index], buffers: Mapping[Buffer, Buffer] | None = None) -> TileMatmul:
        out, left, right = ((buffers or {}).get(b, b) for b in (self.out, self.left, self.right))
        first, second, third = map(index, (self.index, self.left_index, self.right_index))
        return replace(self, out=out, left=left, right=right, index=first, left_index=second, right_index=third)


@dataclass(frozen=True, eq=False)
class MatmulOperand:
    """An operand of a `GroupMatmul`: its first element in the buffer and the strides of its rows (columns for the right
    operand) and of its elements along K, one of which is 1.

    It has as many rows or columns as the statement says, or only `limit` if that is less; the others are zeros and are
    not read.
    """

    buffer: Buffer
    index: Index
    stride: int
    k_stride: int
    limit: Index | None = None

    @property
    def along_k(self) -> bool:
        """Whether elements adjacent in memory are adjacent along K."""
        return self.k_stride == 1


@dataclass(frozen=True, eq=False)
class GroupMatmul(Matmul):
    """`out = left @ right` by all threads of a block with the matrix units of the machine: `rows` x `columns` sums of
    float32 over `k_size` elements along K. Only outside of loops over lanes, and for operands that the kernel does not
    write.

    `out` is local, with rows `stride` elements apart. Operands are bfloat16, float16, or float32, which is rounded to
    10 bits of mantissa. The last three fields are the schedule: `chunk` elements along K are copied to local memory at
    a time, `copies` such chunks are in flight, and `threads` threads take part. Chunks use the memory of `out`, which
    is written at the end.
    """

    out: Buffer
    stride: int
    left: MatmulOperand
    right: MatmulOperand
    rows: int
    columns: int
    k_size: int
    chunk: int
    copies: int
    threads: int = 128

    def accesses(self) -> Iterator[tuple[Buffer, Index]]:
        yield from ((self.out, Index()), (self.out, Index((self.rows - 1) * self.stride + self.columns - 1)))
        for operand, count in ((self.left, self.rows), (self.right, self.columns)):
            yield operand.buffer, operand.index
            if operand.limit is None:
                last = (count - 1) * operand.stride + (self.k_size - 1) * operand.k_stride
                yield operand.buffer, operand.index + last

    def indices(self) -> Iterator[Index]:
        yield from super().indices()
        yield from (operand.limit for operand in (self.left, self.right) if operand.limit is not None)

    def changed(self, index: Callable[[Index], Index], buffers: Mapping[Buffer, Buffer] | None = None) -> GroupMatmul:
        known = buffers or {}

        def operand(of: MatmulOperand) -> MatmulOperand:
            limit = None if of.limit is None else index(of.limit)
            return replace(of, buffer=known.get(of.buffer, of.buffer), index=index(of.index), limit=limit)

        return replace(self, out=known.get(self.out, self.out), left=operand(self.left), right=operand(self.right))


@dataclass(frozen=True, eq=False)
class If(Statement):
    """Run the body where a scalar condition holds; only outside of loops over lanes."""

    condition: Value
    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A named block over buffers.

    With `sizes`, the last buffer holds their values. `alignments` are the alignments of the buffers' addresses in
    bytes, if these are not those of separately allocated memory. `local` buffers belong to each iteration of the loop
    over threads and live as long as that iteration.
    """

    name: str
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    sizes: tuple[Expression, ...] = ()
    alignments: tuple[int, ...] = ()
    local: tuple[Buffer, ...] = ()

    @cached_property
    def parallel(self) -> Loop | None:
        """The loop over threads, which is outermost, or None. Statements beside it have no effects."""
        return next((s for s in self.body if isinstance(s, Loop) and s.kind is LoopKind.THREADS), None)

    @cached_property
    def count(self) -> Integer:
        """Trip count of that loop, or 1."""
        loop = self.parallel
        return 1 if loop is None else loop.count

    @cached_property
    def multiplies_tiles(self) -> bool:
        """Whether the kernel has a `TileMatmul`."""
        return any(isinstance(s, TileMatmul) for s in inside(self.body))


def inside(body: Iterable[Statement]) -> Iterator[Statement]:
    """Iterate over statements and all statements nested in them."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop | If):
            yield from inside(statement.body)


@dataclass(frozen=True, eq=False)
class NamedKernel:
    """A kernel known only by the symbol of its code and the trip count of its loop over threads."""

    symbol: str
    count: int
