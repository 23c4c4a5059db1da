"""Arrays on meshes and what is done with them outside and inside of programs; see `mesh_programs`."""

from __future__ import annotations

import copy
import functools
import pickle
from importlib import import_module
from typing import Any

import numpy as onp

from tests.peer.mesh_programs import floats, mesh_of, named, program


@program
def numpyish(j: Any) -> Any:
    x = j.lib.device_put(floats(8, 6), named(j, mesh_of(j, 4, 2), "x", "y"))
    return (
        j.np.array(x),
        onp.asarray(x, onp.float64),
        pickle.loads(pickle.dumps(x)),
        copy.deepcopy(x),
        copy.copy(x),
        x.tolist()[0],
        x.item() if x.size == 1 else 0,
        x.nbytes,
        x.itemsize,
        x.ndim,
        x.size,
        [r.sum() for r in x],
        x.astype(int),
        x.flatten(),
        x.ravel()[3:9],
        x.mean(1),
        x.std(),
        x.min(0),
        x.argmax(),
        x.dot(x.T),
        x.round(1),
        x.clip(0, 1),
        x.T.copy(),
        x.real,
        abs(x),
        -x,
        x**2,
        x // 1,
        x % 2,
        x @ x.T,
        2**x,
        x > 0,
        (x > 0).any(),
        (x > 0) & (x < 1),
        ~(x > 0),
        divmod(x, 2.0),
        x[..., None],
        x[None],
        x[2],
        x[-1, ::2],
        x[onp.array([1, 2])],
        x[x[:, 0].argsort()],
    )


@program
def updates(j: Any) -> Any:
    x = j.lib.device_put(floats(8, 6), named(j, mesh_of(j, 4, 2), "x", "y"))
    f = lambda x: (
        x.at[3].set(1.0),
        x.at[:, 2].add(2.0),
        x.at[1:5].multiply(3.0),
        x.at[onp.array([0, 7, 0])].add(1.0),
        x.at[0, 0].get(),
        x.at[::2].max(0.0),
        x.at[100].set(5.0, mode="drop"),
        x.at[2:4, 1:3].apply(j.np.sin),
    )
    return f(x), j.lib.jit(f)(x)


@program
def segments(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    x = j.lib.device_put(floats(16, 3), named(j, mesh, "x"))
    ids = j.lib.device_put(onp.arange(16) % 5, named(j, mesh, "x"))
    f = j.lib.jit(
        lambda x, i: (
            j.np.bincount(i, length=5),
            j.np.histogram(x, bins=4)[0],
            j.np.searchsorted(j.np.sort(x[:, 0]), x[:, 1]),
            j.np.digitize(x[:, 0], onp.array([-1.0, 0, 1])),
            j.np.interp(x[:, 0], onp.array([-1.0, 1]), onp.array([0.0, 2])),
        )
    )
    return f(x, ids), j.lib.jit(j.lib.grad(lambda x: (j.np.zeros((5, 3)).at[ids].add(x) ** 2).sum()))(x)


@program
def scans(j: Any) -> Any:
    mesh = mesh_of(j, 4)
    x = j.lib.device_put(floats(8, 4), named(j, mesh, "x"))
    f = lambda x: (
        j.lax.scan(lambda c, v: (c * 0.9 + v, c), j.np.zeros(4), x),
        j.lax.map(j.np.sin, x),
        j.lax.associative_scan(j.np.add, x),
        j.lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x)),
        j.lax.cummax(x, 0),
        j.lax.cumlogsumexp(x, 1),
        j.lax.cumprod(x, 0, reverse=True),
        j.lax.top_k(x.T, 3),
        j.lax.sort((x[:, 0], x[:, 1]), num_keys=1),
        j.lax.reduce_precision(x, 5, 3),
    )
    return j.lib.jit(f)(x), j.lib.jit(
        j.lib.grad(lambda x: j.np.sin(j.lax.scan(lambda c, v: (c * 0.9 + v, c), j.np.zeros(4), x)[1]).sum())
    )(x)


@program
def batches_of_matrices(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    x = j.lib.device_put(floats(8, 5, 3), named(j, mesh, "x"))
    f = lambda x: (
        j.np.linalg.svd(x, compute_uv=False),
        j.np.linalg.qr(x)[1].shape,
        j.np.linalg.pinv(x),
        j.np.linalg.slogdet(x[:, :3])[1],
        j.np.einsum("bij,bkj->ik", x, x),
        j.np.tensordot(x, x, ((0, 1), (0, 1))),
        j.np.kron(x[0], x[1]),
        j.np.fft.fft2(x).real,
        j.np.fft.rfft(x, axis=0).imag,
    )
    return j.lib.jit(f)(x)


@program
def attention_function(j: Any) -> Any:
    mesh = mesh_of(j, 2, 4)
    q, k, v = (j.lib.device_put(floats(2, 8, 4, 6, seed=i), named(j, mesh, "x", None, "y")) for i in range(3))
    f = lambda q, k, v: j.nn.dot_product_attention(q, k, v, is_causal=True)
    return j.lib.jit(f)(q, k, v), j.lib.jit(j.lib.grad(lambda q: (f(q, k, v) ** 2).sum()))(q)


@program
def named_checkpoints(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    w = j.lib.device_put(floats(8, 8) / 3, named(j, mesh, None, "x"))
    x = j.lib.device_put(floats(16, 8), named(j, mesh, "x"))

    def layer(w, x):
        return j.np.tanh(j.checkpoint_name(x @ w, "h"))

    pol = j.lib.checkpoint_policies.save_only_these_names("h")
    f = lambda w: (j.lib.checkpoint(layer, policy=pol)(w, j.lib.checkpoint(layer)(w, x)) ** 2).sum()
    return j.lib.jit(j.lib.value_and_grad(f))(w)


@program
def jacobians(j: Any) -> Any:
    mesh = mesh_of(j, 4)
    x = j.lib.device_put(floats(4), named(j, mesh, "x"))
    f = lambda x: j.np.cumsum(j.np.sin(x)) * x[0]
    y, lin = j.lib.linearize(f, x)
    return (
        j.lib.jit(j.lib.jacrev(f))(x),
        j.lib.jit(j.lib.jacfwd(f))(x),
        j.lib.hessian(lambda x: f(x).sum())(x),
        y,
        lin(x),
        j.lib.vjp(f, x)[1](x)[0],
        j.lib.vmap(j.lib.grad(lambda a: j.np.sin(a) * 2))(x),
    )


@program
def classes_as_trees(j: Any) -> Any:
    mesh = mesh_of(j, 8)

    @j.lib.tree_util.register_pytree_node_class
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

        def tree_flatten(self):
            return (self.a, self.b), None

        @classmethod
        def tree_unflatten(cls, _, c):
            return cls(*c)

    s = named(j, mesh, "x")
    p = j.lib.device_put(Pair(floats(8), floats(16, 2)), Pair(s, named(j, mesh, "x", None)))
    f = j.lib.jit(lambda p: Pair(p.b.sum(0), p.a * 2), out_shardings=Pair(named(j, mesh), s))
    out = f(p)
    g = j.lib.shard_map(
        lambda p: Pair(j.lax.psum(p.a, "x"), p.b),
        mesh=mesh,
        in_specs=(Pair(j.P("x"), j.P("x")),),
        out_specs=Pair(j.P(), j.P("x")),
    )
    return out.a, out.b, g(p).a, g(p).b


@program
def structs_and_lowering(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    s = j.lib.ShapeDtypeStruct((8, 4), onp.float32, sharding=named(j, mesh, "x", "y"))
    f = j.lib.jit(lambda x: x @ x.T)
    c = f.lower(s).compile()
    x = j.lib.device_put(floats(8, 4), s.sharding)
    e = j.lib.eval_shape(f, s)
    return c(x), e.shape, str(e.dtype), len(c.input_shardings[0])


@program
def sharding_queries(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    s = named(j, mesh, "x", None)
    m = s.devices_indices_map((8, 4))
    return (
        s.shard_shape((8, 4)),
        [str(v) for v in m.values()],
        [d.id for d in m],
        s.is_fully_replicated,
        len(s.device_set),
        str(s.spec),
        mesh.shape["x"],
        mesh.size,
        list(mesh.axis_names),
        mesh.devices.shape,
        mesh.empty,
        s.is_equivalent_to(named(j, mesh, "x"), 2),
        s == named(j, mesh, "x", None),
        hash(s) == hash(named(j, mesh, "x", None)),
        s.num_devices,
        s.memory_kind is not None,
    )


@program
def vmap_of_constraints(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    f = lambda x: j.lax.with_sharding_constraint(j.np.sin(x), named(j, mesh, "x"))
    x = floats(2, 8, 3)
    return (
        j.lib.jit(j.lib.vmap(f))(x),
        j.lib.jit(j.lib.vmap(f, in_axes=2, out_axes=1))(x),
        j.lib.jit(j.lib.grad(lambda x: f(x).sum()))(x[0]),
        j.lib.vmap(j.lib.vmap(f))(floats(2, 2, 8)),
    )


@program
def while_with_split_carry(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    x = j.lib.device_put(abs(floats(8, 3)), named(j, mesh, "x"))
    f = lambda x: j.lax.while_loop(
        lambda c: (c[0].sum() < 200) & (c[1] < 50), lambda c: (c[0] * 1.3 + c[0].mean(0), c[1] + 1), (x, 0)
    )
    return (
        j.lib.jit(f)(x),
        j.lib.jvp(lambda x: f(x)[0], (x,), (x,)),
        j.lib.jit(lambda x: j.lax.fori_loop(0, 5, lambda i, c: c.at[i].set(c[i] * 2), x))(x),
    )


@program
def branches_on_split_values(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    x = j.lib.device_put(floats(8, 3), named(j, mesh, "x"))
    f = lambda x: j.lax.cond(x.sum() > 0, lambda x: x @ x.T, lambda x: x[:, :1] * x[:, :1].T, x)
    g = lambda x, i: j.lax.switch(i, [lambda x: x.sum(0), lambda x: x.max(0), lambda x: x[2]], x)
    return (
        j.lib.jit(f)(x),
        j.lib.jit(j.lib.grad(lambda x: f(x).sum()))(x),
        [j.lib.jit(g)(x, i) for i in range(3)],
        j.lib.jit(j.lib.vmap(lambda r: j.lax.cond(r[0] > 0, j.np.sin, j.np.cos, r)))(x),
    )


@program
def process_gathering(j: Any) -> Any:
    mh = import_module(j.lib.__name__ + ".experimental.multihost_utils")
    x = j.lib.device_put(floats(8, 3), named(j, mesh_of(j, 8), "x"))
    return (
        mh.process_allgather(x, tiled=True),
        mh.broadcast_one_to_all(floats(3)),
        j.lib.process_count(),
        j.lib.device_count(),
        j.lib.local_device_count(),
    )


@program
def sums_of_everything(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)

    def body(t):
        return (
            j.lax.psum(t, "x"),
            j.lax.pmean(t, ("x", "y")),
            j.lax.psum(1, "x"),
            j.lax.psum(2.5, ("x", "y")),
            j.lax.axis_size("y"),
            j.lax.pmax(t["a"], "y"),
        )

    f = j.lib.shard_map(
        body, mesh=mesh, in_specs=({"a": j.P("x"), "b": (j.P(("x", "y")),)},), out_specs=j.P(), check_vma=False
    )
    return f({"a": floats(8, 2), "b": (floats(8),)})


@program
def uneven_work(j: Any) -> Any:
    """Sizes that do not split evenly, inside of a program."""
    mesh = mesh_of(j, 8)
    x = j.lib.device_put(floats(8, 3), named(j, mesh, "x"))
    f = j.lib.jit(
        lambda x: (
            j.np.concatenate([x, x[:5]]),
            x[1:],
            x[:-1] * 2,
            j.np.pad(x, ((1, 2), (0, 0))),
            j.np.roll(x, 1, 0) - x,
            j.np.convolve(x[:, 0], onp.array([1.0, 2, 1]), "same"),
            x[::3],
            j.np.diff(x, axis=0).sum(0),
        )
    )
    return f(x)


@program
def key_arrays(j: Any) -> Any:
    mesh = mesh_of(j, 4)
    ks = j.lib.jit(lambda k: j.lib.random.split(k, 8), out_shardings=named(j, mesh, "x"))(j.lib.random.key(3))
    g = j.lib.shard_map(
        lambda k: j.lax.all_gather(k, "x", tiled=True), mesh=mesh, in_specs=j.P("x"), out_specs=j.P(), check_vma=False
    )
    h = j.lib.shard_map(
        lambda k: j.lax.ppermute(k, "x", [(i, (i + 1) % 4) for i in range(4)]),
        mesh=mesh,
        in_specs=j.P("x"),
        out_specs=j.P("x"),
    )
    d = j.lib.random.key_data
    return (
        d(ks),
        d(g(ks)),
        d(h(ks)),
        d(ks[::-1]),
        d(j.np.concatenate([ks, ks])),
        d(j.lib.vmap(lambda k: j.lib.random.fold_in(k, 3))(ks)),
        j.lib.random.normal(ks[2], (3,)),
        d(j.lib.random.wrap_key_data(d(ks))),
    )


@program
def donation_between_shardings(j: Any) -> Any:
    mesh = mesh_of(j, 4, 2)
    x = j.lib.device_put(floats(16, 16), named(j, mesh, "x"))
    f = j.lib.jit(lambda x: x.T + 1, donate_argnums=0, out_shardings=named(j, mesh, "y"))
    y = f(x)
    z = j.lib.jit(lambda a, b: (a + b, b), donate_argnums=(0,))(y, y * 2)
    return z


@program
def closed_over_arrays(j: Any) -> Any:
    mesh = mesh_of(j, 8)
    w = j.lib.device_put(floats(8, 8), named(j, mesh, "x"))
    b = j.np.arange(8.0)
    f = j.lib.jit(lambda x: x @ w + b)
    g = j.lib.shard_map(lambda x: x * b[:1] + j.lax.psum(x, "x"), mesh=mesh, in_specs=j.P("x"), out_specs=j.P("x"))
    return f(floats(3, 8)), g(floats(8)), j.lib.grad(lambda x: f(x).sum())(floats(3, 8)), j.lib.vmap(f)(floats(2, 3, 8))


@program
def custom_rules_on_meshes(j: Any) -> Any:
    mesh = mesh_of(j, 8)

    @functools.partial(j.lib.custom_vjp, nondiff_argnums=(0,))
    def scaled(n, x):
        return x * n

    scaled.defvjp(lambda n, x: (x * n, x), lambda n, r, g: (g * n + r.sum(),))

    @j.lib.custom_jvp
    def safe(x):
        return j.np.where(x > 0, j.np.log(abs(x)), 0)

    safe.defjvp(lambda p, t: (safe(p[0]), t[0] / (1 + abs(p[0]))))
    x = j.lib.device_put(floats(8, 3), named(j, mesh, "x"))
    return (
        j.lib.jit(j.lib.grad(lambda x: (scaled(3.0, x) ** 2).sum()))(x),
        j.lib.jit(j.lib.grad(lambda x: safe(x).sum()))(x),
        j.lib.jit(j.lib.vmap(j.lib.grad(lambda r: safe(r).sum())))(x),
    )


@program
def microbatched_pmap(j: Any) -> Any:
    def step(w, xs):
        def one(c, x):
            return c + j.lib.grad(lambda w: (j.np.tanh(x @ w) ** 2).sum())(w), None

        g, _ = j.lax.scan(one, j.np.zeros_like(w), xs)
        return w - 0.01 * j.lax.psum(g, "d"), j.lax.all_gather(g, "d")

    f = j.lib.pmap(step, axis_name="d", in_axes=(None, 0), out_axes=(None, 0))
    return f(floats(4, 2), floats(8, 3, 5, 4))
