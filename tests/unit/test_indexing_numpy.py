"""`x[index]` and `x.at[index]` match NumPy for known and traced indices, and invalid ones raise."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
import weft.random
from weft.base.errors import NonConcreteBooleanIndexError, OutOfBoundsIndexError, ShapeMismatchError
from weft.indexing.dimension import symbol
from weft.numpy.at import At
from weft.numpy.indexing import getitem
from weft.primitives.elementwise.arithmetic import mul, neg
from weft.trace.stage import stage

# ------------------------------------------------------------------------------------------------ against NumPy


def random_slice(choose: random.Random, size: int) -> slice:
    start, stop = (choose.choice([None, *range(-size - 2, size + 3)]) for _ in range(2))
    return slice(start, stop, choose.choice([None, 1, 2, 3, -1, -2, -3]))


def random_index(choose: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Any mixture of what NumPy accepts as an index of an array of this shape."""
    parts: list[Any] = []
    axis = 0
    common = choose.choice([(2,), (3,), (2, 3), (1,), (2, 1)])
    seen_ellipsis = False
    while axis < len(shape) and choose.random() > 0.15:
        size = shape[axis]
        kind = choose.choice(
            ["integer", "slice", "slice", "whole", "new", "array", "array", "mask", "ellipsis", "boolean"]
        )
        if kind == "new":
            parts.append(None)
        elif kind == "boolean":
            if choose.random() < 0.3:
                parts.append(choose.choice([True, False]))
        elif kind == "ellipsis":
            if not seen_ellipsis:
                seen_ellipsis = True
                parts.append(Ellipsis)
                axis = len(shape) - choose.randrange(len(shape) - axis + 1)
        else:
            axis += 1
            if kind == "integer":
                index = choose.randrange(-size, size)
                parts.append(choose.choice([index, np.array(index), np.int8(index)]))
            elif kind == "slice":
                parts.append(random_slice(choose, size))
            elif kind == "whole":
                parts.append(slice(None))
            elif kind == "mask":
                parts.append(np.array([choose.random() < 0.5 for _ in range(size)]))
            else:
                held = common if choose.random() < 0.7 else (1,) * len(common)
                indices = [choose.randrange(-size, size) for _ in range(int(np.prod(held)))]
                parts.append(np.array(indices, choose.choice([np.int32, np.int64, np.int8])).reshape(held))
    return tuple(parts)


def is_integer_part(part: Any) -> bool:
    if isinstance(part, (np.ndarray, np.generic)):
        return part.dtype != bool
    return isinstance(part, int) and not isinstance(part, bool)


@pytest.mark.parametrize("seed", range(4))
def test_any_index_reads_and_writes_as_numpy_does(seed: int) -> None:
    choose = random.Random(seed)
    read = 0
    for trial in range(150):
        shape = tuple(choose.choice([1, 2, 3, 4]) for _ in range(choose.randrange(5)))
        x = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
        index = random_index(choose, shape)
        try:
            expected = x[index]
        except (IndexError, DeprecationWarning):  # older versions only warn where there is nothing to read
            with pytest.raises((IndexError, ValueError)):
                getitem(x, index)
            continue
        read += 1
        values = np.arange(expected.size, dtype=np.int32).reshape(expected.shape) + 100
        written, summed = x.copy(), x.copy()
        written[index] = values
        np.add.at(summed, index, values)

        np.testing.assert_array_equal(getitem(x, index), expected, err_msg=f"{shape} {index}")
        np.testing.assert_array_equal(At(x)[index].set(values), written, err_msg=f"{shape} {index}")
        np.testing.assert_array_equal(At(x)[index].add(values), summed, err_msg=f"{shape} {index}")
        indices = [i for i, part in enumerate(index) if is_integer_part(part)]
        if trial % 5 or not indices:
            continue

        def all_three(x: Any, *args: Any, index: Any = index, indices: Any = indices, values: Any = values) -> Any:
            whole = list(index)
            for i, part in zip(indices, args, strict=True):
                whole[i] = part
            at = At(x)[tuple(whole)]
            return getitem(x, tuple(whole)), at.set(values), at.add(values)

        traced = weft.jit(all_three)(x, *(np.asarray(index[i]) for i in indices))
        for got, want in zip(traced, (expected, written, summed), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"traced {shape} {index}")
    assert read > 100


def test_a_list_inside_a_tuple_is_an_array_and_alone_is_refused() -> None:
    x = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(getitem(x, ([0, 2], [1, 3])), x[[0, 2], [1, 3]])
    np.testing.assert_array_equal(getitem(x, (slice(None), [])), x[:, []])
    with pytest.raises(TypeError, match=r"x\[weft.numpy.array\(\[0, 2\]\)\]"):
        getitem(x, [0, 2])


# -------------------------------------------------------------------------------------------- what it is lowered to


def equations(function: Any, *args: Any) -> list[str]:
    """Return the names of the primitives that a function stages."""
    program, _ = stage(lambda *a: [function(*a)], [weft.ShapeDtypeStruct(np.shape(a), a.dtype).aval for a in args])
    return [equation.primitive.name for equation in program.eqns]


def test_known_indices_become_slices_and_traced_ones_gather() -> None:
    x, i, many = np.ones((4, 3), np.float32), np.int32(1), np.array([0, 2], np.int32)
    assert equations(lambda x: getitem(x, slice(None)), x) == []
    assert equations(lambda x: getitem(x, slice(1, 3)), x) == ["slice"]
    assert equations(lambda x: getitem(x, (1, slice(None, None, -1))), x) == ["slice", "rev", "squeeze"]
    assert equations(lambda x: getitem(x, None), x) == ["broadcast_in_dim"]
    assert equations(lambda x: getitem(x, np.int32(1)), x) == ["slice", "squeeze"]
    assert equations(lambda x, i: getitem(x, i), x, i)[-2:] == ["dynamic_slice", "squeeze"]
    assert equations(lambda x: getitem(x, many), x) == ["gather"]
    assert equations(lambda x, i: getitem(x, i), x, many)[-1] == "gather"
    assert equations(lambda x: At(x)[1:3].set(0.0), x)[-1] == "dynamic_update_slice"
    assert equations(lambda x: At(x)[1:3].add(1.0), x)[-1] == "scatter-add"


# ------------------------------------------------------------------------------------------------- out of bounds


def test_an_index_known_to_be_outside_raises_with_index_axis_size_and_line() -> None:
    x = np.zeros((2, 3), np.float32)
    for index, pieces in [
        ((0, 5), ("Index 5", "axis 1", "size 3")),
        (-3, ("Index -3", "axis 0", "size 2")),
        ((slice(None), np.array([0, 7])), ("Index 7", "[1] of the index array", "axis 1")),
    ]:
        for use in (lambda i: getitem(x, i), lambda i: At(x)[i].set(1.0), lambda i: At(x)[i].add(1.0)):
            with pytest.raises(OutOfBoundsIndexError) as caught:
                use(index)
            message = str(caught.value)
            assert all(piece in message for piece in pieces), message
            assert "test_indexing_numpy.py" in message and "mode='fill'" in message
    concrete = weft.jit(lambda: np.int32(9))()
    with pytest.raises(OutOfBoundsIndexError, match="Index 9"):
        getitem(x, concrete)


def test_modes_handle_indices_out_of_bounds() -> None:
    x = np.arange(3, dtype=np.float32)
    for index in (np.array([0, 7, -9]), weft.jit(lambda i: i)(np.array([0, 7, -9]))):
        at = At(x)[index]
        np.testing.assert_array_equal(at.get(mode="clip"), [0, 2, 0])
        np.testing.assert_array_equal(at.get(mode="fill"), [0, np.nan, np.nan])
        np.testing.assert_array_equal(at.get(mode="fill", fill_value=-1), [0, -1, -1])
        np.testing.assert_array_equal(at.set(5.0, mode="drop"), [5, 1, 2])
        np.testing.assert_array_equal(at.add(5.0, mode="clip"), [10, 1, 7])
    assert float(At(x)[5].get(mode="clip")) == 2.0
    assert float(At(x)[-5].get(mode="clip")) == 0.0
    assert float(At(x)[5].get(mode="fill", fill_value=9)) == 9.0
    assert np.isnan(float(At(x)[-1].get(mode="fill", wrap_negative_indices=False)))
    assert int(At(x.astype(np.int32))[5].get(mode="fill")) == np.iinfo(np.int32).min
    assert int(At(x.astype(np.uint8))[5].get(mode="fill")) == 255
    with pytest.raises(ValueError, match="wrap"):
        At(x)[0].get(mode="wrap")


def test_traced_indices_are_clamped_for_reading_and_dropped_for_writing() -> None:
    x = np.arange(3, dtype=np.float32)

    @weft.jit
    def use(i: Any) -> Any:
        return getitem(x, i), At(x)[i].set(9.0), At(x)[i].add(1.0)

    for index, read, written in ((7, 2, [0, 1, 2]), (-7, 0, [0, 1, 2]), (-1, 2, [0, 1, 9])):
        one, changed, _ = use(np.int32(index))
        assert float(one) == read
        np.testing.assert_array_equal(changed, written)
    many, changed, summed = use(np.array([7, -1, 0, 0], np.int32))
    np.testing.assert_array_equal(many, [2, 2, 0, 0])
    np.testing.assert_array_equal(changed, [9, 1, 9])
    np.testing.assert_array_equal(summed, [2, 1, 3])


def test_small_and_unsigned_index_types_reach_far_axes() -> None:
    x = np.arange(300)
    read = weft.jit(lambda i: getitem(x, i))
    np.testing.assert_array_equal(read(np.array([-1, 100], np.int8)), [299, 100])
    np.testing.assert_array_equal(read(np.array([255], np.uint8)), [255])
    np.testing.assert_array_equal(read(np.array([2**32 - 1, 5], np.uint32)), [299, 5])


# ------------------------------------------------------------------------------------------------------- updates


def test_every_update_matches_numpy_with_repeated_indices() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    index, values = np.array([0, 2, 2]), np.array([2.0, 3.0, 5.0], np.float32)
    at = At(x)[index]
    np.testing.assert_allclose(at.set(values), [2, 2, 5, 4])
    np.testing.assert_allclose(at.add(values), [3, 2, 11, 4])
    np.testing.assert_allclose(at.subtract(values), [-1, 2, -5, 4])
    np.testing.assert_allclose(at.multiply(values), [2, 2, 45, 4])
    np.testing.assert_allclose(at.mul(values), [2, 2, 45, 4])
    np.testing.assert_allclose(at.divide(values), [0.5, 2, 0.2, 4], rtol=1e-6)
    np.testing.assert_allclose(at.power(values), [1, 2, 3.0**15, 4], rtol=1e-6)
    np.testing.assert_allclose(at.min(values), [1, 2, 3, 4])
    np.testing.assert_allclose(at.max(values), [2, 2, 5, 4])
    np.testing.assert_allclose(at.apply(lambda v: mul(v, np.float32(10))), [10, 2, 300, 4])
    np.testing.assert_allclose(at.get(), [1, 3, 3])
    assert At(np.arange(3))[1].divide(2).dtype == np.float32


def test_apply_repeats_for_traced_indices_and_is_differentiable() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)
    apply = weft.jit(lambda x, i: At(x)[i].apply(lambda v: mul(v, v)))
    np.testing.assert_allclose(apply(x, np.array([1, 1, 2, 9])), [1, 16, 9])
    gradient = weft.grad(lambda x: getitem(At(x)[np.array([1, 1, 2])].apply(lambda v: mul(v, v)), 1))(x)
    np.testing.assert_allclose(gradient, [0, 4 * 2.0**3, 0])


def test_traced_masks_update_if_values_do_not_depend_on_their_count() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    mask = x > 2
    row = np.array([7.0, 8.0, 9.0], np.float32)
    rows = np.array([False, True])
    for run in (lambda f: f, weft.jit):
        np.testing.assert_array_equal(run(lambda x, m: At(x)[m].set(-1.0))(x, mask), np.where(mask, -1, x))
        np.testing.assert_array_equal(run(lambda x, m: At(x)[m].add(1.0))(x, mask), np.where(mask, x + 1, x))
        np.testing.assert_array_equal(run(lambda x, m: At(x)[m].apply(neg))(x, mask), np.where(mask, -x, x))
        np.testing.assert_array_equal(run(lambda x, m: At(x)[m].max(row))(x, rows), [[0, 1, 2], [7, 8, 9]])
        np.testing.assert_array_equal(run(lambda x, m: At(x)[m].set(row[None]))(x, rows), [[0, 1, 2], [7, 8, 9]])
    np.testing.assert_array_equal(At(x)[mask].set(np.array([1.0, 2.0, 3.0])), [[0, 1, 2], [1, 2, 3]])
    with pytest.raises(NonConcreteBooleanIndexError, match="where"):
        weft.jit(lambda x, m: At(x)[m].set(np.array([1.0, 2.0, 3.0])))(x, mask)


def test_values_take_the_dtype_of_the_array_unless_they_would_lose_their_kind() -> None:
    whole = np.arange(3, dtype=np.int32)
    assert At(whole)[0].set(True).dtype == np.int32
    assert At(whole.astype(np.float16))[0].set(np.float32(1.5)).dtype == np.float16
    assert At(whole.astype(np.int8))[0].set(np.int32(5)).dtype == np.int8
    for array, value, word in (
        (whole, 1.5, "float"),
        (whole.astype(np.float32), 1j, "complex"),
        (whole > 1, 2, "integer"),
    ):
        with pytest.raises(TypeError, match=word):
            At(array)[0].set(value)
    with pytest.raises(ShapeMismatchError, match=r"\(3,\)"):
        At(np.zeros((3, 2)))[0].set(np.ones(3))
    with pytest.raises(ShapeMismatchError, match=r"\(1, 1, 2\)"):
        At(np.zeros((3, 2)))[0].set(np.ones((1, 1, 2)))


# -------------------------------------------------------------------------------------------------- transformations


def test_gradients_go_to_the_elements_that_were_read_and_past_those_overwritten() -> None:
    x = np.arange(4, dtype=np.float32)
    weights = np.array([1.0, 10.0, 100.0], np.float32)
    pick = np.array([3, 0, 3])
    total = weft.vjp(lambda x: getitem(x, pick), x)[1](weights)[0]
    np.testing.assert_array_equal(total, [10, 0, 0, 101])
    ones = np.ones(4, np.float32)
    to_x, to_values = weft.vjp(lambda x, v: At(x)[pick].set(v), x, weights)[1](ones)
    np.testing.assert_array_equal(to_x, [0, 1, 1, 0])
    np.testing.assert_array_equal(to_values, [0, 1, 1])
    to_x, to_values = weft.vjp(lambda x, v: At(x)[1:4:2].set(v), x, weights[:2])[1](ones)
    np.testing.assert_array_equal(to_x, [1, 0, 1, 0])
    np.testing.assert_array_equal(to_values, [1, 1])


def test_vmap_over_array_indices_and_both() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    i = np.array([3, 0, 2], np.int32)
    np.testing.assert_array_equal(weft.vmap(getitem)(x, i), x[np.arange(3), i])
    np.testing.assert_array_equal(weft.vmap(lambda i: getitem(x, (slice(None), i)))(i), x[:, i].T)
    np.testing.assert_array_equal(
        weft.vmap(lambda x: getitem(x, i), in_axes=1, out_axes=1)(x[[0, 1, 2, 0]]), x[[0, 1, 2, 0]][i]
    )
    changed = weft.vmap(lambda x, i: At(x)[i].set(-1.0))(x, i)
    expected = x.copy()
    expected[np.arange(3), i] = -1
    np.testing.assert_array_equal(changed, expected)


# ----------------------------------------------------------------------------------------------------------- errors


def test_mistakes_are_named() -> None:
    x = np.arange(3)
    for index, error, word in (
        (1.0, TypeError, "float"),
        ("a", TypeError, "string"),
        ((0, 0), IndexError, "Too many"),
        ((..., ...), IndexError, "single ellipsis"),
        (np.array([True, False]), IndexError, r"\(2,\)"),
        (slice(None, None, 0), ValueError, "zero"),
        (slice("a", None), TypeError, "bounds"),
        (object(), TypeError, "object"),
    ):
        with pytest.raises(error, match=word):
            getitem(x, index)


def test_indices_that_determine_a_shape_cannot_be_traced() -> None:
    x = np.arange(3)
    with pytest.raises(IndexError, match="dynamic_slice_in_dim"):
        weft.jit(lambda i: getitem(x, slice(0, i)))(2)
    with pytest.raises(NonConcreteBooleanIndexError, match="size=n"):
        weft.jit(lambda m: getitem(x, m))(x > 1)


def test_symbolic_sizes_pass_through() -> None:
    n = symbol("n", 4)
    aval = weft.ShapeDtypeStruct((n, 3), np.float32).aval
    i = weft.ShapeDtypeStruct((2,), np.int32).aval

    def shape(index: Any) -> Any:
        program, _ = stage(lambda x, i: [getitem(x, index(i))], [aval, i])
        return program.outvars[0].aval.shape

    assert shape(lambda i: slice(1, None)) == (n - 1, 3)
    assert shape(lambda i: slice(None, -1)) == (n - 1, 3)
    assert shape(lambda i: slice(None, None, -1)) == (n, 3)
    assert shape(lambda i: (slice(None), i)) == (n, 2)
    assert shape(lambda i: (slice(None), 0, None)) == (n, 1)
    assert shape(lambda i: 3) == (3,)
    assert shape(lambda i: -1) == (3,)


def test_random_keys_are_indexed_like_arrays() -> None:
    keys = weft.random.split(weft.random.key(0), 5)
    data = lambda k: np.asarray(weft.random.key_data(k))
    words = data(keys)
    np.testing.assert_array_equal(data(getitem(keys, slice(None, None, -2))), words[::-2])
    np.testing.assert_array_equal(data(getitem(keys, np.array([0, 4, -1]))), words[[0, 4, -1]])
    np.testing.assert_array_equal(data(weft.jit(getitem)(keys, np.array([3, 9]))), words[[3, 4]])
    np.testing.assert_array_equal(data(weft.vmap(getitem, in_axes=(None, 0))(keys, np.array([1, 2]))), words[1:3])
    changed = words.copy()
    changed[1] = words[4]
    for index in (1, np.array([1]), np.arange(5) == 1):
        np.testing.assert_array_equal(data(At(keys)[index].set(getitem(keys, 4))), changed)
    np.testing.assert_array_equal(data(weft.jit(lambda k, i: At(k)[i].set(getitem(k, 4)))(keys, 1)), changed)
    with pytest.raises(TypeError, match="keys of the same kind"):
        At(keys)[0].set(1.0)
    nothing = np.full_like(words[0], 2**32 - 1)
    np.testing.assert_array_equal(data(At(keys)[9].get(mode="fill")), nothing)
    np.testing.assert_array_equal(data(At(keys)[9].get(mode="fill", fill_value=7)), np.full_like(nothing, 7))
    filled = weft.jit(lambda k, i: At(k)[i].get(mode="fill", fill_value=getitem(k, 4)))
    np.testing.assert_array_equal(data(filled(keys, np.array([1, 9]))), words[[1, 4]])


def test_arrays_of_64_bits_where_they_are_off():
    """They are indices, and take the 32-bit dtype where they meet others."""
    x, positions = wnp.arange(12.0).reshape(3, 4), np.array([0, 2, -1])
    with weft.enable_x64(True):
        wide = wnp.asarray(positions)
    assert wide.dtype == np.int64
    for found in (x[wide], weft.jit(lambda x, i: x[i])(x, wide), wnp.take(x, wide, 0)):
        np.testing.assert_array_equal(found, np.asarray(x)[positions])
    np.testing.assert_array_equal(weft.vmap(lambda row, i: row[i])(x, wide), [0.0, 6.0, 11.0])
    np.testing.assert_array_equal(wnp.take_along_axis(x, wide[:, None], 1)[:, 0], [0.0, 6.0, 11.0])
    for total, dtype in ((wide + 1, np.int32), (weft.jit(lambda i: i * 2)(wide), np.int32), (wide + 1.5, np.float32)):
        assert total.dtype == dtype
