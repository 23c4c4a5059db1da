"""Callbacks: pure and effectful callbacks, printing, breakpoints, and debug_nans."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax
from weft.sharding import AxisType

SCALAR = weft.ShapeDtypeStruct((), np.float32)


def names_this_file(error: BaseException) -> bool:
    return "  at        test_callbacks.py:" in str(error)


# -- pure_callback ----------------------------------------------------------------------------------------------------


def test_pure_callback_alone_staged_and_in_a_loop() -> None:
    f = lambda x: weft.pure_callback(lambda x: np.sin(x), weft.ShapeDtypeStruct((3,), np.float32), x)
    x = wnp.arange(3.0)
    assert np.array_equal(f(x), weft.jit(f)(x)) and np.allclose(f(x), np.sin(np.arange(3.0)))
    step = lambda c, x: (weft.pure_callback(lambda a, b: np.float32(a + b), SCALAR, c, x), c)
    assert float(weft.jit(lambda: lax.scan(step, 0.0, x))()[0]) == 3.0


def test_pure_callback_of_trees_and_keywords() -> None:
    found = weft.pure_callback(
        lambda d, *, k: {"s": d["x"] + k, "p": d["x"] * k}, {"s": SCALAR, "p": SCALAR}, {"x": 3.0}, k=2.0
    )
    assert (float(found["s"]), float(found["p"])) == (5.0, 6.0)


@pytest.mark.parametrize(
    ("method", "shapes"),
    [
        ("sequential", [((), ())] * 3),
        ("sequential_unrolled", [((), ())] * 3),
        ("expand_dims", [((3,), (1,))]),
        ("broadcast_all", [((3,), (3,))]),
        ("legacy_vectorized", [((3,), ())]),
    ],
)
def test_vmap_methods(method: str, shapes: list) -> None:
    seen = []

    def add(x, y):
        seen.append((np.shape(x), np.shape(y)))
        return np.float32(x + y) if np.ndim(x) == 0 else (x + y).astype(np.float32)

    f = lambda x, y: weft.pure_callback(add, SCALAR, x, y, vmap_method=method)
    for transform in (lambda g: g, weft.jit):
        seen.clear()
        assert transform(weft.vmap(f, (0, None)))(wnp.arange(3.0), wnp.float32(1)).tolist() == [1.0, 2.0, 3.0]
        assert seen == shapes


@pytest.mark.parametrize("transform", [lambda g: g, weft.jit], ids=["eager", "jit"])
def test_a_batch_of_none_calls_nothing(transform: Any) -> None:
    called = []
    row = weft.ShapeDtypeStruct((2,), np.int32)
    back = lambda x: (called.append(x), x)[1]
    ways = [lambda x: weft.io_callback(back, row, x)]
    ways += [
        lambda x, m=m: weft.pure_callback(back, row, x, vmap_method=m) for m in ("sequential", "sequential_unrolled")
    ]
    for f in ways:
        result = transform(weft.vmap(f))(wnp.zeros((0, 2), np.int32))
        assert (result.shape, result.dtype) == ((0, 2), np.int32)
        # Lanes of a branch are run for every row, also where there is none.
        result = transform(weft.vmap(lambda p, x, f=f: lax.cond(p, f, lambda x: x, x)))(
            wnp.zeros(0, bool), wnp.zeros((0, 2), np.int32)
        )
        assert result.shape == (0, 2)
    transform(weft.vmap(lambda x: weft.debug.callback(lambda x: called.append(x), x)))(wnp.zeros(0))
    weft.effects_barrier()
    assert not called


def test_vmap_without_a_method() -> None:
    with pytest.raises(errors.MissingRuleError, match="vmap_method") as caught:
        weft.vmap(lambda x: weft.pure_callback(np.sin, SCALAR, x))(wnp.arange(3.0))
    assert names_this_file(caught.value)
    with pytest.raises(ValueError, match="vmap_method must be one of"):
        weft.pure_callback(np.sin, SCALAR, 1.0, vmap_method="all at once")


def test_callbacks_have_no_derivative_of_their_own() -> None:
    pure = lambda x: weft.pure_callback(np.sin, SCALAR, x)
    effectful = lambda x: weft.io_callback(np.sin, SCALAR, x)
    for f in (pure, effectful):
        with pytest.raises(errors.MissingRuleError, match="custom_jvp") as caught:
            weft.grad(weft.jit(f))(1.0)
        assert names_this_file(caught.value)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: np.ones(3, np.float32), r"float32\[3\] for f32\[\]"),
        (lambda x: np.int32(3), r"int32\[\] for f32\[\]"),
        (lambda x: (x, x), "a tuple of length 2 for a leaf"),
        (lambda x: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
@pytest.mark.parametrize("transform", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_callbacks_that_fail(function, text: str, transform) -> None:
    with pytest.raises(errors.JaxRuntimeError, match=text) as caught:
        transform(lambda x: weft.pure_callback(function, SCALAR, x))(1.0)
    assert names_this_file(caught.value)


def test_the_exception_of_a_callback_is_the_cause() -> None:
    def fail(x):
        raise KeyError("inside")

    for callback in (lambda x: weft.pure_callback(fail, SCALAR, x), lambda x: weft.debug.callback(fail, x)):
        with pytest.raises(errors.JaxRuntimeError) as caught:
            weft.jit(callback)(1.0)
        assert isinstance(caught.value.__cause__, KeyError)


def test_result_types_must_be_types() -> None:
    with pytest.raises(TypeError, match="tree of ShapeDtypeStruct") as caught:
        weft.pure_callback(np.sin, "float32", 1.0)
    assert names_this_file(caught.value)


# -- io_callback ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
def test_io_callback_runs_if_its_result_is_unused(ordered: bool) -> None:
    written: list[float] = []

    def f(x):
        for i in range(3):
            weft.io_callback(lambda v: written.append(float(v)), None, x + i, ordered=ordered)
        return x

    weft.jit(f)(1.0)
    weft.effects_barrier()
    assert sorted(written) == [1.0, 2.0, 3.0] and (not ordered or written == [1.0, 2.0, 3.0])


def test_io_callback_in_loops_branches_and_vmap() -> None:
    written: list[float] = []
    write = lambda x: weft.io_callback(lambda v: (written.append(float(v)), np.float32(2 * v))[1], SCALAR, x)
    assert float(weft.jit(lambda: lax.scan(lambda c, x: (c + write(x), None), 0.0, wnp.arange(3.0)))()[0]) == 6.0
    assert written == [0.0, 1.0, 2.0]
    written.clear()
    assert float(lax.cond(False, write, lambda x: x, 5.0)) == 5.0 and written == []
    assert weft.vmap(write)(wnp.arange(3.0)).tolist() == [0.0, 2.0, 4.0] and sorted(written) == [0.0, 1.0, 2.0]


def test_ordered_effects_have_no_order_in_a_batch() -> None:
    ordered = lambda x: weft.io_callback(lambda v: np.float32(v), SCALAR, x, ordered=True)
    with pytest.raises(errors.OrderedEffectError) as caught:
        weft.vmap(ordered)(wnp.arange(3.0))
    assert names_this_file(caught.value)
    assert lax.map(ordered, wnp.arange(3.0)).tolist() == [0.0, 1.0, 2.0]


# -- debug.print, debug.callback --------------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], function, *args) -> list[str]:
    function(*args)
    weft.effects_barrier()
    return capsys.readouterr().out.splitlines()


def test_debug_print_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, lambda: weft.debug.print("x={x} {} {:.2f}", "text", 1.5, x=None)) == ["x=None text 1.50"]
    assert printed(
        capsys, weft.jit(lambda x: weft.debug.print("{x} {x.shape} {d[a]}", x=x, d={"a": x[0]})), wnp.arange(2.0)
    ) == ["[0. 1.] (2,) 0.0"]


def test_debug_print_in_control_flow(capsys: pytest.CaptureFixture[str]) -> None:
    show = lambda x, result: (weft.debug.print("{}", x, ordered=True), result)[1]
    scan = weft.jit(lambda: lax.scan(lambda c, x: show(x, (c, x)), 0, wnp.arange(3)))
    assert printed(capsys, scan) == ["0", "1", "2"]
    assert printed(capsys, weft.jit(lambda: lax.while_loop(lambda c: c < 3, lambda c: show(c, c + 1), 0))) == [
        "0",
        "1",
        "2",
    ]
    choose = weft.jit(lambda p: lax.cond(p, lambda: show("yes", 1), lambda: show("no", 2)))
    assert printed(capsys, choose, True) == ["yes"] and printed(capsys, choose, False) == ["no"]


def test_debug_print_under_transformations(capsys: pytest.CaptureFixture[str]) -> None:
    f = lambda x: (weft.debug.print("{}", x, ordered=True), x * x)[1]
    assert printed(capsys, weft.vmap(f), wnp.arange(3.0)) == ["0.0", "1.0", "2.0"]
    assert printed(capsys, weft.grad(f), 3.0) == ["3.0"]
    assert printed(capsys, weft.jit(weft.grad(weft.grad(f))), 3.0) == ["3.0"]
    steps = lambda w: lax.scan(lambda c, x: (weft.debug.print("{}", x), (c * w, None))[1], 1.0, wnp.arange(3))[0]
    assert printed(capsys, weft.grad(steps), 2.0) == ["0", "1", "2"]


def test_debug_print_of_cotangents(capsys: pytest.CaptureFixture[str]) -> None:
    @weft.custom_vjp
    def watch(x):
        return x

    watch.defvjp(lambda x: (x, None), lambda saved, ct: (weft.debug.print("ct {}", ct), (ct,))[1])
    assert printed(capsys, weft.jit(weft.grad(lambda x: watch(x) * 3)), 1.0) == ["ct 3.0"]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: weft.debug.print("text", 3), ValueError, "does not appear"),
        (lambda: weft.debug.print("{x}"), KeyError, "uses `x`, which must be among the arguments"),
        (lambda: weft.debug.print(3), TypeError, "must be a format string"),
        (lambda: weft.debug.callback(3), TypeError, "takes a function"),
    ],
)
def test_debug_print_errors(call, error, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call()
    assert "test_callbacks.py:" in str(caught.value)


def test_debug_callback_gets_values() -> None:
    seen: list = []
    weft.jit(lambda x: weft.debug.callback(lambda a, *, k: seen.append((type(a), a.shape, k)), x, k="static"))(
        wnp.ones(3)
    )
    assert seen == [(np.ndarray, (3,), "static")]


def test_breakpoint_shows_values(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("print('doubled', double)\nc\n"))

    @weft.jit
    def f(x):
        double = 2 * x
        weft.debug.breakpoint()
        return double

    assert float(f(3.0)) == 6.0
    shown = capsys.readouterr()
    assert "doubled 6.0" in shown.out and "test_callbacks.py" in shown.err


# -- debug_nans -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: wnp.log(wnp.float32(-1.0)),
        lambda: weft.jit(lambda x: wnp.log(x) * 2)(-1.0),
        lambda: lax.scan(lambda c, x: (wnp.log(c), x), wnp.float32(-1.0), wnp.arange(3.0)),
        lambda: weft.jit(lambda x: lax.while_loop(lambda c: c < 0, lambda c: wnp.log(c), x))(-1.0),
        lambda: weft.vmap(lambda x: wnp.log(x))(wnp.array([1.0, -1.0])),
    ],
    ids=["eager", "jit", "scan", "while", "vmap"],
)
def test_debug_nans_names_the_operation_and_the_line(call) -> None:
    with weft.debug_nans(True), pytest.raises(errors.NonFiniteValueError, match="nan in result 0 of `log`") as caught:
        call()
    assert names_this_file(caught.value) and "wnp.log(" in str(caught.value)


def test_debug_nans_in_gradients_and_infs() -> None:
    with weft.debug_nans(True):
        assert float(weft.jit(lambda x: wnp.log(x))(1.0)) == 0.0
        with pytest.raises(FloatingPointError):
            weft.grad(lambda x: wnp.where(x > 0, wnp.sqrt(x), 0.0))(0.0)
    with weft.debug_infs(True), pytest.raises(errors.NonFiniteValueError, match="inf in result 0 of `div`"):
        1.0 / wnp.float32(0.0)


def test_debug_log_goes_to_the_logger(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level("INFO", "weft"):
        weft.jit(lambda x: weft.debug.log("x is {x}", x=x, ordered=True))(3)
        weft.effects_barrier()
    assert [r.getMessage() for r in caplog.records if r.levelname == "INFO"] == ["x is 3"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_debug_callbacks_of_split_arrays(kind: AxisType) -> None:
    mesh = weft.make_mesh((2, 2), ("x", "y"), (kind, kind))
    x = weft.device_put(wnp.arange(8.0), weft.NamedSharding(mesh, weft.P("x")))
    whole, parts = [], []

    def f(x: Any) -> Any:
        weft.debug.callback(lambda v: whole.append(v.tolist()), x)
        weft.debug.callback(lambda v, n: parts.append((v.tolist(), float(n))), x, x.sum(), partitioned=True)
        return (x * 2).sum()

    for function in (f, weft.jit(f), weft.grad(f), weft.jit(weft.grad(f))):
        whole.clear(), parts.clear()
        function(x)
        weft.effects_barrier()
        assert whole == [list(range(8))]
        assert sorted(parts) == sorted([([0, 1, 2, 3], 28), ([4, 5, 6, 7], 28)] * 2)
