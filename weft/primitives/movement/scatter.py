"""Scatter: write, add, multiply or compare slices at many indices of an array at once. The reverse of gather.

Updates are applied in the order of the index dimensions, so when `scatter` writes one element twice the last one stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError, MissingRuleError
from weft.base.source import user_line
from weft.indexing.dimension import definitely_less
from weft.ir.fusing import FIRST_MATERIALIZED, Machine, Properties, element_count, hero
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Primitive, Sample, lookup, primitive
from weft.ir.rules.bindable import Operands
from weft.ir.tangents import accumulate, instantiate
from weft.ir.types import ArrayType, get_aval
from weft.ir.zeros import Zero, is_linear
from weft.primitives.elementwise.arithmetic import mul, neg
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.extremes import maximum, minimum
from weft.primitives.elementwise.select import select_n
from weft.primitives.families import fail, remaining_axes, shift_axes, widen
from weft.primitives.movement.gather import (
    REPEATING_CASES,
    GatherDimensionNumbers,
    GatherScatterMode,
    Windows,
    check_dims,
    check_disjoint,
    check_index_batching,
    check_index_type,
    check_index_vectors,
    find_owned_dims,
    gather,
    local_indices,
    sample_cases,
    to_signed_indices,
)
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, move_axis, move_batch_to_front, ramp, reshape
from weft.sharding.factors import AxisFactors


class ScatterDimensionNumbers(NamedTuple):
    """Which dimension of the updates, the indices and the operand is which.

    Args:
        update_window_dims: dimensions of the updates that run over a window; all others run over the indices, in order.
        inserted_window_dims: operand dimensions in which a window is one element and that the updates do not have.
        scatter_dims_to_operand_dims: the operand dimension that each element of an index vector is for.
        operand_batching_dims: dimensions of the operand in which each index has its own slice.
        scatter_indices_batching_dims: the dimensions of the indices that belong to them.

    >>> from weft import lax
    >>> lax.ScatterDimensionNumbers((), (0,), (0,)).inserted_window_dims
    (0,)
    """

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


def window_sizes(rank: int, updates: Sequence[Any], dnums: ScatterDimensionNumbers) -> list[Any]:
    """Return the size of a window in each operand dimension."""
    sizes: list[Any] = [1] * rank
    for position, d in zip(dnums.update_window_dims, window_dims(rank, dnums), strict=True):
        sizes[d] = updates[position]
    return sizes


def window_dims(rank: int, dnums: ScatterDimensionNumbers) -> tuple[int, ...]:
    """Return the operand dimensions that a window runs over."""
    return remaining_axes(rank, (*dnums.inserted_window_dims, *dnums.operand_batching_dims))


_SCATTERED = hero("scatter", FIRST_MATERIALIZED)


class Scattering(Primitive):
    """Combines updates with elements of an array by index; compiled code writes to the array itself."""

    index_operand = 1

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return _SCATTERED

    def flops(self, equation: Any) -> float:
        return element_count(equation.invars[2].aval.shape)

    def traffic(self, operands: Sequence[int], results: Sequence[int]) -> tuple[Sequence[int], int]:
        return (operands[2], *operands[1:]), operands[2]  # it is done in place


class Scatter(Scattering):
    """Base of all scatters; they differ in how an update is combined with the element at its index."""

    ufunc: ClassVar[Any] = None  # how they are combined; None: the update replaces the element
    kinds: ClassVar[str] = "biufc"
    unique_derivative: ClassVar[bool] = False  # updates have a derivative only where no element is written twice
    widens: ClassVar[bool] = False  # reduced-precision floats are accumulated in a wider type
    dimension_numbers = ScatterDimensionNumbers
    # The same operation by its name in kernels.
    operation: ClassVar[str | None] = None
    # The reduction that combines the results of parts of the updates (None: they cannot be split), and the operand on
    # all devices but one (None: it may count several times).
    combine_name: ClassVar[str | None] = None
    neutral: ClassVar[int | None] = None

    def type(
        self,
        x: ArrayType,
        indices: ArrayType,
        updates: ArrayType,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        indices_are_sorted: bool,
        unique_indices: bool,
        mode: GatherScatterMode,
    ) -> ArrayType:
        window, inserted, starts, batching, index_batching = dimension_numbers
        name = self.name
        check_index_type(name, indices)
        if updates.dtype != x.dtype or dtypes.kind(x.dtype) not in self.kinds:
            raise ArgumentTypeError(
                f"{name} needs an operand and updates of one dtype (of kinds {self.kinds}), got {x.short()} and "
                f"{updates.short()}."
            )
        many = indices.shape[:-1]
        batched, indexed = "operand_batching_dims", "scatter_indices_batching_dims"
        check_dims(name, "update_window_dims", window, updates.ndim)
        check_dims(name, "inserted_window_dims", inserted, x.ndim)
        check_dims(name, batched, batching, x.ndim)
        check_disjoint(name, "inserted_window_dims", inserted, batched, batching)
        check_dims(name, "scatter_dims_to_operand_dims", starts, x.ndim, ordered=False)
        check_disjoint(name, "scatter_dims_to_operand_dims", starts, batched, batching)
        check_index_vectors(name, indices, "scatter_dims_to_operand_dims", starts)
        check_index_batching(name, x, indices, batching, indexed, index_batching)
        title, covered = name.capitalize(), len(window) + len(inserted) + len(batching)
        if covered != x.ndim:
            raise fail(
                f"{title} op has window of size {covered}; doesn't match operand of rank {x.ndim}.",
                received=f"{dimension_numbers} for an operand of shape {x.shape}",
                fix="name each operand dimension as a window, an inserted or a batching dimension",
            )
        if updates.ndim != len(window) + len(many):
            raise fail(
                f"{name}: Updates tensor must be of rank {len(window) + len(many)}; got {updates.ndim}.",
                received=f"updates of shape {updates.shape} for indices of shape {indices.shape}",
            )
        # The window that an update covers must fit into the operand.
        sizes = window_sizes(x.ndim, updates.shape, dimension_numbers)
        for d in window_dims(x.ndim, dimension_numbers):
            if definitely_less(x.shape[d], sizes[d]):
                raise fail(
                    f"{name}: Bounds of the window dimensions of updates must not exceed the bounds of the "
                    f"corresponding dimensions of operand. For dimension {d}, updates bound is {sizes[d]}, operand "
                    f"bound is {x.shape[d]}."
                )
        found = tuple(updates.shape[i] for i in remaining_axes(updates.ndim, window))
        if found != many:
            raise fail(
                f"{name}: Bounds of the scatter dimensions of updates must be the same as the bounds of the "
                f"corresponding dimensions of scatter indices, got {found} and {many}."
            )
        return x if x.weak_type == updates.weak_type else x.strong()

    def eval(self, x: Any, indices: Any, updates: Any, *, dimension_numbers: Any, mode: Any, **hints: Any) -> Any:
        window, _, starts, batching, index_batching = dimension_numbers
        x, indices, updates = np.asarray(x), np.asarray(indices), np.asarray(updates)
        sizes = window_sizes(x.ndim, updates.shape, dimension_numbers)
        if not updates.size or not x.size:
            return x.copy()
        dims = window_dims(x.ndim, dimension_numbers)
        pairs = list(zip(batching, index_batching, strict=True))
        windows = Windows(x.shape, indices, sizes, dims, starts, pairs, mode is GatherScatterMode.CLIP)
        ordered = updates.transpose(np.argsort(windows.result_order(dims, window)))
        rows = windows.rows
        if windows.valid is not None:
            rows, ordered = rows[windows.valid], ordered[windows.valid]
        rows, ordered = rows.reshape(-1), ordered.reshape(-1, windows.matrix_shape[1])
        start = widen(x) if self.widens else x
        matrix = np.array(windows.matrix(start), order="C")
        self.apply(matrix, rows, ordered.astype(matrix.dtype))
        order = [*windows.addressed, *windows.whole]
        result = matrix.reshape([x.shape[d] for d in order]).transpose(np.argsort(order))
        return result.astype(x.dtype)

    def apply(self, matrix: np.ndarray, rows: np.ndarray, updates: np.ndarray) -> None:
        """Combine updates with rows of a matrix, one after the other, in place."""
        width = matrix.shape[1]
        if width > 1:  # ufunc.at is fast on one dimension
            rows = (rows[:, None] * width + np.arange(width)).reshape(-1)
        self.ufunc.at(matrix.reshape(-1), rows, updates.reshape(-1))

    def batch(self, axis: Axis, args: Any, dims: Any, *, dimension_numbers: Any, **params: Any) -> tuple[Any, int]:
        (x, indices, updates), (dim, index_dim, update_dim) = args, dims
        window, inserted, starts, batching, index_batching = dimension_numbers
        x, updates = move_batch_to_front(x, dim, axis), move_batch_to_front(updates, update_dim, axis)
        window, inserted, starts, batching = (shift_axes(axes, 0) for axes in (window, inserted, starts, batching))
        if index_dim is None:
            window = (0, *window)
        else:
            indices = move_axis(indices, index_dim, 0)
            batching, index_batching = (0, *batching), (0, *shift_axes(index_batching, 0))
        dnums = ScatterDimensionNumbers(window, inserted, starts, batching, index_batching)
        return self(x, indices, updates, dimension_numbers=dnums, **params), 0

    def factors(
        self, x: ArrayType, indices: ArrayType, updates: ArrayType, *, dimension_numbers: Any, **params: Any
    ) -> AxisFactors:
        """Split dimensions that windows cover whole, and batching ones. Split the updates too if they can be combined
        with the operand in any order: the results of all devices are combined in the end, and only the first one starts
        from the operand. In an indexed dimension each device updates its own elements."""
        window, _, starts, batching, index_batching = dimension_numbers
        operand: list[str | None] = [None] * x.ndim
        rows: list[str | None] = [None] * indices.ndim
        update_names: list[str | None] = [None] * updates.ndim
        for position, d in zip(window, window_dims(x.ndim, dimension_numbers), strict=True):
            if d not in starts and updates.shape[position] == x.shape[d]:
                operand[d] = update_names[position] = f"d{d}"
        many = remaining_axes(updates.ndim, window)
        for d, e in zip(batching, index_batching, strict=True):
            operand[d] = rows[e] = update_names[many[e]] = f"d{d}"
        inside: dict[str, int] = {}
        combine: dict[str, str] = {}
        how = self.combine_name
        if dtypes.kind(x.dtype) == "b":
            how = {"sum": "or", "prod": "and"}.get(how or "", how)
        if how is not None:
            for e, position in enumerate(many):
                if rows[e] is None:
                    rows[e] = update_names[position] = name = f"i{e}"
                    combine[name], inside[name] = how, 0
        for d in find_owned_dims(x, starts, window_sizes(x.ndim, updates.shape, dimension_numbers)):
            operand[d] = f"own{d}"
            inside[f"own{d}"] = 0
        reason = "windows may reach over the borders of parts, and of updates at one index the last is the result"
        sides = (tuple(operand), tuple(rows), tuple(update_names)), (tuple(operand),)
        return AxisFactors(*sides, combine, inside=inside, padded=frozenset(combine), reason=reason)

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Apply the updates that are in this part of the operand, or those of this part of the updates."""
        x, indices, updates = args
        dnums, mode = params["dimension_numbers"], params["mode"]
        split = parts.split_dims(0)
        owned = {d: split[d] for d in dnums.scatter_dims_to_operand_dims if d in split}
        if owned:
            starts, whole = dnums.scatter_dims_to_operand_dims, parts.types[0].shape
            sizes = window_sizes(len(whole), parts.types[2].shape, dnums)
            limits = [whole[d] - sizes[d] for d in starts] if mode is GatherScatterMode.CLIP else None
            indices = local_indices(parts, to_signed_indices(indices, limits), starts, owned, x.shape)
            params = {**params, "mode": GatherScatterMode.FILL_OR_DROP}
        rows = [a for name in self.rows(parts) for a in parts.split(name)]
        if params["mode"] is GatherScatterMode.PROMISE_IN_BOUNDS and self.has_padding(parts):
            params = {**params, "mode": GatherScatterMode.CLIP}  # indices beyond the last one may be anything
        if rows and self.neutral is not None:
            x = parts.on_first(rows, x, zeros(x.shape, x.dtype) if self.neutral == 0 else ones(x.shape, x.dtype))
        return [self(x, indices, updates, **params)]

    def rows(self, parts: Parts) -> list[str]:
        """Return the factors of updates that the result does not have."""
        return [name for name in parts.operand_names[1] if name is not None and name not in parts.result_names[0]]

    def has_padding(self, parts: Parts) -> bool:
        """Return whether the updates of a device may end in padding."""
        sizes = zip(parts.operand_names[1], parts.types[1].shape, strict=True)
        return any(name is not None and size % parts.count(name) for name, size in sizes)

    def read_back(self, values: Any, indices: Any, updates: ArrayType, *, dimension_numbers: Any, **params: Any) -> Any:
        """Return the elements of `values` (in the operand's shape) at the index of each update; zero where an update is
        dropped."""
        shape = get_aval(values).shape  # type: ignore[attr-defined]
        if 0 in shape or 0 in updates.shape:  # no window fits into an empty operand
            return zeros(updates.shape, values.dtype)
        sizes = window_sizes(values.ndim, updates.shape, dimension_numbers)
        batching = dimension_numbers.operand_batching_dims
        sizes = [0 if d in batching and shape[d] == 0 else size for d, size in enumerate(sizes)]
        mode = params["mode"]
        fill = 0 if mode is GatherScatterMode.FILL_OR_DROP else None
        if mode is GatherScatterMode.PROMISE_IN_BOUNDS:
            mode, fill = GatherScatterMode.FILL_OR_DROP, 0  # a broken promise writes nothing, so it reads nothing
        dnums = GatherDimensionNumbers(*dimension_numbers)
        return gather(
            values,
            indices,
            dimension_numbers=dnums,
            slice_sizes=tuple(sizes),
            fill_value=fill,
            **{**params, "mode": mode},
        )

    def samples(self) -> Any:
        for i, (x, indices, sizes, gathered) in enumerate(sample_cases()):
            dnums = ScatterDimensionNumbers(*gathered)
            shape = list(indices.shape[:-1])
            for position, d in zip(gathered.offset_dims, window_dims(x.ndim, dnums), strict=True):
                shape.insert(position, sizes[d])
            x, updates = self.sample_values(x, tuple(shape))
            mode = (GatherScatterMode.FILL_OR_DROP, GatherScatterMode.CLIP)[i % 2]
            repeats = i in REPEATING_CASES
            unique = self.unique_derivative and not repeats
            params = scatter_params(dnums, mode, unique)
            yield Sample(x, indices, updates, differentiable=unique or not self.unique_derivative, **params)
        rows = ScatterDimensionNumbers((1,), (0,), (0,))
        inside = np.array([[2], [0]], np.int32)
        for dtype in (np.int32, np.complex64, dtypes.bfloat16):
            yield Sample(
                ramp(3, 2, dtype=dtype),
                inside,
                ramp(2, 2, dtype=dtype),
                **scatter_params(rows, GatherScatterMode.CLIP, True),
            )

    def sample_values(self, x: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return operand and updates for a sample, away from kinks."""
        return x, ramp(*shape) + np.float32(0.1)


def scatter_params(dnums: ScatterDimensionNumbers, mode: GatherScatterMode, unique: bool = False) -> Params:
    """Return the parameters of a scatter."""
    return {"dimension_numbers": dnums, "indices_are_sorted": False, "unique_indices": unique, "mode": mode}


@primitive
class scatter(Scatter):
    """Updates replace elements; of two at one index the later one is kept. Jointly linear in operand and updates."""

    kinds = "biufckv"
    linear = (0, 2)
    copies = (0, 2)
    introduces = ()
    weight = 0

    def apply(self, matrix: np.ndarray, rows: np.ndarray, updates: np.ndarray) -> None:
        matrix[rows] = updates

    def transpose(self, cotangent: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Sequence[Any]:
        aval: Any = get_aval(updates)
        to_x = to_updates = None
        if is_linear(x):
            to_x = scatter(cotangent, indices, zeros(aval.shape, cotangent.dtype), **params)
        if is_linear(updates):
            to_updates = self.read_back(cotangent, indices, aval, **params)
            if not params["unique_indices"]:
                stays = self.stays(x, indices, aval, **params)
                to_updates = select_n(stays, zeros(aval.shape, cotangent.dtype), to_updates)
        return [to_x, None, to_updates]

    def stays(self, x: Any, indices: Any, updates: ArrayType, **params: Any) -> Any:
        """Return whether each update is kept at the end: write an id for each update and read the ids back."""
        count = np.dtype(np.int32)
        ids = reshape(iota(dtype=count, shape=(updates.size,), dimension=0), new_sizes=updates.shape, dimensions=None)
        written = scatter(zeros(get_aval(x).shape, count), indices, ids, **params)  # type: ignore[attr-defined]
        return eq(self.read_back(written, indices, updates, **params), ids)


class ScatterSum(Scatter):
    """Updates are added or subtracted; reduced-precision floats accumulate wider. Linear in operand and updates."""

    widens = True
    linear = (0, 2)
    ulp = {"": 2.0}
    combine_name = "sum"
    neutral = 0

    def nan_operands(self, params: Params) -> Operands:
        return (2,) if params["mode"] is GatherScatterMode.CLIP else ()  # else some may be left out


@primitive
class scatter_add(ScatterSum):
    """Add updates to elements."""

    name = "scatter-add"
    ufunc = np.add
    operation = "add"

    def transpose(self, cotangent: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Sequence[Any]:
        back = self.read_back(cotangent, indices, updates.aval, **params) if is_linear(updates) else None
        return [cotangent if is_linear(x) else None, None, back]


@primitive
class scatter_sub(ScatterSum):
    """Subtract updates from elements."""

    name = "scatter-sub"
    ufunc = np.subtract
    kinds = "iufc"
    operation = "sub"

    def transpose(self, cotangent: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Sequence[Any]:
        back = neg(self.read_back(cotangent, indices, updates.aval, **params)) if is_linear(updates) else None
        return [cotangent if is_linear(x) else None, None, back]


@primitive
class scatter_mul(Scatter):
    """Multiply elements by updates."""

    name = "scatter-mul"
    ufunc = np.multiply
    widens = True
    unique_derivative = True
    ulp = {"": 2.0}
    operation = "mul"
    combine_name = "prod"
    neutral = 1

    def partial(self, i: int, tangent: Any, out: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Any:
        if i == 0:
            return scatter_mul(tangent, indices, updates, **params)
        self.check_unique(indices, params)
        return mul(x, scatter_add(instantiate(Zero.of(get_aval(x))), indices, tangent, **params))

    def transpose(self, cotangent: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Sequence[Any]:
        if is_linear(x):
            return [scatter_mul(cotangent, indices, updates, **params), None, None]
        self.check_unique(indices, params)
        return [None, None, self.read_back(mul(cotangent, x), indices, updates.aval, **params)]

    def check_unique(self, indices: Any, params: Params) -> None:
        """Raise if several updates may have one index: the derivative in one is the product of the others, which is not
        stored."""
        shape = get_aval(indices).shape  # type: ignore[attr-defined]
        if not params["unique_indices"] and not definitely_less(element_count(shape[:-1]), 2):
            raise MissingRuleError(
                "scatter-mul is differentiable in the updates only if no element is multiplied twice.",
                fix="pass unique_indices=True, x.at[i].multiply(v, unique_indices=True), if no index occurs twice",
                at=user_line(),
            )


class ScatterExtremum(Scatter):
    """Keep the smaller or larger of element and update; equal ones share the derivative."""

    introduces = ()

    def jvp(self, tangents: Sequence[Any], out: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Any:
        if type(tangents[0]) is Zero and type(tangents[2]) is Zero:
            return Zero.of(out.aval)
        aval: Any = get_aval(updates)
        dtype = out.dtype
        nothing = zeros(out.shape, dtype)
        here = convert_element_type(eq(x, out), new_dtype=dtype, weak_type=False)
        there = eq(self.read_back(out, indices, aval, **params), updates)
        there = convert_element_type(there, new_dtype=dtype, weak_type=False)
        count = accumulate(here, scatter_add(nothing, indices, there, **params))
        total: Any = Zero.of(out.aval)
        if type(tangents[0]) is not Zero:
            total = mul(tangents[0], here)
        if type(tangents[2]) is not Zero:
            total = accumulate(total, scatter_add(nothing, indices, mul(tangents[2], there), **params))
        return lookup("div")(total, count)

    def sample_values(self, x: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        # Distinct values, since two that are equal are a kink.
        apart = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        return x, (apart * 7 % 11 - 5) / 4 + np.float32(0.07) + apart / 64


@primitive
class scatter_min(ScatterExtremum):
    """Keep the smaller of element and update."""

    name = "scatter-min"
    ufunc = minimum
    operation = "min"
    combine_name = "min"


@primitive
class scatter_max(ScatterExtremum):
    """Keep the larger of element and update."""

    name = "scatter-max"
    ufunc = maximum
    operation = "max"
    combine_name = "max"


def ones(shape: Any, dtype: Any) -> Any:
    """Return an array of ones."""
    return broadcast_in_dim(np.ones((), dtype), shape=shape, broadcast_dimensions=())


def zeros(shape: Any, dtype: Any) -> Any:
    """Return an array of zeros."""
    return broadcast_in_dim(np.zeros((), dtype), shape=shape, broadcast_dimensions=())
