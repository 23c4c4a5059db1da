"""Explicit axes: the types of results, what is refused, and `out_sharding`: the same lines as JAX."""

from __future__ import annotations

from typing import Any

import numpy as onp

from tests.peer.mesh_lines import answers, print_answers, same_as_jax

# Names: lib, np (its numpy), s (its shardings), P, N (a sharding on a mesh of 4 x 2, which is set), A and B (NumPy),
# and the same on the mesh: a, ax, ay, a0, b, bx, by; indices i (whole) and ix (split).
LINES = [
    "ax + 1",
    "a @ b",
    "np.matmul(a, b, out_sharding=P('x'))",
    "np.matmul(a, b, out_sharding=P('x','y'))",
    "lib.jit(lambda a,b: np.matmul(a, b, out_sharding=P('x')))(a,b)",
    "np.dot(a, b, out_sharding=P('x'))",
    "np.einsum('ij,jk->ik', a, b, out_sharding=P('x', None))",
    "np.einsum('ij,jk->ik', a, b)",
    "lib.lax.dot_general(a, b, (((1,),(0,)),((),())), out_sharding=P())",
    "np.matmul(a, b, out_sharding=N('x'))",
    "ax.reshape(4,2,16)",
    "ax.reshape(8,4,4)",
    "ax.reshape(128)",
    "ay.reshape(128)",
    "ay.reshape(8,2,8)",
    "ay.reshape(8,4,4)",
    "ay.reshape(128, out_sharding=P('x'))",
    "np.reshape(ay, (16,8), out_sharding=P('x','y'))",
    "lib.lax.reshape(ay, (16,8), out_sharding=P('x','y'))",
    "ay.ravel(out_sharding=P())",
    "ay.flatten(out_sharding=P())",
    "ax.reshape(2,4,16)",
    "ax.reshape(8,1,16)",
    "np.broadcast_to(a0[0], (8,16), out_sharding=P('x'))",
    "lib.lax.broadcast_in_dim(ay[0], (8,16), (1,), out_sharding=P('x','y'))",
    "lib.lax.broadcast(a0, (4,), out_sharding=P('x'))",
    "np.zeros((8,4), out_sharding=P('x'))",
    "np.ones((8,4), out_sharding=P('x'))",
    "np.full((8,4), 2., out_sharding=P('x'))",
    "np.arange(8, out_sharding=P('x'))",
    "np.ones_like(ax, out_sharding=P(None,'x'))",
    "lib.jit(lambda: np.zeros((8,4), out_sharding=P('x')))()",
    "lib.jit(lambda: np.arange(8, out_sharding=P('x')))()",
    "np.array([1.,2.,3.,4.], out_sharding=P('x'))",
    "lib.lax.broadcasted_iota(np.int32, (8,4), 0, out_sharding=P('x'))",
    "a0[i]",
    "ax[i]",
    "ax.at[i].get(out_sharding=P('x'))",
    "ay[i]",
    "a0.at[ix].get(out_sharding=P('x'))",
    "ax.at[i].get(out_sharding=P())",
    "np.take(a0, i, axis=0)",
    "ax[2:4]",
    "ax[:, 2:4]",
    "ax[2]",
    "ax[:, 3]",
    "ax.at[2].set(1.)",
    "ax.at[i].set(1.)",
    "ax.at[i].set(1., out_sharding=P('x'))",
    "s.reshard(a, P(None,'x'))",
    "s.reshard(a, N())",
    "s.reshard(A, P('x'))",
    "lib.jit(lambda a: s.reshard(a, P(None,'x')))(a)",
    "lib.jit(lambda a: s.reshard(a*2, P(None,'x'))+1)(a)",
    "lib.grad(lambda a: (s.reshard(a, P(None,'x'))**2).sum())(a)",
    "lib.grad(lambda a: np.sin(np.matmul(a, b, out_sharding=P('x'))).sum())(a)",
    "lib.grad(lambda b: np.sin(np.matmul(ax, b)).sum())(by)",
    "lib.grad(lambda w: np.sin(ax @ w).sum())(a0.T)",
    "lib.jit(lib.grad(lambda w: np.sin(ax @ w).sum()))(a0.T)",
    "lib.grad(lambda w: np.sin(w @ by).sum())(ax)",
    "lib.grad(lambda x: np.sin(x).sum())(a)",
    "lib.grad(lambda x: (x.sum(0)**2).sum())(a)",
    "lib.grad(lambda x: (x.reshape(4,2,16)**2).sum())(ax)",
    "lib.vmap(lambda r: r*2)(ax)",
    "lib.vmap(lambda r: r.sum())(a)",
    "lib.vmap(lambda r, w: r @ w, in_axes=(0,None))(ax, by)",
    "lib.vmap(lambda r: np.sin(r), in_axes=1, out_axes=1)(a)",
    "lib.jit(lib.vmap(lambda r: lib.jit(lambda q: q*2)(r)))(ax)",
    "lib.lax.scan(lambda c,x:(c+x,c), ax[:,0]*0, ax.T)",
    "lib.lax.scan(lambda c,x:(c+x,c), ay[0]*0, ay)",
    "lib.lax.scan(lambda c,x:(c+x,c), ax[0]*0, ax)",
    "lib.lax.fori_loop(0,3,lambda i,c:c*2,ax)",
    "lib.lax.cond(True, lambda x: x*2, lambda x:x, ax)",
    "lib.lax.while_loop(lambda c: c.sum()<0, lambda c: c*2, ax)",
    "ax + ay",
    "ax + put(A,N('y'))",
    "a.sum()",
    "a.sum(1)",
    "np.concatenate([ax, ax],1)",
    "np.concatenate([ax, ay],1)",
    "np.stack([ax,ax])",
    "np.where(ax>1, ax, 0.)",
    "ax.T",
    "np.squeeze(ax[:, None])",
    "np.pad(ax, ((0,0),(1,1)))",
    "np.pad(ax, ((1,1),(0,0)))",
    "np.cumsum(ax, 0)",
    "np.cumsum(ax, 1)",
    "np.sort(ax, 1)",
    "np.argmax(ax, 1)",
    "lib.nn.softmax(ax)",
    "lib.nn.one_hot(ix, 4)",
    "s.auto_axes(lambda a,b: a @ b, out_sharding=P('x'))(a, b)",
    "lib.jit(s.auto_axes(lambda a,b: a @ b, out_sharding=P('x')))(a, b)",
    "s.auto_axes(lambda a,b: a @ b)(a, b, out_sharding=P('x'))",
    "s.auto_axes(lambda a,b: a @ b)(a, b)",
    "s.auto_axes(lambda a: s.get_abstract_mesh().axis_types == (s.AxisType.Auto,)*2 and a, out_sharding=P('x'))(a)",
    "s.auto_axes(lambda a: a.sum(), axes='y', out_sharding=P())(a)",
    "s.auto_axes(lambda a: (s.get_abstract_mesh().explicit_axes == ('x',)) * a, axes='y', out_sharding=P('x'))(ax)",
    "s.explicit_axes(lambda a: a*2, in_sharding=P('x'))(A)",
    "lib.lax.with_sharding_constraint(ax, P('x'))",
    "lib.lax.with_sharding_constraint(ax, P('y'))",
    "lib.jit(lambda x: lib.lax.with_sharding_constraint(x*2, P('y')))(ax)",
    "lib.jit(lambda x: x*2, out_shardings=P('y', None))(ax)",
    "lib.jit(lambda x: x*2, in_shardings=P('y'))(ax)",
    "ax + A",
    "ax * np.ones((8,16))",
    "lib.device_put(ax, N('y'))",
    "lib.jit(lambda x: lib.device_put(x, N('y')))(ax)",
    "lib.random.normal(lib.random.key(0), (8, 4), out_sharding=P('x'))",
    "lib.jit(lambda k: lib.random.uniform(k, (8, 4), out_sharding=P('x', 'y')))(lib.random.key(0))",
    "lib.numpy.linalg.norm(ax)",
    "ax.mean(0)",
    "np.expand_dims(ax,0)",
    "lib.lax.reduce_sum(ax, (1,))",
    "lib.lax.dynamic_slice(ax, (0,0), (8,4))",
    "lib.lax.dynamic_update_slice(ax, ax[:, :2], (0,3))",
    "np.repeat(ax, 2, axis=1)",
    "np.split(ax, 2, axis=1)",
    "np.roll(ax, 1, axis=1)",
]


def names_of(lib: Any) -> dict[str, Any]:
    """Return the names of the lines."""
    s, P = lib.sharding, lib.sharding.PartitionSpec
    mesh = lib.make_mesh((4, 2), ("x", "y"), (s.AxisType.Explicit,) * 2)
    N = lambda *entries: s.NamedSharding(mesh, P(*entries))
    A = onp.arange(128, dtype=onp.float32).reshape(8, 16) / 50
    B = onp.arange(128, dtype=onp.float32).reshape(16, 8) / 50
    put, rows = lib.device_put, onp.array([1, 3, 2, 0])
    return {
        **{"lib": lib, "np": lib.numpy, "onp": onp, "s": s, "P": P, "N": N, "A": A, "B": B, "put": put, "mesh": mesh},
        **{"a": put(A, N("x", "y")), "ax": put(A, N("x")), "ay": put(A, N(None, "y")), "a0": put(A, N())},
        **{"b": put(B, N("y")), "bx": put(B, N("x", "y")), "by": put(B, N(None, "y"))},
        **{"i": put(rows, N()), "ix": put(rows, N("x"))},
    }


def found_by(lib: Any) -> list[Any]:
    names = names_of(lib)
    with lib.set_mesh(names["mesh"]):
        return answers(lib, LINES, names)


test_as_jax_says = same_as_jax(__file__, LINES, found_by)


if __name__ == "__main__":
    print_answers(found_by)
