"""Operators and methods of arrays match the functions, defer to unknown classes, and do not modify arrays."""

from __future__ import annotations

import copy
import operator
import pickle

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.base.errors import ImmutableArrayError

X = wnp.array([[1.0, -2.0, 3.5], [0.5, 4.0, -1.0]])
N = wnp.array([[5, -7, 2], [3, 1, 4]])
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, divmod]
BITS = [operator.and_, operator.or_, operator.xor]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("function", [*OPERATORS, *COMPARISONS, operator.pow])
@pytest.mark.parametrize("other", [2.0, 3, np.float32(1.5), np.array([1.0, 2.0, 4.0], np.float32)])
def test_operators_on_both_sides(function, other):
    x = wnp.abs(X) + 0.25
    known = np.asarray(x)
    other_known = np.asarray(other, np.float32)
    for found, expected in (
        (function(x, other), function(known, other_known)),
        (function(other, x), function(other_known, known)),
        (weft.jit(lambda a: function(other, a))(x), function(other_known, known)),
    ):
        if function is divmod:
            found, expected = wnp.stack(found), np.stack(expected)
        assert isinstance(found, weft.Array)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


@pytest.mark.parametrize("function", BITS)
def test_bitwise_operators(function):
    np.testing.assert_array_equal(function(N, 6), function(np.asarray(N), 6))
    np.testing.assert_array_equal(function(6, N), function(6, np.asarray(N)))


def test_other_operators():
    known, ints = np.asarray(X), np.asarray(N)
    np.testing.assert_array_equal(-X, -known)
    np.testing.assert_array_equal(+X, known)
    np.testing.assert_array_equal(abs(X), abs(known))
    np.testing.assert_array_equal(~N, ~ints)
    np.testing.assert_array_equal(abs(N) << 2, abs(ints) << 2)
    np.testing.assert_array_equal(N >> 1, ints >> 1)
    np.testing.assert_allclose(X @ X.T, known @ known.T, rtol=1e-6)
    np.testing.assert_allclose(known @ X.T, known @ known.T, rtol=1e-6)
    np.testing.assert_array_equal(round(X, 0), np.round(known))
    assert len(X) == 2 and 4.0 in X and 9.0 not in X
    x = X
    x += 1
    np.testing.assert_array_equal(x, known + 1)
    np.testing.assert_array_equal(X, known)


def test_operators_defer_to_unknown_operands():
    class Other:
        def __radd__(self, left):
            return "reflected"

        def __eq__(self, other):
            return "compared"

        def __rmatmul__(self, left):
            return "product"

    assert X + Other() == "reflected"
    assert (X == Other()) == "compared"
    assert X @ Other() == "product"
    assert weft.jit(lambda x: (x + Other()) == "reflected" and x)(X).shape == X.shape
    assert (X == None) is False  # noqa: E711
    for bad in ([1.0], "text", None, {}):
        with pytest.raises(TypeError, match="unsupported operand"):
            X + bad


METHODS = {
    "sum": ((), {"axis": 0}),
    "prod": ((), {}),
    "mean": ((1,), {}),
    "std": ((), {"axis": 1, "ddof": 1}),
    "var": ((), {}),
    "max": ((), {"axis": 1, "keepdims": True}),
    "min": ((0,), {}),
    "all": ((), {}),
    "any": ((), {"axis": 0}),
    "argmax": ((), {"axis": 1}),
    "argmin": ((), {}),
    "argsort": ((), {"axis": 0}),
    "cumsum": ((1,), {}),
    "cumprod": ((), {"axis": 0}),
    "clip": ((0.0, 2.0), {}),
    "conj": ((), {}),
    "copy": ((), {}),
    "diagonal": ((), {}),
    "dot": ((np.ones(3, np.float32),), {}),
    "flatten": ((), {}),
    "ravel": ((), {}),
    "repeat": ((2,), {"axis": 1}),
    "reshape": ((3, 2), {}),
    "round": ((), {"decimals": 0}),
    "squeeze": ((), {}),
    "swapaxes": ((0, 1), {}),
    "take": ((np.array([0, 2]),), {"axis": 1}),
    "trace": ((), {}),
    "transpose": ((1, 0), {}),
    "compress": ((np.array([True, False, True]),), {"axis": 1}),
    "nonzero": ((), {}),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_those_of_numpy(name):
    args, options = METHODS[name]
    expected = getattr(np.asarray(X), name)(*args, **options)
    found = getattr(X, name)(*args, **options)
    if not isinstance(expected, tuple):
        found, expected = (found,), (expected,)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6)
    if name not in ("nonzero",):
        inside = weft.jit(lambda x: getattr(x, name)(*args, **options))(X)
        np.testing.assert_allclose(np.asarray(inside), expected[0], rtol=1e-6)


def test_sorting_returns_a_new_array():
    np.testing.assert_array_equal(X.sort(axis=1), np.sort(np.asarray(X), axis=1))
    np.testing.assert_array_equal(X.ptp(axis=0), np.ptp(np.asarray(X), axis=0))
    np.testing.assert_array_equal(wnp.arange(3).searchsorted(1), 1)


def test_attributes():
    assert X.T.shape == (3, 2) and X.mT.shape == (3, 2) and X.itemsize == 4 and X.nbytes == 24
    z = wnp.array([1 + 2j, 3 - 1j])
    np.testing.assert_array_equal(z.real, [1, 3])
    np.testing.assert_array_equal(z.imag, [2, -1])
    with pytest.raises(ValueError, match="mT"):
        _ = wnp.ones(3).mT
    assert not hasattr(wnp.ones(3), "mT")
    assert X.__array_namespace__() is wnp


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int16", "complex64"])
def test_view_reads_the_bits(dtype):
    source = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(wnp.asarray(source).view(dtype), source.view(dtype))
    back = wnp.asarray(source.view(dtype)).view("float32")
    np.testing.assert_array_equal(back, source)


def test_iteration_unrolls():
    assert [float(r.sum()) for r in X] == [2.5, 3.5]
    rows = weft.jit(lambda x: [r * 2 for r in x])(X)
    np.testing.assert_array_equal(np.stack(rows), np.asarray(X) * 2)
    with pytest.raises(TypeError, match="0-d"):
        iter(wnp.array(1.0))
    with pytest.raises(TypeError, match="unsized"):
        len(wnp.array(1.0))


def test_arrays_do_not_change():
    with pytest.raises(ImmutableArrayError, match=r"\.at\[index\]\.set"):
        X[0] = 1.0
    with pytest.raises(ImmutableArrayError):
        weft.jit(lambda x: x.__setitem__(0, 1.0))(X)
    with pytest.raises(TypeError, match="unhashable"):
        hash(X)
    with pytest.raises(ImmutableArrayError, match="inplace=False"):
        wnp.fill_diagonal(X, 0.0)


def test_copies():
    for other in (X.copy(), copy.copy(X), copy.deepcopy(X), wnp.array(X), pickle.loads(pickle.dumps(X))):
        np.testing.assert_array_equal(other, X)
        assert other.dtype == X.dtype
    assert wnp.asarray(X) is X
    donated = X.copy()
    donated.delete()
    assert float(X.sum()) == 6.0


def test_universal_functions():
    x = wnp.asarray(X)
    np.testing.assert_allclose(wnp.add.reduce(x, axis=1), np.add.reduce(np.asarray(X), axis=1), rtol=1e-6)
    np.testing.assert_allclose(wnp.multiply.accumulate(x), np.multiply.accumulate(np.asarray(X)), rtol=1e-6)
    np.testing.assert_array_equal(wnp.subtract.outer(x[0], x[1]), np.subtract.outer(np.asarray(X)[0], np.asarray(X)[1]))
    np.testing.assert_array_equal(wnp.maximum.accumulate(x, axis=1), np.maximum.accumulate(np.asarray(X), axis=1))
    np.testing.assert_array_equal(
        wnp.add.reduceat(wnp.arange(6), wnp.array([0, 3, 1])), np.add.reduceat(np.arange(6), [0, 3, 1])
    )
    np.testing.assert_array_equal(wnp.add.at(wnp.zeros(3), wnp.array([1, 1]), 2.0, inplace=False), [0, 4, 0])
    np.testing.assert_array_equal(wnp.logaddexp.reduce(wnp.array([0.0, 0.0])), np.log(2, dtype=np.float32))
    halves = wnp.frompyfunc(lambda a, b: a + b / 2, 2, 1)
    np.testing.assert_array_equal(halves(wnp.arange(2.0)[:, None], wnp.arange(3.0)), [[0, 0.5, 1], [1, 1.5, 2]])
    np.testing.assert_array_equal(halves.reduce(wnp.array([1.0, 2.0, 4.0])), 4.0)
    assert wnp.add.nin == 2 and wnp.add.identity == 0 and repr(wnp.add) == "<weft.numpy.ufunc 'add'>"


def test_vectorize():
    product = wnp.vectorize(wnp.dot, signature="(n),(n)->()")
    cube = wnp.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_allclose(product(cube, cube[0, 0]), np.asarray(cube) @ np.arange(4.0, dtype=np.float32))
    assert product(cube[:, :1], cube[:1]).shape == (2, 3)
    both = wnp.vectorize(lambda x, y, scale: (x + y) * scale, excluded={2})
    np.testing.assert_array_equal(both(cube, 1.0, 2), (np.asarray(cube) + 1) * 2)
    with pytest.raises(ValueError, match="core dimension 'n'"):
        product(cube, wnp.ones(3))
    with pytest.raises(ValueError, match="signature"):
        wnp.vectorize(lambda x: x, signature="(n)->n")


def test_grids_by_slices():
    np.testing.assert_array_equal(wnp.mgrid[0:2, 0:3], np.mgrid[0:2, 0:3])
    np.testing.assert_allclose(wnp.mgrid[0:1:3j], np.mgrid[0:1:3j])
    for a, b in zip(wnp.ogrid[0:2, 1:7:2], np.ogrid[0:2, 1:7:2], strict=True):
        np.testing.assert_array_equal(a, b)
    v, known = wnp.arange(3.0), np.arange(3.0, dtype=np.float32)
    np.testing.assert_array_equal(wnp.r_[v, 0:2, 7], np.r_[known, 0:2, 7])
    np.testing.assert_array_equal(wnp.c_[v, v], np.c_[known, known])
    np.testing.assert_array_equal(wnp.r_["0,2", v, v], np.r_["0,2", known, known])
    np.testing.assert_array_equal(wnp.r_["1,2,0", v, v], np.r_["1,2,0", known, known])
    assert wnp.s_[1:2, ...] == (slice(1, 2), Ellipsis) and wnp.index_exp[3] == (3,)


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "maximum", "logaddexp", "logaddexp2"])
def test_reductions_of_ufuncs_leave_out_what_is_masked(name: str) -> None:
    x = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], np.float32)
    for options in ({"where": x > 0, "initial": 1.0}, {"where": x > 7, "initial": 1.0}, {"initial": 1.0}):
        expected = getattr(np, name).reduce(x, axis=1, **options)
        np.testing.assert_allclose(getattr(wnp, name).reduce(x, axis=1, **options), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_results_of_logical_ufuncs_are_booleans(name: str) -> None:
    x, function, expected = np.array([[1, 2, 0], [3, 0, 1]]), getattr(wnp, name), getattr(np, name)
    results = [
        (function.reduce(x, axis=1), expected.reduce(x, axis=1)),
        (function.accumulate(x, axis=1), expected.accumulate(x, axis=1)),
        (function.reduceat(x, np.array([0, 2]), axis=1), expected.reduceat(x, np.array([0, 2]), axis=1)),
        (weft.jit(lambda i: function.reduceat(x, i, axis=1))(np.array([0, 2])), expected.reduceat(x, [0, 2], axis=1)),
        (function.outer(x[0], x[1]), expected.outer(x[0], x[1])),
        (function.at(x, np.array([0, 0]), x[:2], inplace=False)[0], expected(expected(x[0], x[0]), x[1])),
    ]
    for found, wanted in results:
        assert found.dtype == np.bool_
        np.testing.assert_array_equal(found, wanted)
