"""Gather, scatter, slices and padding against an elementwise definition, and their public API."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft import lax
from weft.base.errors import AxisOutOfBoundsError, MissingRuleError, ShapeMismatchError, TracedShapeError
from weft.indexing.dimension import symbol
from weft.ir.primitive import lookup
from weft.ir.types import array_type
from weft.lax import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from weft.primitives.movement.gather import sample_cases
from weft.primitives.movement.scatter import window_dims

# -------------------------------------------------------------------------------------- the definition, in loops


def operand_indices(shape: Any, index: np.ndarray, sizes: Any, numbers: GatherDimensionNumbers, clip: bool) -> Any:
    """For each index tuple: its window as a list of (offset tuple, operand place), or None when it is outside."""
    offset_dims = [
        d for d in range(len(shape)) if d not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    ]
    for many in np.ndindex(*index.shape[:-1]):
        start = [0] * len(shape)
        for component, d in zip(index[many], numbers.start_index_map, strict=True):
            start[d] = int(component)
        limits = [n - size for n, size in zip(shape, sizes, strict=True)]
        if clip:
            start = [min(max(s, 0), limit) for s, limit in zip(start, limits, strict=True)]
        inside = all(0 <= s <= limit for s, limit in zip(start, limits, strict=True))
        for d, e in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
            start[d] = many[e]
        window = []
        for offsets in itertools.product(*(range(sizes[d]) for d in offset_dims)):
            position = list(start)
            for d, o in zip(offset_dims, offsets, strict=True):
                position[d] += o
            window.append((offsets, tuple(position)))
        yield many, window if inside else None, [offsets for offsets, _ in window]


def result_index(rank: int, many: Any, offsets: Any, offset_dims: Any) -> tuple[int, ...]:
    outside, inside = iter(many), iter(offsets)
    return tuple(next(inside) if i in offset_dims else next(outside) for i in range(rank))


CASES = sample_cases()


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_gather_reads_what_the_definition_reads(case: int, mode: str) -> None:
    x, index, sizes, numbers = CASES[case]
    got = np.asarray(lax.gather(x, index, numbers, sizes, mode=mode, fill_value=99))
    expected = np.full(got.shape, 99, np.float32)
    for many, window, _ in operand_indices(x.shape, index, sizes, numbers, mode == "clip"):
        for offsets, position in window or ():
            expected[result_index(got.ndim, many, offsets, numbers.offset_dims)] = x[position]
    np.testing.assert_array_equal(got, expected)


COMBINE = {
    "scatter": lambda old, new: new,
    "scatter_add": lambda old, new: old + new,
    "scatter_sub": lambda old, new: old - new,
    "scatter_mul": lambda old, new: old * new,
    "scatter_min": min,
    "scatter_max": max,
}


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("mode", ["clip", "drop"])
@pytest.mark.parametrize("name", COMBINE)
def test_scatter_writes_what_the_definition_writes(name: str, case: int, mode: str, rng: np.random.Generator) -> None:
    x, index, sizes, gathered = CASES[case]
    numbers = ScatterDimensionNumbers(*gathered)
    shape = list(index.shape[:-1])
    for position, d in zip(gathered.offset_dims, window_dims(x.ndim, numbers), strict=True):
        shape.insert(position, sizes[d])
    updates = rng.normal(size=shape).astype(np.float32)
    got = np.asarray(getattr(lax, name)(x, index, updates, numbers, mode=mode))
    expected = x.copy()
    for many, window, _ in operand_indices(x.shape, index, sizes, gathered, mode == "clip"):
        for offsets, at in window or ():
            expected[at] = COMBINE[name](
                expected[at], updates[result_index(len(shape), many, offsets, gathered.offset_dims)]
            )
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_sums_of_short_floats_accumulate_in_float32() -> None:
    half = np.full(3000, 0.5, np.float16)
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    total = lax.scatter_add(np.zeros(1, np.float16), np.zeros((3000, 1), np.int32), half, numbers)
    assert total.dtype == np.float16 and float(np.asarray(total)[0]) == 1500.0  # summed in float16 it stops at 1024


# ------------------------------------------------------------------------------------------------- derivatives


def test_equal_candidates_share_the_derivative_of_an_extremum() -> None:
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    x, index = np.array([1.0, 2.0, 3.0], np.float32), np.array([[0], [0], [1]], np.int32)
    back = weft.vjp(lambda x, u: lax.scatter_max(x, index, u, numbers), x, np.array([1.0, 1.0, 5.0], np.float32))[1]
    to_x, to_updates = back(np.ones(3, np.float32))
    np.testing.assert_allclose(to_x, [1 / 3, 0, 1], rtol=1e-6)
    np.testing.assert_allclose(to_updates, [1 / 3, 1 / 3, 1], rtol=1e-6)


def test_scatter_mul_has_a_derivative_only_for_unique_indices() -> None:
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    x, indices, updates = np.array([2.0, 3.0], np.float32), np.array([[1], [0]], np.int32), np.float32([5.0, 4.0])

    def multiply(count, unique):
        return lambda u: lax.scatter_mul(x, indices[:count], u, numbers, unique_indices=unique)

    # One index or none is unique in any case.
    for count, unique in [(2, True), (1, True), (1, False), (0, False)]:
        (gradient,) = weft.vjp(multiply(count, unique), updates[:count])[1](np.ones(2, np.float32))
        np.testing.assert_array_equal(gradient, [3.0, 2.0][:count])
    with pytest.raises(MissingRuleError, match="unique_indices=True"):
        weft.vjp(multiply(2, False), updates)
    index, updates = indices[:1], updates[:1]
    # The operand has one in any case.
    (gradient,) = weft.vjp(lambda x: lax.scatter_mul(x, index, updates, numbers), x)[1](np.ones(2, np.float32))
    np.testing.assert_array_equal(gradient, [1.0, 5.0])


def test_the_fill_value_has_no_derivative() -> None:
    numbers = GatherDimensionNumbers((), (0,), (0,))
    index = np.array([[0], [9]], np.int32)
    read = lambda x: lax.gather(x, index, numbers, (1,), mode="fill")
    _, tangent = weft.jvp(read, (np.ones(3, np.float32),), (np.full(3, 7, np.float32),))
    np.testing.assert_array_equal(tangent, [7, 0])


# -------------------------------------------------------------------------------------------------- public API


def test_slices_count_from_either_end() -> None:
    x = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(lax.slice_in_dim(x, 1, -1, axis=1), x[:, 1:-1])
    np.testing.assert_array_equal(lax.slice_in_dim(x, None, None, 2, axis=-1), x[:, ::2])
    np.testing.assert_array_equal(lax.index_in_dim(x, -1, 0, keepdims=False), x[-1])
    np.testing.assert_array_equal(lax.slice(x, (0, 1), (3, 4), (2, 3)), x[0:3:2, 1:4:3])
    with pytest.raises(IndexError, match="5"):
        lax.index_in_dim(x, 5)
    with pytest.raises(ShapeMismatchError, match="limit"):
        lax.slice(x, (0, 0), (4, 4))


def test_dynamic_slices_are_clamped_and_count_from_the_end() -> None:
    x = np.arange(10)
    take = weft.jit(lambda i: lax.dynamic_slice_in_dim(x, i, 3))
    for start, first in ((2, 2), (9, 7), (-4, 6), (-1, 7), (-99, 0)):
        np.testing.assert_array_equal(take(start), np.arange(first, first + 3))
    np.testing.assert_array_equal(lax.dynamic_slice(x, (-1,), (1,)), [9])
    np.testing.assert_array_equal(lax.dynamic_slice(x, (-1,), (1,), allow_negative_indices=False), [0])
    np.testing.assert_array_equal(lax.dynamic_slice(x.reshape(2, 5), np.array([1, 3]), (1, 2)), [[8, 9]])
    changed = lax.dynamic_update_slice_in_dim(x, np.array([-1, -2]), 9, 0)
    np.testing.assert_array_equal(changed, [*range(8), -1, -2])
    changed = lax.dynamic_update_index_in_dim(x, np.array(50), 4, 0)
    np.testing.assert_array_equal(changed, [0, 1, 2, 3, 50, *range(5, 10)])
    assert int(lax.dynamic_index_in_dim(x, 4, keepdims=False)) == 4


def test_negative_and_interior_padding() -> None:
    x = np.arange(1, 5)
    np.testing.assert_array_equal(lax.pad(x, 0, [(1, 2, 1)]), [0, 1, 0, 2, 0, 3, 0, 4, 0, 0])
    np.testing.assert_array_equal(lax.pad(x, 0, [(-1, -1, 0)]), [2, 3])
    np.testing.assert_array_equal(lax.pad(x, 9, [(-1, 1, 1)]), [9, 2, 9, 3, 9, 4, 9])
    with pytest.raises(ShapeMismatchError, match="crop"):
        lax.pad(x, 0, [(-3, -2, 0)])


def test_creation_and_data_movement() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert lax.full((2,), 1.5).weak_type and not lax.full((2,), 1.5, np.float32).weak_type
    assert lax.full((), 3, np.int8).dtype == np.int8
    np.testing.assert_array_equal(lax.full_like(x, 7), np.full((2, 3), 7, np.float32))
    assert lax.full_like(x, 1, dtype=np.int32, shape=(4,)).shape == (4,)
    np.testing.assert_array_equal(lax.iota(np.int32, 3), [0, 1, 2])
    np.testing.assert_array_equal(lax.broadcasted_iota(np.int32, (2, 3), 1), [[0, 1, 2]] * 2)
    np.testing.assert_array_equal(lax.broadcast(x, (2,)), np.broadcast_to(x, (2, 2, 3)))
    np.testing.assert_array_equal(lax.reshape(x, (3, 2), (1, 0)), x.T.reshape(3, 2))
    np.testing.assert_array_equal(lax.rev(x, (-1,)), x[:, ::-1])
    np.testing.assert_array_equal(lax.tile(x, (2, 2)), np.tile(x, (2, 2)))
    np.testing.assert_array_equal(lax.concatenate([x, x[:1]], 0), np.concatenate([x, x[:1]]))
    assert [p.shape for p in lax.split(x, (1, 2), axis=1)] == [(2, 1), (2, 2)]
    assert lax.expand_dims(x, (0, -1)).shape == (1, 2, 3, 1)
    assert lax.squeeze(x[None], (0,)).shape == (2, 3)
    assert lax.collapse(np.ones((2, 3, 4, 5)), 1, 3).shape == (2, 12, 5)
    assert lax.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    with pytest.raises(ShapeMismatchError, match="broadcast"):
        lax.broadcast_shapes((2,), (3,))
    with pytest.raises(AxisOutOfBoundsError):
        lax.rev(x, (2,))
    with pytest.raises(TracedShapeError):
        weft.jit(lambda n: lax.full((n,), 0.0))(3)
    with pytest.raises(TypeError, match="one dtype"):
        lax.concatenate([x, x.astype(np.int32)], 0)


def test_modes_have_names() -> None:
    assert GatherScatterMode.from_any("drop") is GatherScatterMode.from_any("fill") is GatherScatterMode.FILL_OR_DROP
    assert GatherScatterMode.from_any(GatherScatterMode.CLIP) is GatherScatterMode.CLIP
    assert GatherScatterMode.from_any(None) is GatherScatterMode.FILL_OR_DROP
    with pytest.raises(ValueError, match="'clip'"):
        GatherScatterMode.from_any("near")


def test_dimension_numbers_that_do_not_fit_are_refused() -> None:
    x, index = np.ones((3, 4), np.float32), np.zeros((2, 1), np.int32)
    good = GatherDimensionNumbers((1,), (0,), (0,))
    for numbers, sizes in (
        (good._replace(offset_dims=(2,)), (1, 4)),
        (good._replace(start_index_map=(0, 1)), (1, 4)),
        (good._replace(collapsed_slice_dims=()), (1, 4)),
        (good._replace(collapsed_slice_dims=(5,)), (1, 4)),
        (good._replace(operand_batching_dims=(1,), start_indices_batching_dims=(0,)), (1, 1)),
        (good, (1, 5)),
        (good, (2, 4)),
    ):
        with pytest.raises(ShapeMismatchError, match="gather"):
            lax.gather(x, index, numbers, sizes)
    with pytest.raises(TypeError, match="integer"):
        lax.gather(x, index.astype(np.float32), good, (1, 4))
    with pytest.raises(ShapeMismatchError, match="scatter-add"):
        lax.scatter_add(x, index, np.ones((3, 4), np.float32), ScatterDimensionNumbers(*good))
    with pytest.raises(TypeError, match="one dtype"):
        lax.scatter_add(x, index, np.ones((2, 4), np.int32), ScatterDimensionNumbers(*good))


@pytest.mark.parametrize(
    ("numbers", "sizes", "text"),
    [
        (((1, 0), (), (0,)), (3, 4), "offset_dims in gather op must be sorted"),
        (((1, 1), (), (0,)), (3, 4), "offset_dims in gather op must not repeat"),
        (((7,), (0,), (0,)), (1, 4), "Offset dimension 0 in gather op is out of bounds"),
        (((1,), (5,), (0,)), (1, 4), r"Invalid collapsed_slice_dims set in gather op; valid range is \[0, 2\)"),
        (((1,), (0,), (0, 1)), (1, 4), "2 elements in start_index_map and the bound of dimension index_vector_dim=1"),
        (((1,), (0,), (3,)), (1, 4), "Invalid start_index_map"),
        (((1,), (0,), (0,), (0,), (0,)), (1, 4), "and operand_batching_dims in gather op must be disjoint"),
        (((), (0,), (0,), (1,), (1,)), (1, 1), "index vector dimension as a batching dimension"),
        (((), (0,), (0,), (1,), ()), (1, 1), "equal numbers of operand_batching_dims and start_indices_batching_dims"),
        (((), (0,), (0,), (1,), (0,)), (1, 1), r"to have the same shape, got \(4,\) and \(2,\)"),
        (((1,), (0,), (0,)), (1, 9), "Slice size at index 1 in gather op is out of range"),
        (((1,), (0,), (0,)), (1,), "one slice size for every input dimension"),
        (((1,), (0,), (0,)), (2, 4), "bound 1, but bound is 2 for index 0 at position 0"),
    ],
)
def test_wrong_dimension_numbers_of_gather_are_named(numbers, sizes, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        lax.gather(np.ones((3, 4)), np.zeros((2, 1), np.int32), GatherDimensionNumbers(*numbers), sizes)


@pytest.mark.parametrize(
    ("numbers", "shape", "text"),
    [
        (((1,), (0,), (0,)), (2, 5), "scatter-add: Bounds of the window dimensions"),
        (((1,), (0,), (0,)), (3, 4), "Bounds of the scatter dimensions"),
        (((1,), (0,), (0,)), (2, 4, 1), "Updates tensor must be of rank 2; got 3"),
        (((1,), (), (0,)), (2, 4), "Scatter-add op has window of size 1; doesn't match operand of rank 2"),
        (((1, 0), (), (0,)), (3, 4), "update_window_dims in scatter-add op must be sorted"),
        (((1,), (0,), (4,)), (2, 4), "Invalid scatter_dims_to_operand_dims mapping"),
    ],
)
def test_wrong_dimension_numbers_of_scatter_are_named(numbers, shape, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        index = np.zeros((2, 1), np.int32)
        lax.scatter_add(np.ones((3, 4)), index, np.ones(shape), ScatterDimensionNumbers(*numbers))


# ------------------------------------------------------------------------------------------------- symbolic sizes


def test_types_with_symbolic_sizes() -> None:
    n = symbol("n", 2)
    f32, i32 = np.dtype(np.float32), np.dtype(np.int32)
    x = array_type((n, 4), f32)
    rows = array_type((n, 1), i32)
    params: dict[str, Any] = {"indices_are_sorted": False, "unique_indices": False, "mode": GatherScatterMode.CLIP}
    numbers = GatherDimensionNumbers((1,), (0,), (0,))
    result = lookup("gather").type(x, rows, dimension_numbers=numbers, slice_sizes=(1, 4), fill_value=None, **params)
    assert result.shape == (n, 4)
    result = lookup("scatter-add").type(x, rows, x, dimension_numbers=ScatterDimensionNumbers(*numbers), **params)
    assert result.shape == (n, 4)
    assert lookup("pad").type(x, array_type((), f32), padding_config=((1, 1, 0), (0, 0, 0))).shape == (n + 2, 4)
    assert lookup("concatenate").type(x, x, dimension=0).shape == (2 * n, 4)
    assert lookup("slice").type(x, start_indices=(1, 0), limit_indices=(n, 4), strides=None).shape == (n - 1, 4)
    assert lookup("tile").type(x, reps=(3, 1)).shape == (3 * n, 4)
