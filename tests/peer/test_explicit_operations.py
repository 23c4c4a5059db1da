"""Operations over Explicit axes that merge, divide, cut or move split dimensions, and transformations of them: the same
lines as JAX, which has the same result shardings, or an error too."""

from __future__ import annotations

from typing import Any

import numpy as onp

from tests.peer.mesh_lines import answers, answers_of, print_answers, same_as_jax
from tests.peer.test_explicit import names_of

# Names: as in test_explicit.py; conv, images and kernel: a convolution of images that are split so; w0 and w3: one
# matrix, and three that are split.
LINES = [
    "np.reshape(a, (128,))",
    "np.reshape(a, (4, 32))",
    "np.reshape(a, (8, 4, 4))",
    "np.reshape(a, (16, 8))",
    "np.reshape(a, (8, 1, 16, 1))",
    "np.reshape(put(A.reshape(8,2,8), N('x','y')), (16, 8))",
    "np.reshape(put(A.reshape(8,2,8), N(None,'y')), (16, 8))",
    "np.reshape(put(A, N(('x','y'))), (4, 2, 16))",
    "np.reshape(put(A, N(('x','y'))), (2, 4, 16))",
    "np.reshape(put(A, N(None,('x','y'))), (8, 4, 4))",
    "np.reshape(put(A, N(('y','x'))), (2, 4, 16))",
    "np.reshape(put(A.reshape(8,2,8), N('x',None,'y')), (128,))",
    "np.reshape(put(A.reshape(128), N(('x','y'))), (4,32))",
    "np.reshape(put(A.reshape(128), N('x')), (2,64))",
    "np.concatenate([ax, ax], 0)",
    "np.concatenate([ax, ay], 0)",
    "np.concatenate([a0, ax], 0)",
    "np.concatenate([a, a], 1)",
    "np.stack([ax, ax], 1)",
    "lib.lax.concatenate([ax, s.reshard(a0[:4], P('x'))], 0)",
    "ax[0:4]",
    "ax[::2]",
    "a[:, ::-1]",
    "ax[0]",
    "a[2:4, 0]",
    "a[..., None]",
    "lib.lax.slice(ax, (2,0), (6,4))",
    "lib.lax.slice(ax, (0,0), (6,8))",
    "lib.lax.slice(ax, (0,0), (8,16), (2,1))",
    "lib.lax.slice(put(A, N(('x','y'))), (0,0), (4,8))",
    "lib.lax.dynamic_slice(ax, (0,0), (4,16))",
    "lib.lax.dynamic_slice(a, (1,1), (4,4))",
    "lib.lax.dynamic_index_in_dim(ax, 1, axis=0)",
    "lib.lax.dynamic_index_in_dim(ax, 1, axis=1)",
    "lib.jit(lambda x, k: lib.lax.dynamic_slice(x, (k,0), (4,16)))(ax, 1)",
    "lib.lax.dynamic_update_slice(ax, a0[:4], (0,0))",
    "lib.lax.dynamic_update_slice(ax, s.reshard(a0[:4], P('x')), (1,0))",
    "lib.lax.dynamic_update_slice(ay, ay[:4], (0,0))",
    "lib.lax.split(ax, (4, 4), axis=0)",
    "lib.lax.pad(ax, 0., ((2,2,0),(0,0,0)))",
    "lib.lax.pad(ax, 0., ((1,1,0),(0,0,0)))",
    "lib.lax.pad(ax, 0., ((-2,-2,0),(0,0,0)))",
    "lib.lax.rev(ax, (0,))",
    "np.roll(ax, 1, axis=0)",
    "np.roll(ay, 1, axis=0)",
    "np.tile(ax, (2, 1))",
    "ax.at[:, ix].get(out_sharding=P(None,'x'))",
    "ax.at[:, i].get()",
    "ax[:, ix]",
    "ax.at[0].get(out_sharding=P('y'))",
    "ax.at[2:4, 0].get(out_sharding=P())",
    "a0.at[ix, ix].get(out_sharding=P('x'))",
    "np.take_along_axis(ax, np.argsort(ax, 1), 1)",
    "a0.at[ix].set(1.)",
    "ay.at[i].add(ay[:4])",
    "ax.at[:, i].set(ax[:, :4])",
    "ax.at[2:4].set(1.)",
    "a.at[:, 2].set(0.)",
    "ax.at[i].multiply(2., out_sharding=P('x'))",
    "a0.at[ix].add(a0[:4], out_sharding=P('x'))",
    "np.argmax(ax, 0)",
    "np.argmax(ax)",
    "np.argmin(a, 0)",
    "np.sort(ax, 0)",
    "np.argsort(ax, 1)",
    "lib.lax.top_k(ay, 2)",
    "np.cumsum(a, 0)",
    "np.cumprod(ax, 1)",
    "np.median(ax, 1)",
    "np.median(ax, 0)",
    "np.percentile(ax, 50., axis=1)",
    "lib.lax.reduce_window(ax, 0., lib.lax.add, (2,1), (1,1), 'SAME')",
    "lib.lax.reduce_window(ax, 0., lib.lax.add, (2,1), (1,1), 'VALID')",
    "lib.lax.reduce_window(ax, -onp.inf, lib.lax.max, (2,2), (2,2), 'VALID')",
    "conv(images('x'), kernel())",
    "conv(images(None,None,'x'), kernel())",
    "conv(images(None,None,'y'), kernel(), (2,2))",
    "conv(images(None,None,'x'), kernel(), (2,2))",
    "conv(images(None,None,'y'), kernel(), (1,1), 'VALID')",
    "conv(images(), kernel('x'), out_sharding=P(None,'x'))",
    "lib.grad(lambda x: (conv(x, kernel())**2).sum())(images(None,None,'x'))",
    "lib.grad(lambda w: conv(images('x'), w).sum())(kernel())",
    "np.diag(ax[:, 0])",
    "np.kron(ax[:, 0], ay[0])",
    "np.outer(ax[:, 0], ax[:, 0])",
    "np.where(ax > 1, ay, 0.)",
    "a + ay[0]",
    "np.einsum('ij,ij->i', a, a)",
    "np.einsum('ij,ij->i', a, a, out_sharding=P('x'))",
    "np.einsum('ij,jk,kl->il', ax, b, a0, out_sharding=P('x'))",
    "np.tensordot(a, b, 1, out_sharding=P('x'))",
    "np.zeros((8,4), device=N('x'))",
    "np.eye(8, device=N('x'))",
    "np.full_like(ax, 2., device=N(None, 'x'))",
    "lib.lax.full((8,4), 1., np.float32, sharding=N('x'))",
    "lib.lax.full_like(ax, 0.)",
    "lib.jit(lambda x: lib.lax.full_like(x, 0.))(ax)",
    "lib.random.bits(lib.random.key(0), (8, 4), out_sharding=P('x'))",
    "lib.jit(lambda: lib.lax.broadcasted_iota(np.int32, (8,4), 1, out_sharding=P('x','y')))()",
    "lib.lax.scan(lambda c, x: (s.reshard(c, P(None,'x')), None), ax, None, length=3)",
    "lib.lax.scan(lambda c, w: (np.matmul(c, w, out_sharding=P('x')), None), ax, w3)",
    "lib.lax.fori_loop(0, 3, lambda k, c: lib.lax.rev(c, (0,)), ax)",
    "lib.lax.cond(True, lambda x: x * 2, lambda x: np.zeros((8,16)), ax)",
    "lib.lax.cond(True, lambda x: x * 2, lambda x: np.zeros((8,16), out_sharding=P('x')), ax)",
    "lib.grad(lambda x: (lib.lax.slice(x, (0,0), (4,16)) ** 2).sum())(ax)",
    "lib.grad(lambda x: (lib.lax.concatenate([x, x], 0) ** 2).sum())(ax)",
    "lib.grad(lambda x: (lib.lax.dynamic_slice(x, (1,0), (4,16)) ** 2).sum())(ax)",
    "lib.grad(lambda x: (np.reshape(x, (128,)) ** 2).sum())(a)",
    "lib.grad(lambda x: (lib.lax.pad(x, 0., ((2,2,0),(0,0,0))) ** 2).sum())(ax)",
    "lib.grad(lambda x: (lib.lax.dynamic_update_slice(x, s.reshard(a0[:4], P('x')), (1,0)) ** 2).sum())(ax)",
    "lib.grad(lambda x: (x * a).sum())(a0)",
    "lib.grad(lambda x: (x[i] ** 2).sum())(a0)",
    "lib.grad(lambda x: (x.at[ix].get(out_sharding=P('x')) ** 2).sum())(ay)",
    "lib.jit(lib.grad(lambda w: lib.lax.scan(lambda c, _: (np.tanh(c @ w), None), ax, None, length=3)[0].sum()))(w0)",
    "lib.vmap(lambda r: np.zeros(3))(ax)",
    "lib.vmap(lambda r: s.reshard(r, P('x')))(ax)",
    "lib.vmap(lambda r: s.reshard(r, P('y')), spmd_axis_name='x')(ax)",
    "lib.vmap(lambda r: s.reshard(r, P('y')), spmd_axis_name='x')(a0)",
    "lib.vmap(lambda x: lib.lax.slice(x, (2,), (6,)), in_axes=1, out_axes=1)(ax)",
    "lib.vmap(lambda x: lib.lax.concatenate([x, x], 0), in_axes=1, out_axes=1)(ax)",
    "lib.vmap(lambda x: x.reshape(-1), in_axes=0)(put(A.reshape(2,4,16), N(None,'x','y')))",
    "lib.vmap(lambda x, j: lib.lax.dynamic_slice(x, (j,), (4,)))(ax, put(onp.zeros((8,),onp.int32), N('x')))",
    "lib.vmap(lib.grad(lambda r: np.sin(r).sum()))(ax)",
    "lib.vmap(lambda r: r[i])(ax)",
]

# JAX refuses these; here the result follows from the operands, and nothing has to be sent for it.
WIDER = {
    "np.reshape(a, (4, 2, 2, 8))": "P('x', None, 'y', None)",
    "np.reshape(ax, (16, 8))": "P('x', None)",
    "np.concatenate([a0, ax], 1)": "P('x', None)",
    "lib.lax.dynamic_update_slice(ax, a0[:, :2], (0,3))": "P('x', None)",
    "a0[ix]": "P('x', None)",
    "lib.jit(lambda x, i: x[i])(a0, ix)": "P('x', None)",
    "a0.at[0].set(ay[0])": "P(None, 'y')",
    "np.where(ax > 1, ax, a0)": "P('x', None)",
    "lib.lax.sort((ax, a0), dimension=1, num_keys=1)[0]": "P('x', None)",
    "conv(images('y'), kernel('x'))": "P('y', 'x', None, None)",
    "lib.vmap(lambda r, q: r + q)(ax, a0)": "P('x', None)",
    "lib.vjp(lambda x: x * 2, ax)[1](a0)[0]": "P('x', None)",
    "np.repeat(ax, 2, axis=0)": "P('x', None)",
    "lib.vmap(lambda r: lib.lax.scan(lambda c, x: (c + x, c), 0., r))(ax)[1]": "P('x', None)",
    "lib.grad(lambda x: (np.sort(x, 1) ** 2).sum())(ax)": "P('x', None)",
    "np.linalg.inv(put(onp.eye(4,dtype=onp.float32)[None].repeat(4,0), N('x')))": "P('x', None, None)",
}


def found_by(lib: Any) -> list[Any]:
    names = names_of(lib)
    put, N, A, B = (names[n] for n in ("put", "N", "A", "B"))

    def conv(x: Any, w: Any, strides: Any = (1, 1), padding: Any = "SAME", **options: Any) -> Any:
        return lib.lax.conv_general_dilated(x, w, strides, padding, **options)

    names["conv"] = conv
    names["w0"] = put(onp.eye(16, dtype=onp.float32), N())
    names["w3"] = put(onp.ones((3, 16, 16), onp.float32), N(None, "y"))
    names["images"] = lambda *entries: put(A.reshape(8, 1, 4, 4), N(*entries))
    names["kernel"] = lambda *entries: put(B.reshape(128)[:36].reshape(4, 1, 3, 3), N(*entries))
    with lib.set_mesh(names["mesh"]):
        return answers(lib, [*LINES, *WIDER], names)


test_as_jax_says = same_as_jax(__file__, LINES, found_by)


def test_what_jax_refuses() -> None:
    expected, found = answers_of(__file__, found_by)
    assert expected[len(LINES) :] == ["an error"] * len(WIDER)
    for line, answer in zip(WIDER, found[len(LINES) :], strict=True):
        assert f"spec={WIDER[line]}," in answer[0], line


if __name__ == "__main__":
    print_answers(found_by)
