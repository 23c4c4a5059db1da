"""Errors of common mistakes: the line, what was received, and what to write instead, in a dozen lines.

Each row is a mistake, the builtin exception that NumPy, JAX or Python raise for it, and words that its message has: a
part of what was received, and a part of the fix.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.haiku as hk
import weft.linen as nn
import weft.numpy as wnp
from weft import lax, optim
from weft.base.source import is_own
from weft.errors import WeftError

pytestmark = pytest.mark.tiny

A, B, M = wnp.ones(3), wnp.ones(4), wnp.ones((2, 3))
I = wnp.arange(3)  # noqa: E741
KEY = weft.random.key(0)
T = {"weight": A, "bias": B}


@weft.jit
def traced_while(x: Any) -> Any:
    while x > 0:
        x = x - 1
    return x


@weft.jit
def traced_assert(x: Any) -> Any:
    assert x > 0
    return x


@weft.jit
def traced_if(x: Any) -> Any:
    if x > 0:
        return x
    return -x


def traced(f: Callable[[Any], Any], x: Any = 2.0) -> Any:
    return weft.jit(lambda x: f(x))(x)


class Compact(nn.Module):
    work: Any

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return self.work(self, x)


def linen(work: Any, x: Any = M, **options: Any) -> Any:
    return Compact(work).init(KEY, x, **options)


def haiku(work: Any, x: Any = M) -> Any:
    return hk.transform(lambda x: work(x)).init(KEY, x)


def update(optimizer: Any, grads: Any = None, params: Any = None) -> Any:
    params = T if params is None else params
    return optimizer.update(T if grads is None else grads, optimizer.init(params), params)


def leaked() -> Any:
    values: list[Any] = []
    weft.jit(lambda x: values.append(x) or x)(A)
    return values[0] + 1


def donated() -> Any:
    x = wnp.ones((512, 512))
    weft.jit(lambda x: x + 1, donate_argnums=0)(x)
    return x + 1


ROWS: list[tuple[str, Callable[[], Any], type[Exception], str, str]] = [
    # shapes
    ("broadcast", lambda: A + B, ValueError, "(3,), (4,)", "x[:, None]"),
    ("matmul", lambda: A @ B, TypeError, "f32[3] and f32[4]", "transpose"),
    ("matmul of a number", lambda: wnp.matmul(A, 2.0), ValueError, "scalar", "multiply"),
    ("dot", lambda: wnp.dot(M, M), TypeError, "f32[2,3]", "transpose"),
    ("reshape", lambda: A.reshape(2, 2), TypeError, "(2, 2)", "-1"),
    ("reshape with two -1", lambda: wnp.reshape(M, (-1, -1)), ValueError, "-1", "one"),
    ("reshape that leaves a rest", lambda: wnp.reshape(A, (-1, 2)), TypeError, "(3,)", "-1"),
    ("concatenate of arguments", lambda: wnp.concatenate(A, A), TypeError, "sequence", "concatenate([a, b], axis=0)"),
    ("concatenate of ranks", lambda: wnp.concatenate([A, M]), TypeError, "f32[2,3]", "same"),
    ("concatenate of sizes", lambda: wnp.concatenate([M, wnp.ones((2, 4))]), TypeError, "f32[2,4]", "axis"),
    ("concatenate of nothing", lambda: wnp.concatenate([]), ValueError, "no arrays", "at least one"),
    ("stack", lambda: wnp.stack([A, B]), ValueError, "(4,)", "concatenate"),
    ("stack of arguments", lambda: wnp.stack(A, A), TypeError, "axis", "stack([a, b]"),
    ("split", lambda: wnp.split(A, 2), ValueError, "3", "array_split"),
    ("broadcast_to", lambda: wnp.broadcast_to(A, (2, 4)), ValueError, "(3,)", "[:, None]"),
    ("axis of unique", lambda: wnp.unique(M, axis=2), ValueError, "axis 2", "from -2 to 1"),
    ("einsum subscripts", lambda: wnp.einsum("ij,jk->ik", M, A), ValueError, "1 dimension", "subscripts"),
    ("einsum sizes", lambda: wnp.einsum("ij,jk->ik", M, M), ValueError, "(2, 3)", "transpose"),
    ("einsum operands", lambda: wnp.einsum(wnp.zeros(0)), ValueError, "Array([]", "einsum('ij,jk->ik', x, y)"),
    ("einsum path operands", lambda: wnp.einsum_path(A), ValueError, "at least one", "einsum_path('ij,jk->ik', x, y)"),
    ("einsum path terms", lambda: wnp.einsum_path("ij,jk->ik", M), ValueError, "2 terms for 1", "one term"),
    ("einsum output", lambda: wnp.einsum("ij->ik", M), ValueError, "'k'", "output"),
    ("vstack", lambda: wnp.vstack([A, B]), TypeError, "f32[1,4]", "axis"),
    ("squeeze", lambda: wnp.squeeze(M, 0), ValueError, "size 2", "size 1"),
    ("transpose", lambda: wnp.transpose(M, (0, 0)), ValueError, "(0, 0)", "once"),
    ("where", lambda: wnp.where(A > 0, A, B), ValueError, "(4,)", "[:, None]"),
    ("tile", lambda: wnp.tile(A, -1), ValueError, "-1", "0 or more"),
    ("repeat", lambda: wnp.repeat(A, B.astype(int)), ValueError, "4", "one"),
    ("zeros", lambda: wnp.zeros((-1, 2)), ValueError, "-1", "0 or more"),
    ("zeros of a float", lambda: wnp.zeros(2.5), TypeError, "2.5", "int"),
    ("traced shape", lambda: traced(lambda n: wnp.zeros(n), 3), TypeError, "i32[]", "static"),
    ("arange of a tracer", lambda: traced(lambda n: wnp.arange(n), 3), TypeError, "i32[]", "static"),
    ("ragged list", lambda: wnp.array([[1, 2], [3]]), ValueError, "", "same"),
    # axes and indices
    ("sum axis", lambda: wnp.sum(M, axis=2), ValueError, "2", "-2"),
    ("axis of a float", lambda: wnp.sum(M, axis=1.0), TypeError, "1.0", "int"),
    ("expand_dims", lambda: wnp.expand_dims(A, 3), ValueError, "3", "-2"),
    ("index", lambda: A[5], IndexError, "5", "-3"),
    ("too many indices", lambda: A[0, 0], IndexError, "2", "one"),
    ("index by a float", lambda: A[1.0], TypeError, "1.0", "int"),
    ("index by a float array", lambda: A[A], TypeError, "float32", ".astype(int)"),
    ("index by a list", lambda: A[[0, 1]], TypeError, "list", "numpy.array"),
    ("index by a string", lambda: A["a"], TypeError, "'a'", "integer"),
    ("mask of another shape", lambda: A[wnp.ones(4, bool)], IndexError, "(4,)", "shape"),
    ("traced mask", lambda: traced(lambda x: x[x > 0], A), IndexError, "bool[3]", "where"),
    ("traced slice", lambda: traced(lambda n: A[:n], 2), IndexError, "i32[]", "dynamic_slice"),
    ("assignment", lambda: A.__setitem__(0, 1.0), TypeError, "f32[3]", ".at["),
    ("take", lambda: wnp.take(A, 1.5), TypeError, "1.5", "int"),
    ("dynamic_slice rank", lambda: lax.dynamic_slice(M, (0,), (1, 1)), ValueError, "1", "one"),
    ("dynamic_slice size", lambda: lax.dynamic_slice(M, (0, 0), (3, 1)), TypeError, "(3, 1)", "at most"),
    ("slice", lambda: lax.slice(A, (2,), (5,)), TypeError, "5", "limit <= size"),
    # dtypes and values
    ("lax.add of dtypes", lambda: lax.add(A, I), TypeError, "i32[3]", "astype"),
    ("a list as an operand", lambda: wnp.add([1, 2], A), TypeError, "list", "asarray"),
    ("a string as an operand", lambda: wnp.sin("x"), TypeError, "str", "asarray"),
    ("None as an operand", lambda: wnp.add(A, None), TypeError, "NoneType", "array"),
    ("unknown dtype", lambda: wnp.zeros(3, "flaot32"), TypeError, "flaot32", "float32"),
    ("shift of floats", lambda: A << 1, TypeError, "float32", "astype"),
    ("bool of an array", lambda: bool(A), ValueError, "3", ".any()"),
    ("float of an array", lambda: float(A), TypeError, "3", ".item()"),
    ("overflow", lambda: wnp.asarray(np.int64(2**40)), OverflowError, "1099511627776", "enable_x64"),
    ("out=", lambda: wnp.add(A, A, out=A), NotImplementedError, "out", "x = "),
    # tracing
    ("if", lambda: traced_if(1.0), TypeError, "bool[]", "where"),
    ("while", lambda: traced_while(1.0), TypeError, "bool[]", "while_loop"),
    ("assert", lambda: traced_assert(1.0), TypeError, "bool[]", "checks"),
    ("and", lambda: traced(lambda x: (x > 0) and (x < 1)), TypeError, "bool[]", "&"),
    ("float of a tracer", lambda: traced(lambda x: float(x)), TypeError, "f32[]", "static_argnums"),
    ("int of a tracer", lambda: traced(lambda x: range(x), 3), TypeError, "i32[]", "static"),
    ("np of a tracer", lambda: traced(lambda x: np.sin(x)), TypeError, "f32[]", "weft.numpy"),
    ("leak", leaked, TypeError, "f32[3]", "return"),
    ("item of a tracer", lambda: traced(lambda x: x.item()), TypeError, "f32[]", "out of the traced function"),
    ("donated", donated, RuntimeError, "f32[512,512]", "donate"),
    ("static array", lambda: weft.jit(lambda x: x, static_argnums=0)(A), ValueError, "Array", "hashable"),
    ("static list", lambda: weft.jit(lambda n: n, static_argnums=0)([1]), ValueError, "[1]", "tuple"),
    ("a string argument", lambda: weft.jit(lambda s: s)("a"), TypeError, "'a'", "static_argnums"),
    ("a string result", lambda: weft.jit(lambda x: "a")(A), TypeError, "'a'", "arrays"),
    ("jit of a number", lambda: weft.jit(A), TypeError, "Array", "function"),
    ("static_argnums out of range", lambda: weft.jit(lambda x: x, static_argnums=3), ValueError, "3", "argument"),
    # control flow
    (
        "cond without operands",
        lambda: lax.cond(True, lambda x: x, lambda x: x),
        TypeError,
        "0 arguments",
        "lax.cond(pred,",
    ),
    ("cond of a number", lambda: lax.cond(True, 1.0, 2.0), TypeError, "float", "lambda"),
    ("cond of an array", lambda: lax.cond(A > 0, lambda x: x, lambda x: x, A), TypeError, "bool[3]", "where"),
    ("branches", lambda: lax.cond(True, lambda x: x, lambda x: (x, x), A), TypeError, "a tuple of length 2", "same"),
    ("switch", lambda: lax.switch(1.0, [lambda: 1, lambda: 2]), TypeError, "f32[]", "int"),
    ("fori_loop body", lambda: lax.fori_loop(0, 3, lambda c: c, 1.0), TypeError, "<lambda> at 0x", "lambda i, carry"),
    ("fori_loop bounds", lambda: lax.fori_loop(0, 3.0, lambda i, c: c, 1.0), TypeError, "3.0", "int"),
    ("while_loop condition", lambda: lax.while_loop(lambda c: c, lambda c: c, 1.0), TypeError, "f32[]", "compare"),
    (
        "while_loop carry",
        lambda: lax.while_loop(lambda c: c < 3, lambda c: (c, c), 1),
        TypeError,
        "a tuple of length 2",
        "same",
    ),
    ("scan carry", lambda: lax.scan(lambda c, x: (c + x, x), wnp.int32(0), A), TypeError, "f32[]", "convert"),
    ("scan result", lambda: lax.scan(lambda c, x: c + x, 0.0, A), TypeError, "pair", "return carry, y"),
    ("scan body", lambda: lax.scan(lambda c: (c, c), 0.0, A), TypeError, "2", "lambda carry, x"),
    ("scan lengths", lambda: lax.scan(lambda c, x: (c, c), 0.0, (A, B)), ValueError, "4", "length"),
    ("scan of nothing", lambda: lax.scan(lambda c, x: (c, c), 0.0, None), ValueError, "without arrays", "length="),
    ("scan of scalars", lambda: lax.scan(lambda c, x: (c, c), 0.0, 1.0), ValueError, "f32[]", "length=n"),
    # transformations
    ("grad of an array", lambda: weft.grad(wnp.sin)(A), TypeError, "f32[3]", "sum"),
    ("grad of a tuple", lambda: weft.grad(lambda x: (x, x))(1.0), TypeError, "tuple", "has_aux"),
    ("grad by an integer", lambda: weft.grad(lambda x: x**2)(3), TypeError, "i32", "float"),
    ("grad argnums", lambda: weft.grad(lambda x: x, argnums=2)(1.0), TypeError, "2", "pass the argument"),
    ("jvp tangents", lambda: weft.jvp(wnp.sin, (A,), (B,)), TypeError, "f32[4]", "f32[3]"),
    ("jvp of no tuple", lambda: weft.jvp(wnp.sin, A, A), TypeError, "Array", "(primals,)"),
    ("vjp cotangents", lambda: weft.vjp(wnp.sin, A)[1](B), ValueError, "f32[4]", "f32[3]"),
    ("vmap sizes", lambda: weft.vmap(lambda x, y: x)(A, B), ValueError, "4", "in_axes"),
    ("vmap of a scalar", lambda: weft.vmap(lambda x, y: x)(A, 2.0), ValueError, "f32[]", "None"),
    ("vmap in_axes", lambda: weft.vmap(lambda x: x, in_axes=2)(M), ValueError, "2", "in_axes"),
    ("vmap in_axes length", lambda: weft.vmap(lambda x: x, in_axes=(0, 0))(M), ValueError, "2", "one entry"),
    ("vmap out_axes", lambda: weft.vmap(lambda x: x, out_axes=3)(M), ValueError, "3", "out_axes"),
    ("collective", lambda: weft.vmap(lambda x: lax.psum(x, "i"))(A), NameError, "'i'", "axis_name"),
    ("tree.map", lambda: weft.tree.map(lambda a, b: a, T, {"weight": A}), ValueError, "bias", "same"),
    ("tree.map of a list", lambda: weft.tree.map(lambda a, b: a, (A, B), [A, B]), ValueError, "list", "tuple"),
    ("tree.unflatten", lambda: weft.tree.unflatten(weft.tree.structure(T), [A]), ValueError, "1", "2"),
    ("custom_vjp without a rule", lambda: weft.grad(weft.custom_vjp(lambda x: x))(1.0), AttributeError, "", "defvjp"),
    # random numbers
    ("a seed as key", lambda: weft.random.normal(0), TypeError, "0", "random.key(0)"),
    ("key arguments swapped", lambda: weft.random.normal((3,), KEY), TypeError, "tuple", "random.key"),
    ("several keys", lambda: weft.random.normal(weft.random.split(KEY, 3)), ValueError, "(3,)", "vmap"),
    ("float shape", lambda: weft.random.normal(KEY, (2.0,)), TypeError, "2.0", "int"),
    ("randint of floats", lambda: weft.random.randint(KEY, (3,), 0, 3, "float32"), TypeError, "float32", "uniform"),
    ("choice", lambda: weft.random.choice(KEY, 3, (4,), replace=False), ValueError, "4", "replace"),
    ("a float seed", lambda: weft.random.key(0.5), TypeError, "f32[]", "int"),
    # linear algebra, convolutions
    ("inverse of no square", lambda: wnp.linalg.inv(M), ValueError, "(2, 3)", "pinv"),
    ("solve", lambda: wnp.linalg.solve(wnp.eye(3), B), ValueError, "(4,)", "row"),
    ("cholesky of a vector", lambda: wnp.linalg.cholesky(A), ValueError, "(3,)", "matri"),
    ("norm", lambda: wnp.linalg.norm(A, ord="fro"), ValueError, "fro", "matri"),
    ("convolution ranks", lambda: lax.conv(A, A, (1,), "SAME"), TypeError, "(1,)", "each"),
    (
        "convolution channels",
        lambda: lax.conv(wnp.ones((1, 2, 5)), wnp.ones((3, 4, 2)), (1,), "SAME"),
        TypeError,
        "2",
        "feature",
    ),
    ("padding", lambda: lax.conv(wnp.ones((1, 2, 5)), wnp.ones((3, 2, 2)), (1,), "SMAE"), ValueError, "SMAE", "SAME"),
    ("dot_general", lambda: lax.dot_general(M, M, (((0,), (1,)), ((), ()))), TypeError, "f32[2,3]", "contract"),
    # modules and optimizers
    ("call without init", lambda: nn.Dense(3)(M), ValueError, "Dense", "apply"),
    ("no parameters", lambda: nn.Dense(3).apply({}, M), LookupError, "kernel", "init"),
    (
        "parameters of another shape",
        lambda: nn.Dense(3).apply(nn.Dense(3).init(KEY, M), B),
        ValueError,
        "(3, 3)",
        "init",
    ),
    ("no key for dropout", lambda: nn.Dropout(0.5, deterministic=False).apply({}, M), ValueError, "dropout", "rngs="),
    (
        "one name twice",
        lambda: linen(lambda m, x: nn.Dense(2, name="a")(nn.Dense(2, name="a")(x))),
        ValueError,
        "'a'",
        "once",
    ),
    ("channels of a layer", lambda: linen(lambda m, x: nn.Conv(3, (3, 3))(A)), ValueError, "(3,)", "batch"),
    ("embedding of floats", lambda: linen(lambda m, x: nn.Embed(3, 2)(x)), ValueError, "float32", "int"),
    ("hk module outside", lambda: hk.Linear(3), ValueError, "Linear", "hk.transform"),
    ("hk without a key", lambda: hk.transform(lambda: hk.Linear(3)(M)).init(None), ValueError, "linear", "key"),
    (
        "hk apply without params",
        lambda: hk.transform(lambda: hk.Linear(3)(M)).apply({}, None),
        ValueError,
        "linear",
        "init",
    ),
    ("hk integers", lambda: haiku(lambda x: hk.Linear(3)(x), wnp.ones((2, 3), int)), TypeError, "int32", "astype"),
    (
        "gradients of another tree",
        lambda: weft.jit(update, static_argnums=0)(optim.adam(1e-3), {"weight": A}),
        ValueError,
        "bias",
        "same",
    ),
    (
        "weight decay without params",
        lambda: weft.jit(lambda: optim.adamw(1e-3).update(T, optim.adamw(1e-3).init(T)))(),
        ValueError,
        "None",
        "params",
    ),
    ("apply_updates", lambda: optim.apply_updates(T, {"weight": A}), ValueError, "bias", "same"),
    (
        "labels of another shape",
        lambda: optim.softmax_cross_entropy(M, wnp.ones((2, 4))),
        ValueError,
        "(2, 4)",
        "[:, None]",
    ),
    (
        "float labels",
        lambda: optim.softmax_cross_entropy_with_integer_labels(M, A),
        TypeError,
        "float32",
        "softmax_cross_entropy(logits, labels)",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_mistakes_raise_good_errors(row: tuple[str, Callable[[], Any], type[Exception], str, str]) -> None:
    _, mistake, builtin, received, fix = row
    with pytest.raises(Exception) as caught:
        mistake()
    error = caught.value
    text = str(error)
    assert isinstance(error, WeftError), f"{type(error).__name__}: {text}"
    assert isinstance(error, builtin), f"{type(error).__mro__}: {text}"
    assert error.at is not None and error.at.startswith("test_mistakes.py:"), text
    assert len(text.splitlines()) <= 12, text
    assert error.fix, f"no fix: {text}"
    fixes = error.fix if isinstance(error.fix, str) else " ".join(error.fix)
    assert fix.lower() in fixes.lower(), text
    assert received in f"{error.what} {error.received}", text
    assert not [entry for entry in traceback.extract_tb(error.__traceback__) if is_own(entry.filename)]


def test_there_are_many() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS) > 120
