"""Bodies of `shard_map` as people write them; see `mesh_programs`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as onp

from tests.peer.mesh_programs import floats, mesh_of, named, program

# ------------------------------------------------------------------------------------------------------- shard_map


@program
def matmul_by_hand(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    a, b = floats(8, 16), floats(16, 4)
    one = j.lib.shard_map(lambda a, b: j.lax.psum(a @ b, "y"), mesh=mesh, in_specs=(j.P("x", "y"), j.P("y", None)),
                          out_specs=j.P("x", None))  # fmt: skip
    two = j.lib.shard_map(
        lambda a, b: j.lax.psum_scatter(a @ b, "y", scatter_dimension=1, tiled=True), mesh=mesh,
        in_specs=(j.P("x", "y"), j.P("y", None)), out_specs=j.P("x", "y"),
    )  # fmt: skip
    return one(a, b), j.lib.jit(two)(a, b), j.lib.grad(lambda a, b: j.np.sin(two(a, b)).sum(), (0, 1))(a, b)


@program
def ring_of_permutes(j: Any) -> Any:
    mesh = mesh_of(j, 8)

    def body(a: Any, b: Any) -> Any:
        size, index = 8, j.lax.axis_index("x")
        out = j.np.zeros((a.shape[0], b.shape[1] * size), a.dtype)
        out = j.lax.pcast(out, "x", to="varying")
        for step in range(size):
            source = (index - step) % size
            out = j.lax.dynamic_update_slice(out, a @ b, (0, source * b.shape[1]))
            b = j.lax.ppermute(b, "x", [(i, (i + 1) % size) for i in range(size)])
        return out

    f = j.lib.shard_map(body, mesh=mesh, in_specs=(j.P("x"), j.P(None, "x")), out_specs=j.P("x"))
    a, b = floats(16, 3), floats(3, 16)
    return j.lib.jit(f)(a, b), j.lib.jit(j.lib.grad(lambda a, b: j.np.cos(f(a, b)).sum(), (0, 1)))(a, b)


@program
def pipeline(j: Any) -> Any:
    """Stages on a ring, microbatches in a scan."""
    mesh, stages, count = mesh_of(j, 4), 4, 6

    def body(w: Any, xs: Any) -> Any:
        index = j.lax.axis_index("x")

        def tick(carry: Any, t: Any) -> Any:
            state, outs = carry
            state = j.np.where(index == 0, xs[j.np.minimum(t, count - 1)], state)
            state = j.np.tanh(state @ w[0])
            outs = j.np.where((index == stages - 1) & (t >= stages - 1), outs.at[t - stages + 1].set(state), outs)
            return (j.lax.ppermute(state, "x", [(i, i + 1) for i in range(stages - 1)]), outs), None

        begin = j.lax.pcast((j.np.zeros_like(xs[0]), j.np.zeros_like(xs)), "x", to="varying")
        (_, outs), _ = j.lax.scan(tick, begin, j.np.arange(count + stages - 1))
        return j.lax.psum(j.np.where(index == stages - 1, outs, 0), "x")

    f = j.lib.shard_map(body, mesh=mesh, in_specs=(j.P("x"), j.P()), out_specs=j.P())
    w, xs = floats(4, 5, 5) / 2, floats(6, 2, 5)
    return j.lib.jit(f)(w, xs), j.lib.jit(j.lib.grad(lambda w: (f(w, xs) ** 2).sum()))(w)


@program
def mixture_of_experts(j: Any) -> Any:
    mesh = mesh_of(j, 4)

    def body(gates: Any, experts: Any, x: Any) -> Any:
        scores = j.nn.softmax(x @ gates)
        choice = j.np.argmax(scores, -1)
        chosen = j.nn.one_hot(choice, 4)
        position = (j.np.cumsum(chosen, 0) - 1) * chosen
        sent = j.np.einsum("te,tec,td->ecd", chosen, j.nn.one_hot(position, 8), x)
        arrived = j.lax.all_to_all(sent, "x", 0, 0)
        done = j.nn.gelu(j.np.einsum("gcd,df->gcf", arrived, experts[0]))
        back = j.lax.all_to_all(done, "x", 0, 0)
        out = j.np.einsum("te,tec,ecf->tf", chosen, j.nn.one_hot(position, 8), back)
        return out * scores.max(-1, keepdims=True)

    f = j.lib.shard_map(body, mesh=mesh, in_specs=(j.P(), j.P("x"), j.P("x")), out_specs=j.P("x"))
    args = floats(6, 4), floats(4, 6, 6), floats(32, 6)
    return j.lib.jit(f)(*args), j.lib.jit(j.lib.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1, 2)))(*args)


@program
def ring_attention(j: Any) -> Any:
    mesh = mesh_of(j, 4)

    def body(q: Any, k: Any, v: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            k, v, most, total, out = carry
            scores = q @ k.T
            new = j.np.maximum(most, scores.max(-1))
            weights, scale = j.np.exp(scores - new[:, None]), j.np.exp(most - new)
            out = out * scale[:, None] + weights @ v
            total = total * scale + weights.sum(-1)
            on = lambda a: j.lax.ppermute(a, "x", [(i, (i + 1) % 4) for i in range(4)])
            return (on(k), on(v), new, total, out), None

        first = j.lax.pcast(
            (j.np.full(q.shape[:1], -j.np.inf), j.np.zeros(q.shape[:1]), j.np.zeros((q.shape[0], v.shape[1]))),
            "x", to="varying",
        )  # fmt: skip
        (_, _, _, total, out), _ = j.lax.scan(step, (k, v, *first), None, length=4)
        return out / total[:, None]

    f = j.lib.shard_map(body, mesh=mesh, in_specs=j.P("x"), out_specs=j.P("x"))
    q, k, v = floats(16, 4), floats(16, 4, seed=1), floats(16, 3, seed=2)
    return j.lib.jit(f)(q, k, v), j.lib.jit(j.lib.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1, 2)))(q, k, v)


@program
def fsdp_by_hand(j: Any) -> Any:
    """Parameters are gathered where they are used; a scan over layers with remat gathers them again."""
    mesh = mesh_of(j, 8)

    def loss(layers: Any, x: Any) -> Any:
        @j.lib.checkpoint
        def layer(h: Any, w: Any) -> Any:
            return j.np.tanh(h @ j.lax.all_gather(w, "x", tiled=True)), None

        h, _ = j.lax.scan(layer, x, layers)
        return j.lax.pmean((h**2).mean(), "x")

    f = j.lib.shard_map(loss, mesh=mesh, in_specs=(j.P(None, "x"), j.P("x")), out_specs=j.P())
    layers, x = floats(3, 8, 8) / 3, floats(16, 8)
    return j.lib.jit(j.lib.value_and_grad(f))(layers, x)


@program
def fsdp_by_shardings(j: Any) -> Any:
    mesh = mesh_of(j, 8)

    @functools.partial(j.lib.jit, donate_argnums=0)
    def step(state: Any, x: Any) -> Any:
        layers, moments = state

        def loss(layers: Any) -> Any:
            body = j.lib.checkpoint(lambda h, w: (j.np.tanh(h @ w), None))
            return (j.lax.scan(body, x, layers)[0] ** 2).mean()

        value, grads = j.lib.value_and_grad(loss)(layers)
        moments = 0.9 * moments + grads
        return (layers - 0.1 * moments, moments), value

    split = named(j, mesh, None, "x")
    state = j.lib.device_put((floats(3, 8, 8) / 3, onp.zeros((3, 8, 8), onp.float32)), split)
    values = []
    for i in range(3):
        state, value = step(state, j.lib.device_put(floats(16, 8, seed=i), named(j, mesh, "x")))
        values.append(value)
    return state, values, state[0].sharding.is_equivalent_to(split, 3)


@program
def custom_vjp_inside(j: Any) -> Any:
    mesh = mesh_of(j, 4)

    @j.lib.custom_vjp
    def f(x: Any, w: Any) -> Any:
        return j.lax.psum(x * w, "x")

    f.defvjp(lambda x, w: (f(x, w), (x, w)), lambda r, g: (g * r[1] * 2, g * r[0]))
    body = j.lib.shard_map(f, mesh=mesh, in_specs=(j.P("x"), j.P("x")), out_specs=j.P(), check_vma=False)
    x, w = floats(8), floats(8, seed=1)
    return body(x, w), j.lib.grad(lambda *a: body(*a).sum(), (0, 1))(x, w)


@program
def custom_vjp_that_is_checked(j: Any) -> Any:
    mesh = mesh_of(j, 4)

    @j.lib.custom_vjp
    def clipped(x: Any) -> Any:
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, g: (j.np.clip(g, -0.1, 0.1),))
    f = j.lib.shard_map(lambda x: j.lax.psum(j.np.sin(clipped(x)), "x"), mesh=mesh, in_specs=j.P("x"), out_specs=j.P())
    return j.lib.grad(lambda x: f(x).sum())(floats(8)), j.lib.jit(j.lib.grad(lambda x: f(x).sum()))(floats(8))


@program
def derivatives_of_derivatives(j: Any) -> Any:
    mesh = mesh_of(j, 4)
    f = j.lib.shard_map(lambda x, w: j.lax.psum(j.np.sin(x * w).sum(), "x"), mesh=mesh, in_specs=(j.P("x"), j.P()),
                        out_specs=j.P())  # fmt: skip
    x, w = floats(8), onp.float32(0.7)
    over = lambda w: j.lib.jvp(lambda w: j.lib.vjp(f, x, w)[1](onp.float32(1))[1], (w,), (w,))
    return over(w), j.lib.hessian(lambda w: f(x, w))(w), j.lib.jit(j.lib.hessian(lambda x: f(x, w)))(x)


@program
def loops_with_collectives(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)

    def body(x: Any) -> Any:
        more = lambda c: (j.lax.psum(c[1], "x") < 40.0)[0] & (c[0] < 9)
        return j.lax.while_loop(more, lambda c: (c[0] + 1, c[1] * 1.5 + j.lax.pmax(c[1], "x")), (0, x))

    f = j.lib.shard_map(body, mesh=mesh, in_specs=j.P("x"), out_specs=(j.P(), j.P("x")))
    g = j.lib.shard_map(
        lambda x: j.lax.fori_loop(0, 3, lambda i, c: c + j.lax.ppermute(c, "y", [(0, 1), (1, 0)]) * i, x),
        mesh=mesh, in_specs=j.P("x", "y"), out_specs=j.P("x", "y"),
    )  # fmt: skip
    return f(abs(floats(4))), j.lib.jit(g)(floats(4, 4)), j.lib.grad(lambda x: j.np.sin(g(x)).sum())(floats(4, 4))


@program
def branches_with_collectives(j: Any) -> Any:
    mesh = mesh_of(j, 4)

    def body(x: Any, flag: Any) -> Any:
        return j.lax.cond(flag, lambda x: j.lax.psum(x, "x"), lambda x: j.lax.pmean(x, "x"), x)

    f = j.lib.shard_map(body, mesh=mesh, in_specs=(j.P("x"), j.P()), out_specs=j.P())
    g = j.lib.shard_map(lambda x, i: j.lax.switch(i, [j.np.sin, j.np.cos, lambda x: x * 2], x), mesh=mesh,
                        in_specs=(j.P("x"), j.P()), out_specs=j.P("x"))  # fmt: skip
    x = floats(8)
    grads = j.lib.jit(j.lib.grad(lambda x: f(x, True).sum()))
    return f(x, True), f(x, False), grads(x), g(x, 1), j.lib.jit(j.lib.grad(lambda x: g(x, 2).sum()))(x)


@program
def auto_axes_inside(j: Any) -> Any:
    """Manual along one axis; the other is the compiler's."""
    mesh = mesh_of(j, 4, 2)

    def body(x: Any, w: Any) -> Any:
        h = j.lax.with_sharding_constraint(x @ w, j.P(None, "y"))
        return j.lax.psum(j.np.tanh(h), "x")

    f = j.lib.shard_map(body, mesh=mesh, in_specs=(j.P("x"), j.P()), out_specs=j.P(), axis_names={"x"})
    x, w = floats(8, 4), floats(4, 6)
    return j.lib.jit(f)(x, w), j.lib.jit(j.lib.grad(lambda w: f(x, w).sum()))(w)


@program
def nested(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)

    def outer(x: Any) -> Any:
        inner = j.lib.shard_map(lambda y: j.lax.psum(y, "y") + j.lax.axis_index("x"), in_specs=j.P(None, "y"),
                                out_specs=j.P(), axis_names={"y"})  # fmt: skip
        return inner(x) * 2

    f = j.lib.shard_map(outer, mesh=mesh, in_specs=j.P("x"), out_specs=j.P("x"), axis_names={"x"})
    return j.lib.jit(f)(floats(4, 4)), j.lib.jit(j.lib.grad(lambda x: j.np.sin(f(x)).sum()))(floats(4, 4))


@program
def vmap_along_a_mesh_axis(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    f = j.lib.shard_map(lambda x: j.lax.psum(x, "x"), mesh=mesh, in_specs=j.P("x"), out_specs=j.P())
    g = lambda x: j.lax.with_sharding_constraint(j.np.sin(x), named(j, mesh, "x"))
    both = j.lib.jit(j.lib.vmap(f, spmd_axis_name="y"))
    return (
        both(floats(4, 8)),
        j.lib.jit(j.lib.vmap(g, spmd_axis_name="y"))(floats(4, 8)),
        j.lib.vmap(f, 1, 1)(floats(8, 3)),
    )


@program
def gradients_in_the_body(j: Any) -> Any:
    """Train data parallel, all of it inside."""
    mesh = mesh_of(j, 8)

    def step(w: Any, x: Any, y: Any) -> Any:
        loss = lambda w: ((x @ w - y) ** 2).mean()
        value, grad = j.lib.value_and_grad(lambda w: j.lax.pmean(loss(w), "x"))(w)
        return w - 0.1 * grad, value

    f = j.lib.jit(j.lib.shard_map(step, mesh=mesh, in_specs=(j.P(), j.P("x"), j.P("x")), out_specs=(j.P(), j.P())))
    w, out = floats(4), []
    for i in range(3):
        w, value = f(w, floats(16, 4, seed=i), floats(16, seed=i))
        out.append(value)
    return w, out


@program
def unchecked_gradients(j: Any) -> Any:
    mesh = mesh_of(j, 8)

    def step(w: Any, x: Any) -> Any:
        grad = j.lib.grad(lambda w: j.np.sin(x @ w).sum())(w)
        return j.lax.pmean(grad, "x")

    f = j.lib.shard_map(step, mesh=mesh, in_specs=(j.P(), j.P("x")), out_specs=j.P(), check_vma=False)
    g = j.lib.shard_map(lambda x: j.lax.psum(x**2, "x"), mesh=mesh, in_specs=j.P("x"), out_specs=j.P(), check_vma=False)
    return f(floats(4), floats(8, 4)), j.lib.grad(lambda x: g(x).sum())(floats(8))


@program
def callbacks_in_bodies(j: Any) -> Any:
    mesh, seen = mesh_of(j, 4), []

    def body(x: Any) -> Any:
        j.lib.debug.callback(lambda v: seen.append(float(v)), x.sum())
        y = j.lib.pure_callback(lambda v: onp.asarray(v) * 2, j.lib.ShapeDtypeStruct(x.shape, x.dtype), x)
        return y + 1

    f = j.lib.shard_map(body, mesh=mesh, in_specs=j.P("x"), out_specs=j.P("x"), check_vma=False)
    out = j.lib.jit(f)(onp.arange(8, dtype=onp.float32))
    j.lib.effects_barrier()
    return out, sorted(seen)


@program
def callbacks_in_jit(j: Any) -> Any:
    seen: list[Any] = []
    x = j.lib.device_put(onp.arange(8, dtype=onp.float32), named(j, mesh_of(j, 4), "x"))

    def f(x: Any) -> Any:
        j.lib.debug.callback(lambda v: seen.append(float(v)), x.sum())
        return j.lib.pure_callback(lambda v: onp.asarray(v)[::-1].copy(), j.lib.ShapeDtypeStruct(x.shape, x.dtype), x)

    out = j.lib.jit(f)(x)
    j.lib.effects_barrier()
    return out, sorted(set(seen))
