"""Contractions: values, dtypes, precision, transposes, vmap, and the NumPy functions based on them."""

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.messages import without_source
from weft import lax, numpy as wnp
from weft.base.settings import config
from weft.ir.types import array_type
from weft.numpy import einsum_plan
from weft.primitives.contraction.contract import dot_general
from weft.primitives.contraction.precision import canonical_precision

PLAIN = (((1,), (0,)), ((), ()))


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def close(got, want, tolerance=2e-5):
    got = np.asarray(got)
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


# -------------------------------------------------------------------------------------------------------- dot_general

CASES = [
    ((2, 3), (3, 4), PLAIN, "ij,jk->ik"),
    ((3, 2), (4, 3), (((0,), (1,)), ((), ())), "ji,kj->ik"),
    ((5, 2, 3), (3, 5, 4), (((2,), (0,)), ((0,), (1,))), "bij,jbk->bik"),
    ((2, 3, 4, 2), (4, 2, 5, 3), (((2, 1), (0, 3)), ((3,), (1,))), "ikjb,jbnk->bin"),
    ((2, 3), (4,), (((), ()), ((), ())), "ij,k->ijk"),
    ((2, 3), (3, 2), (((), ()), ((1, 0), (0, 1))), "ij,ji->ji"),
    ((2, 0), (0, 3), PLAIN, "ij,jk->ik"),
    ((3, 4), (4, 3), (((1, 0), (0, 1)), ((), ())), "ij,ji->"),
]


@pytest.mark.parametrize(("left", "right", "numbers", "text"), CASES)
def test_dot_general_and_its_gradients_are_einsums(left, right, numbers, text):
    x, y = normal(*left), normal(*right, seed=1)
    out, pullback = weft.vjp(lambda a, b: lax.dot_general(a, b, numbers), x, y)
    close(out, np.einsum(text, x, y))
    cotangent = normal(*out.shape, seed=2)
    first, second = text.split("->")[0].split(",")
    result = text.split("->")[1]
    to_x, to_y = pullback(cotangent)
    close(to_x, np.einsum(f"{result},{second}->{first}", cotangent, y))
    close(to_y, np.einsum(f"{result},{first}->{second}", cotangent, x))


@pytest.mark.parametrize(("left", "right", "numbers", "text"), CASES[:4])
def test_dot_general_under_vmap_is_a_loop(left, right, numbers, text):
    for in_left, in_right in itertools.product([None, *range(len(left) + 1)], [None, *range(len(right) + 1)]):
        if in_left is in_right is None:
            continue
        x = normal(*left) if in_left is None else normal(*left[:in_left], 3, *left[in_left:])
        y = normal(*right) if in_right is None else normal(*right[:in_right], 3, *right[in_right:])
        got = weft.vmap(lambda a, b: lax.dot_general(a, b, numbers), (in_left, in_right))(x, y)
        rows = [x] * 3 if in_left is None else np.moveaxis(x, in_left, 0)
        columns = [y] * 3 if in_right is None else np.moveaxis(y, in_right, 0)
        close(got, np.stack([np.einsum(text, a, b) for a, b in zip(rows, columns, strict=True)]))


def test_short_floats_are_summed_in_float32_and_rounded_once():
    x = np.full((1, 400), 1.0078125, ml_dtypes.bfloat16)
    got = np.asarray(lax.dot_general(x, x.T, PLAIN))
    exact = 400 * 1.0078125**2
    assert got.dtype == ml_dtypes.bfloat16
    assert got[0, 0] == ml_dtypes.bfloat16(exact)
    wide = np.asarray(lax.dot_general(x, x.T, PLAIN, preferred_element_type=np.float32))
    assert wide.dtype == np.float32
    assert abs(wide[0, 0] - exact) < 1e-3


def test_integers_are_exact_and_wrap_around():
    large = np.array([[2**30 + 1, 3], [-(2**31), 7]], np.int32)
    with np.errstate(over="ignore"):
        want = (large.astype(np.int64) @ large.astype(np.int64)).astype(np.int32)
    assert np.array_equal(np.asarray(lax.dot_general(large, large, PLAIN)), want)
    small = np.array([[100, -128], [127, 5]], np.int8)
    wide = lax.dot_general(small, small, PLAIN, preferred_element_type=np.int32)
    assert np.array_equal(np.asarray(wide), small.astype(np.int32) @ small.astype(np.int32))


def test_booleans_are_combined_with_and_and_or():
    x = np.array([[True, False], [False, False]])
    got = np.asarray(lax.dot_general(x, x, PLAIN))
    assert got.dtype == np.bool_
    assert np.array_equal(got, x @ x)
    primitive = dot_general.factors(
        array_type((2, 2), np.dtype(bool)), array_type((2, 2), np.dtype(bool)), dimension_numbers=PLAIN
    )
    assert primitive.combine == {"k0": "or"}


@pytest.mark.parametrize(
    ("left", "right", "want"),
    [
        ("int8", "uint8", "int8"),
        ("float16", "bfloat16", "bfloat16"),
        ("int32", "bfloat16", "bfloat16"),
        ("float32", "complex64", "complex64"),
        ("bool", "uint8", "uint8"),
    ],
)
def test_dtype_of_operands_that_differ(left, right, want):
    x, y = (array_type((2, 2), weft.base.dtypes.as_dtype(d)) for d in (left, right))
    assert dot_general.type(x, y, dimension_numbers=PLAIN).dtype.name == want
    assert dot_general.type(y, x, dimension_numbers=PLAIN).dtype.name == want


def test_gradients_have_the_dtype_of_their_operand():
    x, y = normal(2, 3, dtype=ml_dtypes.bfloat16), normal(3, 2, dtype=np.float32)
    out, pullback = weft.vjp(lambda a, b: wnp.dot(a, b), x, y)
    assert out.dtype == np.float32
    to_x, to_y = pullback(np.ones((2, 2), np.float32))
    assert (to_x.dtype, to_y.dtype) == (ml_dtypes.bfloat16, np.float32)


def test_the_canonical_form_is_a_batched_matmul():
    x, y = array_type((5, 2, 3, 4), np.dtype(np.int8)), array_type((4, 5, 6, 3), np.dtype(np.int8))
    plan = dot_general.canonical(
        x, y, dimension_numbers=(((3, 2), (0, 3)), ((0,), (1,))), preferred_element_type=np.dtype(np.int32)
    )
    assert (plan.batch, plan.m, plan.n, plan.k) == (5, 2, 6, 12)
    assert (plan.lhs_axes, plan.rhs_axes) == ((0, 1, 3, 2), (1, 0, 3, 2))
    assert plan.compute == plan.result == np.int32
    assert plan.shape == (5, 2, 6)


@pytest.mark.parametrize(
    ("left", "right", "numbers", "message"),
    [
        ((2, 3), (4, 2), PLAIN, "different sizes"),
        ((2, 3), (3, 2), (((2,), (0,)), ((), ())), "numbered from 0 to 1"),
        ((2, 3), (3, 2), (((1,), (0,)), ((1,), (1,))), "repeats"),
        ((2, 3), (3, 2), (((1, 0), (0,)), ((), ())), "in pairs"),
    ],
)
def test_errors_say_what_does_not_fit(left, right, numbers, message):
    with pytest.raises(TypeError, match=message):
        lax.dot_general(normal(*left), normal(*right), numbers)


def test_a_narrower_preferred_type_is_refused_for_integers():
    with pytest.raises(TypeError, match="int8"):
        lax.dot_general(np.ones((2, 2), np.int32), np.ones((2, 2), np.int32), PLAIN, preferred_element_type=np.int8)


def test_precision_is_recorded_in_one_form():
    high = lax.Precision.HIGH
    assert canonical_precision(None) is None
    assert canonical_precision("tensorfloat32") == canonical_precision(high) == (high, high)
    assert canonical_precision(("high", lax.Precision.HIGHEST)) == (high, lax.Precision.HIGHEST)
    assert canonical_precision("BF16_BF16_F32") is lax.DotAlgorithmPreset.BF16_BF16_F32
    algorithm = lax.DotAlgorithm(np.float32, np.float32, np.float32)
    assert canonical_precision(algorithm) is algorithm
    for wrong in ("exact", 4, ("high", None), ("high",)):
        with pytest.raises(ValueError, match="precision"):
            canonical_precision(wrong)
    before = config.default_matmul_precision
    try:
        config.update("default_matmul_precision", "highest")
        assert canonical_precision(None) == (lax.Precision.HIGHEST,) * 2
        assert canonical_precision("high") == (high, high)
    finally:
        config.update("default_matmul_precision", before)


def test_lax_dot_and_batch_matmul():
    close(lax.dot(normal(3), normal(3, 2)), normal(3) @ normal(3, 2))
    close(lax.batch_matmul(normal(4, 2, 3), normal(4, 3, 5)), normal(4, 2, 3) @ normal(4, 3, 5))
    with pytest.raises(ValueError, match="inner sizes"):
        lax.dot(normal(2, 3), normal(2, 3))
    with pytest.raises(ValueError, match="one rank"):
        lax.batch_matmul(normal(2, 3), normal(4, 3, 5))


# ------------------------------------------------------------------------------------------------------------- ragged


def test_ragged_dot_multiplies_each_group_with_its_matrix():
    x, y, sizes = normal(6, 3), normal(3, 3, 4), np.array([2, 0, 3], np.int32)
    want = np.concatenate([x[:2] @ y[0], x[2:5] @ y[2], np.zeros((1, 4), np.float32)])
    out, pullback = weft.vjp(lambda a, b: lax.ragged_dot(a, b, sizes), x, y)
    close(out, want)
    cotangent = normal(6, 4, seed=3)
    to_x, to_y = pullback(cotangent)
    close(to_x, np.concatenate([cotangent[:2] @ y[0].T, cotangent[2:5] @ y[2].T, np.zeros((1, 3), np.float32)]))
    close(to_y, np.stack([x[:2].T @ cotangent[:2], np.zeros((3, 4)), x[2:5].T @ cotangent[2:5]]))
    close(np.asarray(lax.ragged_dot(x, y[1:], sizes, group_offset=np.array([1], np.int32)))[2:], want[2:])
    batched = np.stack([sizes, sizes[::-1]])
    both = np.asarray(weft.vmap(lambda s: lax.ragged_dot(x, y, s))(batched))
    close(both[1], lax.ragged_dot(x, y, batched[1]))
    with pytest.raises(TypeError, match="2 group sizes for 3 groups"):
        lax.ragged_dot(x, y, sizes[:2])


def test_ragged_contraction_sums_each_group_separately():
    x, y, sizes = normal(5, 2), normal(5, 3), np.array([1, 3], np.int32)
    numbers = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])
    close(lax.ragged_dot_general(x, y, sizes, numbers), np.stack([x[:1].T @ y[:1], x[1:4].T @ y[1:4]]))


def test_ragged_sizes_may_differ_along_outer_dimensions():
    x, y = normal(2, 4, 3), normal(2, 3, 5)
    sizes = np.array([[1, 2], [3, 1]], np.int32)
    numbers = lax.RaggedDotDimensionNumbers((((2,), (1,)), ((), ())), [1], [0])
    got = np.asarray(lax.ragged_dot_general(x, y, sizes, numbers))
    for row in range(2):
        close(got[row], lax.ragged_dot(x[row], y, sizes[row]))


# -------------------------------------------------------------------------------------------------------------- numpy

LEADS = [(), (1,), (2,), (1, 2), (2, 1), (3, 2), (3, 1), (1, 1), (4, 1, 2), (0,)]


def broadcast(first, second):
    try:
        return np.broadcast_shapes(first, second) is not None
    except ValueError:
        return False


@pytest.mark.parametrize(("first", "second"), [pair for pair in itertools.product(LEADS, LEADS) if broadcast(*pair)])
def test_leading_axes_broadcast_as_in_numpy(first, second):
    a, b, v, w = normal(*first, 3, 4), normal(*second, 4, 5), normal(*first, 4), normal(*second, 4)
    close(wnp.matmul(a, b), a @ b)
    close(wnp.matvec(a, w), (a @ w[..., None])[..., 0])
    close(wnp.vecmat(v, b), (v[..., None, :] @ b)[..., 0, :])
    close(wnp.vecdot(v, w), np.sum(v * w, -1))


def test_matmuls_agree_with_numpy():
    for left, right in [((), ()), ((3,), ()), ((3,), (3,)), ((2, 3), (3,)), ((3,), (2, 3, 4)), ((2, 3, 4), (5, 4, 6))]:
        close(wnp.dot(normal(*left), normal(*right)), np.dot(normal(*left), normal(*right)))
    for left, right in [((), ()), ((3,), ()), ((2, 3), (3,)), ((2, 3), (4, 5, 3))]:
        a, b = normal(*left), normal(*right)
        close(wnp.inner(a, b), np.inner(a, b))
        close(wnp.outer(a, b), np.outer(a, b))
        close(wnp.kron(a, b), np.kron(a, b))
    a, b = normal(2, 3, 4), normal(4, 3, 5)
    for axes in (((1, 2), (1, 0)), (-1, 0), 0, 1):
        close(wnp.tensordot(a, b, axes), np.tensordot(a, b, axes))
    c = normal(2, 3) + 1j * normal(2, 3, seed=1)
    d = normal(2, 3, seed=2) - 1j * normal(2, 3, seed=3)
    c, d = c.astype(np.complex64), d.astype(np.complex64)
    close(wnp.vdot(c, d), np.vdot(c, d))
    close(wnp.vecdot(c, d, axis=0), np.sum(c.conj() * d, 0))
    close(wnp.vecmat(c, d.T), c.conj() @ d.T)


def test_results_of_python_scalars_stay_weak():
    assert wnp.dot(2.0, 3.0).weak_type
    assert wnp.einsum("i,->i", np.ones(2, np.int32), 2.0).weak_type
    assert not wnp.dot(np.ones(2, np.float32), 2.0).weak_type
    assert wnp.dot(np.ones(2, ml_dtypes.bfloat16), 2.0).dtype == ml_dtypes.bfloat16


def test_numpy_functions_check_shapes():
    for call, message in [
        (lambda: wnp.matmul(normal(2, 3), 2.0), "rank 1 or more"),
        (lambda: wnp.matmul(normal(2, 3), normal(2, 3)), r"\(2, 3\) and \(2, 3\)"),
        (lambda: wnp.dot(normal(3), normal(4)), "differ in size"),
        (lambda: wnp.tensordot(normal(2, 3), normal(2, 3), 3), "more than the ranks"),
        (lambda: wnp.tensordot(normal(2, 3), normal(2, 3), ((0,), (0, 1))), "equal length"),
        (lambda: wnp.einsum("ij,jk", normal(2, 3), normal(2, 3)), "size, got 2 in operand 1 and 3"),
        (lambda: wnp.einsum("ij", normal(2)), "correct number of indices"),
        (lambda: wnp.einsum("ij->ik", normal(2, 3)), "not of an operand"),
        (lambda: wnp.einsum("ij,jk", normal(2, 3)), "2 terms for 1 operands"),
        (lambda: wnp.dot([1.0], normal(1)), "asarray"),
    ]:
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert re.search(message, without_source(caught.value))


# ------------------------------------------------------------------------------------------------------------- einsum


def random_einsums(count):
    random = np.random.default_rng(7)
    for _ in range(count):
        sizes = dict(zip("abcde", random.integers(1, 4, 5).tolist(), strict=True))
        broadcast = random.integers(1, 4, 2).tolist()
        terms, shapes = [], []
        for _ in range(random.integers(1, 5)):
            letters = "".join(random.choice(list("abcde"), random.integers(0, 4)))
            shape = [1 if random.random() < 0.1 else sizes[letter] for letter in letters]
            if random.random() < 0.3:
                extra = random.integers(0, 3)
                letters, shape = letters + "...", shape + broadcast[2 - extra :]
            terms.append(letters)
            shapes.append(shape)
        known = sorted({letter for term in terms for letter in term if letter != "."})
        result = "".join(random.permutation([letter for letter in known if random.random() < 0.5]).tolist())
        arrow = f"->{'...' if any('.' in term for term in terms) else ''}{result}" if random.random() < 0.7 else ""
        yield ",".join(terms) + arrow, shapes


def test_einsum_agrees_with_numpy():
    compared = 0
    for index, (text, shapes) in enumerate(random_einsums(150)):
        arrays = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
        try:
            want = np.einsum(text, *arrays)
        except ValueError:
            continue
        close(wnp.einsum(text, *arrays, optimize=("auto", True, False, "greedy")[index % 4]), want, 1e-4)
        compared += 1
    assert compared > 100


def test_einsum_with_lists_of_axes():
    x, y = normal(3, 2), normal(2, 4)
    close(wnp.einsum(x, [0, 1], y, [1, 2]), x @ y)
    close(wnp.einsum(x, [5, 3], y, [3, 2]), np.einsum(x, [5, 3], y, [3, 2]))
    close(wnp.einsum(x, [..., 1], y, [1, 2], [2, ...]), (x @ y).T)


def test_einsum_of_two_operands_is_one_contraction():
    steps = einsum_plan.plan("ij,kj->ki", ((2, 3), (4, 3)), "auto")
    assert steps == (einsum_plan.Contract(1, 0, (((1,), (1,)), ((), ()))),)
    assert einsum_plan.plan("bij,bjk->bik", ((5, 2, 3), (5, 3, 4)), "auto") == (
        einsum_plan.Contract(0, 1, (((2,), (1,)), ((0,), (0,)))),
    )


def test_einsum_differentiates():
    x, y, z = normal(2, 3, 4), normal(4, 2), normal(2, 2, 3)
    text = "aij,jk,kki->a"
    direction = normal(2, 3, 4, seed=5)
    got = weft.jvp(lambda a: wnp.einsum(text, a, y, z), (x,), (direction,))[1]
    close(got, np.einsum(text, direction, y, z), 1e-4)
    to_z = weft.vjp(lambda a: wnp.einsum(text, x, y, a), z)[1](np.ones(2, np.float32))[0]
    want = np.einsum("aij,jk,km->kmi", x, y, np.eye(2, dtype=np.float32))
    close(to_z, want, 1e-4)


def test_einsum_path_is_a_path():
    path, _ = wnp.einsum_path("ij,jk,kl->il", normal(2, 30), normal(30, 4), normal(4, 5))
    assert len(path) == 2
    x, y, z = normal(2, 3), normal(3, 4), normal(4, 5)
    close(wnp.einsum("ij,jk,kl->il", x, y, z, optimize=[(1, 2), (0, 1)]), x @ y @ z, 1e-4)
