"""Lanes of a batch that take different branches, or leave a loop at different times: what happens in a branch or an
iteration that is not a lane's own must not show, in values, derivatives or effects."""

import math

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax

TRANSFORMS = {
    "eager": lambda f, g: g(f),
    "jit of grad": lambda f, g: weft.jit(g(f)),
    "grad of jit": lambda f, g: g(weft.jit(f)),
    "remat": lambda f, g: g(weft.checkpoint(f)),
}


def root(x):
    return lax.cond(x < 1e-3, lambda x: 1e-3, wnp.sqrt, x)


def weighted(w, x):
    """Infinite derivatives meet what all lanes share."""
    return lax.cond(x < 1e-3, lambda x: 0.0 * w, lambda x: wnp.sqrt(x) * w, x)


def shared_only(w, x):
    return lax.cond(x < 100.0, lambda x: x * w, lambda x: wnp.sqrt(w - 2.0) * x, x)


def chosen(w, x):
    return lax.switch(
        (x > 0).astype(int) + (x > 2),
        [lambda x: w * x, lambda x: w * wnp.log(x), lambda x: wnp.sqrt(x - 3.0) * w / (x - 2.0)],
        x,
    )


def quotients(w, x):
    """Run a loop that divides by zero after the lane's last iteration."""
    return lax.while_loop(lambda s: s[0] < x, lambda s: (s[0] + 1.0, s[1] * w / (x - s[0])), (0.0, 1.0))[1]


def nested(w, x):
    def inside(x):
        return lax.cond(x > 2.0, lambda x: wnp.sqrt(x - 2.0) * w, lambda x: quotients(w, x), x)

    return lax.cond(x < 1.0, lambda x: w * w, inside, x)


def scanned(w, x):
    def step(c, _):
        return wnp.sqrt(c) * w, None

    return lax.cond(x < 1e-3, lambda x: w, lambda x: lax.scan(step, x, None, length=2)[0], x)


def never_ending(w, x):
    """In lanes that do not take it, the loop of the branch would not end."""
    return lax.cond(x > 0, lambda x: lax.while_loop(lambda c: c < 9.0, lambda c: c * w * x, x), lambda x: x * w, x)


LANES = np.array([0.0, 1.0, 3.5, 4.0, -1.0], np.float32)


@pytest.mark.parametrize("name", list(TRANSFORMS))
@pytest.mark.parametrize("one", [weighted, shared_only, chosen, quotients, nested, scanned, never_ending])
def test_gradient_of_a_batch_is_that_of_its_lanes(one, name):
    def batch(w, x):
        return weft.vmap(lambda x: one(w, x))(x).sum()

    def by_lane(w, x):
        return sum(one(w, x[i]) for i in range(len(LANES)))

    w = wnp.float32(2.5)
    expected = weft.grad(by_lane, (0, 1))(w, LANES)
    found = TRANSFORMS[name](batch, lambda f: weft.grad(f, (0, 1)))(w, LANES)
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-5)
    if name == "eager":
        forward = weft.jacfwd(batch, (0, 1))(w, LANES)
        for e, f in zip(expected, forward, strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-5)


@pytest.mark.parametrize("second", ["hessian", "reverse over reverse", "forward over forward"])
@pytest.mark.parametrize("one", [weighted, nested])
def test_second_derivatives(one, second):
    of = {
        "hessian": weft.hessian,
        "reverse over reverse": lambda f: weft.jacrev(weft.jacrev(f)),
        "forward over forward": lambda f: weft.jacfwd(weft.jacfwd(f)),
    }[second]

    def batch(v):
        return weft.vmap(lambda x: one(v[0], x))(v[1:]).sum()

    def by_lane(v):
        return sum(one(v[0], v[i]) for i in range(1, 4))

    v = wnp.array([2.5, 0.0, 1.5, 3.5])
    np.testing.assert_allclose(of(batch)(v), weft.hessian(by_lane)(v), rtol=1e-4, atol=1e-5)


def test_a_batch_of_batches():
    def one(w, x, y):
        return lax.cond(x < y, lambda: wnp.sqrt(y - x) * w, lambda: wnp.log(x) * w)

    def batch(w, x, y):
        return weft.vmap(lambda x: weft.vmap(lambda y: one(w, x, y))(y))(x).sum()

    x, y = wnp.array([0.0, 1.0, 2.0]), wnp.array([1.0, 2.0])
    expected = weft.grad(lambda *a: sum(one(a[0], i, j) for i in a[1] for j in a[2]), (0, 1, 2))(2.0, x, y)
    found = weft.jit(weft.grad(batch, (0, 1, 2)))(2.0, x, y)
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-6)


def test_no_lane_takes_the_branch():
    np.testing.assert_array_equal(weft.grad(lambda x: weft.vmap(root)(x).sum())(wnp.zeros(3)), np.zeros(3))
    f = lambda w: weft.vmap(lambda x: shared_only(w, x))(wnp.zeros(3) + 1.0).sum()
    assert weft.grad(f)(2.0) == 3.0  # the derivative of the branch that is not taken is infinite in w


def test_what_every_branch_passes_along_is_not_batched():
    branch = lambda x, y: lax.cond(x < 3, lambda x, y: (x * 2, y), lambda x, y: (x * 3, y), x, y)
    assert weft.vmap(branch, (0, None), (0, None))(wnp.arange(5), 3.0)[1].shape == ()
    loop = lambda k, x: lax.while_loop(lambda s: s[1] < 5, lambda s: (s[0], s[1] + s[0]), (k, x))
    k, x = weft.vmap(loop, (None, 0), (None, 0))(2.0, wnp.arange(3.0))
    assert k == 2.0 and x.tolist() == [6.0, 5.0, 6.0]


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("kind", ["io", "debug", "pure"])
def test_callbacks_run_for_lanes_that_get_there(kind, jitted):
    seen = []

    def record(x):
        seen.append(float(x))
        return np.float32(math.sqrt(x))

    def call(x):
        if kind == "debug":
            weft.debug.callback(record, x)
            return x
        if kind == "io":
            return weft.io_callback(record, weft.ShapeDtypeStruct((), np.float32), x)
        return weft.pure_callback(record, weft.ShapeDtypeStruct((), np.float32), x, vmap_method="sequential")

    def loop(x):
        return lax.while_loop(lambda c: c < 4, lambda c: call(c) * 0 + c + 2, x)

    def inner(x):
        return lax.cond(x > 2, lambda x: loop(x), lambda x: x, x)

    batch = weft.vmap(lambda x: lax.cond(x > 0, inner, lambda x: x, x))
    (weft.jit(batch) if jitted else batch)(wnp.array([-1.0, 3.0, 1.0]))
    assert seen == [3.0]
    seen.clear()
    (weft.jit(weft.vmap(loop)) if jitted else weft.vmap(loop))(wnp.array([1.0, 3.0, 9.0]))
    assert sorted(seen) == [1.0, 3.0, 3.0]


def test_lanes_that_communicate():
    """What a lane sends counts in others, in derivatives as in values."""

    def batch(x):
        one = lambda y: lax.cond(y > 0, lambda y: lax.psum(y * y, "i") * y, lambda y: y, y)
        return weft.vmap(one, axis_name="i")(x).sum()

    x = wnp.array([0.5, -2.0, 3.0])
    total, taken = (x * x).sum(), wnp.where(x > 0, x, 0.0).sum()
    np.testing.assert_allclose(weft.grad(batch)(x), wnp.where(x > 0, total, 1.0) + 2 * x * taken, rtol=1e-6)
