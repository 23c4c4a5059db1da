"""Transformations at their edges: the smallest program of each thing that went wrong once."""

import functools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.compiler.rewrite import map_bodies
from weft.ir.jaxpr import Jaxpr

negated = weft.custom_jvp(lambda x: -x)
negated.defjvp(lambda p, t: (negated(p[0]), negated(t[0])))
flagged = weft.custom_vjp(lambda x: x)
flagged.defvjp(lambda x: (x, True), lambda r, g: (g * 2 if r else g,))
wide = weft.custom_vjp(lambda x: x)
wide.defvjp(lambda x: (x, None), lambda _, g: (g.astype("float32"),))
nested = weft.custom_vjp(lambda x: x[0] * x[1][0])
nested.defvjp(lambda x: (nested(x), x), lambda r, g: ((1.0, (2.0, None)),))


class Doubling:
    __name__ = np.ones(3)
    lower = 3

    def __init__(self):
        self._call = self._find = self.trace = 1

    def __call__(self, x):
        return x * 2


def whole(x):
    return (x * 1.0).sum()


def root(a):
    return lax.custom_root(lambda x: x * x - a, 1.0, lambda f, x: wnp.sqrt(a) + 0 * x, lambda g, y: y / g(1.0))


SIXTEEN = np.arange(16).reshape(2, 2, 4)


def both(f):
    return weft.vmap(weft.vmap(f, axis_name="j"), axis_name="i")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: weft.hessian(lambda v: v[0] ** v[1])(wnp.array([4.0, 0.0]))[0, 1], 0.25),
        (lambda: weft.hessian(lambda v: v[0] ** v[1])(wnp.array([0.0, 0.0])), np.zeros((2, 2))),
        (lambda: weft.grad(negated)(3.0), -1.0),
        (lambda: weft.grad(lambda x: lax.scan(lambda c, _: (negated(c), None), x, None, length=3)[0])(1.0), -1.0),
        (lambda: weft.linear_transpose(negated, 1.0)(2.0)[0], -2.0),
        (lambda: weft.grad(nested)((1.0, (2.0, None)))[1][0], 2.0),
        (lambda: weft.grad(lambda x: weft.vmap(flagged)(x).sum())(wnp.ones(2)), [2.0, 2.0]),
        (lambda: weft.grad(lambda x: lax.scan(lambda c, _: (flagged(c), None), x, None, length=3)[0])(1.0), 8.0),
        (lambda: weft.jit(lambda x: weft.linear_transpose(lambda y: x * y, 1.0))(3.0)(2.0)[0], 6.0),
        (lambda: weft.grad(root)(4.0), 0.25),
        (lambda: weft.jit(weft.grad(root))(4.0), 0.25),
        (
            lambda: both(lambda x: lax.all_to_all(x, ("i", "j"), 0, 0))(wnp.arange(16).reshape(2, 2, 4))[0, 0],
            range(0, 16, 4),
        ),
        (lambda: lax.fori_loop(1.0, 3.0, lambda i, c: c * 2 + i, 1.0), 8.0),
        (lambda: weft.jit(lambda n: lax.fori_loop(0.0, n, lambda i, c: c + i, 1.0))(2.5), 4.0),
        (lambda: lax.cond(True, 1.0, lambda x: x + 1, 2.0, lambda x: x + 2), 2.0),
        (lambda: weft.jit(wnp.add)(1.0, 2.0), 3.0),
        (lambda: weft.jit(Doubling())(2.0), 4.0),
        (lambda: weft.vmap(Doubling())(wnp.ones(2)), [2.0, 2.0]),
        (lambda: weft.grad(functools.partial(Doubling()))(1.0), 2.0),
        (lambda: weft.jit(lambda n, x: n * x, static_argnums=0).lower(7, 8).compile()(5), 35),
        (lambda: weft.jit(lambda n, x: n * x, static_argnums=0).lower(7, 8).compile()(7, 5), 35),
        (lambda: weft.jit(lambda x: weft.device_get(x) + 1)(1.0), 2.0),
        (lambda: weft.checkpoint(lambda s, x: x + s["a"], static_argnums=(0,))({"a": 1}, 2.0), 3.0),
        (lambda: weft.jit(lambda x: x, in_shardings=None, device=weft.devices()[0], backend=None)(1.0), 1.0),
        (lambda: weft.jit(lambda x: x).lower(1.0).compile(compiler_options=None)(1.0), 1.0),
    ],
)
def test_value(call, expected):
    np.testing.assert_allclose(call(), np.asarray(expected), rtol=1e-6)


def test_a_static_argument_without_a_hash_is_traced_again():
    add = weft.checkpoint(lambda s, x: x + s["a"], static_argnums=(0,))
    settings = {"a": 1}
    assert add(settings, 2.0) == 3.0
    settings["a"] = 5
    assert add(settings, 2.0) == 7.0


def test_a_cotangent_takes_the_precision_of_its_argument():
    assert weft.grad(lambda x: wide(x).astype("float32").sum())(wnp.ones(2, "bfloat16")).dtype == "bfloat16"


def test_tangents_of_integers_have_no_bytes():
    derivative = weft.grad(whole, allow_int=True)
    for transform in (lambda f: f, weft.jit, weft.checkpoint):
        for _ in range(3):
            found = transform(derivative)(wnp.arange(3))
            assert found.dtype == weft.float0 and (found == np.zeros(3, weft.float0)).all()
    assert weft.jit(weft.vmap(derivative))(wnp.ones((2, 3), int)).shape == (2, 3)
    assert weft.jit(derivative).lower(wnp.arange(3)).compile()(wnp.arange(3)).shape == (3,)


def test_a_custom_function_is_computed_at_once_where_that_is_asked():
    known = weft.custom_jvp(lambda x: x if x == 0.0 else x + 1)
    known.defjvp(lambda p, t: (known(p[0]), t[0]))

    @weft.jit
    def at_once():
        with weft.ensure_compile_time_eval():
            return known(0.0)

    assert at_once() == 0.0


def test_structs_and_types_instead_of_arrays():
    assert weft.ShapeDtypeStruct.like(wnp.ones(3)).shape == (3,)
    assert weft.eval_shape(lambda x: x, weft.typeof(wnp.ones(3))).shape == (3,)
    assert weft.eval_shape(lambda: weft.ShapeDtypeStruct((), wnp.float32)).dtype == wnp.float32
    assert weft.jit(wnp.sin).lower(weft.typeof(wnp.ones(3))).out_info.shape == (3,)
    assert weft.device_get(weft.random.key(0)).dtype == weft.random.key(0).dtype


def test_dtype_of_anything():
    assert [lax.dtype(x) for x in (1.0, 1, np.float64(1), np.ones(2), float)] == ["float32", "int32", *["float32"] * 3]
    assert weft.jit(lambda x: wnp.zeros(2, lax.dtype(x)))(1).dtype == "int32"


def test_a_wrapper_keeps_its_methods():
    def function(x):
        return x

    function.lower, function.own = 1, 2
    jitted = weft.jit(function)
    assert jitted.own == 2 and jitted.lower(1.0).out_info.shape == ()
    assert jitted.__name__ == "function" and jitted.__wrapped__ is function


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: weft.linear_transpose(lambda x: 2.0 * x, 1), TypeError, r"i32\[\] -> f32\[\]"),
        (lambda: weft.jit(lambda x: x, compiler_options={"speed": 9}), ValueError, "'speed'"),
        (lambda: weft.jit(lambda x: x, backend="tpu"), RuntimeError, "Unknown backend 'tpu'"),
        (lambda: weft.jit(lambda x: x, in_shardings=3)(1.0), TypeError, "in_shardings must be a tree of shardings"),
        (lambda: weft.jit(lambda x: x).lower(1.0).compile({"speed": 9}), ValueError, "'speed'"),
        (lambda: weft.config.update("jax_platforms", 3), ValueError, "names of platforms"),
        (lambda: lax.fori_loop(0, 2.5, lambda i, c: c, 1.0), TypeError, "both integers or both floats"),
        (
            lambda: weft.pure_callback(lambda: np.int64(2**40), weft.ShapeDtypeStruct((), np.int64)),
            OverflowError,
            "does not fit",
        ),
    ],
)
def test_mistake(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_no_tracing():
    step = weft.jit(lambda x: x + 1)
    step(wnp.arange(3))
    with weft.no_tracing(True):
        assert step(wnp.arange(3)).tolist() == [1, 2, 3]
        with pytest.raises(RuntimeError, match="no_tracing"):
            step(wnp.arange(4))


def test_settings_of_jax_without_effect():
    for name, value in (("platform_name", "cpu"), ("platforms", "cuda,cpu"), ("num_cpu_devices", 8)):
        with weft.base.settings.overrides(**{f"jax_{name}": value}):
            assert getattr(weft.config, f"jax_{name}") == value


def test_parameters_may_contain_jaxprs():
    jaxpr = weft.make_jaxpr(lambda x: weft.jit(wnp.sin)(x))(1.0)
    equation = jaxpr.eqns[0]
    mixed = equation.replace(params={**equation.params, "extra": (equation.params["jaxpr"], object())})
    changed = map_bodies(mixed, lambda p: p.replace(name="changed"))
    assert isinstance(changed.params["extra"][0], Jaxpr) and changed.params["extra"][0].name == "changed"
    assert changed.params["extra"][1] is mixed.params["extra"][1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: wnp.ones((2**40, 2**40)),
        lambda: weft.jit(lambda: wnp.zeros((2**33, 2**33)).sum())(),
        lambda: wnp.broadcast_to(1.0, (2**70,)),
        lambda: wnp.zeros((0, 2**64)),
        lambda: weft.vmap(lambda x: wnp.full(2**59, x))(wnp.ones(8)),
    ],
)
def test_sizes_beyond_addresses_are_refused(call):
    with pytest.raises(ValueError, match=r"less than 2\*\*63 bytes; shape \(") as caught:
        call()
    assert "test_transforms_edges.py" in str(caught.value)


def test_large_sizes_that_are_never_computed_are_fine():
    assert weft.jit(lambda x: (wnp.ones((2**20, 2**20))[:3, :3] * x).sum())(2.0) == 18.0
