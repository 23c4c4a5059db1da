"""Dtypes and weak types of results, accepted arguments, and jaxprs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.base.errors import AxisOutOfBoundsError, ShapeMismatchError
from weft.numpy import util

HALF = wnp.arange(4, dtype=wnp.float16)
BRAIN = wnp.arange(4, dtype=wnp.bfloat16)
BYTES = wnp.ones(3, wnp.int8)
INTS = wnp.arange(3)
FLOATS = wnp.arange(3.0)
BOOLS = wnp.array([True, False])
WEAK = wnp.full(3, 1.0)


@pytest.mark.parametrize(
    "result, dtype, weak",
    [
        (wnp.array(3.0), "float32", True),
        (wnp.array(3), "int32", True),
        (wnp.array(True), "bool", False),
        (wnp.array([1.0, 2.0]), "float32", False),
        (wnp.array([np.float16(1), 2.0]), "float16", False),
        (wnp.array([1, HALF[0]]), "float16", False),
        (wnp.array(WEAK), "float32", True),
        (wnp.array(WEAK, "float32"), "float32", False),
        (wnp.asarray([]), "float32", False),
        (wnp.full(2, 7), "int32", True),
        (wnp.zeros_like(WEAK), "float32", True),
        (wnp.arange(3), "int32", False),
        (wnp.arange(wnp.int8(3)), "int8", False),
        (wnp.linspace(0, 1, 5), "float32", False),
        (wnp.sin(1), "float32", True),
        (wnp.sin(INTS), "float32", False),
        (wnp.sin(HALF), "float16", False),
        (BYTES + 1, "int8", False),
        (BYTES + 1.0, "float32", True),
        (BYTES + np.int64(3), "int32", False),
        (BRAIN * 2.5, "bfloat16", False),
        (BRAIN + HALF, "float32", False),
        (INTS / 2, "float32", False),
        (BYTES**2, "int8", False),
        (BOOLS**2, "int32", False),
        (2.0**INTS, "float32", False),
        (BOOLS + BOOLS, "bool", False),
        (wnp.floor(INTS), "int32", False),
        (wnp.rint(INTS), "float32", False),
        (wnp.where(BOOLS, 1, 2.0), "float32", True),
        (wnp.where(BOOLS, 1, BYTES[:2]), "int8", False),
        (wnp.maximum(1, 2), "int32", True),
        (wnp.angle(1.0), "float32", False),
        (wnp.angle(1j), "float32", True),
        (wnp.angle(2, deg=True), "float32", False),
        (wnp.spacing(1.0), "float32", False),
        (wnp.spacing(WEAK), "float32", False),
        (wnp.frexp(1.0)[0], "float32", False),
        (wnp.insert(WEAK, 1, 2.0), "float32", True),
        (wnp.insert(WEAK, 1, HALF[0]), "float32", True),
        (wnp.insert(FLOATS, 1, 2), "float32", False),
        (wnp.sum(WEAK), "float32", False),
        (wnp.sum(BYTES), "int32", False),
        (wnp.sum(BOOLS), "int32", False),
        (wnp.sum(BYTES, dtype=wnp.int8), "int8", False),
        (wnp.sum(wnp.ones(2, wnp.uint8)), "uint32", False),
        (wnp.cumsum(BYTES), "int8", False),
        (wnp.cumsum(BOOLS), "int32", False),
        (wnp.mean(INTS), "float32", False),
        (wnp.mean(HALF), "float16", False),
        (wnp.var(wnp.array([1 + 1j])), "float32", False),
        (wnp.argmax(FLOATS), "int32", False),
        (wnp.concatenate([INTS, FLOATS]), "float32", False),
        (wnp.stack([1, 2.0]), "float32", True),
        (wnp.abs(wnp.array([1 + 1j])), "float32", False),
        (wnp.median(INTS), "float32", False),
        (wnp.float32([1, 2]), "float32", False),
        (wnp.int8(3), "int8", False),
        (round(FLOATS), "int32", False),
        (FLOATS.astype(bool), "bool", False),
    ],
)
def test_dtype_and_weak_type(result, dtype, weak):
    assert (str(result.dtype), result.weak_type) == (dtype, weak)


def test_half_precision_sums_do_not_overflow_on_the_way():
    many = wnp.full(4096, 1.0, dtype=wnp.bfloat16)
    assert float(wnp.sum(many)) == 4096
    large = wnp.full(64, 2000.0, dtype=wnp.float16)
    assert float(wnp.mean(large)) == 2000


def test_the_jaxpr_of_a_scalar_operand_has_no_conversion():
    jaxpr = weft.make_jaxpr(lambda a, b: wnp.sum(a + wnp.sin(b) * 3.0))(wnp.zeros(8), wnp.ones(8))
    assert str(jaxpr) == (
        "{ lambda ; a:f32[8] b:f32[8]. let\n"
        "    c:f32[8] = sin b\n"
        "    d:f32[8] = mul c 3.0:f32[]\n"
        "    e:f32[8] = add a d\n"
        "    f:f32[] = reduce_sum[axes=(0,)] e\n"
        "  in (f,) }"
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int32", "uint8"])
@pytest.mark.parametrize(
    "function",
    [lambda x: 2 * x, lambda x: x - 1, lambda x: x == 1, lambda x: wnp.add(x, 3), lambda x: x * np.array(2, x.dtype)],
)
def test_an_operation_with_a_scalar_is_one_equation(function, dtype):
    assert len(weft.make_jaxpr(function)(wnp.ones(3, dtype)).eqns) == 1


def test_creation_is_staged_under_jit():
    jaxpr = weft.make_jaxpr(lambda: (wnp.zeros((1000, 1000)), wnp.arange(1000), wnp.eye(500)))()
    assert not jaxpr.consts
    assert {e.primitive.name for e in jaxpr.eqns} >= {"broadcast_in_dim", "iota"}


@pytest.mark.parametrize("values", [[1, 2], (1.0,), "text", None, {1: 2}])
def test_arguments_must_be_arrays_or_numbers(values):
    with pytest.raises(TypeError, match=r"sum requires ndarray or scalar arguments, got <class .*> at position 0"):
        wnp.sum(values)
    with pytest.raises(TypeError, match="at position 1"):
        wnp.add(1, values)


def test_integers_out_of_range_raise():
    with pytest.raises(OverflowError, match="300"):
        BYTES + 300
    with pytest.raises(OverflowError):
        wnp.array(-1, wnp.uint8)
    with pytest.raises(OverflowError):
        wnp.asarray(np.int64(2**40))
    assert (BYTES < 300).all() and not (BYTES == 300).any() and (-300 < BYTES).all()


def test_axes_and_shapes_that_do_not_fit():
    with pytest.raises(AxisOutOfBoundsError, match=r"axis 2.*dimension 1"):
        wnp.sum(FLOATS, axis=2)
    with pytest.raises(ValueError, match="duplicate"):
        wnp.sum(FLOATS, axis=(0, -1))
    with pytest.raises(ShapeMismatchError, match=r"\(3,\), \(4,\)"):
        FLOATS + wnp.ones(4)
    with pytest.raises(TypeError, match="cannot reshape"):
        wnp.reshape(FLOATS, (2, 2))
    with pytest.raises(ValueError, match="no identity"):
        wnp.max(wnp.zeros(0))
    with pytest.raises(NotImplementedError, match="out"):
        wnp.sum(FLOATS, out=FLOATS)


def test_rank_promotion_can_be_refused():
    matrix = wnp.ones((2, 3))
    with weft.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="numpy_rank_promotion"):
        matrix + FLOATS
    with weft.numpy_rank_promotion("raise"):
        assert (matrix + 1.0).shape == (2, 3)
    with weft.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="numpy_rank_promotion"):
        matrix + FLOATS


def test_enable_x64_widens_defaults():
    with weft.enable_x64(True):
        assert wnp.zeros(2).dtype == np.float64
        assert wnp.arange(2).dtype == np.int64
        assert wnp.argmax(FLOATS).dtype == np.int64
        assert wnp.array([1.0]).dtype == np.float64
    assert wnp.zeros(2).dtype == np.float32


def test_scalar_types_are_dtypes():
    assert wnp.float32 == np.float32 and np.dtype(wnp.bfloat16).name == "bfloat16"
    assert wnp.issubdtype(wnp.bfloat16, wnp.floating) and not wnp.issubdtype(wnp.int8, wnp.inexact)
    assert hash(wnp.int32) == hash(np.int32) and wnp.int32 != wnp.float32
    assert wnp.zeros(2, wnp.uint8).dtype == wnp.uint8
    assert wnp.finfo(wnp.float16).max == 65504 and wnp.iinfo(wnp.int8).min == -128
    assert wnp.isdtype(wnp.float32, ("integral", "real floating")) and not wnp.isdtype(wnp.bool_, "numeric")


def test_numpy_arrays_are_copied():
    source = np.zeros(3, np.float32)
    result = [
        wnp.asarray(source),
        wnp.reshape(source, (3, 1)),
        wnp.ravel(source),
        +wnp.asarray(source),
        wnp.real(source),
    ]
    captured = weft.jit(lambda x: x + source)
    captured(wnp.zeros(3))
    source[:] = 7
    for x in result:
        assert not np.asarray(x).any()
    assert not np.asarray(captured(wnp.zeros(3))).any()
    # Also where it is an operand as it is.
    kernel = np.ones((1, 1, 3), np.float32)
    convolved = weft.jit(lambda x: weft.lax.conv(x, kernel, (1,), "SAME"))
    before = np.asarray(convolved(wnp.ones((1, 1, 5))))
    kernel[:] = 2
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(convolved(wnp.ones((1, 1, 5)))), before)


def test_values_with_an_array_protocol_are_accepted():
    class Holder:
        def __jax_array__(self):
            return wnp.arange(3.0)

    np.testing.assert_array_equal(wnp.sin(Holder()), wnp.sin(FLOATS))
    np.testing.assert_array_equal(FLOATS + Holder(), FLOATS * 2)
    np.testing.assert_array_equal(wnp.stack([Holder(), FLOATS])[0], FLOATS)


def test_values_that_look_like_the_array_they_hold_are_accepted_where_it_is_traced():
    class Variable:
        def __init__(self, value):
            self.value = value

        def __jax_array__(self):
            return self.value

        def __getattr__(self, name):
            return getattr(self.value, name)

    functions = [wnp.add, wnp.divide, wnp.less, wnp.dot, wnp.arctan2, lambda x, y: lax.convert_element_type(y, "int32")]
    pairs = wnp.stack([FLOATS, FLOATS + 1])
    for f in functions:
        expected = weft.vmap(f)(pairs, pairs)
        np.testing.assert_array_equal(weft.vmap(lambda x, y, f=f: f(x, Variable(y)))(pairs, pairs), expected)
        np.testing.assert_array_equal(weft.jit(lambda x, y, f=f: f(x, Variable(y)))(FLOATS, FLOATS), f(FLOATS, FLOATS))


def test_axis_helpers():
    assert util.canonicalize_axes((0, -1), 3) == (0, 2)
    assert util.canonicalize_axes(None, 2) == (0, 1)
    assert util.broadcast_shape("f", (2, 1), (3,), ()) == (2, 3)


def test_division_of_integers_by_zero_is_defined():
    np.testing.assert_array_equal(INTS % 0, [0, 0, 0])
    np.testing.assert_array_equal(wnp.fmod(INTS, INTS), [0, 0, 0])
    np.testing.assert_array_equal(INTS / 0, [np.nan, np.inf, np.inf])


def test_sums_of_booleans_stay_booleans_when_asked():
    assert wnp.sum(BOOLS, dtype=bool).dtype == np.bool_ and bool(wnp.sum(BOOLS, dtype=bool))
    assert not bool(wnp.prod(BOOLS, dtype=bool))


def test_keys_have_no_nan_to_replace():
    keys = weft.random.split(weft.random.key(0), 3)
    assert (wnp.nan_to_num(keys) == keys).all() and wnp.nan_to_num(INTS) is INTS
    assert np.isfinite(wnp.nan_to_num(wnp.array([np.nan, -np.inf]), nan=-np.inf)).all()  # as in JAX, not as in NumPy
    assert wnp.blackman(wnp.array(5, "bfloat16")).shape == wnp.kaiser(5.7, 2.0).shape == (5,)
    for sizes in (wnp.array([-1, 3]), np.array([-1, 3]), (wnp.array(-1), 3), [2, np.array(-1)]):
        assert wnp.arange(6).reshape(sizes).shape == wnp.reshape(wnp.arange(6), sizes).shape == (2, 3)
    assert wnp.ones((2, 3)).reshape(np.array(-1)).shape == (6,)
