"""Shardings of arguments and results of jitted functions, and constraints: the same lines with both libraries on eight
CPU devices, JAX in a process of its own."""

from __future__ import annotations

from typing import Any

import numpy as onp

from tests.peer.mesh_lines import answers, print_answers, same_as_jax

# Names: lib, np (its numpy), s (its shardings), N (a sharding on the mesh m of 4 x 2 by its entries), a (NumPy), u (not
# committed), d (devices), put, wsc, under (calls with the mesh set).
LINES = [
    "lib.jit(lambda x: x * 2, in_shardings=N('x'), out_shardings=N('x', 'y'))(a)",
    "lib.jit(lambda x: x * 2, in_shardings=N('x'), out_shardings=N('x', 'y'))(u)",
    "lib.jit(lambda x: x * 2, in_shardings=N('x'))(put(a, d[0]))",
    "lib.jit(lambda x: x * 2, in_shardings=N('x'))(put(a, N('y')))",
    "lib.jit(lambda x: x * 2, in_shardings=N('x'))(put(a, N('x', None)))",
    "lib.jit(lambda x: x * 2, in_shardings=N('x'), out_shardings=N('x'))(put(a, s.NamedSharding(other, P('p'))))",
    "lib.jit(lambda x: x, in_shardings=P('x'))(a)",
    "under(lambda: lib.jit(lambda x: x, in_shardings=P('x'))(a))",
    "under(lambda: lib.jit(lambda x: x, out_shardings=P('x'))(a))",
    "lib.jit(lambda t, y: (t, y), in_shardings=(N('x'), None), out_shardings=(N('y'), None))({'a': a, 'b': a}, a)",
    "lib.jit(lambda t, y: (t, y), in_shardings=(N('x'),))(a, a)",
    "lib.jit(lambda t: t, in_shardings=({'q': N('x')},))({'a': a})",
    "lib.jit(lambda t: t, out_shardings={'q': N('x')})({'a': a})",
    "lib.jit(lambda x: x, in_shardings=N('x', 'y'))(onp.ones(8))",
    "lib.jit(lambda x: x, out_shardings=N('x', 'y'))(onp.ones(8))",
    "lib.jit(lambda x, y: x + y, in_shardings=(N('x'), N('x')))(a, y=a)",
    "lib.jit(lambda x, n, y: x * n, in_shardings=(N('x'), N('x')), static_argnums=1)(a, 3, a)",
    "lib.jit(lambda x: x, in_shardings='x')(a)",
    "lib.jit(lambda x: x, in_shardings=s.SingleDeviceSharding(d[3]))(a)",
    "lib.jit(lambda x: x, in_shardings=s.SingleDeviceSharding(d[3]))(put(a, d[1]))",
    "lib.jit(lambda x: x, out_shardings=s.SingleDeviceSharding(d[3]))(a)",
    "lib.jit(lambda x, y: (x, y), in_shardings=(s.SingleDeviceSharding(d[3]), N('x')))(a, a)",
    "lib.jit(lambda x: x, in_shardings=N('x'), device=d[1])",
    "lib.jit(lambda x, y: (x, y), in_shardings=(None, N('x')))(put(a, N('y')), a)",
    "lib.jit(lambda x, y: (x, y), in_shardings=(None, N('x')))(put(a, d[1]), a)",
    "lib.jit(lambda x, y: x @ y, in_shardings=(N('x'), N(None, 'y'))).lower(a, a.T).compile()(a, a.T)",
    "lib.jit(lambda x: x * 2, in_shardings=N('x')).lower(a).compile()(put(a, N('y')))",
    "lib.jit(lambda x: x * 2, in_shardings=N('x')).lower(a).compile().input_shardings",
    "lib.jit(lambda x: x * 2).lower(lib.ShapeDtypeStruct((8, 16), onp.float32, sharding=N('y'))).compile()(a)",
    "lib.jit(lambda x: {'r': x * 2}, out_shardings=N('x')).lower(a).compile().output_shardings",
    "(x := put(a, N('x')), lib.jit(lambda x: x * 2, donate_argnums=0, out_shardings=N('x'))(x), x.is_deleted())[1:]",
    "lib.jit(lambda x: lib.jit(lambda y: y + 1, in_shardings=N('y'), out_shardings=N(None, 'y'))(x))(a)",
    "lib.grad(lambda x: lib.jit(lambda y: y * y, in_shardings=N('y'), out_shardings=N(None, 'y'))(x).sum())(a)",
    "lib.vmap(lib.jit(lambda y: y * y, in_shardings=N('y'), out_shardings=N('y')))(a[None])",
    "lib.jit(lambda y: (y, None), out_shardings=(N('y'), None))(a)[0]",
    # constraints
    "wsc(a, N('x'))",
    "wsc(a, P('x'))",
    "lib.jit(lambda x: wsc(x, N('x')))(a)",
    "lib.jit(lambda x: wsc(x, P('x')))(a)",
    "under(lambda: lib.jit(lambda x: wsc(x, P('x')))(a))",
    "lib.jit(lambda x: wsc({'a': x, 'b': x}, {'a': N('x'), 'b': N(None, 'y')}))(a)",
    "lib.jit(lambda x: wsc({'a': x, 'b': x}, N('x')))(a)",
    "lib.jit(lambda x: wsc(x, None))(a)",
    "lib.jit(lambda x: wsc(x * 2, N('x', P.UNCONSTRAINED)))(put(a, N(None, 'y')))",
    "lib.jit(lambda x: wsc(x, N('x', 'y')))(onp.ones(8))",
    "lib.jit(lib.vmap(lambda x: wsc(x, N('y'))))(a)",
    "lib.jit(lib.vmap(lambda x: wsc(x, N('y')), spmd_axis_name='x'))(a)",
    "lib.jit(lib.vmap(lambda x: wsc(x, N('y')), spmd_axis_name='x', in_axes=1, out_axes=1))(a)",
    "lib.jit(lib.grad(lambda x: (wsc(x, N('y')) ** 2).sum()))(a)",
    "lib.jit(lambda x: lib.lax.scan(lambda c, _: (wsc(c * 2, N('x')), None), x, None, length=3)[0])(a)",
    "put(a, P('y'))",
    "under(lambda: put(a, P('y')))",
    "put(put(a, N('x')), N(None, ('y', 'x')))",
    "put(put(a, N('x')), s.NamedSharding(other, P('q')))",
    "lib.sharding.reshard(a, N('x'))",
    # the mesh that is set
    "(s.get_mesh(), s.get_abstract_mesh().axis_names)",
    "under(lambda: (s.get_mesh(), s.get_abstract_mesh().axis_names))",
]


def found_by(lib: Any) -> list[Any]:
    s, P = lib.sharding, lib.sharding.PartitionSpec
    auto = (s.AxisType.Auto,) * 2
    mesh, other = lib.make_mesh((4, 2), ("x", "y"), auto), lib.make_mesh((4, 2), ("p", "q"), auto)
    a = onp.arange(128, dtype=onp.float32).reshape(8, 16)

    def under(function: Any) -> Any:
        with lib.set_mesh(mesh):
            return function()

    names = {
        **{"lib": lib, "np": lib.numpy, "onp": onp, "s": s, "P": P, "d": lib.devices(), "put": lib.device_put},
        **{"N": lambda *e: s.NamedSharding(mesh, P(*e)), "a": a, "u": lib.numpy.asarray(a), "under": under},
        **{"wsc": lib.lax.with_sharding_constraint, "other": other},
    }
    return answers(lib, LINES, names)


test_as_jax_says = same_as_jax(__file__, LINES, found_by)


if __name__ == "__main__":
    print_answers(found_by)
