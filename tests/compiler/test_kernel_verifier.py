"""The verifier rejects kernels that break a rule of the kernel IR, and names the rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.compiler import kernels
from weft.base.errors import InternalError
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import (
    Buffer,
    Compute,
    Constant,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    LoopKind,
    ReduceLanes,
    Statement,
    Store,
    Value,
    Variable,
)
from weft.compiler.kernel.verifier import verify

FLOAT, BOOL, INT = (np.dtype(d) for d in ("float32", "bool", "int32"))
X, Y = Buffer("x", FLOAT, 10), Buffer("y", FLOAT, 10, written=True)
PADDED = Buffer("p", FLOAT, 10, padded=True)
N, M = Variable("i"), Variable("j")
V, W = Value(FLOAT), Value(FLOAT)


def kernel(*body: Statement) -> Kernel:
    return Kernel("bad", (X, Y), body)


def loop(*body: Statement, variable: Variable = N, stop: int = 10, **rest: object) -> Loop:
    return Loop(variable, 0, stop, body, **rest)  # type: ignore[arg-type]


def lanes(*body: Statement, variable: Variable = N, stop: int = 10, width: int = 4) -> Loop:
    return Loop(variable, 0, stop, body, LoopKind.LANES, 1, width)


BAD: dict[str, tuple[str, Callable[[], Kernel]]] = {
    "use before definition": ("not defined", lambda: kernel(Store(Y, Index(0), V), Constant(V, 1.0))),
    "use out of sight": ("not defined", lambda: kernel(loop(Constant(V, 1.0)), Store(Y, Index(0), V))),
    "defined twice": ("defined twice", lambda: kernel(Constant(V, 1.0), Constant(V, 2.0))),
    "store to what is read": ("only read", lambda: kernel(Constant(V, 1.0), Store(X, Index(0), V))),
    "foreign buffer": ("does not belong", lambda: kernel(Load(V, Buffer("z", FLOAT, 1), Index(0)))),
    "dtype of a load": ("has float32", lambda: kernel(Load(Value(INT), X, Index(0)))),
    "dtype of a computation": (
        "does not return",
        lambda: kernel(Constant(V, 1.0), Compute(Value(INT), "add", (V, V))),
    ),
    "above the end of what is padded": (
        "0 to 11 are touched",
        lambda: Kernel("bad", (PADDED,), (lanes(Load(V, PADDED, Index.of(N))),)),
    ),
    "above the end": ("0 to 11 are touched", lambda: kernel(loop(Load(V, X, Index.of(N)), stop=12))),
    "below the start": ("-1 to 8", lambda: kernel(loop(Load(V, X, N - 1)))),
    "backwards": ("-1 to 8", lambda: kernel(loop(Load(V, X, Index(8) - N)))),
    "two loops": ("0 to 10", lambda: kernel(loop(loop(Load(V, X, N * 2 + M), variable=M, stop=3), stop=5))),
    "variable outside": ("outside of its loop", lambda: kernel(Load(V, X, Index.of(N)))),
    "variable twice": ("variable of its own", lambda: kernel(loop(loop()))),
    "lanes in lanes": ("inside of another", lambda: kernel(lanes(lanes(variable=M)))),
    "threads inside": (
        "inside of another",
        lambda: kernel(loop(loop(variable=M, kind=LoopKind.THREADS))),
    ),
    "two loops over threads": (
        "two loops",
        lambda: kernel(loop(kind=LoopKind.THREADS), loop(variable=M, kind=LoopKind.THREADS)),
    ),
    "store beside threads": (
        "beside the loop over threads",
        lambda: kernel(Constant(V, 1.0), Store(Y, Index(0), V), loop(kind=LoopKind.THREADS)),
    ),
    "lanes to one element": (
        "one element",
        lambda: kernel(Constant(V, 1.0), lanes(Store(Y, Index(3), V))),
    ),
    "width without lanes": ("has a width", lambda: kernel(Loop(N, 0, 3, (), LoopKind.SERIAL, 1, 4))),
    "step of zero": ("positive step", lambda: kernel(Loop(N, 0, 3, (), LoopKind.SERIAL, 0))),
    "fold of a scalar": ("got 1", lambda: kernel(Constant(V, 1.0), ReduceLanes(W, "add", V, 4))),
    "condition without an alternative": (
        "come together",
        lambda: kernel(Constant(b := Value(BOOL), True), Load(V, X, Index(0), b)),
    ),
    "condition of another dtype": (
        "bool is needed",
        lambda: kernel(Constant(V, 1.0), Store(Y, Index(0), V, V)),
    ),
    "branch on lanes": (
        "one condition",
        lambda: kernel(lanes(Load(V, X, Index.of(N)), Compute(b := Value(BOOL), "eq", (V, V)), If(b, ()))),
    ),
    "index of a float": ("depends on a value", lambda: kernel(Constant(V, 1.0), Load(W, X, Index.of(V)))),
}


@pytest.mark.parametrize("name", BAD)
def test_broken_rule(name: str) -> None:
    said, make = BAD[name]
    with pytest.raises(InternalError, match=said):
        verify(make())


def test_a_vector_stays_out_of_other_loops() -> None:
    k = KernelBuilder("vector")
    x, y = k.buffer("x", FLOAT, 16), k.buffer("y", FLOAT, 16, written=True)
    with k.loop(16, kind=LoopKind.LANES, width=4, carries=[k.constant(0, FLOAT)]) as (i, (total,)):
        (sums,) = k.carry(k.scalars.add(total, k.load(x, i)))
    with k.loop(16, kind=LoopKind.LANES, width=4) as i:
        k.store(y, i, k.scalars.add(sums, k.load(x, i)))
    with pytest.raises(InternalError, match="vector of another"):
        verify(k.finish())


def test_a_condition_holds_an_access_back() -> None:
    verify(kernels.padded(10, 5, 5))


def test_a_limit_keeps_the_last_tile_inside() -> None:
    def tiled(limit: Index) -> Kernel:
        k = KernelBuilder("tiled")
        x, y = k.buffer("x", FLOAT, 100), k.buffer("y", FLOAT, 100, written=True)
        with k.loop(100, step=16) as t:
            with k.loop(16, limit=limit - t) as i:
                k.store(y, t + i, k.load(x, t + i))
        return k.finish()

    verify(tiled(Index(100)))
    with pytest.raises(InternalError, match="0 to 100 are touched"):
        verify(tiled(Index(101)))


def test_an_empty_loop_touches_nothing() -> None:
    verify(kernel(loop(loop(Load(V, X, N * 100 + M), variable=M, stop=0))))


def test_error_shows_the_statement_and_the_kernel() -> None:
    with pytest.raises(InternalError) as caught:
        verify(kernel(loop(Load(V, X, N + 5))))
    assert "a: f32 = x0[i0 + 5]" in str(caught.value).splitlines()[0]
    assert "for i0 in 0..10:" in (caught.value.text or "")
