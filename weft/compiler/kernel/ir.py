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
    """A flat array of `size` elements of a (storage) dtype that the kernel reads or writes. One that is `padded` has
    elements for the lanes beyond the bound of a loop too: vectors of it are read as a whole, which is quicker than with
    a mask."""

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
        if isinstance(thing, Index):
            return thing
        if isinstance(thing, Variable | Value):
            return Index(0, ((thing, 1),))
        return Index(thing if isinstance(thing, Expression) else int(thing))

    def coefficient(self, term: Term) -> Integer:
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
    """Whether an integer is zero whatever the sizes are: an expression in normal form never is."""
    return not isinstance(value, Expression) and value == 0


class LoopKind(Enum):
    """How the iterations of a loop are bound."""

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
    """A hint that `buffer[index]`, or memory near it, will be written soon, which changes nothing. The index may be
    past the end. Only outside of loops over lanes."""

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
    """For `variable` from `start` in steps of `step` below `stop`. A loop over lanes takes `width` iterations at a
    time.

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
        """How many iterations it has (with a limit: at most)."""
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
    """`result` = lanes of one vector or of two concatenated ones, chosen by their indices; only outside of loops over
    lanes, on what they carried out."""

    result: Value
    vectors: tuple[Value, ...]
    lanes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Shift(Statement):
    """In a loop over lanes that carries something: each lane of `result` is the one `by` lanes before it of `vector`,
    the first ones are `fill`."""

    result: Value
    vector: Value
    by: int
    fill: Value


@dataclass(frozen=True, eq=False)
class Last(Statement):
    """In a loop over lanes that carries something: all lanes of `result` are the last one of `vector`; in the tail,
    where there may be no such lane, they can be anything."""

    result: Value
    vector: Value


# Lanes that follow each other and are ranked together.
RANKED_LANES = 32


@dataclass(frozen=True, eq=False)
class Accumulate(Statement):
    """`buffer[index] += value` in every lane, of integers, so that the order does not matter. Several lanes may have
    the same index. Only of local buffers, in a loop over lanes."""

    buffer: Buffer
    index: Index
    value: Value


@dataclass(frozen=True, eq=False)
class Rank(Statement):
    """Lane after lane: `result = buffer[index + digit]`, which is then one more. Only of local buffers, in a loop over
    lanes whose vectors are all whole. `digit` is below `2 ** bits`, and `index` is the same in all of `RANKED_LANES`
    that follow each other; what these count, no other lanes of the vector do."""

    result: Value
    buffer: Buffer
    index: Index
    digit: Value
    bits: int


class Matmul(Statement, ABC):
    """A statement that multiplies matrices in memory: `TileMatmul` or `GroupMatmul`."""

    __slots__ = ()

    @abstractmethod
    def accesses(self) -> Iterator[tuple[Buffer, Index]]:
        """Elements of each buffer that are touched, where it is known which: the first, and perhaps the last."""

    def indices(self) -> Iterator[Index]:
        """All indices that it depends on."""
        return (index for _, index in self.accesses())

    @abstractmethod
    def changed(self, index: Callable[[Index], Index], buffers: Mapping[Buffer, Buffer] | None = None) -> Matmul:
        """The same with other indices, and other buffers where there are any."""


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
        """The first and the last element of each buffer that are touched."""
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
    """One operand of a `GroupMatmul`: where it begins in its buffer, how far its rows (of the right operand: columns)
    are apart, and its elements along K; one of the two is 1. It has as many rows or columns as the statement says, or
    `limit`, if that is less: the others are zeros, which are not read."""

    buffer: Buffer
    index: Index
    stride: int
    k_stride: int
    limit: Index | None = None

    @property
    def along_k(self) -> bool:
        """Whether elements that are side by side in memory follow each other along K."""
        return self.k_stride == 1


@dataclass(frozen=True, eq=False)
class GroupMatmul(Matmul):
    """`out = left @ right` by the threads of a group together and the matrix units of the machine: `rows` x `columns`
    sums of float32 over `k_size` elements along K. Only outside of loops over lanes, of operands that the kernel does
    not write.

    `out` is local, with rows `stride` elements apart. Operands are bfloat16, float16, or float32 of which the products
    have 10 bits of mantissa. The last three say how it is done: so many elements along K are copied to local memory at
    a time, so many of such copies are there at a time, and so many threads do it. Copies are in the memory of `out`,
    which is written at the end.
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
    """A named block over buffers. With `sizes`, its last buffer has their values. `alignments` are the bytes that the
    addresses of buffers are multiples of, where they are not those of memory of its own. `local` buffers are memory of
    each iteration of the loop over threads, for as long as that takes."""

    name: str
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    sizes: tuple[Expression, ...] = ()
    alignments: tuple[int, ...] = ()
    local: tuple[Buffer, ...] = ()

    @cached_property
    def parallel(self) -> Loop | None:
        """The loop over threads, which is outermost; statements beside it only compute."""
        return next((s for s in self.body if isinstance(s, Loop) and s.kind is LoopKind.THREADS), None)

    @cached_property
    def count(self) -> Integer:
        """The iterations of that loop, or 1."""
        loop = self.parallel
        return 1 if loop is None else loop.count

    @cached_property
    def multiplies_tiles(self) -> bool:
        """Whether it has a `TileMatmul`."""
        return any(isinstance(s, TileMatmul) for s in inside(self.body))


def inside(body: Iterable[Statement]) -> Iterator[Statement]:
    """Statements, and those inside of them."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop | If):
            yield from inside(statement.body)


@dataclass(frozen=True, eq=False)
class NamedKernel:
    """A kernel known only by the name of its code and by how many iterations its loop over threads has."""

    symbol: str
    count: int
