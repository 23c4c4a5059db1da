"""Programs in onnxruntime: loops, branches, random numbers, indexing, sizes, derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.fuzz.exports import program, shape_at
from tests.onnx.runtime import check, compare, parts_of, run_model
from weft import export, lax, random
from weft.errors import WeftError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3)).astype(np.float32)
S = (RNG.normal(size=(3, 3)) + 3 * np.eye(3)).astype(np.float32)
INDICES = np.array([0, 2, -1, 7, 1], np.int32)

PROGRAMS: dict[str, tuple[Any, ...]] = {
    "scan": (lambda x: lax.scan(lambda c, a: (c * 0.5 + a, (c * a, c > a)), x[0], x), X),
    "reversed scan": (lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c * a), x[0], x, reverse=True), X),
    "scan of nothing": (lambda x: lax.scan(lambda c, _: (c + 1, c), x, None, length=4, reverse=True), X),
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 7, lambda c: (c[0] + 1, c[1] * 1.5), (0, x)), X),
    "loop over a count": (lambda x, n: lax.fori_loop(0, n, lambda i, c: c * 1.5 + i, x), X, np.int32(4)),
    "loop in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: lax.scan(lambda s, a: (s + a * i, None), c, x)[0], x[0]), X,
    ),
    "cond": (lambda x, p: lax.cond(p, lambda x: x + 1, lambda x: x * 2, x), X, np.bool_(True)),
    "switch": (
        lambda x, i: lax.switch(i, [lambda x: x + 1, lambda x: x * 2, lambda x: x - 3], x), X, np.int32(7),
    ),
    "loop of lanes": (
        weft.vmap(lambda x: lax.while_loop(lambda c: c[0] < x.sum() * 10, lambda c: (c[0] + 1, c[1] * 1.1), (0, x))), X,
    ),
    "gradient": (weft.grad(lambda x: wnp.sum(wnp.tanh(x @ x.T) ** 2)), X),
    "gradient of a loop": (
        weft.grad(lambda x: lax.scan(lambda c, a: (wnp.sin(c) + a, None), x[0], x)[0].sum()), X,
    ),
    "sorting": (lambda x: (wnp.sort(x), wnp.argsort(x, axis=0), wnp.median(x), x.argmax(1), lax.top_k(x, 2)), X),
    "indexing": (
        lambda x, i: (
            x[i], x.at[i].add(1.0), x.at[i, 1].set(2.0), x[:, i[:3]], x[i, 1],
            wnp.take_along_axis(x, i[:, None] % 3, 1),
            x.at[i].max(x * 2), lax.dynamic_slice(x, (i[1], i[0]), (2, 2)),
            lax.dynamic_update_slice(x, x[:2, :2], (i[1], i[4])), x[::-2, 1:],
        ),
        X, INDICES,
    ),
    "nan": (
        lambda x, i: (x.at[i].max(x[::-1]), x.at[i].min(x[::-1], mode="clip"), x.max(0), wnp.sort(x, 0), x.argmin(0)),
        np.where(X > 0.9, np.float32(np.nan), X), INDICES,
    ),
    "statistics": (lambda x: (x.var(0), wnp.linalg.norm(x), wnp.cumsum(x, 1), wnp.quantile(x, 0.3), wnp.ptp(x)), X),
    "integers": (
        lambda i, j: (i // j, i % j, i << 2, i >> 1, wnp.gcd(i, j), i ** 3, wnp.bitwise_count(i), lax.clz(i)),
        np.array([7, -7, 0, 123456789, -(2**31)], np.int32), np.array([2, 3, 5, -7, -1], np.int32),
    ),
    "normal numbers": (
        lambda x, k: x + random.normal(random.wrap_key_data(k), x.shape), X, np.array([3, 4], np.uint32),
    ),
    "transforms": (lambda x: (wnp.fft.rfft(x, axis=0), wnp.fft.irfft(wnp.fft.rfft(x)), abs(wnp.fft.fft2(x))), X),
    "convolution of integers": (
        lambda x: wnp.convolve(x, np.arange(3), mode="same"), np.arange(9, dtype=np.int32),
    ),
    "linear algebra": (
        lambda x, y: (wnp.linalg.solve(x, y), wnp.linalg.inv(x), wnp.linalg.det(x), wnp.linalg.cholesky(x @ x.T)),
        S, X.T,
    ),
    "factorizations": (
        lambda x: (
            (lambda u, s, v: (u * s) @ v)(*wnp.linalg.svd(x, full_matrices=False)),
            (lambda w, v: (v * w) @ v.T)(*wnp.linalg.eigh(x @ x.T)), (lambda q, r: q @ r)(*wnp.linalg.qr(x)),
            wnp.linalg.lstsq(x, x[:, 0])[0], wnp.linalg.pinv(x),
        ),
        S,
    ),
    "small dtypes": (
        lambda x: [(x.astype(d) * 3).astype(d) for d in ("int8", "uint8", "int16", "uint16", "uint32", "float16")], X,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    function, *args = PROGRAMS[name]
    check(function, *args)


@pytest.mark.parametrize("draw", ["bits", "uniform", "randint", "split", "fold_in", "permutation"])
def test_random_numbers_are_the_same(draw: str) -> None:
    def function(data: Any) -> Any:
        key = random.wrap_key_data(data)
        if draw == "split":
            return random.key_data(random.split(key, 3))
        if draw == "fold_in":
            return random.key_data(random.fold_in(key, 7))
        if draw == "permutation":
            return random.permutation(key, 9)
        if draw == "randint":
            return random.randint(key, (7,), -3, 1000)
        return getattr(random, draw)(key, (3, 5))

    data = np.array([3, 4], np.uint32)
    model = export.onnx(function, data)
    (found,) = run_model(model, data)
    np.testing.assert_array_equal(found, np.asarray(weft.jit(function)(data)))


@pytest.mark.parametrize("sizes", [(3, 4), (1, 7), (5, 1)])
def test_one_model_for_all_sizes(sizes: tuple[int, int]) -> None:
    def function(x: Any, y: Any) -> Any:
        rows, columns = x.shape
        both = wnp.concatenate([x, y], 0).reshape(-1) / (rows + columns)
        return both, wnp.pad(x, ((1, 2), (0, 0))), wnp.arange(rows * 2), x.reshape(rows, 1, columns) * y[:1], x[:, ::-1]

    rows, columns = export.symbolic_shape("r, c")
    types = [weft.ShapeDtypeStruct((n, columns), np.float32) for n in (rows, 2 * rows + 1)]
    model = export.onnx(function, *types)
    first, second = sizes
    x, y = (RNG.normal(size=(n, second)).astype(np.float32) for n in (first, 2 * first + 1))
    compare(run_model(model, x, y), function(wnp.asarray(x), wnp.asarray(y)), 1e-6)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_for_all_sizes(seed: int) -> None:
    """Programs of the fuzzer: the model has the results of the export at each size that the export takes."""
    _, function, shape, dtype = program(seed)
    try:
        exported = export.export(weft.jit(function))(weft.ShapeDtypeStruct(export.symbolic_shape(shape), dtype))
        model = export.onnx(exported)
    except (WeftError, ValueError, TypeError, IndexError):  # there is none for all sizes, or no model
        return
    for size in (1, 2, 3, 9):
        x = np.random.default_rng(seed).integers(-3, 4, shape_at(shape, size)).astype(dtype)
        try:
            expected = weft.tree.leaves(exported.call(x))
        except WeftError:  # a size that the function asked for, and was told otherwise
            continue
        compare(run_model(model, x), parts_of(expected), 3e-2 if dtype == "bfloat16" else 1e-4)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_windows_larger_than_the_operand(rows: int) -> None:
    """Counts of windows are quotients of negative numbers at small sizes."""
    (n,) = export.symbolic_shape("n")
    pool = lambda x: lax.reduce_window(x, 0.0, lax.add, (4, 1), (2, 1), ((0, 1), (0, 0)))
    model = export.onnx(pool, weft.ShapeDtypeStruct((n, 3), np.float32))
    compare(run_model(model, X[:rows]), [pool(X[:rows])], 1e-6)
