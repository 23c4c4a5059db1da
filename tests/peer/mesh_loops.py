"""Programs on meshes whose parts are put together in unusual ways: bodies in loops and branches, groups of devices,
rules of the user inside of bodies, types over Explicit axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from tests.peer.mesh_programs import floats, mesh_of, named, program

Body = Callable[..., Any]


def summing(j: Any, mesh: Any) -> Body:
    return j.lib.shard_map(lambda x: j.lax.psum(x, "x") * 0.1 + x, mesh=mesh, in_specs=j.P("x"), out_specs=j.P("x"))


def mapped(j: Any, body: Body, mesh: Any, ins: Any, outs: Any, **options: Any) -> Body:
    return j.lib.jit(j.lib.shard_map(body, mesh=mesh, in_specs=ins, out_specs=outs, **options))


@program
def bodies_in_loops(j: Any) -> Any:
    f, x = summing(j, mesh_of(j, 8)), floats(8, 2)
    scanned = j.lib.jit(lambda x: j.lax.scan(lambda c, _: (f(c), c.sum()), x, None, length=4))
    counted = j.lib.jit(lambda x: j.lax.fori_loop(0, 3, lambda i, c: f(c) + i, x))
    while_ = lambda x: j.lax.while_loop(lambda c: (c[0] ** 2).sum() < 1e6, lambda c: (f(c[0]), c[1] + 1), (x, 0))
    split = j.lib.device_put(x, named(j, mesh_of(j, 8), "x"))
    return (
        scanned(x),
        j.lib.grad(lambda x: scanned(x)[1].sum())(x),
        [counted(a) for a in (x, split)],
        [j.lib.jit(while_)(a) for a in (x, split)],
        j.lib.jvp(counted, (split,), (split,)),
    )


@program
def bodies_in_branches(j: Any) -> Any:
    f, x = summing(j, mesh_of(j, 8)), floats(8, 2)
    g = j.lib.jit(lambda x: j.lax.cond(x.sum() > 0, f, lambda x: x * 2, x))
    return g(x), g(-x), j.lib.grad(lambda x: g(x).sum())(x), j.lib.vmap(g)(j.np.stack([x, -x]))


@program
def gradients_of_bodies_accumulate(j: Any) -> Any:
    mean = lambda w, x: j.lax.pmean(((x @ w) ** 2).mean(), "x")
    loss = j.lib.shard_map(mean, mesh=mesh_of(j, 8), in_specs=(j.P(), j.P("x")), out_specs=j.P())

    def step(w: Any, batches: Any) -> Any:
        return j.lax.scan(lambda sums, x: (sums + j.lib.grad(loss)(w, x), None), j.np.zeros_like(w), batches)[0]

    return j.lib.jit(step)(floats(4, 3), floats(5, 8, 4))


@program
def groups_of_devices(j: Any) -> Any:
    x, found = floats(8, 4, 4), []
    groups = [[0, 2, 4, 6], [1, 3, 5, 7]]
    for body in (
        lambda x: j.lax.psum(j.np.sin(x), "x", axis_index_groups=groups),
        lambda x: j.lax.all_gather(x, "x", axis_index_groups=groups, axis=1, tiled=True),
        lambda x: j.lax.psum_scatter(x[0], "x", axis_index_groups=groups, scatter_dimension=1)[None],
        lambda x: j.lax.pmean(x, "x", axis_index_groups=groups),
    ):
        f = mapped(j, body, mesh_of(j, 8), j.P("x"), j.P("x"), check_vma=False)
        found += [f(x), j.lib.grad(lambda x, f=f: (f(x) * f(x)).sum())(x), j.lib.vmap(f)(j.np.stack([x, 2 * x]))]
    return found


@program
def bodies_three_deep(j: Any) -> Any:
    P = j.P

    def third(x: Any) -> Any:
        return j.lax.psum(x, "z")

    def second(x: Any) -> Any:
        inner = j.lib.shard_map(third, in_specs=P(None, None, "z"), out_specs=P(), axis_names={"z"})
        return inner(x) + j.lax.axis_index("y")

    def first(x: Any) -> Any:
        inner = j.lib.shard_map(second, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"})
        return inner(j.np.sin(x))

    f = mapped(j, first, mesh_of(j, 2, 2, 2), P("x"), P("x"), axis_names={"x"})
    return f(floats(4, 4, 4)), j.lib.grad(lambda x: (f(x) ** 2).sum())(floats(4, 4, 4))


@program
def policies_of_remat_in_bodies(j: Any) -> Any:
    x, w, found = floats(8, 4), floats(4, 4, seed=1), []
    policies = j.lib.checkpoint_policies
    for policy in (policies.nothing_saveable, policies.dots_saveable, policies.save_only_these_names("h")):

        def one(x: Any, w: Any) -> Any:
            return j.checkpoint_name(j.np.tanh(j.lax.psum(x @ w, "x")), "h")

        layer = j.lib.checkpoint(one, policy=policy)
        body = lambda w, x, layer=layer: layer(layer(x, w), w).sum()
        f = j.lib.shard_map(body, mesh=mesh_of(j, 8), in_specs=(j.P(), j.P("x")), out_specs=j.P())
        found.append(j.lib.jit(j.lib.value_and_grad(f))(w, x))
    return found


@program
def rules_of_users_in_bodies(j: Any) -> Any:
    @j.lib.custom_jvp
    def mean(x: Any) -> Any:
        return j.lax.pmean(j.np.sin(x), "x")

    mean.defjvp(lambda p, t: (mean(p[0]), j.lax.pmean(j.np.cos(p[0]) * t[0], "x") * 2))

    @j.lib.custom_vjp
    def matmul(x: Any, w: Any) -> Any:
        return x @ w

    backward = lambda saved, c: (c @ saved[1].T, j.lax.psum(saved[0].T @ c, "x"))
    matmul.defvjp(lambda x, w: (matmul(x, w), (x, w)), backward)
    mesh, x, w = mesh_of(j, 4), floats(8, 4), floats(4, 4, seed=2)
    f = mapped(j, mean, mesh, j.P("x"), j.P())
    g = mapped(j, lambda w, x: matmul(x, w), mesh, (j.P(), j.P("x")), j.P("x"), check_vma=False)
    return (
        j.lib.jvp(f, (x,), (x,)),
        j.lib.grad(lambda x: f(x).sum())(x),
        j.lib.grad(lambda w, x: (g(w, x) ** 2).sum(), (0, 1))(w, x),
    )


@program
def branches_by_position(j: Any) -> Any:
    branches = lambda: [j.np.sin, j.np.cos, lambda x: x**2, lambda x: x * 0]
    body = lambda x: j.lax.switch(j.lax.axis_index("x"), branches(), x)
    f, x = mapped(j, body, mesh_of(j, 4), j.P("x"), j.P("x")), floats(8, 3)
    return f(x), j.lib.grad(lambda x: f(x).sum())(x), j.lib.vmap(f, in_axes=1, out_axes=1)(x[:, :, None])


@program
def loops_over_split_arrays(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    x = j.lib.device_put(floats(16, 3), named(j, mesh, "x"))
    scanned = j.lib.jit(lambda xs: j.lax.scan(lambda c, x: (c + j.np.sin(x), c), j.np.zeros(3), xs))
    updated = lambda x: j.lax.fori_loop(0, 5, lambda i, c: c.at[3 * i].add(x[i]) * 0.9, x)
    return (
        scanned(x),
        j.lib.grad(lambda x: scanned(x)[1].sum())(x),
        j.lib.jit(updated)(x),
        j.lib.jit(j.lib.jacfwd(lambda x: updated(x).sum()))(x),
        j.lib.jit(lambda x: j.lax.associative_scan(j.np.add, x))(x),
        j.lib.jit(lambda x: j.lax.map(lambda row: row.sum(), x))(x),
    )


@program
def types_in_loops(j: Any) -> Any:
    P = j.P
    with j.lib.set_mesh(j.lib.make_mesh((8,), ("x",), (j.lib.sharding.AxisType.Explicit,))):
        a = j.lib.device_put(floats(8, 8), P("x", None))
        scanned = lambda a: j.lax.scan(lambda c, _: (j.np.sin(c), c.sum(1)), a, None, length=3)
        results = [
            j.lib.jit(scanned)(a),
            j.lib.jit(lambda a: j.lax.cond(a.sum() > 0, lambda a: a * 2, lambda a: a + 1, a))(a),
            j.lib.jit(lambda a: j.lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 1.5 + 1, a))(a),
            j.lib.jit(j.lib.vmap(lambda row: row * 2 + row.sum()))(a),
            j.lib.jit(j.lib.grad(lambda a: scanned(a)[1].sum()))(a),
            j.lib.jit(j.lib.checkpoint(lambda a: j.np.sin(a) @ j.np.ones((8, 3))))(a),
        ]
        return results, [str(j.lib.typeof(x)) for x in j.lib.tree.leaves(results)]


@program
def donated_in_a_loop(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    step = j.lib.jit(lambda c, b: (c[0] * 0.9 + b, c[1] + 1), donate_argnums=0)
    state = j.lib.device_put(floats(16, 4), named(j, mesh, "x")), j.lib.device_put(onp.int32(0), named(j, mesh))
    for i in range(7):
        before, state = state, step(state, j.lib.device_put(floats(16, 4, seed=i), named(j, mesh, "x")))
    return state, str(before[0].is_deleted())
