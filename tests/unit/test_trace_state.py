"""`weft.core`: the trace that operations are recorded in, for libraries that store values between calls."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.core import OpaqueTraceState, get_opaque_trace_state

X = wnp.ones((2, 3))

# How a function is run inside; whether its operations go into another program, and whether they run many times there.
INSIDE: dict[str, tuple[Callable[[Callable[[Any], Any]], Any], bool, bool]] = {
    "nothing": (lambda f: f(X), False, False),
    "grad": (lambda f: weft.grad(lambda x: f(x).sum())(X), False, False),
    "jvp": (lambda f: weft.jvp(f, (X,), (X,)), False, False),
    "vmap": (lambda f: weft.vmap(f)(X), False, False),
    "vmap of grad": (lambda f: weft.vmap(weft.grad(lambda x: f(x).sum()))(X), False, False),
    "jit": (lambda f: weft.jit(f)(X), True, False),
    "checkpoint": (lambda f: weft.checkpoint(f)(X), True, False),
    "eval_shape": (lambda f: weft.eval_shape(f, X), True, False),
    "cond": (lambda f: lax.cond(X.sum() > 0, f, lambda x: x, X), True, False),
    "scan": (lambda f: lax.scan(lambda c, x: (c, f(x)), 0.0, X), True, True),
    "fori_loop": (lambda f: lax.fori_loop(0, 2, lambda i, x: f(x), X), True, True),
    "while_loop": (lambda f: lax.while_loop(lambda x: x.sum() < 20, lambda x: f(x) + 1, X), True, True),
    "condition of while_loop": (lambda f: lax.while_loop(lambda x: f(x).sum() < 20, lambda x: x + 1, X), True, True),
    "jit in scan": (lambda f: lax.scan(lambda c, x: (c, weft.jit(f)(x)), 0.0, X), True, True),
    "vmap in scan": (lambda f: lax.scan(lambda c, x: (c, weft.vmap(f)(x)), 0.0, X), True, True),
    "scan in grad": (lambda f: weft.grad(lambda x: lax.scan(lambda c, x: (c, f(x)), 0.0, x)[1].sum())(X), True, True),
}


@pytest.mark.parametrize("outer", ["nothing", "jit", "scan", "vmap"])
@pytest.mark.parametrize("inner", INSIDE)
def test_where_operations_are_recorded(inner: str, outer: str) -> None:
    run, another_program, repeated = INSIDE[inner]
    seen: list[OpaqueTraceState] = []

    def body(x: Any) -> Any:
        now = get_opaque_trace_state()
        assert now == get_opaque_trace_state() and hash(now) == hash(get_opaque_trace_state())
        assert (now == began) == (inner == "nothing")
        assert now.is_same_program(began) != another_program
        assert now.is_repeated_since(began) == repeated
        assert not now.is_repeated_since(now)
        seen.append(now)
        return x

    def around(x: Any) -> Any:
        nonlocal began
        began = get_opaque_trace_state()
        run(body)
        return x

    began = get_opaque_trace_state()
    INSIDE[outer][0](around)
    assert seen
    if inner != "nothing":
        assert seen[-1] != get_opaque_trace_state()


def test_states_of_different_traces_differ() -> None:
    texts: list[str] = []

    def noted(x: Any) -> Any:
        texts.append(get_opaque_trace_state().describe())
        return x

    noted(X)
    lax.scan(lambda c, x: (c, noted(x)), 0.0, X)
    weft.vmap(noted)(X)
    weft.jit(noted)(X)
    assert texts[0] == "no traced function"
    assert "the body of lax.scan" in texts[1] and "test_trace_state.py" in texts[1]
    assert "vmap" in texts[2] and "jit" in texts[3]
    assert repr(get_opaque_trace_state(convention="any")) == "OpaqueTraceState(no traced function)"


def test_a_state_keeps_nothing_alive() -> None:
    states: list[OpaqueTraceState] = []
    alive: list[Any] = []

    def f(x: Any) -> Any:
        states.append(get_opaque_trace_state())
        alive.append(weakref.ref(x._trace))
        return x * 2

    weft.eval_shape(f, X)
    gc.collect()
    assert alive[0]() is None
    now = get_opaque_trace_state()
    assert states[0] not in (now, get_opaque_trace_state()) and not states[0].is_same_program(now)
