"""Primitives, flat functions and exports written once and run with JAX and with Weft: the same results and errors."""

import importlib
import types

import numpy as np
import pytest

X = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(2, 3)


def library(name):
    """Import what a library that extends JAX imports, of JAX or of Weft."""
    module = lambda path: importlib.import_module(f"{name}{path}")
    return types.SimpleNamespace(
        top=module(""),
        np=module(".numpy"),
        lax=module(".lax"),
        core=module(".core"),
        ext=module(".extend.core"),
        lu=module(".extend.linear_util"),
        ad=module(".interpreters.ad"),
        batching=module(".interpreters.batching"),
        mlir=module(".interpreters.mlir"),
        pe=module(".interpreters.partial_eval"),
        api_util=module(".api_util"),
        export=module(".export"),
    )


def squared_norm(lib):
    """Make a primitive with all its rules: sum of squares over one axis, times a parameter."""
    p = lib.ext.Primitive("squared_norm")
    computed = lambda x, *, axis, scale: (x * x).sum(axis) * scale
    p.def_impl(computed)
    p.def_abstract_eval(lambda x, *, axis, scale: lib.core.ShapedArray(x.shape[:axis] + x.shape[axis + 1 :], x.dtype))
    lib.mlir.register_lowering(p, lib.mlir.lower_fun(computed, multiple_results=False))

    def jvp(primals, tangents, *, axis, scale):
        (x,), (t,) = primals, tangents
        return p.bind(x, axis=axis, scale=scale), (2 * x * t).sum(axis) * scale

    def batch(args, dims, *, axis, scale):
        (x,), (d,) = args, dims
        return p.bind(lib.batching.bdim_at_front(x, d, x.shape[d]), axis=axis + 1, scale=scale), 0

    lib.ad.primitive_jvps[p] = jvp
    lib.batching.primitive_batchers[p] = batch
    return lambda x, axis=0: p.bind(x, axis=axis, scale=3.0)


def primitive_program(lib):
    f = squared_norm(lib)
    total = lambda x: f(x, axis=1).sum()
    carried = lambda x: lib.lax.scan(lambda c, row: (c + f(row), f(row) * c), 0.0, x)
    return [
        f(lib.np.asarray(X)),
        lib.top.jit(f)(X),
        lib.top.vmap(f, in_axes=1)(X),
        lib.top.grad(total)(lib.np.asarray(X)),
        lib.top.jit(lib.top.vmap(lib.top.grad(f)))(X),
        lib.top.hessian(total)(lib.np.asarray(X)),
        *carried(lib.np.asarray(X)),
        lib.top.grad(lambda x: carried(x)[1].sum())(lib.np.asarray(X)),
    ]


def partial_program(lib):
    leaves, in_tree = lib.top.tree.flatten((X, X))
    body = lambda known, unknown: (known * 2, lib.np.sin(known) + unknown)
    info = lib.api_util.debug_info("test", body, (X, X), {})
    flat, out_tree = lib.api_util.flatten_fun_nokwargs(lib.lu.wrap_init(body, debug_info=info), in_tree)
    known, unknown = (
        lib.pe.PartialVal.known(lib.np.asarray(X)),
        lib.pe.PartialVal.unknown(lib.core.ShapedArray(X.shape, X.dtype)),
    )
    jaxpr, out, consts = lib.pe.trace_to_jaxpr_nounits(flat, [known, unknown], instantiate=False)
    assert out_tree() == lib.top.tree.structure((0, 0)) and len(leaves) == 2
    return [
        out[0].get_known(),
        *lib.core.eval_jaxpr(jaxpr, consts, lib.np.asarray(X)),
        np.array([p.is_known() for p in out]),
    ]


def export_program(lib):
    f = lambda d, x: {"y": lib.np.sin(x).mean(axis=0) * d["n"], "n": x.shape[0] * 1.0}
    specs = lib.export.symbolic_args_specs(({"n": np.float32(2)}, X), ({"n": None}, "b, ..."), constraints=["b >= 2"])
    exported = lib.export.export(lib.top.jit(f))(*specs)
    assert exported.has_vjp() and len(exported.in_avals) == 2 and len(exported.vjp().in_avals) == 4
    with pytest.raises((ValueError, TypeError)):
        exported.call({"n": np.float32(2)}, X[:1])
    call = lambda x: exported.call({"n": np.float32(2)}, x)["y"]
    return [
        exported.call({"n": np.float32(2)}, X)["n"],
        call(lib.np.asarray(X)),
        lib.top.jit(call)(np.concatenate([X, X])),
        lib.top.grad(lambda x: call(x).sum())(lib.np.asarray(X)),
    ]


@pytest.mark.parametrize("program", [primitive_program, partial_program, export_program])
def test_same_results(program):
    ours, theirs = program(library("weft")), program(library("jax"))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
