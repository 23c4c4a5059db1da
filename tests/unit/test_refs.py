"""Mutable arrays: in place outside and inside of programs, under transformations, and mistakes with them."""

from __future__ import annotations

import time

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax, ref as refs
from weft.base.settings import overrides

X = wnp.arange(3.0)


def test_reading_and_writing() -> None:
    start = wnp.arange(6.0).reshape(2, 3)
    ref = weft.new_ref(start)
    wanted = np.array(start)
    ref[0] = X * 10
    wanted[0] = X * 10
    ref[1, 2] = 7
    wanted[1, 2] = 7
    ref[:, 0] += wnp.ones(2)
    wanted[:, 0] += 1
    ref[..., -1] = wnp.array([-1.0, -2.0])
    wanted[..., -1] = [-1, -2]
    ref[wnp.array([1, 0]), wnp.array([1, 1])] = wnp.array([4.0, 5.0])
    wanted[[1, 0], [1, 1]] = [4, 5]
    np.testing.assert_array_equal(ref[...], wanted)
    np.testing.assert_array_equal(ref[1, ::2], wanted[1, ::2])
    np.testing.assert_array_equal(ref[wanted > 4], wanted[wanted > 4])
    np.testing.assert_array_equal(np.asarray(ref), wanted)
    np.testing.assert_array_equal(start, np.arange(6.0).reshape(2, 3))
    assert (ref.shape, ref.ndim, ref.size, len(ref), ref.dtype) == ((2, 3), 2, 6, 2, np.float32)
    assert weft.typeof(ref) == refs.AbstractRef(weft.typeof(start)) and str(weft.typeof(ref).short()) == "Ref{f32[2,3]}"
    assert isinstance(ref, weft.Ref) and not isinstance(ref, weft.Array)
    assert weft.tree.leaves({"a": ref}) == [ref]
    assert float(weft.Ref(weft.typeof(ref), start)[1, 2]) == 5.0
    with pytest.raises(TypeError, match="must have its type"):
        weft.Ref(weft.typeof(ref), X)
    assert repr(weft.new_ref(X)) == "Ref([0., 1., 2.], dtype=float32)"


def test_functions() -> None:
    ref = weft.new_ref(X)
    assert float(refs.swap(ref, 0, 9.0)) == 0.0
    refs.addupdate(ref, wnp.array([1, 1]), wnp.array([1.0, 2.0]))
    refs.set(ref, 2, 5.0)
    np.testing.assert_array_equal(refs.get(ref), [9, 4, 5])
    assert float(refs.get(ref, 1)) == 4.0
    np.testing.assert_array_equal(weft.freeze(ref), [9, 4, 5])
    for use in (lambda: ref[...], lambda: refs.set(ref, 0, 1.0), lambda: weft.freeze(ref)):
        with pytest.raises(errors.ArgumentError, match="frozen"):
            use()
    other = weft.empty_ref(weft.ShapeDtypeStruct((2,), np.int32))
    assert (other.shape, other.dtype) == ((2,), np.int32)
    weft.free_ref(other)
    with pytest.raises(errors.ArgumentError, match="freed"):
        other[0]


def test_slices_that_begin_at_traced_indices() -> None:
    table = np.arange(20.0, dtype=np.float32).reshape(4, 5)
    ref = weft.new_ref(table)
    np.testing.assert_array_equal(weft.jit(lambda i: ref[weft.ds(i, 2)])(1), table[1:3])
    np.testing.assert_array_equal(weft.jit(lambda i: ref[2, weft.ds(i, 2)])(3), table[2, 3:])
    np.testing.assert_array_equal(weft.jit(lambda i: ref[i, weft.ds(i, 2, 2)])(1), table[1, 1:5:2])
    np.testing.assert_array_equal(ref[weft.ds(1, 2, 2), 0], table[1:4:2, 0])

    @weft.jit
    def write(i):
        ref[weft.ds(i, 2), 1] = wnp.array([-1.0, -2.0])
        ref[0, weft.ds(i, 2, 2)] = wnp.array([-3.0, -4.0])
        refs.addupdate(ref, weft.ds(i, 1), wnp.ones((1, 5)))

    write(1)
    table[1:3, 1] = [-1, -2]
    table[0, 1:5:2] = [-3, -4]
    table[1] += 1
    np.testing.assert_array_equal(ref[...], table)
    assert weft.ds(3) == weft.ds(0, 3)
    np.testing.assert_array_equal(ref[weft.ds(-2, 2), ..., weft.ds(-1, 1)], table[2:, 4:])


@pytest.mark.parametrize(("index", "inside"), [(5, 2), (-1, 2), (-7, 0)])
def test_a_traced_index_is_clamped_where_it_is_read_and_where_it_is_written(index: int, inside: int) -> None:
    """Also under vmap and in loops; arrays of indices drop what is out of bounds, as `x.at[i]` does."""

    def touch(i):
        ref = weft.new_ref(wnp.zeros((3, 2)))
        ref[i] = wnp.ones(2)
        refs.addupdate(ref, (i, 0), 1.0)
        ref[..., i] += ref[i, 0]
        return ref[...]

    expected = np.zeros((3, 2))
    expected[inside] = [2, 1]
    expected[:, min(inside, 1)] += 2
    for f in (weft.jit(touch), lambda i: weft.jit(weft.vmap(touch))(wnp.array([i]))[0]):
        np.testing.assert_array_equal(f(index), expected)
    with overrides(strict_indices=False, checks="off"):
        np.testing.assert_array_equal(touch(index), expected)


def test_arrays_that_were_read_do_not_change() -> None:
    ref = weft.new_ref(X)

    @weft.jit
    def put(ref, x):
        ref[...] = x

    @weft.jit
    def set_first(ref):
        ref[0] = 7.0
        return ref[...]

    for _ in range(4):  # later calls are dispatched
        put(ref, X)
        ref[0] = 100.0
        result = set_first(ref)
        ref[1] = -1.0
        np.testing.assert_array_equal(X, [0, 1, 2])
        np.testing.assert_array_equal(result, [7, 1, 2])
        held, view = ref[...], np.asarray(ref[...])
        ref[2] = 55.0
        np.testing.assert_array_equal(held, [7, -1, 2])
        np.testing.assert_array_equal(view, [7, -1, 2])
        np.testing.assert_array_equal(ref[...], [7, -1, 55])


def test_arguments_and_closures_of_jit() -> None:
    first, second, traced = weft.new_ref(X), weft.new_ref(X + 1), []

    @weft.jit
    def step(ref, x):
        traced.append(1)
        ref[...] += x
        first_now = ref[0]
        ref[0] = first_now * 2
        return first_now

    assert [float(step(r, 1.0)) for r in (first, second, first)] == [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(first[...], [6, 3, 4])
    np.testing.assert_array_equal(second[...], [4, 3, 4])
    assert len(traced) == 1

    @weft.jit
    def closing(x):
        step(first, x)
        return second[...] * first[1]

    for _ in range(3):
        before = np.array(first[1])
        np.testing.assert_array_equal(closing(1.0), np.array([4, 3, 4]) * (before + 1))
    jaxpr = weft.make_jaxpr(closing)(1.0)
    assert len(jaxpr.in_avals) == 3 and len(jaxpr.out_avals) == 2
    assert weft.eval_shape(step, weft.ShapeDtypeStruct((3,), np.float32, is_ref=True), 1.0).shape == ()
    assert weft.eval_shape(step, first, 1.0).shape == ()


def test_compiled_ahead_of_time() -> None:
    ref, other = weft.new_ref(X), weft.new_ref(X)

    def step(ref, x):
        ref[0] = x
        other[1] += x
        return ref[...]

    lowered = weft.jit(step).lower(ref, 1.0)
    assert [aval.short() for aval in weft.tree.leaves(lowered.in_avals)] == ["f32[3]", "f32[]"]
    compiled = lowered.compile()
    for x in (5.0, 6.0):
        np.testing.assert_array_equal(compiled(ref, x), [x, 1, 2])
    np.testing.assert_array_equal(ref[...], [6, 1, 2])
    np.testing.assert_array_equal(other[...], [0, 12, 2])
    with pytest.raises(ValueError, match="both closed over"):
        compiled(other, 1.0)


def sines(x):
    """Create a Ref, and write rows of it that depend on one another."""
    ref = weft.new_ref(x * 2)
    ref[0] = ref[1] * x[2]
    ref[...] += x
    return wnp.sin(ref[...]).sum()


def plain_sines(x):
    y = (x * 2).at[0].set(x[1] * 2 * x[2]) + x
    return wnp.sin(y).sum()


def in_loop(x):
    ref = weft.new_ref(wnp.zeros(3))

    def body(i, _):
        ref[i] = wnp.sin(x[i]) * ref[i - 1] + x[i]

    lax.fori_loop(0, 3, body, None)
    return (ref[...] ** 2).sum()


def plain_in_loop(x):
    def body(i, y):
        return y.at[i].set(wnp.sin(x[i]) * y[i - 1] + x[i])

    return (lax.fori_loop(0, 3, body, wnp.zeros(3)) ** 2).sum()


@pytest.mark.parametrize(("function", "plain"), [(sines, plain_sines), (in_loop, plain_in_loop)])
def test_functions_that_create_them_are_transformed(function, plain) -> None:
    batch = wnp.stack([X, X + 1])
    transforms = {
        "call": lambda f: f(X + 1),
        "jit": lambda f: weft.jit(f)(X + 1),
        "grad": lambda f: weft.grad(f)(X + 1),
        "jit of grad": lambda f: weft.jit(weft.grad(f))(X + 1),
        "grad of jit": lambda f: weft.grad(weft.jit(f))(X + 1),
        "jvp": lambda f: weft.jvp(f, (X + 1,), (X,))[1],
        "vmap": lambda f: weft.vmap(f)(batch),
        "vmap of grad": lambda f: weft.vmap(weft.grad(f))(batch),
        "hessian": lambda f: weft.hessian(f)(X),
        "remat": lambda f: weft.grad(weft.checkpoint(f))(X + 1),
        "jit of vmap of grad": lambda f: weft.jit(weft.vmap(weft.grad(f)))(batch),
    }
    for name, transform in transforms.items():
        np.testing.assert_allclose(transform(function), transform(plain), rtol=1e-5, atol=1e-6, err_msg=name)


def test_control_flow_reads_and_writes() -> None:
    for outer in (lambda f: f, weft.jit):
        ref, table = weft.new_ref(wnp.zeros(())), weft.new_ref(X * 10)

        def scanned(c, i):
            ref[...] += table[i] * c  # noqa: B023
            return c + 1, ref[...]  # noqa: B023

        carry, ys = outer(lambda: lax.scan(scanned, 1.0, wnp.arange(3)))()
        assert float(carry) == 4.0
        np.testing.assert_array_equal(ys, [0, 20, 80])
        assert float(ref[...]) == 80.0

        def count(c):
            ref[...] += 1.0  # noqa: B023
            return c + 1

        assert int(outer(lambda: lax.while_loop(lambda c: ref[...] < 90, count, 0))()) == 10  # noqa: B023
        assert int(outer(lambda n: lax.fori_loop(0, n, lambda i, c: count(c), 0))(5)) == 5
        assert float(ref[...]) == 95.0

        def choose(p, x):
            lax.cond(p, lambda x: ref.__setitem__(..., x), lambda x: table.__setitem__(0, x), x)  # noqa: B023

        outer(choose)(True, 1.0)
        outer(choose)(False, 2.0)
        np.testing.assert_array_equal([ref[...], table[0]], [1, 2])
        outer(lambda r: lax.switch(1, [lambda r: None, lambda r: r.__setitem__(0, 3.0)], r))(table)
        assert float(table[0]) == 3.0


def test_slices_of_a_scanned_ref() -> None:
    ref = weft.new_ref(wnp.arange(6.0).reshape(3, 2))

    def body(total, row):
        row[0] = total
        return total + row[1], row[...]

    total, rows = weft.jit(lambda: lax.scan(body, 0.0, ref))()
    np.testing.assert_array_equal(ref[...], [[0, 1], [1, 3], [4, 5]])
    np.testing.assert_array_equal(rows, ref[...])
    assert float(total) == 9.0


def test_mapped_arguments() -> None:
    ref = weft.new_ref(wnp.ones((2, 3)))
    weft.vmap(lambda row: row.__setitem__(..., row[...] * 2))(ref)
    np.testing.assert_array_equal(ref[...], np.full((2, 3), 2.0))
    weft.jit(weft.vmap(lambda column, x: column.__setitem__(0, x), in_axes=(1, 0)))(ref, X)
    np.testing.assert_array_equal(ref[...], [[0, 1, 2], [2, 2, 2]])
    np.testing.assert_array_equal(weft.vmap(lambda i: ref[0, i])(wnp.array([2, 0])), [2, 0])
    chosen = weft.vmap(lambda p, x: in_branch(p, x))(wnp.array([True, False]), wnp.stack([X, X]))
    np.testing.assert_array_equal(chosen, [[5, 1, 2], [0, 1, 2]])


def in_branch(p, x):
    ref = weft.new_ref(x)
    lax.cond(p, lambda: ref.__setitem__(0, 5.0), lambda: None)
    return ref[...]


@weft.custom_vjp
def stash(gradient, x):
    return x


def stash_back(gradient, ct):
    gradient[...] = ct
    return None, ct


stash.defvjp(lambda gradient, x: (x, gradient), stash_back)


def test_backward_rules_store_gradients() -> None:
    gradient, traced = weft.new_ref(wnp.zeros(3)), []

    def loss(gradient, x):
        traced.append(1)
        y = stash(gradient, wnp.sin(x))
        return (y * y).sum()

    stepping = weft.jit(weft.grad(loss, 1))
    for transform in (
        lambda x: weft.grad(loss, 1)(gradient, x),
        lambda x: stepping(gradient, x),
        lambda x: weft.jit(weft.grad(lambda x: loss(gradient, x)))(x),
        lambda x: weft.grad(weft.jit(lambda x: loss(gradient, x)))(x),
        lambda x: weft.grad(weft.jit(loss), 1)(gradient, x),
        lambda x: weft.jit(weft.grad(weft.checkpoint(loss), 1))(gradient, x),
        lambda x: weft.grad(lambda x: lax.cond(x[0] > 0, lambda: loss(gradient, x), lambda: x.sum()))(x),
    ):
        gradient[...] = wnp.zeros(3)
        np.testing.assert_allclose(transform(X + 1), np.sin(2 * (X + 1)), rtol=1e-5)
        np.testing.assert_allclose(gradient[...], 2 * np.sin(X + 1), rtol=1e-6)
    count = len(traced)
    stepping(weft.new_ref(wnp.zeros(3)), X)
    assert len(traced) == count


def test_backward_rules_in_loops_store_gradients() -> None:
    gradient = weft.new_ref(wnp.zeros(()))
    layers = weft.new_ref(wnp.zeros(3))

    @weft.custom_vjp
    def stash_at(i, x):
        return x

    def store(i, ct):
        layers[i] = ct
        refs.addupdate(gradient, ..., ct)
        return None, ct

    stash_at.defvjp(lambda i, x: (x, i), store)

    def loss(x):
        return lax.scan(lambda c, i: (wnp.sin(stash_at(i, c)), None), x, wnp.arange(3))[0]

    values = [1.0]
    for _ in range(2):
        values.append(float(np.sin(values[-1])))
    wanted = np.cumprod(np.cos(values)[::-1])[::-1]
    for transform in (weft.grad, lambda f: weft.jit(weft.grad(f)), lambda f: weft.grad(weft.jit(f))):
        gradient[...] = wnp.zeros(())
        layers[...] = wnp.zeros(3)
        np.testing.assert_allclose(transform(loss)(1.0), wanted[0], rtol=1e-6)
        np.testing.assert_allclose(layers[...], wanted, rtol=1e-6)
        np.testing.assert_allclose(gradient[...], wanted.sum(), rtol=1e-6)


def test_pullbacks_add_to_them() -> None:
    _, pull = weft.vjp(lambda a, b: {"o": a * b["c"]}, X, {"c": X + 1})
    total = weft.new_ref(wnp.ones(3))
    first, second = pull.with_refs(None, {"c": total})({"o": wnp.ones(3)})
    np.testing.assert_array_equal(first, X + 1)
    assert second == {"c": weft.ad.GradRef()}
    np.testing.assert_array_equal(total[...], X + 1)
    weft.jit(lambda: pull.with_refs(None, {"c": total})({"o": wnp.ones(3)})[0])()
    np.testing.assert_array_equal(total[...], 2 * X + 1)
    with pytest.raises(TypeError, match="mutable arrays"):
        pull.with_refs(None, {"c": X})({"o": wnp.ones(3)})


def test_checkpointed_functions_and_callbacks() -> None:
    ref, seen = weft.new_ref(X), []

    @weft.checkpoint
    def function(ref, x):
        ref[...] = ref[...] * 2
        return (wnp.sin(x) * ref[...]).sum()

    np.testing.assert_allclose(weft.grad(function, 1)(ref, X), np.cos(X) * X * 2, rtol=1e-6)
    np.testing.assert_array_equal(ref[...], X * 2)

    @weft.jit
    def show():
        ref[0] = 4.0
        weft.debug.callback(lambda x: seen.append(np.array(x)), ref)

    show()
    weft.effects_barrier()
    np.testing.assert_array_equal(seen[0], [4, 2, 4])


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda r: weft.jit(lambda a, b: a[0] + b[0])(r, r), ValueError, "only one reference"),
        (lambda r: weft.jit(lambda a: a[0] + r[0])(r), ValueError, "both closed over and passed"),
        (lambda r: weft.jit(lambda a: a)(r), TypeError, "cannot be returned"),
        (lambda r: weft.jit(lambda: weft.new_ref(X))(), TypeError, "created at test_refs.py"),
        (lambda r: weft.grad(lambda x: (r.__setitem__(..., x), x.sum())[1])(X), ValueError, "lose its derivative"),
        (lambda r: weft.vmap(lambda x: r.__setitem__(0, x))(X), ValueError, "inside of vmap"),
        (lambda r: weft.vmap(lambda x: r.__setitem__(0, 1.0))(X), ValueError, "inside of vmap"),
        (lambda r: weft.grad(lambda r: r[...].sum())(r), TypeError, "cannot differentiate"),
        (lambda r: r.__setitem__(slice(None), 1.0), ValueError, "shape of the elements"),
        (lambda r: r.__setitem__(0, wnp.int32(1)), TypeError, "dtype"),
        (lambda r: r.__setitem__(0, 1j), TypeError, "dtype"),
        (lambda r: r.__setitem__(0, "a"), TypeError, "an array or a number"),
        (lambda r: r[7], IndexError, "out of bounds"),
        (lambda r: r[wnp.int32(7)], IndexError, "out of bounds"),
        (lambda r: r.__setitem__(wnp.int32(7), 1.0), IndexError, "out of bounds"),
        (lambda r: refs.addupdate(r, wnp.array([0, 7]), wnp.ones(2)), IndexError, "out of bounds"),
        (lambda r: r[weft.ds(2, 2)], IndexError, "do not fit into axis 0"),
        (lambda r: r[weft.ds(wnp.int32(-1), 2)], IndexError, "do not fit into axis 0"),
        (lambda r: weft.new_ref(r), TypeError, "cannot take a Ref"),
        (lambda r: weft.new_ref({"a": X}), TypeError, "an array or a number"),
        (lambda r: wnp.sin(r), TypeError, "requires ndarray"),
        (lambda r: r + 1, TypeError, "unsupported operand"),
        (lambda r: bool(r), TypeError, "truth value"),
        (lambda r: lax.scan(lambda c, x: (c, x), r, X), TypeError, "not an array"),
        (lambda r: leaked()[...], errors.UnexpectedTracerError, "outside of the traced function"),
        (lambda r: weft.jit(lambda: leaked()[...])(), errors.UnexpectedTracerError, "outside of the traced function"),
        (lambda r: lax.while_loop(lambda c: r.__setitem__(0, 1.0) or c, lambda c: c, True), ValueError, "condition"),
        (lambda r: lax.reduce(X, 0.0, lambda a, b: a + b + r[0], (0,)), NotImplementedError, "from outside is used"),
    ],
)
def test_mistakes(use, error, words: str) -> None:
    with pytest.raises(error, match=words):
        use(weft.new_ref(X))


def leaked() -> weft.Ref:
    found: list = []
    weft.jit(lambda: found.append(weft.new_ref(1.0)) or 0)()
    return found[0]


def test_updates_are_in_place() -> None:
    """A row of a large array is written in a time that does not depend on the number of rows, where a copy would."""

    def seconds(action, repeat: int = 7) -> float:
        action()
        action()
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            action()
            times.append(time.perf_counter() - start)
        return min(times)

    row = wnp.ones(1000)
    ref = weft.new_ref(wnp.zeros((8000, 1000)))
    copying = seconds(lambda: ref[...].at[5].set(row), 3)

    @weft.jit
    def loop(ref):
        def body(i, _):
            ref[i] = ref[i] * 2 + 1

        lax.fori_loop(0, 100, body, None)

    assert seconds(lambda: ref.__setitem__(5, row)) < copying / 10
    assert seconds(lambda: loop(ref)) < copying


def test_vjp_with_respect_to_refs() -> None:
    def f(ref: weft.Ref, x: weft.Array) -> weft.Array:
        ref[...] = wnp.sin(ref[...]) * x
        return ref[...] ** 2

    for run in (lambda g: g, weft.jit):
        ref, total = weft.new_ref(2.0), weft.new_ref(100.0)
        y, pull = weft.vjp(f, ref, 3.0)
        np.testing.assert_allclose([y, ref[...]], [(3 * np.sin(2)) ** 2, 3 * np.sin(2)], rtol=1e-6)
        marker, ct = run(lambda ct, p=pull, t=total: p.with_refs(t, weft.ad.GradValue())(ct))(1.0)
        # The gradient Ref begins as the cotangent of the value that the Ref ends with.
        inner = 2 * 3 * np.sin(2) + 100
        assert marker == weft.ad.GradRef()
        np.testing.assert_allclose(total[...], inner * 3 * np.cos(2), rtol=1e-6)
        np.testing.assert_allclose(ct, inner * np.sin(2), rtol=1e-6)
        with pytest.raises(ValueError, match=r"must be accumulated into a Ref.*\n(.*\n)*.*with_refs"):
            pull(1.0)
        with pytest.raises(TypeError, match="must be accumulated"):
            pull.with_refs(weft.ad.GradValue(), None)
    with pytest.raises(ValueError, match="twice"):
        weft.vjp(lambda a, b: a[...] * b[...], ref, ref)


def test_unwanted_cotangents_are_not_computed() -> None:
    _, pull = weft.vjp(lambda w, x: wnp.tanh(w @ x), wnp.ones((4, 4)), wnp.ones(4))
    want, skip = weft.ad.GradValue(), weft.ad.DontWant()
    both = pull(wnp.ones(4))
    first, marker = pull.with_refs(want, skip)(wnp.ones(4))
    np.testing.assert_array_equal(first, both[0])
    assert marker == weft.ad.DidntWant()
    counts = [
        str(weft.make_jaxpr(pull.with_refs(*requests))(wnp.ones(4))).count("dot_general")
        for requests in ((want, want), (want, skip), (skip, skip))
    ]
    assert counts == [2, 1, 0]


def test_arguments_can_be_left_out_of_a_pullback() -> None:
    def layer(p: dict[str, weft.Array], x: weft.Array) -> weft.Array:
        return wnp.tanh(x @ p["w"]) + p["b"]

    p, x = {"w": wnp.ones((3, 3)), "b": wnp.ones(3)}, wnp.ones((2, 3))
    y, pull = weft.vjp(layer, p, x)
    assert pull.args_res[0][0] == weft.ad.NotNeeded() and pull.args_res[0][1].shape == (3, 3)
    wanted = pull(y)
    _, light = weft.jit(lambda p, x: weft.vjp(layer, p, x, saveable_args=((True, False), True)))(p, x)
    assert len(weft.tree.leaves(light)) == len(weft.tree.leaves(pull)) - 1
    with pytest.raises(ValueError, match=r"p\['w'\]"):
        light(y)
    for restored in (light.replace(args_res=[p, x]), light.replace(args_res=[(p["b"], p["w"]), light.args_res[1]])):
        found = weft.jit(lambda pull, y: pull(y))(restored, y)
        weft.tree.map(np.testing.assert_array_equal, found, wanted)
    with pytest.raises(ValueError, match="saveable_args must be"):
        weft.vjp(layer, p, x, saveable_args=(True,))


def test_refs_say_how_they_are_split() -> None:
    ref = weft.new_ref(X)
    assert ref.sharding == wnp.asarray(X).sharding
    mesh = weft.make_mesh((2,), ("x",))
    split = weft.device_put(wnp.arange(4.0), weft.NamedSharding(mesh, weft.P("x")))
    assert weft.new_ref(split).sharding == weft.new_ref(split)[...].sharding == split.sharding
