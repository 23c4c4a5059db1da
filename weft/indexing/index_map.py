"""Maps from an index of one tensor to an index of another, with the conditions under which they hold.

They say which element of an operand an element of the result is read from. A map is data: it can be composed along a
chain of operations, simplified, evaluated on arrays, and asked for strides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from weft.base.forks import held
from weft.base.memo import cached_property
from weft.indexing.dimension import (
    Dimension,
    Shape,
    ceil_divide,
    definitely_less,
    maximum,
    product,
    same,
    same_shape,
    shape_text,
)
from weft.indexing.expression import (
    Expression,
    Integer,
    Substitution,
    Symbol,
    definitely_nonnegative,
    free_symbols,
    linear_in,
    substitute,
    value_range,
)
from weft.indexing.ranges import Range

IndexArrays: TypeAlias = Sequence[Any]

# An exhaustive check of more points than this takes too long.
MOST_POINTS = 1 << 20


@dataclass(frozen=True, slots=True)
class Constraint:
    """Condition `low <= expression <= high`."""

    expression: Integer
    low: Integer
    high: Integer

    def always_holds(self) -> bool:
        """Return whether the condition is known to hold everywhere."""
        return definitely_nonnegative(self.expression - self.low) and definitely_nonnegative(
            self.high - self.expression
        )

    def never_holds(self) -> bool:
        """Return whether the condition is known to hold nowhere."""
        return definitely_nonnegative(self.low - self.expression - 1) or definitely_nonnegative(
            self.expression - self.high - 1
        )

    def substitute(self, values: Substitution) -> Constraint:
        """Replace symbols in the condition."""
        return Constraint(*(substitute(part, values) for part in (self.expression, self.low, self.high)))

    def holds(self, values: Substitution) -> Any:
        """Evaluate the condition for each element of the arrays that are substituted for the symbols."""
        expression, low, high = (substitute(part, values) for part in (self.expression, self.low, self.high))
        return (low <= expression) & (expression <= high)

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.expression} == {self.low}"
        return f"{self.low} <= {self.expression} <= {self.high}"


class Source(NamedTuple):
    """Where an element of a result may be read from: an operand, the index into it, and a condition.

    An operation has a sequence of them, and the first whose condition holds is the one that is read.
    """

    operand: int
    map: IndexMap
    condition: tuple[Constraint, ...]


def index_symbol(name: str, size: Dimension) -> Symbol:
    """Return the symbol of an index into a dimension: from 0 to size - 1."""
    return Symbol(name, 0, size - 1)


@dataclass(frozen=True)
class IndexMap:
    """`(d0, d1) -> (results)`, for indices within the sizes of `dims` that satisfy the constraints.

    `dims` are (name, size); the results are expressions of `symbols`, one for each dim, and of symbolic sizes.
    """

    dims: tuple[tuple[str, Dimension], ...]
    results: tuple[Integer, ...]
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.dims]
        if len(set(names)) != len(names):
            raise ValueError(f"The dims of an index map need different names. Received: {', '.join(names)}")

    @staticmethod
    def over(
        shape: Sequence[Dimension], results: Iterable[Integer], constraints: Iterable[Constraint] = ()
    ) -> IndexMap:
        """Create a map from indices `d0, d1, ...` of a shape; `indices(shape)` are the symbols to build the results
        from."""
        dims = tuple((f"d{i}", size) for i, size in enumerate(shape))
        return IndexMap(dims, tuple(results), tuple(constraints))

    @staticmethod
    def identity(shape: Sequence[Dimension]) -> IndexMap:
        """Return the map from each index to itself."""
        return IndexMap.over(shape, indices(shape))

    @staticmethod
    def permutation(shape: Sequence[Dimension], order: Sequence[int]) -> IndexMap:
        """Return the map `(d0, d1, ...) -> (d[order[0]], d[order[1]], ...)`."""
        symbols = indices(shape)
        return IndexMap.over(shape, (symbols[i] for i in order))

    @property
    def shape(self) -> Shape:
        """Sizes of the tensor that the map is applied to indices of."""
        return tuple(size for _, size in self.dims)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Symbols of the index that the map is applied to."""
        return tuple(index_symbol(name, size) for name, size in self.dims)

    # --- algebra

    def apply(self, index: Sequence[Integer]) -> tuple[Integer, ...]:
        """Return the results at an index made of ints and expressions."""
        values = dict(zip(self.symbols, index, strict=True))
        return tuple(substitute(result, values) for result in self.results)

    def then(self, following: IndexMap) -> IndexMap:
        """Compose: this map first, then `following` on its results."""
        if len(following.dims) != len(self.results):
            raise ValueError(
                f"A map of {len(following.dims)} dims cannot follow one with {len(self.results)} results. "
                f"Received: {self} followed by {following}"
            )
        values = dict(zip(following.symbols, self.results, strict=True))
        constraints = self.constraints + tuple(constraint.substitute(values) for constraint in following.constraints)
        return IndexMap(self.dims, following.apply(self.results), constraints).simplify()

    def substitute(self, values: Substitution) -> IndexMap:
        """Replace symbolic sizes (not the dims) in sizes, results and constraints."""
        dims = tuple((name, substitute(size, values)) for name, size in self.dims)
        resized = IndexMap(dims, ())
        # A size that changes changes the bounds of its index, and so the symbol.
        everything = {**values, **dict(zip(self.symbols, resized.symbols, strict=True))}
        results = tuple(substitute(result, everything) for result in self.results)
        constraints = tuple(constraint.substitute(everything) for constraint in self.constraints)
        return IndexMap(dims, results, constraints).simplify()

    def simplify(self) -> IndexMap:
        """Simplify the map by what follows from sizes and constraints.

        An index into a dimension of size 1 is 0; a constraint that always holds is dropped; a constraint on one index
        narrows its range, within which results may get simpler.
        """
        ones = {symbol: 0 for symbol, (_, size) in zip(self.symbols, self.dims, strict=True) if size == 1}
        constraints = dict.fromkeys(constraint.substitute(ones) for constraint in self.constraints)
        remaining = tuple(constraint for constraint in constraints if not constraint.always_holds())
        results = tuple(substitute(result, ones) for result in self.results)
        for symbol in self.symbols if remaining else ():
            narrower = self._narrow(symbol, remaining)
            if narrower is not symbol:
                there = tuple(substitute(result, {symbol: narrower}) for result in results)
                results = tuple(substitute(result, {narrower: symbol}) for result in there)
        if same_shape(results, self.results) and remaining == self.constraints:
            return self
        return IndexMap(self.dims, results, remaining)

    @staticmethod
    def _narrow(symbol: Symbol, constraints: Iterable[Constraint]) -> Symbol:
        """Narrow the bounds of a symbol by constraints `low <= coefficient*symbol + rest <= high`."""
        known = symbol.range
        for constraint in constraints:
            if free_symbols(constraint.expression) != (symbol,):
                continue
            split = linear_in(constraint.expression, symbol)
            low, high = value_range(constraint.low), value_range(constraint.high)
            if split is None or not (isinstance(split[0], int) and low.is_constant and high.is_constant):
                continue
            coefficient, rest = split
            interval = (Range(low.lower, high.upper) - value_range(rest)) * (1 if coefficient > 0 else -1)
            steps = coefficient if coefficient > 0 else -coefficient
            known = known.intersect(Range(-((-interval.lower) // steps), interval.upper // steps)) or known
        if known == symbol.range:
            return symbol
        upper = symbol.upper if isinstance(symbol.upper, Expression) and known.upper == symbol.range.upper else None
        return Symbol(symbol.name, int(known.lower), int(known.upper) if upper is None else upper)

    @property
    def is_empty(self) -> bool:
        """Whether the constraints are known to hold nowhere."""
        return any(constraint.never_holds() for constraint in self.constraints)

    # --- questions

    @property
    def is_identity(self) -> bool:
        """Whether every index is known to go to itself."""
        return self.as_permutation() == tuple(range(len(self.dims)))

    @property
    def is_permutation(self) -> bool:
        """Whether the results are known to be the dims in some order."""
        return self.as_permutation() is not None

    def as_permutation(self) -> tuple[int, ...] | None:
        """Return the dim that each result is, or None if the results are not the dims in some order."""
        if self.constraints or len(self.results) != len(self.dims):
            return None
        # A dimension of size 1 is written 0 after simplification, and may be any of them.
        dim_of = {symbol: dim for dim, symbol in enumerate(self.symbols)}
        ones = [dim for dim, (_, size) in enumerate(self.dims) if size == 1]
        order: list[int | None] = []
        for result in self.results:
            order.append(dim_of.get(result) if isinstance(result, Symbol) else None)
            if order[-1] in ones:
                ones.remove(order[-1])
        for i, (result, dim) in enumerate(zip(self.results, order, strict=True)):
            if dim is None and result == 0 and ones:
                order[i] = ones.pop(ones.index(i)) if i in ones else ones.pop(0)
        found = tuple(dim for dim in order if dim is not None)
        return found if sorted(found) == list(range(len(self.dims))) else None

    def is_bijection(self, onto: Sequence[Dimension]) -> bool:
        """Return whether each index of the shape `onto` is reached exactly once, by trying all indices.

        Only for int sizes of at most a million points; ask a substituted map where sizes are symbolic.
        """
        order = self.as_permutation()
        if order is not None:
            return same_shape(tuple(self.shape[dim] for dim in order), onto)
        points, target = product(self.shape), as_ints(onto)
        if points > MOST_POINTS:
            raise ValueError(f"is_bijection tries at most {MOST_POINTS} points. Received: {points}")
        index = grid(self.shape)
        valid = self.holds(index)
        reached = [result[valid] for result in self.evaluate(index)]
        if not all(bool(np.all((r >= 0) & (r < size))) for r, size in zip(reached, target, strict=True)):
            return False
        count = np.zeros(target, np.int64)
        np.add.at(count, tuple(reached), np.ones(np.count_nonzero(valid), np.int64) if reached else np.sum(valid))
        return bool(np.all(count == 1))

    # --- on arrays

    def _values(self, index: IndexArrays) -> dict[Any, Any]:
        arrays = [np.asarray(part) for part in index]
        return dict(zip(self.symbols, arrays, strict=True))

    def evaluate(self, index: IndexArrays) -> tuple[np.ndarray, ...]:
        """Return the results for arrays of indices, one for each dim, that broadcast together."""
        values = self._values(index)
        shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
        return tuple(np.broadcast_to(substitute(result, values), shape) for result in self.results)

    def holds(self, index: IndexArrays) -> np.ndarray:
        """Return whether all constraints hold, for arrays of indices that broadcast together."""
        values = self._values(index)
        shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
        answer = np.ones(shape, bool)
        for constraint in self.constraints:
            answer = answer & constraint.holds(values)
        return answer

    # --- text

    def __str__(self) -> str:
        names = ", ".join(name for name, _ in self.dims)
        results = ", ".join(map(str, self.results))
        conditions = [f"{name} in [0, {size - 1}]" for name, size in self.dims] + list(map(str, self.constraints))
        return ", ".join([f"({names}) -> ({results})", *conditions])


def compose(*maps: IndexMap) -> IndexMap:
    """Compose maps, the first one applied first."""
    return reduce(IndexMap.then, maps)


def indices(shape: Sequence[Dimension]) -> tuple[Symbol, ...]:
    """Return the symbols `d0, d1, ...` of an index into a shape."""
    return tuple(index_symbol(f"d{i}", size) for i, size in enumerate(shape))


def as_ints(shape: Sequence[Dimension]) -> tuple[int, ...]:
    """Return a shape as ints; raise if it is symbolic."""
    sizes = tuple(size for size in shape if not isinstance(size, Expression))
    if len(sizes) != len(shape):
        raise ValueError(f"All sizes must be ints here; substitute the symbols first. Received: {shape_text(shape)}")
    return sizes


def grid(shape: Sequence[Dimension]) -> list[np.ndarray]:
    """Return all indices of a shape of ints, as one array of that shape for each dimension."""
    return list(np.indices(as_ints(shape))) if shape else []


def row_major_strides(shape: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """Return the strides, in elements, of a dense tensor whose last dimension is contiguous."""
    return tuple(product(shape[i + 1 :]) for i in range(len(shape)))


def source(operand: int, index_map: IndexMap) -> Source:
    """Return an operand that is read through a map, under the constraints of the map."""
    return Source(operand, index_map, index_map.constraints)


def read(shape: Sequence[Dimension], sources: Iterable[Source], operands: Sequence[np.ndarray]) -> np.ndarray:
    """Gather a result from its sources: read every element from the first source whose condition holds."""
    index, sizes = grid(shape), as_ints(shape)
    result: np.ndarray = np.zeros(sizes, np.result_type(*operands))
    missing: np.ndarray = np.ones(sizes, np.bool_)
    for operand, index_map, condition in sources:
        valid = missing & IndexMap(index_map.dims, (), condition).holds(index)
        position = tuple(part[valid] for part in index_map.evaluate(index))
        result[valid] = operands[operand][position]
        missing = missing & ~valid
    if missing.any():
        raise ValueError(f"No source holds at index {tuple(int(part) for part in np.argwhere(missing)[0])}")
    return result


# --- the maps of operations: from an index of the result to the index of the operand ----------------------------------


def transpose_map(shape: Sequence[Dimension], permutation: Sequence[int]) -> IndexMap:
    """Return the map of a transposition: result axis i is operand axis `permutation[i]`."""
    if sorted(permutation) != list(range(len(shape))):
        raise ValueError(f"{tuple(permutation)} is not a permutation of the axes of {shape_text(shape)}")
    inverse = sorted(range(len(permutation)), key=permutation.__getitem__)
    return IndexMap.permutation([shape[axis] for axis in permutation], inverse)


def broadcast_map(
    operand_shape: Sequence[Dimension], shape: Sequence[Dimension], broadcast_dimensions: Sequence[int]
) -> IndexMap:
    """Return the map of a broadcast: operand axis i is result axis `broadcast_dimensions[i]`, repeated where the
    operand has size 1."""
    symbols = indices(shape)
    axes = zip(operand_shape, broadcast_dimensions, strict=True)
    return IndexMap.over(shape, (0 if same(size, 1) else symbols[axis] for size, axis in axes))


def slice_map(
    shape: Sequence[Dimension],
    start_indices: Sequence[Integer],
    limit_indices: Sequence[Integer],
    strides: Sequence[int] | None = None,
) -> IndexMap:
    """Return the map of a slice from start (included) to limit (not included) in steps; a start may be a symbol for a
    value known later."""
    steps = strides if strides is not None else [1] * len(shape)
    if not len(shape) == len(start_indices) == len(limit_indices) == len(steps):
        raise ValueError(f"A slice of {shape_text(shape)} needs {len(shape)} starts, limits and strides")
    bounds = list(zip(start_indices, limit_indices, steps, strict=True))
    sizes = [maximum(ceil_divide(limit - start, step), 0) for start, limit, step in bounds]
    pairs = zip(indices(sizes), bounds, strict=True)
    return IndexMap.over(sizes, (start + step * symbol for symbol, (start, _, step) in pairs))


def reverse_map(shape: Sequence[Dimension], dimensions: Iterable[int]) -> IndexMap:
    """Return the map that reverses the axes in `dimensions`."""
    flipped = set(dimensions)
    symbols = indices(shape)
    return IndexMap.over(
        shape, (shape[axis] - 1 - symbol if axis in flipped else symbol for axis, symbol in enumerate(symbols))
    )


def pad_map(shape: Sequence[Dimension], padding_config: Sequence[tuple[Integer, Integer, int]]) -> IndexMap:
    """Return the map of padding by (low, high, interior) for each axis; it is defined where the operand is, not in the
    padding."""
    sizes: list[Dimension] = []
    for size, (low, high, interior) in zip(shape, padding_config, strict=True):
        sizes.append(maximum(low + size + maximum(size - 1, 0) * interior + high, 0))
    results: list[Integer] = []
    constraints: list[Constraint] = []
    for symbol, size, (low, _, interior) in zip(indices(sizes), shape, padding_config, strict=True):
        step = interior + 1
        results.append((symbol - low) // step)
        constraints.append(Constraint(symbol, low, low + (size - 1) * step))
        constraints.append(Constraint((symbol - low) % step, 0, 0))
    return IndexMap.over(sizes, results, constraints).simplify()


def concatenate_map(shapes: Sequence[Sequence[Dimension]], dimension: int, piece: int) -> IndexMap:
    """Return the map of a concatenation to one of its operands; the constraint restricts it to that operand's part."""
    before, size = total_size(shape[dimension] for shape in shapes[:piece]), shapes[piece][dimension]
    total = list(shapes[piece])
    total[dimension] = total_size(shape[dimension] for shape in shapes)
    symbols = indices(total)
    results = [symbol - before if axis == dimension else symbol for axis, symbol in enumerate(symbols)]
    constraint = Constraint(symbols[dimension], before, before + size - 1)
    return IndexMap.over(total, results, [constraint]).simplify()


def total_size(sizes: Iterable[Dimension]) -> Dimension:
    """Add sizes; 0 for none."""
    return reduce(lambda left, right: left + right, sizes, 0)


def reshape_map(shape: Sequence[Dimension], new_shape: Sequence[Dimension]) -> IndexMap:
    """Return the map of a reshape: the same elements in row-major order under other sizes.

    Runs of axes with equal products are treated apart, so that an axis that stays does not see a division.
    """
    if not same(product(shape), product(new_shape)):
        raise ValueError(
            f"A reshape must keep the number of elements. Received: {shape_text(shape)} with {product(shape)} elements "
            f"and {shape_text(new_shape)} with {product(new_shape)}"
        )
    symbols = indices(new_shape)
    results: list[Integer] = []
    for old_axes, new_axes in _equal_runs(shape, new_shape):
        position: Integer = 0
        for axis in new_axes:
            position = position * new_shape[axis] + symbols[axis]
        run = [shape[axis] for axis in old_axes]
        for i, (size, stride) in enumerate(zip(run, row_major_strides(run), strict=True)):
            if same(size, 1) or same(product(run), 0):
                results.append(0)
            else:
                # Everything before the first axis of size > 1 has index 0, so that axis needs no remainder.
                first = all(same(earlier, 1) for earlier in run[:i])
                results.append(position // stride if first else position // stride % size)
    return IndexMap.over(new_shape, results).simplify()


def _equal_runs(left: Sequence[Dimension], right: Sequence[Dimension]) -> list[tuple[range, range]]:
    """Split two shapes of equal product into the shortest runs of axes, from the left, whose products are equal."""
    runs = []
    i = j = 0
    while i < len(left) or j < len(right):
        start = i, j
        i, j = min(i + 1, len(left)), min(j + 1, len(right))
        while not same(left_size := product(left[start[0] : i]), right_size := product(right[start[1] : j])):
            if definitely_less(left_size, right_size) and i < len(left):
                i += 1
            elif definitely_less(right_size, left_size) and j < len(right):
                j += 1
            else:
                # Symbols that cannot be compared, or a size of 0 further on: take all that is left.
                i, j = len(left), len(right)
                break
        runs.append((range(start[0], i), range(start[1], j)))
    return runs


if hasattr(IndexMap.symbols, "lock"):  # in Python 3.11 a property of this kind has one for all objects
    held(IndexMap.symbols.lock)
