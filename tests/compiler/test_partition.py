"""The program of one device: run for all devices, which is `vmap` over the axes of the mesh, it returns what the whole
program returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from tests.compiler.host import partition
from tests.laws.parts import Sizes, inside, stacked
from weft.base.settings import enable_checks
from weft.compiler.partition.driver import prepare
from weft.compiler.partition.partition import PartitionedJaxpr
from weft.compiler.partition.reshard import apply, reshard
from weft.compiler.partition.rules import Dims
from weft.ir.interpreter import replay
from weft.ir.types import array_type

MESH = {"x": 4, "y": 2}


def dims_of(spec: Sequence[Any], rank: int) -> Dims:
    entries = [*spec, *[None] * (rank - len(spec))]
    return tuple(() if e is None else e if isinstance(e, tuple) else (e,) for e in entries)


def on_all_devices(function: Callable[..., Any], sizes: Sizes) -> Callable[..., Any]:
    for axis in reversed(list(sizes)):
        function = weft.vmap(function, axis_name=axis, axis_size=sizes[axis])
    return weft.jit(function)


def check(
    f: Callable[..., Any],
    args: Sequence[Any],
    specs: Sequence[Any],
    out_specs: Sequence[Any] | None = None,
    sizes: Sizes = MESH,
    stored: Sequence[bool] = (),
    reference: Callable[..., Any] | None = None,
) -> PartitionedJaxpr:
    jaxpr = prepare(weft.make_jaxpr(f)(*args))
    leaves = weft.tree_util.tree_leaves(args)
    in_dims = [dims_of(s, onp.ndim(x)) for s, x in zip(specs, leaves, strict=True)]
    outs: Sequence[Any] = [None] * len(jaxpr.outvars)
    if out_specs is not None:
        outs = [dims_of(s, len(v.aval.shape)) for s, v in zip(out_specs, jaxpr.outvars, strict=True)]  # type: ignore[attr-defined]
    with enable_checks(True):
        result = partition(jaxpr, sizes, in_dims, outs, stored)
    found = on_all_devices(lambda *a: replay(result.jaxpr, *a), sizes)(
        *[stacked(x, d, sizes) for x, d in zip(leaves, result.in_dims, strict=True)]
    )
    wholes = replay(jaxpr, *leaves) if reference is None else weft.tree_util.tree_leaves(reference(*args))
    for y, whole, dims in zip(found, wholes, result.out_dims, strict=True):
        there = inside(onp.shape(whole), dims, sizes)
        # Terms of sums may cancel: errors are as large as the largest sums make them.
        most = max(1.0, float(onp.max(onp.abs(whole), initial=0)))
        onp.testing.assert_allclose(
            onp.asarray(y)[there], stacked(whole, dims, sizes)[there], rtol=2e-5, atol=2e-5 * most
        )
    return result


RANDOM = onp.random.RandomState(0)
A, W = RANDOM.randn(8, 16).astype(onp.float32), RANDOM.randn(16, 32).astype(onp.float32)


def kinds(result: PartitionedJaxpr) -> list[str]:
    return [c.kind for c in result.communication]


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: np.sort(x * 2, axis=0) + y,
        lambda x, y: np.cumsum(x * 2, axis=0) + y,
        lambda x, y: (x * 2)[::-1] + y,
    ],
    ids=["sort", "cumsum", "reverse"],
)
def test_an_axis_splits_one_dimension_of_a_value(f: Callable[..., Any]) -> None:
    """Rows of `x * 2` are split because those of `x` are, and columns would be because those of `y` are."""
    check(f, [A, A[::-1].copy()], [("x",), (None, "x")])


@pytest.mark.parametrize(
    ("specs", "collectives"),
    [
        ([("x",), ()], []),
        ([("x",), (None, "y")], []),
        ([(None, "x"), ("x",)], ["psum"]),
        ([("x", "y"), ("y",)], ["psum"]),
        ([("x",), ("y",)], ["psum"]),
        ([((("x", "y")),), ()], []),
    ],
    ids=str,
)
def test_a_contraction_communicates_what_it_must(specs: Any, collectives: list[str]) -> None:
    assert kinds(check(lambda a, w: np.tanh(a @ w), (A, W), specs)) == collectives


def test_reductions_movement_and_counts() -> None:
    def f(a: Any, w: Any) -> Any:
        rows = np.arange(8)[:, None, None]
        return a.reshape(8, 4, 4) * rows, a.T, np.cumsum(a, 1), a.max(), np.argmax(a, 0), a[::-1], np.sort(a, 0)

    check(f, (A, W), [("x", "y"), ()])


TABLE, IDS = RANDOM.randn(4096, 8).astype(onp.float32), RANDOM.randint(0, 4096, (8, 4)).astype(onp.int32)
WIDE = RANDOM.randn(8, 4096).astype(onp.float32)


@pytest.mark.parametrize(
    ("function", "args", "specs", "out_specs", "collectives"),
    [
        # Updates are added on their devices; the sum of the tables is split, or whole.
        (lambda t, i, u: t.at[i].add(u), (A, IDS % 8, RANDOM.randn(8, 4, 16)), [(), ("x",), ("x",)], [()], ["psum"]),
        (
            weft.grad(lambda t, i: np.sin(t[i]).sum()), (TABLE[:8], IDS % 8), [("x",), ("x",)], [("x",)],
            ["all_gather", "reduce_scatter"],
        ),
        (lambda t, i, u: t.at[i].max(u), (A, IDS % 8, RANDOM.randn(8, 4, 16)), [(), ("x",), ("x",)], [()], ["pmax"]),
        # But few rows of a large table are gathered.
        (lambda t, i, u: t.at[i].add(u), (TABLE, IDS[0], TABLE[:4]), [(), ("x",), ("x",)], [()], ["all_gather"] * 2),
        # A large table is read and written by those who have the rows; a small one is gathered.
        (lambda t, i: t[i], (TABLE, IDS), [("x",), ()], None, ["psum"]),
        (lambda t, i: np.take(t, i - 9, 0), (TABLE, IDS), [(("x", "y"),), ()], None, ["psum"] * 2),
        (lambda t, i: t[i], (TABLE[:8], IDS % 8), [("x",), ()], None, ["all_gather"]),
        (lambda t, i, u: t.at[i].set(u), (TABLE, IDS[0], TABLE[:4]), [("x",), (), ()], None, []),
        (lambda x, i: np.take_along_axis(x, i, 1), (WIDE, IDS), [("y", "x"), ("y",)], None, ["psum"]),
        (lambda x, i: np.take_along_axis(x, i, 1), (WIDE, IDS), [("y",), ("y",)], None, []),
        (lambda x, i: lax.dynamic_slice(x, (0, i), (8, 16)), (WIDE, 1020), [(None, "x"), ()], None, ["psum"]),
        (lambda x, i: lax.dynamic_update_slice(x, A, (0, i)), (WIDE, 1020), [(None, "x"), ()], None, []),
        # Along a split dimension.
        (lambda x: np.cumsum(x, 1), (WIDE,), [(None, "x")], None, ["all_gather"]),
        (lambda x: lax.cummax(x, 1, reverse=True), (WIDE,), [(None, ("x", "y"))], None, ["all_gather"] * 2),
        (lambda x: np.argmax(x, 1), (WIDE,), [("y", "x")], None, ["all_gather"] * 2),
        (lambda x: lax.top_k(x, 3), (WIDE,), [("y", "x")], None, ["all_gather"] * 2),
        (lambda x: np.flip(x, 1), (WIDE,), [(None, ("x", "y"))], None, ["ppermute"] * 2),
        (lambda x: np.prod(x, 1), (WIDE,), [(None, "x")], None, ["all_gather"]),
        (lambda x: np.any(x > 5, 1), (WIDE,), [(None, "x")], None, ["all_gather"]),
    ],
)  # fmt: skip
def test_dimensions_that_are_indexed_or_scanned_are_split(
    function: Any, args: Any, specs: Any, out_specs: Any, collectives: list[str]
) -> None:
    args = [onp.asarray(a, onp.float32) if onp.asarray(a).dtype == onp.float64 else onp.asarray(a) for a in args]
    assert kinds(check(function, args, specs, out_specs)) == collectives


def test_what_must_be_whole_says_why() -> None:
    (gathered,) = check(lambda x: np.sort(x, 1), (WIDE,), [(None, "x")]).communication
    assert gathered.reason.endswith(": rows are sorted on one device")


def test_numbers_are_added_to_sums_once() -> None:
    assert kinds(check(lambda a: (a.sum() * 2 + 1, -a.max(0).sum()), (A,), [("x", "y")])) == [
        "psum",
        "psum",
        "pmax",
        "psum",
    ]


def test_dimensions_need_not_split_evenly() -> None:
    """Seven rows over four devices: the last one has a single row, and what is beyond it is in no sum."""
    x = RANDOM.randn(7, 16).astype(onp.float32)
    mesh = weft.make_mesh((4, 2), ("x", "y"), (weft.sharding.AxisType.Auto,) * 2)

    def f(x: Any, w: Any, constrained: bool = True) -> Any:
        def split(value: Any, *spec: Any) -> Any:
            sharding = weft.sharding.NamedSharding(mesh, weft.P(*spec))
            return lax.with_sharding_constraint(value, sharding) if constrained else value

        h = split(np.exp(x @ w), "x", "y")
        total = lax.while_loop(lambda c: c.sum() < 1e4, lambda c: c * 2, 1 / h)
        sums = h.sum(0), h.max(0), np.log(h).min(), h.T @ h, np.prod(h, 0), (h > 1).any(0)
        moved = split(h.T, "y"), split(h, None, "x"), np.sort(h, 0), h[::-1], h.reshape(14, 16), np.cumsum(h, 0)
        return total, *sums, *moved, np.argmax(h, 0), h[np.array([6, 0, 3])], np.concatenate([h, h])

    def gradient(x: Any, w: Any, constrained: bool = True) -> Any:
        return weft.grad(lambda *args: sum(y.sum() for y in f(*args, constrained)[1:5]), (0, 1))(x, w)

    result = check(f, (x, W / 8), [(), ()], reference=lambda x, w: f(x, w, False))
    assert any("f32[2,16]" in str(e) for e in result.jaxpr.eqns)  # seven rows, two on each device
    check(gradient, (x, W / 8), [(), ()], reference=lambda x, w: gradient(x, w, False))


def test_random_bits_do_not_depend_on_how_they_are_split() -> None:
    result = check(lambda a: a + weft.random.normal(weft.random.key(0), (8, 16)), (A,), [("x", "y")])
    assert not result.communication


def test_loops_and_branches() -> None:
    def scanned(a: Any, w: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            carry = np.tanh(carry @ w @ w.T / 16 + x)
            return carry, carry.sum(1)

        return lax.scan(body, a, np.stack([a] * 3))

    assert kinds(check(scanned, (A, W), [("x",), (None, "y")])) == ["psum"]
    check(lambda a: lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * 2 + 1, c[1] + 1), (a, 0)), (A,), [("x", "y")])
    check(lambda a: lax.cond(a.sum() > 0, lambda x: x * 2, lambda x: x.T.T - 1, a), (A,), [("x",)])
    check(weft.grad(lambda a, w: scanned(a, w)[1].sum(), argnums=(0, 1)), (A, W), [("x",), (None, "y")])


BATCHES = onp.random.RandomState(1).randn(4, 8, 16).astype(onp.float32)
LAYERS = onp.random.RandomState(2).randn(3, 16, 16).astype(onp.float32) / 4


def gradient(w: Any, x: Any) -> Any:
    return weft.grad(lambda w: np.mean(np.tanh(x @ w) ** 2))(w)


def accumulated(step: Callable[[Any, Any, Any], Any], start: Callable[[Any], Any] = np.zeros_like) -> Any:
    """The last value of a carry that begins with `start` and goes on with `step(carry, parameters, batch)`."""
    return lambda w, xs: lax.scan(lambda c, x: (step(c, w, x), None), start(w), xs)[0]


def through_layers(ws: Any, x: Any) -> Any:
    return weft.grad(lambda ws: np.mean(lax.scan(lambda h, w: (np.tanh(h @ w), None), x, ws)[0] ** 2))(ws)


def in_while(w: Any, xs: Any, looked_at: bool = False) -> Any:
    def more(state: Any) -> Any:
        return (state[0] < 4) & (np.abs(state[1]).sum() < 2) if looked_at else state[0] < 4

    body = lambda state: (state[0] + 1, state[1] + gradient(w, xs[state[0]]))
    return lax.while_loop(more, body, (0, np.zeros_like(w)))[1]


def nested(w: Any, xs: Any) -> Any:
    def outer(c: Any, x: Any) -> Any:
        return lax.scan(lambda c, y: (c + gradient(w, y), None), c, x)[0], None

    return lax.scan(outer, np.ones_like(w), xs.reshape(2, 2, 8, 16))[0]


def recurrent(w: Any, xs: Any) -> Any:
    return weft.grad(lambda w: np.mean(lax.scan(lambda h, x: (np.tanh(h @ w + x), None), xs[0], xs)[0] ** 2))(w)


@pytest.mark.parametrize(
    ("f", "w", "times"),
    [
        (accumulated(lambda c, w, x: c + gradient(w, x)), W, 1),
        (accumulated(lambda c, w, x: c + gradient(w, x) / 4, lambda w: w), W, 1),
        (accumulated(lambda c, w, x: c * 0.9 + gradient(w, x) * 0.1, np.ones_like), W, 1),
        (accumulated(lambda c, w, x: gradient(w, x) - c), W, 1),
        (accumulated(lambda c, w, x: c + through_layers(w, x)), LAYERS, 1),
        (lambda ws, xs: through_layers(ws, xs[0]), LAYERS, 1),
        (in_while, W, 1),
        (nested, W, 1),
        (recurrent, LAYERS[0], 1),
        # What is not linear, or looked at in every iteration, is summed in every one.
        (accumulated(lambda c, w, x: np.tanh(c + gradient(w, x))), W, 4),
        (accumulated(lambda c, w, x: c + gradient(w + c, x)), W, 4),
        (lambda w, xs: in_while(w, xs, looked_at=True), W, 1),  # it is not known how often
        (lambda w, xs: lax.scan(lambda c, x: (c + gradient(w, x),) * 2, np.zeros_like(w), xs), W, 4),
    ],
)
def test_sums_wait_through_loops(f: Any, w: Any, times: int) -> None:
    rows = check(f, (w, BATCHES), [(), (None, "x")]).communication
    assert [(c.kind, c.times) for c in rows] == [("psum", times)]
    assert all("dot_general" in c.reason for c in rows)


def test_sums_wait_through_loops_over_one_axis_of_several() -> None:
    f = accumulated(lambda c, w, x: c + gradient(w, x))
    rows = check(f, (W, BATCHES), [(None, "y"), (None, "x")]).communication
    assert [(c.axis, c.times) for c in rows] == [("x", 1)]
    # A carry that is stored split is summed into its parts in every iteration: it would be whole until then.
    rows = check(f, (W, BATCHES), [(), (None, "x")], [("x",)]).communication
    assert [(c.kind, c.times) for c in rows] == [("reduce_scatter", 4)]


def test_shard_map_is_opened_and_its_auto_axes_are_propagated() -> None:
    mesh = weft.make_mesh((4, 2), ("x", "y"), (weft.sharding.AxisType.Auto,) * 2)
    P = weft.P
    body = lambda a, w: lax.psum(np.sin(a @ w).sum(), "x")
    for names in (frozenset(), frozenset({"x"})):
        f = weft.shard_map(body, mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), axis_names=names)
        assert "psum" in str(check(f, (A, W), [("x",), (None, "y")]).jaxpr)
        check(weft.grad(f, 1), (A, W), [(), ()])


def step_of(loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Any, batch: Any) -> Any:
        value, gradients = weft.value_and_grad(loss)(params, batch)
        return weft.tree_util.tree_map(lambda p, g: p - 0.01 * g, params, gradients), value

    return step


@pytest.mark.parametrize(
    ("specs", "batch", "sizes", "megabytes"),
    [
        ([(), ()] * 2, ("x",), {"x": 8}, 0.46),
        ([("x",), ("x",)] * 2, ("x",), {"x": 8}, 0.6),
        ([(None, "x"), ("x", None)] * 2, (), {"x": 8}, 0.36),
        ([("x", "y"), ("y", "x")] * 2, ("x",), {"x": 4, "y": 2}, 0.4),
    ],
    ids=["data", "fully sharded", "tensor", "both"],
)
def test_training_steps(specs: Any, batch: Any, sizes: Sizes, megabytes: float) -> None:
    size = 128
    params = [RANDOM.randn(size, size).astype(onp.float32) / 11 for _ in range(4)]

    def loss(params: Any, h: Any) -> Any:
        for w in params:
            h = np.tanh(h @ w)
        return np.mean(h**2)

    x = RANDOM.randn(64, size).astype(onp.float32)
    stored = [True] * 4 + [False]
    result = check(step_of(loss), (params, x), [*specs, batch], [*specs, ()], sizes, stored)
    assert sum(c.bytes for c in result.communication) <= megabytes * 1e6


ALL_DIMS = [
    dims_of(s, 2)
    for s in [(), ("x",), ("y",), (None, "x"), (None, "y"), ("x", "y"), ("y", "x"), (("x", "y"),), (("y", "x"),)]
]


@pytest.mark.parametrize("source", ALL_DIMS, ids=str)
def test_resharding_returns_the_shards_and_costs_no_more_than_gathering(source: Dims) -> None:
    x = onp.arange(64 * 8, dtype=onp.float32).reshape(64, 8)
    aval = array_type(x.shape, x.dtype)
    for goal in ALL_DIMS:
        transfers = reshard(aval, source, goal, MESH)
        found = on_all_devices(lambda a: apply(a, transfers, MESH, x.shape), MESH)(stacked(x, source, MESH))  # noqa: B023
        onp.testing.assert_array_equal(found, stacked(x, goal, MESH))
        gathered = reshard(aval, source, ((), ()), MESH)
        assert sum(m.bytes for m in transfers) <= sum(m.bytes for m in gathered)


@pytest.mark.parametrize("goal", [d for d in ALL_DIMS if ("y",) not in d], ids=str)
def test_unreduced_values_are_summed(goal: Dims) -> None:
    x = RANDOM.randn(4, 2, 16, 8).astype(onp.float32)
    transfers = reshard(array_type((16, 8), x.dtype), ((), ()), goal, MESH, ("x", "y"))
    found = on_all_devices(lambda a: apply(a, transfers, MESH, (16, 8)), MESH)(x)
    onp.testing.assert_allclose(found, stacked(x.sum((0, 1)), goal, MESH), rtol=1e-5, atol=1e-5)


def test_sums_do_not_wait_for_what_rounds() -> None:
    f = lambda a: lax.reduce_precision(a.sum(0), exponent_bits=8, mantissa_bits=3)
    assert "psum" in kinds(check(f, (A,), [("x",)]))
    integers = onp.arange(128, dtype=onp.int32).reshape(8, 16)
    check(lambda a: lax.div(a.sum(0), onp.int32(7)), (integers,), [("x",)])
    # Two scaled sums are one.
    assert kinds(check(lambda a: a.sum(0) * 7 + (a * a).sum(0) * 3, (A,), [("x",)])) == ["psum"]
