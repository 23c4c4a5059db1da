"""Transformations at their edges: programs that went wrong once, and their relatives, beside JAX."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy
import numpy as onp
import pytest

import weft
import weft.numpy
from tests.peer.compare import assert_same

V = "lib.vmap"
G = "lib.grad"


def names(lib: Any) -> dict[str, Any]:
    """Return the meaning of the names in rows: functions with rules of their own, and callable objects."""
    np, lax = lib.numpy, lib.lax

    negated = lib.custom_jvp(lambda x: -x)
    negated.defjvp(lambda p, t: (negated(p[0]), negated(t[0])))
    tripled = lib.custom_vjp(lambda x: 3.0 * x)
    tripled.defvjp(lambda x: (tripled(x), None), lambda _, g: (tripled(g),))
    flagged = lib.custom_vjp(lambda x: x)
    flagged.defvjp(lambda x: (x, (True, 3, "of no use" and 2.5)), lambda r, g: (g * 2 if r[0] else g / r[1],))
    nested = lib.custom_vjp(lambda x: x[0] * x[1][0])
    nested.defvjp(lambda x: (nested(x), x), lambda r, g: ((1.0, (2.0, None)),))

    class Callable:
        def __init__(self) -> None:
            self._call = self._find = self.trace = self.attribute = 1

        def __call__(self, x: Any) -> Any:
            return x * 2

        def method(self, x: Any) -> Any:
            return x * 3

    def static(function: Any = lambda n, x: n * x) -> Any:
        return lib.jit(function, static_argnums=0)

    def root(a: Any) -> Any:
        return lax.custom_root(lambda x: x * x - a, 1.0, lambda f, x: np.sqrt(a) + 0 * x, lambda g, y: y / g(1.0))

    def solved(a: Any) -> Any:
        return lax.custom_linear_solve(lambda x: a * x, 3.0 * a**2, lambda _, b: b / a, lambda _, b: b / a)

    def both(f: Any) -> Any:
        return lib.vmap(lib.vmap(f, axis_name="j"), axis_name="i")

    def at_once() -> Any:
        known = lib.custom_jvp(lambda x: x if x == 0.0 else x + 1)
        known.defjvp(lambda p, t: (known(p[0]), t[0]))
        with lib.ensure_compile_time_eval():
            return known(0.0)

    safe = lambda x: lax.cond(x < 1e-3, lambda x: 1e-3, np.sqrt, x)
    weighted = lambda w, x: lax.cond(x < 1e-3, lambda x: 0.0 * w, lambda x: np.log(x) * w, x)
    return {
        "lib": lib, "np": np, "lax": lax, "onp": onp, "functools": functools, "negated": negated, "tripled": tripled,
        "flagged": flagged, "nested": nested, "o": Callable(), "static": static, "root": root, "solved": solved,
        "both": both, "at_once": at_once, "safe": safe, "weighted": weighted, "whole": lambda x: (x * 1.0).sum(),
    }  # fmt: skip


ROWS = [
    # Branches not taken, and lanes that have left a loop.
    f"{G}(lambda x: {V}(safe)(x).sum())(np.zeros(3))",
    f"{G}(lambda x: {V}(safe)(x).sum())(np.array([0., 4., 1.]))",
    f"lib.jit({G}(lambda x: {V}(lib.checkpoint(safe))(x).sum()))(np.array([0., 4., 1.]))",
    f"lib.hessian(lambda x: {V}(safe)(x).sum())(np.array([0., 4., 1.]))",
    f"{G}(lambda w: {V}(lambda x: weighted(w, x))(np.array([0., 4., -1.])).sum())(2.0)",
    f"{G}(lambda w: {V}({V}(lambda x: weighted(w, x)))(np.array([[0., 4.], [-1., 2.]])).sum())(2.0)",
    f"lib.jvp(lambda x: {V}(safe)(x), (np.zeros(3),), (np.ones(3),))[1]",
    f"{G}(lambda x: {V}(lambda y: lax.cond(y > 0, flagged, lambda y: y, y))(x).sum())(np.array([1., -1.]))",
    f"{G}(lambda x: {V}(lambda y: lax.cond(y > 0, negated, lambda y: y, y))(x).sum())(np.array([1., -1.]))",
    f"{V}(lambda x, y: lax.cond(x < 3, lambda x, y: (x * 2, y), lambda x, y: (x * 3, y), x, y), (0, None), (0, None))"
    "(np.arange(5), 3.0)",
    f"{V}(lambda k, x: lax.while_loop(lambda s: s[1] < 5, lambda s: (s[0], s[1] + s[0]), (k, x)), (None, 0), (None, 0))"
    "(2.0, np.arange(3.))",
    # Powers.
    "lib.hessian(lambda v: v[0] ** v[1])(np.array([4., 0.]))",
    "lib.jacrev(lib.jacrev(lambda v: v[0] ** v[1]))(np.array([2., 1.]))",
    "lib.hessian(lambda v: v[0] ** v[1])(np.array([0., 2.]))",
    "lib.grad(lib.grad(lambda x: np.power(x, np.int32(1))))(0.0)",
    # Integers have tangents of no bytes.
    "lib.jit(lib.grad(whole, allow_int=True))(np.arange(3)).dtype",
    "lib.jit(lib.vmap(lib.grad(whole, allow_int=True)))(np.ones((2, 3), int)).shape",
    "lib.grad(lambda x: x * 1., allow_int=True)(3) == onp.zeros((), lib.float0)",
    "lib.jit(lib.grad(lambda x: x * 1., allow_int=True))(3) == onp.zeros((), lib.float0)",
    "lib.jit(lambda x: lib.vjp(lambda x, y: x * y, x, 3)[1](1.))(2.)[0]",
    "lib.jit(lambda a, b: (a, b + 1))(onp.zeros(3, lib.float0), 1.)[1]",
    "lib.checkpoint(lib.grad(whole, allow_int=True))(np.arange(3)).dtype",
    "lax.scan(lambda c, x: (c, lib.grad(whole, allow_int=True)(x)), 0., np.ones((2, 3), int))[1].shape",
    # Rules of the user's.
    *[
        row.replace("f", name)
        for name in ("negated", "tripled", "flagged")
        for row in (
            "lib.grad(f)(3.)",
            "lib.jit(lib.grad(f))(3.)",
            "lib.grad(lambda x: lib.vmap(f)(x).sum())(np.ones(2))",
            "lib.vmap(lib.grad(f))(np.ones(2))",
            "lib.grad(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0])(1.)",
            "lib.grad(lib.checkpoint(f))(1.)",
            "lib.grad(lambda x: lax.cond(x > 0, f, lambda x: x, x))(1.)",
        )
    ],
    "lib.grad(lib.grad(negated))(3.)",
    "lib.linear_transpose(negated, 1.)(2.)",
    "lib.grad(nested)((1., (2., None)))",
    "lib.jit(at_once)()",
    "lib.jit(lambda x: lib.linear_transpose(lambda y: x * y, 1.))(3.)(2.)",
    "lib.linear_transpose(lambda x: 2 * x, 1)(3)",
    # Solvers that close over what is differentiated.
    *[
        row.replace("f", name)
        for name in ("root", "solved")
        for row in (
            "lib.grad(f)(4.)",
            "lib.jit(lib.grad(f))(4.)",
            "lib.vmap(lib.grad(f))(np.array([4., 9.]))",
            "lib.grad(lambda a: lib.vmap(f)(a).sum())(np.array([4., 9.]))",
            "lib.jvp(f, (4.,), (1.,))",
            "lib.grad(lib.grad(f))(4.)",
        )
    ],
    # Named axes.
    *[
        f"both(lambda x: lax.all_to_all(x, {axes}, {split}, {to}, tiled={tiled}))"
        f"(np.arange(144).reshape({(2, 3, 6, 4) if split == 0 else (2, 3, 4, 6)}))"
        for axes in ("('i', 'j')", "('j', 'i')")
        for split, to in ((0, 0), (0, 1), (1, 0))
        for tiled in (False, True)
    ],
    # Loops and branches as they may be called.
    "lax.fori_loop(1., 3., lambda i, c: c * 2 + i, 1.)",
    "lib.jit(lambda n: lax.fori_loop(0., n, lambda i, c: c + i, 1.))(2.5)",
    "lax.cond(True, 1.0, lambda x: x + 1, 2.0, lambda x: x + 2)",
    "lib.grad(lambda a: lax.cond(False, a, lambda x: x * 3, a, lambda x: x * 5))(2.)",
    "lib.jit(lambda p: lax.cond(p, (1.0, 2), lambda x: x[0] + 1, {'a': 2.0}, lambda x: x['a'] + 2))(False)",
    # Objects that are called.
    *[
        f"lib.{transform}({function})({'np.ones(2)' if transform == 'vmap' else 2.0})"
        for transform in ("jit", "grad", "vmap", "checkpoint", "value_and_grad", "jacfwd", "hessian")
        for function in ("o", "o.method", "functools.partial(o)", "functools.partial(o.method)")
    ],
    "lib.jit(np.add)(1., 2.)",
    "lib.jit(np.add.reduce)(np.ones(3))",
    "lib.vmap(np.add)(np.ones(2), np.ones(2))",
    "lib.grad(np.multiply)(2., 3.)",
    "lib.jit(lib.jit(np.multiply))(2., 3.)",
    # Stages.
    "static().lower(7, 8).compile()(5)",
    "static().lower(7, lib.ShapeDtypeStruct((), onp.int32)).compile()(onp.int32(5))",
    "lib.jit(lambda x: x, in_shardings=None, out_shardings=None, compiler_options=None)(1.)",
    "lib.jit(lambda x: x, device=lib.devices()[0])(1.)",
    "lib.jit(lambda x: x).lower(1.).compile(compiler_options=None)(1.)",
    "lib.ShapeDtypeStruct.like(np.ones(3, int)).shape",
    "lib.ShapeDtypeStruct.like(1.).dtype",
    "lib.eval_shape(lambda x: x, lib.typeof(np.ones(3))).shape",
    "lib.eval_shape(lambda: lib.ShapeDtypeStruct((), np.float32)).dtype",
    "lib.jit(np.sin).lower(lib.typeof(np.ones(3))).out_info.shape",
    "lib.jit(lambda x: lib.device_get(x) + 1)(1.)",
    "lib.random.key_data(lib.device_get(lib.random.key(0)))",
    "lib.checkpoint(lambda s, x: x + s['a'], static_argnums=(0,))({'a': 1}, 2.)",
    "lib.config.update('jax_platform_name', 'cpu')",
    "[str(lax.dtype(x)) for x in (1., 1, True, onp.float64(1), onp.ones(2), float)]",
]

# Where both raise.
MISTAKES = [
    "lib.linear_transpose(lambda x: 2. * x, 1)",
    "lib.jit(lambda x: x, compiler_options={'no such': 1})(1.)",
    "lib.jit(lambda x: x, backend='tpu')(1.)",
    "lib.jit(lambda x: x, in_shardings=3)(1.)",
    "lib.pure_callback(lambda: onp.int64(2**40), lib.ShapeDtypeStruct((), onp.int64))",
    "lax.fori_loop(0, 2.5, lambda i, c: c, 1.)",
    "lib.grad(lib.custom_jvp(lambda x: x))(1.)",
]

NAMES = {"weft": names(weft), "jax": names(jax)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    expected, found = (eval(row, dict(NAMES[library])) for library in ("jax", "weft"))
    assert_same(found, expected, 2e-6, weak=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", MISTAKES)
def test_mistake(row: str) -> None:
    for library in ("jax", "weft"):
        with pytest.raises(Exception):  # noqa: B017 - of which class differs between the two
            eval(row, dict(NAMES[library]))
