"""Derivatives, vmap, loops, custom rules, checkpoint and trees against JAX."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as onp
import pytest

import weft
from tests.peer.compare import INPUTS, assert_same, check, lines, rows

derivatives = """
lib.grad(lambda v: np.sum(np.sin(v) ** 2))(x)
lib.grad(lambda v, w: np.sum(v * w), argnums=1)(x, y)
lib.grad(lambda v, w: np.sum(v * w), argnums=(0, 1))(x, y)
lib.grad(lambda v, w: np.sum(v * w), argnums=(-1,))(x, y)
lib.grad(lambda tree: np.sum(tree["a"] * tree["b"][0]))({"a": x, "b": [y]})
lib.value_and_grad(lambda v: (np.sum(v ** 3), {"aux": v}), has_aux=True)(x)
lib.grad(lambda v: (np.sum(v ** 3), v), has_aux=True)(x)
lib.grad(lambda v: np.sum(v * v).real, holomorphic=False)(c)
lib.grad(lambda v: np.sum(v ** 3), holomorphic=True)(c)
lib.grad(lambda v: np.sum(np.abs(v)))(c)
lib.grad(lambda v: np.sum(v.real * 2 + v.imag))(c)
lib.grad(lambda n, v: np.sum(v * n), allow_int=True, argnums=1)(i, x)
lib.grad(lambda v: 3.0)(x)
lib.grad(lambda v: v * 2)(2.0)
lib.grad(lambda v: v * 2.0)(onp.float32(2.0))
lib.grad(lambda v: np.sum(v))(h)
lib.jvp(np.sin, (x,), (y,))
lib.jvp(lambda v, w: (v * w, np.sum(v)), (x, y), (y, x))
lib.jvp(lambda v: (v, 2 * v), (x,), (y,), has_aux=True)
lib.vjp(lambda v: np.sin(v), x)[1](y)
lib.vjp(lambda v, w: (v @ w, v.sum()), x, tall)[0]
lib.vjp(lambda v, w: {"a": v * w}, x, y)[1]({"a": p})
lib.vjp(lambda v: (v * 2, v), x, has_aux=True)[2]
lib.linearize(lambda v: np.sin(v) * v, x)[0]
lib.linearize(lambda v: np.sin(v) * v, x)[1](y)
lib.linear_transpose(lambda v: v @ np.ones((4, 2)), x)(np.ones((3, 2)))
lib.linear_transpose(lambda v: np.cumsum(v, 0) * 3.0, x)(y)
lib.jacfwd(lambda v: np.sin(v) * v.sum())(r)
lib.jacrev(lambda v: np.sin(v) * v.sum())(r)
lib.jacfwd(lambda v, w: v * w, argnums=(0, 1))(col, col)
lib.jacrev(lambda tree: {"o": tree["a"] * 2})({"a": col})
lib.jacfwd(lambda v: (v ** 2, v.sum()), has_aux=True)(col)
lib.jacobian(lambda v: v @ m)(col)
lib.jacrev(lambda v: v ** 2, holomorphic=True)(c[0])
lib.hessian(lambda v: np.sum(np.sin(v) * np.outer(v, v).sum()))(col)
lib.hessian(lambda v, w: np.sum(v * w ** 2), argnums=(0, 1))(col, col)
lib.hessian(lambda v: nn.logsumexp(v))(r)
lib.hessian(lambda v: linalg.slogdet(v)[1])(spd)
lib.jacfwd(lib.jacfwd(lambda v: np.tanh(v)))(col)
lib.grad(lambda v: lib.grad(lambda w: np.sum(np.sin(w * v)))(v).sum())(x)
lib.jvp(lib.grad(lambda v: np.sum(np.exp(-v ** 2))), (x,), (y,))[1]
lib.vmap(lib.grad(lambda v: np.sum(np.sin(v))))(x)
lib.grad(lambda v: lib.vmap(lambda w: np.sum(np.sin(w)))(v).sum())(x)
lib.vmap(lib.jacrev(lambda v: v ** 2))(x)
lib.vmap(lambda v, w: v @ w)(x, y)
lib.vmap(lambda v, w: v @ w, in_axes=(None, 1))(x, tall)
lib.vmap(lambda v: v * 2, in_axes=1, out_axes=1)(x)
lib.vmap(lambda v: v * 2, in_axes=1)(x)
lib.vmap(lambda v: v, in_axes=-1, out_axes=-1)(t)
lib.vmap(lambda tree, w: tree["a"] * w + tree["b"], in_axes=({"a": 0, "b": None}, 0))({"a": x, "b": 1.0}, y)
lib.vmap(lib.vmap(lambda v, w: v * w, (0, None)), (None, 0))(r, col)
lib.vmap(lambda v: (v, 7.0), out_axes=(0, None))(x)
lib.vmap(lambda v: lax.psum(v, "n"), axis_name="n")(x)
lib.vmap(lambda v: v / lax.psum(v, "n"), axis_name="n")(x)
lib.vmap(lambda v: lax.pmean(v, "n"), axis_name="n", out_axes=None)(x)
lib.vmap(lambda v: lax.pmax(v, "n"), axis_name="n")(x)
lib.vmap(lambda v: lax.pmin(v, "n"), axis_name="n")(x)
lib.vmap(lambda v: lax.axis_index("n") + v, axis_name="n")(x)
lib.vmap(lambda v: lax.axis_size("n") * v, axis_name="n")(x)
lib.vmap(lambda v: lax.all_gather(v, "n"), axis_name="n")(col)
lib.vmap(lambda v: lax.all_gather(v, "n", axis=1), axis_name="n")(x)
lib.vmap(lambda v: lax.all_gather(v, "n", tiled=True), axis_name="n")(x)
lib.vmap(lambda v: lax.ppermute(v, "n", [(0, 1), (1, 2), (2, 0)]), axis_name="n")(x)
lib.vmap(lambda v: lax.pshuffle(v, "n", [2, 0, 1]), axis_name="n")(x)
lib.vmap(lambda v: lax.all_to_all(v, "n", 0, 0), axis_name="n")(m)
lib.vmap(lambda v: lax.pswapaxes(v, "n", 0), axis_name="n")(m)
lib.vmap(lambda v: lax.psum_scatter(v, "n"), axis_name="n")(m)
lib.vmap(lambda v: lax.psum_scatter(v, "n", tiled=True), axis_name="n")(m)
lib.vmap(lib.vmap(lambda v: lax.psum(v, ("a", "e")), axis_name="a"), axis_name="e")(x)
lib.vmap(lib.vmap(lambda v: lax.psum(v, "e"), axis_name="a"), axis_name="e")(x)
lib.grad(lambda v: lib.vmap(lambda w: lax.psum(w ** 2, "n") * w, axis_name="n")(v).sum())(col)
lib.jit(lambda v, *, power: v ** power, static_argnames="power")(x, power=3)
lib.jit(lambda v, n: v[:n], static_argnums=1)(x, 2)
lib.jit(lambda tree: {"out": tree["in"] + 1, "none": None})({"in": x})
lib.checkpoint(lambda v: np.sin(np.sin(v)))(x)
lib.grad(lib.checkpoint(lambda v: np.sum(np.sin(np.sin(v)))))(x)
lib.grad(lib.checkpoint(lambda w: np.sin(np.exp(w)).sum(), policy=lib.checkpoint_policies.nothing_saveable))(x)
lib.grad(lib.checkpoint(lambda w: (np.sin(w @ tall) @ m).sum(), policy=lib.checkpoint_policies.dots_saveable))(x)
lib.eval_shape(lambda v: (v @ tall).sum(0), x).shape
lib.eval_shape(lambda v: (v > 0, v.astype(onp.float16)), x)[1].dtype
lib.flatten_util.ravel_pytree({"a": x, "b": [col, s]})[0]
lib.closure_convert(lambda v: v * 2, 1.0)[1]
lib.custom_gradient(lambda v: (v ** 2, lambda g: g * 7.0))(x)
lib.grad(lambda v: lib.custom_gradient(lambda w: (w ** 2, lambda g: g * 7.0))(v).sum())(x)
lib.pure_callback(lambda v: onp.sin(v), lib.ShapeDtypeStruct((3, 4), onp.float32), x)
lib.named_call(np.sin, name="wave")(x)
lib.device_get(x)
lib.device_put(x)
lib.block_until_ready(x)
"""
loops = """
lax.scan(lambda carry, v: (carry + v, carry * v), np.zeros(4), x)
lax.scan(lambda carry, v: (carry + v.sum(), carry), 0.0, x, reverse=True)
lax.scan(lambda carry, v: (carry * 1.5, None), s, None, length=4)
lax.scan(lambda carry, v: ((carry[1], carry[0] + v["a"]), v["b"]), (s, s * 2), {"a": col, "b": m})
lax.scan(lambda carry, v: (np.sin(carry @ m) + v, carry.sum()), col, m, unroll=2)
lax.scan(lambda carry, v: (carry + v, v), 0.0, np.zeros((0,)))[0] + s
lax.map(lambda v: np.sin(v).sum(), x)
lax.map(lambda v: v * 2, x, batch_size=2)
lax.fori_loop(0, 3, lambda n, v: v * 1.1 + n, x)
lax.fori_loop(0, 4, lambda n, v: v.at[n].add(v.sum()), r)
lax.cond(s > 0, lambda v: np.sin(v), lambda v: v * 2, x)
lax.cond(s > 0, lambda v, w: (v, w), lambda v, w: (w, v), x, y)
lax.switch(1, [np.sin, np.cos, np.tan], x)
lax.switch(9, [np.sin, np.cos, np.tan], x)
lax.switch(j[0], [np.sin, np.cos, lambda v: v], x)
lax.associative_scan(lax.add, x)
lax.associative_scan(lax.mul, x, axis=1)
lax.associative_scan(np.matmul, stack, reverse=True)
lax.associative_scan(lambda a, e: (a[0] * e[0], a[1] * e[0] + e[1]), (x, y))
lax.optimization_barrier(x) * 2
lax.select(x > 0, x, np.zeros_like(x))
lib.checkpoint(lambda v: lax.scan(lambda a, w: (np.sin(a + w), a), 0.0, v))(col)
"""
counted = """
lax.while_loop(lambda v: v[0] < 3, lambda v: (v[0] + 1, v[1] * 1.5), (0, x))[1]
lax.while_loop(lambda v: np.sum(v) < 50, lambda v: v * 2 + 1, p)
lax.while_loop(lambda v: v < 3, lambda v: v + 1.5, 0)
lax.fori_loop(0, j[1], lambda n, v: v * 1.1 + n, x)
lax.fori_loop(5, 2, lambda n, v: v + 1, x)
lax.fori_loop(0, 3, lambda n, v: v + n, 0)
lax.scan(lambda carry, v: (carry + 1, v), 0, i)
lax.scan(lambda carry, v: (carry, carry), 1.0, None, 3)
lax.scan(lambda carry, v: (carry | v, carry), False, b[0])
lax.cond(True, lambda: 1, lambda: 2)
lax.cond(s > 0, lambda: 1.0, lambda: np.float32(2.0))
lax.cond(b[0, 0], lambda v: v + 1, lambda v: v - 1, i)
lax.cond(i[0, 0], lambda: 1, lambda: 2)
lax.switch(j[2], [lambda: 1, lambda: 2, lambda: 3])
lax.map(lambda v: (v[0] + v[1], v[0]), (i, x))
lax.associative_scan(np.maximum, i, axis=1)
lax.scan(lambda carry, key: (carry, random.uniform(key)), 0, random.split(random.key(0), 3))[1]
lib.vmap(lambda n: lax.fori_loop(0, n, lambda k, v: v + k, 0))(j)
lib.vmap(lambda v: lax.while_loop(lambda w: w < 3.0, lambda w: w + 0.75, v))(r)
lib.vmap(lambda v: lax.cond(v > 0, np.sin, np.cos, v))(r)
lib.vmap(lambda n, v: lax.switch(n, [np.sin, np.cos, np.tan], v))(j, r)
lib.vmap(lambda v: lax.scan(lambda a, e: (a + e, a * e), v[0], v))(x)
"""
trees = """
tree_util.tree_flatten({"b": 1, "a": (2, None, [3])})[0]
tree_util.tree_leaves({"b": 1, "a": (2, None, [3])})
tree_util.tree_leaves(None)
tree_util.tree_leaves([1, None, 2], is_leaf=lambda v: v is None)
str(tree_util.tree_structure({"b": 1, "a": (2, None, [3])}))
str(tree_util.tree_structure(5))
str(tree_util.tree_structure(None))
tree_util.tree_structure([1, 2]) == tree_util.tree_structure([3, 4])
tree_util.tree_structure([1, 2]) == tree_util.tree_structure((3, 4))
tree_util.tree_structure({"a": [1, 2]}).num_leaves
tree_util.tree_structure({"a": [1, 2]}).num_nodes
tree_util.tree_map(lambda v: v + 1, {"a": 1, "b": [2, 3]})
tree_util.tree_map(lambda v, w: v + w, [1, (2,)], [10, (20,)])
tree_util.tree_map(lambda v, w: (v, w), [1, 2], [[3], {"a": 4}])
tree_util.tree_map(lambda v: 0 if v is None else v, [1, None], is_leaf=lambda v: v is None)
tree_util.tree_map(lambda v: v, None)
tree_util.tree_reduce(lambda v, w: v + w, [1, (2, 3)])
tree_util.tree_reduce(lambda v, w: v + w, [1, (2, 3)], 10)
tree_util.tree_all([True, (1,)])
tree_util.tree_all([])
tree_util.tree_transpose(tree_util.tree_structure([0, 0]), tree_util.tree_structure({"a": 0}), [{"a": 1}, {"a": 2}])
tree_util.tree_unflatten(tree_util.tree_structure({"a": [0, 0]}), [1, 2])
[(tree_util.keystr(path), leaf) for path, leaf in tree_util.tree_leaves_with_path({"a": [1, (2,)], "b": None})]
[tree_util.keystr(path, simple=True, separator="/") for path, _ in tree_util.tree_leaves_with_path({"a": [1, {3: 2}]})]
tree_util.tree_map_with_path(lambda path, v: tree_util.keystr(path) + str(v), {"a": [1, 2]})
[str(path) for path, _ in tree_util.tree_flatten_with_path({"a": [1]})[0]]
tree_util.tree_broadcast(1, {"a": 2, "b": [3]})
tree_util.all_leaves([1, 2])
tree_util.all_leaves([1, [2]])
tree_util.Partial(lambda v, w: v - w, 1)(2)
tree_util.tree_leaves(tree_util.Partial(lambda v, w: v - w, 1.5))
tree_util.treedef_is_leaf(tree_util.tree_structure(1))
str(tree_util.treedef_tuple([tree_util.tree_structure(1), tree_util.tree_structure([1])]))
[str(child) for child in tree_util.treedef_children(tree_util.tree_structure([1, (2,)]))]
lib.tree.map(lambda v: v * 2, (1, [2]))
lib.tree.leaves({"z": 1, "a": 2})
lib.tree.reduce(lambda v, w: v + w, (1, [2]), initializer=5)
lib.tree.transpose(lib.tree.structure((0, 0)), None, ([1], [2]))
tree_util.tree_leaves(onp.ones(2))
str(tree_util.SequenceKey(1)), str(tree_util.DictKey("a"))
str(tree_util.GetAttrKey("b")), str(tree_util.FlattenedIndexKey(2))
"""

Point = collections.namedtuple("Point", "across up")

# -- programs that need statements


def custom_jvp(lib: Any, x: Any) -> Any:
    @lib.custom_jvp
    def f(v: Any, w: Any) -> Any:
        return lib.numpy.sin(v) * w

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (v, w), (dv, dw) = primals, tangents
        return f(v, w), 3.0 * dv + lib.numpy.cos(v) * dw

    total = lambda v: f(v, v * 2).sum()
    return (
        total(x),
        lib.grad(total)(x),
        lib.jvp(lambda v: f(v, 2.0), (x,), (x,)),
        lib.vmap(lambda v: f(v, 1.0))(x),
        lib.hessian(total)(x[0]),
    )


def custom_jvp_by_argument(lib: Any, x: Any) -> Any:
    f = lib.custom_jvp(lambda v, w: v * w)
    f.defjvps(lambda dv, out, v, w: dv * 10.0, None)
    return lib.grad(lambda v: f(v, v).sum())(x)


def custom_jvp_static(lib: Any, x: Any) -> Any:
    @functools.partial(lib.custom_jvp, nondiff_argnums=(0,))
    def apply(g: Callable[[Any], Any], v: Any) -> Any:
        return g(v)

    @apply.defjvp
    def rule(g: Any, primals: Any, tangents: Any) -> Any:
        return g(primals[0]), 5.0 * tangents[0]

    return lib.grad(lambda v: apply(lib.numpy.sin, v).sum())(x), lib.jit(lambda v: apply(lib.numpy.cos, v))(x)


def custom_vjp(lib: Any, x: Any) -> Any:
    @lib.custom_vjp
    def f(tree: Any, w: Any) -> Any:
        return tree["a"] * w

    f.defvjp(lambda tree, w: (f(tree, w), (tree, w)), lambda saved, g: ({"a": g * 2.0}, g * saved[0]["a"]))
    total = lambda v: lib.numpy.sum(f({"a": v}, v + 1) ** 2)
    return total(x), lib.grad(total)(x), lib.jit(lib.grad(total))(x), lib.vmap(lib.grad(total))(x)


def custom_vjp_static(lib: Any, x: Any) -> Any:
    @functools.partial(lib.custom_vjp, nondiff_argnums=(1,))
    def clip_gradient(v: Any, limit: float) -> Any:
        return v

    clip_gradient.defvjp(lambda v, limit: (v, None), lambda limit, _, g: (lib.numpy.clip(g, -limit, limit),))
    return lib.grad(lambda v: (clip_gradient(v, 0.5) ** 3).sum())(x)


def custom_vjp_in_scan(lib: Any, x: Any) -> Any:
    f = lib.custom_vjp(lambda v: lib.numpy.sin(v))
    f.defvjp(lambda v: (f(v), lib.numpy.cos(v)), lambda c, g: (c * g * 2,))
    return lib.grad(lambda v: lib.lax.scan(lambda a, w: (f(a + w), a), 0.0, v)[0])(x[0])


def namedtuples(lib: Any, x: Any) -> Any:
    point = Point(x, 2 * x)
    return lib.grad(lambda p: lib.numpy.sum(p.across * p.up))(point), lib.vmap(lambda p: Point(p.up, p.across))(point)


def registered_nodes(lib: Any, x: Any) -> Any:
    class Pair:
        def __init__(self, first: Any, second: Any):
            self.first, self.second = first, second

    lib.tree_util.register_pytree_with_keys(
        Pair,
        lambda p: (
            ((lib.tree_util.GetAttrKey("first"), p.first), (lib.tree_util.GetAttrKey("second"), p.second)),
            "data",
        ),
        lambda data, children: Pair(*children),
    )
    gradient = lib.grad(lambda p: lib.numpy.sum(p.first * p.second))(Pair(x, 2 * x))
    paths = [lib.tree_util.keystr(path) for path, _ in lib.tree_util.tree_leaves_with_path([Pair(1, 2)])]
    return gradient.first, gradient.second, paths


def mixed_composition(lib: Any, x: Any) -> Any:
    def f(v: Any) -> Any:
        def body(carry: Any, w: Any) -> Any:
            carry = lib.lax.cond(w > 0, lambda c: lib.numpy.sin(c) + w, lambda c: c * w, carry)
            return carry, carry**2

        return lib.lax.scan(lib.checkpoint(body), 1.0, v)[1].sum()

    return lib.jit(lib.vmap(lib.grad(f)))(x), lib.vmap(lib.hessian(f))(x), lib.jit(lib.jacfwd(lib.jacrev(f)))(x[0])


def newton(lib: Any, x: Any) -> Any:
    def root(a: Any) -> Any:
        step = lambda v: v - (v * v - a) / (2 * v)
        return lib.lax.fori_loop(0, 6, lambda _, v: step(v), 1.0 + 0 * a)

    positive = lib.numpy.abs(x) + 0.5
    return lib.vmap(lib.vmap(root))(positive), lib.vmap(lib.grad(root))(positive[0])


def rnn(lib: Any, x: Any) -> Any:
    np = lib.numpy
    params = {"w": np.eye(4) * 0.5 + 0.1, "u": np.ones((4, 4)) * 0.1, "b": np.zeros(4)}

    def loss(p: Any) -> Any:
        cell = lambda h, v: (np.tanh(h @ p["w"] + v @ p["u"] + p["b"]),) * 2
        return np.mean(lib.lax.scan(cell, np.zeros(4), x)[1] ** 2)

    return lib.jit(lib.value_and_grad(loss))(params)


def ravelled(lib: Any, x: Any) -> Any:
    flat, back = lib.flatten_util.ravel_pytree({"a": x, "b": [x[0].astype(onp.float16), lib.numpy.arange(3)]})
    return flat, back(flat)


def x64(lib: Any, x: Any) -> Any:
    with lib.enable_x64(True):
        wide = lib.numpy.asarray(onp.float64(1) / 3)
        return (
            str(wide.dtype),
            str((wide * 2).dtype),
            str(lib.numpy.arange(3).dtype),
            str((x + wide).dtype),
            str(lib.numpy.sum(lib.numpy.arange(3)).dtype),
            float(lib.numpy.sin(wide)),
        )


def saved_names(lib: Any, x: Any) -> Any:
    name = lib.ad_checkpoint.checkpoint_name
    policy = lib.checkpoint_policies.save_only_these_names("kept")
    f = lib.checkpoint(lambda v: lib.numpy.sin(name(lib.numpy.exp(v), "kept") * 2), policy=policy)
    return lib.grad(lambda v: f(v).sum())(x)


def symbolic_zeros(lib: Any, x: Any) -> Any:
    @lib.custom_jvp
    def f(v: Any, w: Any) -> Any:
        return v * w

    def rule(primals: Any, tangents: Any) -> Any:
        (v, w), (dv, dw) = primals, tangents
        zero = isinstance(dw, lib.custom_derivatives.SymbolicZero)
        return f(v, w), dv * (100.0 if zero else 1.0)

    f.defjvp(rule, symbolic_zeros=True)
    return lib.jvp(lambda v: f(v, 2.0), (x,), (x,))[1], lib.jvp(f, (x, x), (x, x))[1]


PROGRAMS = [
    custom_jvp, custom_jvp_by_argument, custom_jvp_static, custom_vjp, custom_vjp_static, custom_vjp_in_scan,
    namedtuples, registered_nodes, mixed_composition, newton, rnn, ravelled, x64, saved_names, symbolic_zeros,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: Callable[..., Any]) -> None:
    results = [program(lib, lib.numpy.asarray(INPUTS["x"])) for lib in (weft, jax)]
    assert_same(*results, rtol=1e-4)


@pytest.mark.parametrize("row", rows(*lines(derivatives), batched=False, staged=False, rtol=1e-4))
def test_derivatives(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(*lines(loops), gradient=True, rtol=1e-4, weak=False))
def test_differentiable_loops(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(*lines(counted), weak=False))
def test_loops(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(*lines(trees)))
def test_trees(row: Any) -> None:
    check(row)
