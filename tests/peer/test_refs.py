"""Mutable arrays, custom batching and names of `lax` beside JAX."""

from __future__ import annotations

import jax
import jax.custom_batching
import jax.extend.core.primitives
import jax.numpy as jnp
import jax.ref
import numpy as np
import pytest

import weft
import weft.custom_batching
import weft.extend.core.primitives
import weft.numpy as wnp
import weft.ref

X = np.arange(1.0, 4.0, dtype=np.float32)
PAIRS = [(weft, wnp), (jax, jnp)]
# Names that Weft does not have: references are values in its jaxprs, and what these do is done by other operations.
ABSENT = {
    "empty2_p": "nothing is allocated in a jaxpr",
    "get_p": "references are discharged while tracing",
    "swap_p": "references are discharged while tracing",
    "ragged_all_to_all_p": "it is all_to_all, all_gather and selections",
    "random_gamma_p": "random.gamma is a loop over random_bits",
    "rng_bit_generator_p": "a function of random_bits",
    "rng_uniform_p": "a function of random_bits",
}


def creates(xp, np_, x):
    ref = xp.new_ref(x * 2)
    ref[0] = ref[1] * x[2]
    ref[...] += x
    xp.ref.addupdate(ref, 1, x[0] * x[0])
    return np_.sin(xp.ref.swap(ref, 2, x[1])) + ref[...].sum()


def loops(xp, np_, x):
    ref = xp.new_ref(np_.zeros(3))

    def body(i, c):
        ref[i] = np_.sin(x[i]) * ref[(i + 2) % 3] + c
        return c + ref[i]

    c = xp.lax.fori_loop(0, 3, body, 1.0)
    total = xp.new_ref(c)

    def step(c, row):
        total[...] = total[...] * 2 + row
        return c, total[...]

    _, ys = xp.lax.scan(step, None, ref[...])
    return ys.sum() + total[...]


def branches(xp, np_, x):
    ref = xp.new_ref(x)
    xp.lax.cond(x[0] > 0, lambda: ref.__setitem__(0, x[1] * 3), lambda: None)
    xp.lax.cond(x[0] < 0, lambda: ref.__setitem__(1, x[1] * 5), lambda: ref.__setitem__(2, x[0]))
    return (ref[...] * x).sum()


TRANSFORMS = {
    "call": lambda xp, f: f(xp.numpy.asarray(X)),
    "jit": lambda xp, f: xp.jit(f)(X),
    "grad": lambda xp, f: xp.grad(f)(X),
    "grad of jit": lambda xp, f: xp.grad(xp.jit(f))(X),
    "jvp": lambda xp, f: xp.jvp(f, (X,), (X * X,))[1],
    "remat": lambda xp, f: xp.grad(xp.checkpoint(f))(X),
}


# JAX does not rematerialise loops and branches that have references; tests/unit/test_refs.py does.
CASES = [(f, name) for f in (creates, loops, branches) for name in TRANSFORMS if name != "remat" or f is creates]


@pytest.mark.parametrize(("function", "name"), CASES, ids=lambda v: getattr(v, "__name__", v))
def test_functions_that_create_references(function, name: str) -> None:
    found, expected = (TRANSFORMS[name](xp, lambda x, xp=xp, np_=np_: function(xp, np_, x)) for xp, np_ in PAIRS)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("index", [5, 3, -1, -3, -7])
def test_traced_indices_out_of_bounds(index: int) -> None:
    """Gradients of windows only: JAX loses those of arrays of indices that are read out of bounds."""
    results = []
    for xp, np_ in PAIRS:

        def windows(x, i, xp=xp, np_=np_):
            ref = xp.new_ref(x * 1.0)
            ref[i] = ref[i] * x[0]
            xp.ref.addupdate(ref, i, x[1])

            def body(c, k):
                ref[k] = ref[k] + c
                return ref[k + 1], ref[k]

            return xp.lax.scan(body, x[2], i + np_.arange(3)), ref[...]

        def arrays(x, i, xp=xp, np_=np_):
            ref, both = xp.new_ref(x * 1.0), np_.stack([i, i * 0])
            xp.ref.addupdate(ref, both, x[:2])
            ref[both] = ref[both] * 3
            return ref[...], ref[both]

        def total(x, i, windows=windows, xp=xp):
            return sum((leaf * leaf).sum() for leaf in xp.tree.leaves(windows(x, i)))

        own = [xp.jit(windows)(X, index), xp.jit(arrays)(X, index), xp.jit(xp.grad(total))(X, index)]
        results.append(xp.tree.leaves(own))
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_references_from_outside() -> None:
    results = []
    for xp, np_ in PAIRS:
        ref, gradient = xp.new_ref(np_.asarray(X)), xp.new_ref(np_.zeros(3))

        @xp.custom_vjp
        def stash(gradient, x):
            return x

        def store(gradient, ct):
            gradient[...] = ct
            return None, ct

        stash.defvjp(lambda gradient, x: (x, gradient), store)

        @xp.jit
        def step(ref, x):
            ref[1:] = ref[:2] * x
            return ref[0] + x

        def loss(gradient, x, np_=np_, stash=stash):
            return (stash(gradient, np_.sin(x)) ** 2).sum()

        own = [step(ref, 2.0), step(ref, 3.0), np_.array(ref[...])]
        for transform in (lambda f: f, xp.jit):
            own += [transform(xp.grad(loss, 1))(gradient, X), np_.array(gradient[...])]
        own += [xp.grad(xp.jit(loss), 1)(gradient, X + 1), np_.array(gradient[...])]
        table = xp.new_ref(np_.ones((2, 3)))
        xp.vmap(lambda column, x: column.__setitem__(0, x), in_axes=(1, 0))(table, X)
        results.append([*own, np_.array(table[...])])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_mistakes_are_refused_by_both() -> None:
    for xp, np_ in PAIRS:
        ref = xp.new_ref(np_.asarray(X))
        for use in (
            lambda xp=xp, ref=ref: xp.jit(lambda a, b: a[0] + b[0])(ref, ref),
            lambda xp=xp, ref=ref: xp.jit(lambda a: a[0] + ref[0])(ref),
            lambda xp=xp, ref=ref: xp.jit(lambda a: a)(ref),
            lambda xp=xp, ref=ref: xp.grad(lambda x: (ref.__setitem__(..., x), x.sum())[1])(X),
            lambda xp=xp, ref=ref: xp.vmap(lambda x: ref.__setitem__(0, x))(X),
            lambda ref=ref: ref.__setitem__(slice(None), 1.0),
            lambda ref=ref: ref[7],
        ):
            with pytest.raises(Exception):  # noqa: B017
                use()


def test_custom_vmap() -> None:
    results = []
    for xp, np_ in PAIRS:
        calls: list = []

        @xp.custom_batching.custom_vmap
        def function(x, y):
            return np_.sin(x) * y  # noqa: B023

        @function.def_vmap
        def rule(axis_size, in_batched, x, y):
            calls.append((axis_size, list(in_batched)))  # noqa: B023
            return 3 * np_.sin(x) * y, True  # noqa: B023

        own = [function(1.0, 2.0), xp.vmap(function, (0, None))(X, 2.0), xp.vmap(xp.jit(function))(X, X)]
        own += [xp.vmap(xp.vmap(function, (0, None)), (None, 0))(X, X)]
        own += [xp.grad(lambda x, f=function, xp=xp: xp.vmap(f, (0, None))(x, 2.0).sum())(X)]
        own += xp.vmap(lambda x, f=function, xp=xp: xp.jvp(lambda x: f(x, 2.0), (x,), (1.0,)))(X)
        results.append(own)
        assert calls[:2] == [(3, [True, False]), (3, [True, True])]
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_every_primitive_of_jax_has_an_object() -> None:
    for ours, theirs in (
        (weft.lax, jax.lax),
        (weft.extend.core.primitives, jax.extend.core.primitives),
    ):
        names = {name for name in dir(theirs) if name.endswith("_p")}
        assert names - set(dir(ours)) <= set(ABSENT)


@pytest.mark.parametrize("bits", [np.float32, np.int32])
def test_comparisons_in_the_total_order(bits) -> None:
    special = np.array([np.nan, -np.nan, 0.0, -0.0, 1.0, -np.inf, 3e-41], np.float32)
    values = special if bits is np.float32 else np.array([3, -3, 0], np.int32)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    for name in ("eq_to_p", "le_to_p", "lt_to_p"):
        expected = jax.jit(getattr(jax.lax, name).bind)(x, y)
        np.testing.assert_array_equal(weft.jit(getattr(weft.lax, name).bind)(x, y), expected, err_msg=name)


def test_functions_of_lax() -> None:
    table = np.arange(12).reshape(3, 4)
    rows, columns = np.array([0, 4, -1]), np.array([1, -1, 9])
    for axes, idxs in (((0, 1), (rows, columns)), ((1,), (columns,)), ((0,), (rows,))):
        found = weft.lax.index_take(wnp.asarray(table), [wnp.asarray(i) for i in idxs], axes)
        np.testing.assert_array_equal(
            found, jax.lax.index_take(jnp.asarray(table), [jnp.asarray(i) for i in idxs], axes)
        )
    for pads in ("SAME", "VALID", [(1, 2), (0, 0)]):
        args = ((4, 2, 8, 9), (6, 2, 3, 3), (2, 1), pads)
        assert weft.lax.conv_shape_tuple(*args) == tuple(map(int, jax.lax.conv_shape_tuple(*args)))
    lhs = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    rhs, scale = lhs.transpose(0, 2, 1).copy(), np.array([[1.0, 2.0]], np.float32).repeat(3, 0)[None].repeat(2, 0)
    found, expected = (
        xp.lax.scaled_dot(
            *map(np_.asarray, (lhs, rhs)), lhs_scale=np_.asarray(scale), preferred_element_type=np.float32
        )
        for xp, np_ in PAIRS
    )
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2)  # JAX multiplies in bfloat16
    for xp, np_ in PAIRS:
        np.testing.assert_array_equal(xp.lax.stack([np_.asarray(X), np_.asarray(X)], 1), np.stack([X, X], 1))
        assert len(xp.lax.unstack(np_.ones((2, 3)), 1)) == 3
        np.testing.assert_array_equal(xp.vmap(lambda x: x, out_axes=None, sum_match=True)(X), X.sum())
        np.testing.assert_allclose(xp.lax.platform_dependent(X, cpu=np_.sin, default=np_.cos), np.sin(X), rtol=1e-6)
        fwd, bwd = xp.fwd_and_bwd(lambda x, y: x * y, argnums=1)
        np.testing.assert_array_equal(bwd(fwd(X, X + 1)[1], X), X * X)
