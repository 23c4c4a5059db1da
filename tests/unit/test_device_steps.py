"""`weft.debug.devices`: programs for many devices, run in Python from collective to collective."""

from __future__ import annotations

import functools
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from weft import lax
from weft.errors import ArgumentError
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

X = onp.cos(onp.arange(64, dtype=onp.float32)).reshape(8, 8)
W = onp.sin(onp.arange(64, dtype=onp.float32)).reshape(8, 8)


@functools.cache
def mesh() -> Mesh:
    return weft.make_mesh((2, 2), ("x", "y"), (AxisType.Auto,) * 2, devices=weft.devices()[:4])


def put(x: Any, *entries: Any) -> Any:
    return weft.device_put(x, NamedSharding(mesh(), P(*entries)))


def test_devices_stop_at_collectives_in_order() -> None:
    stops: list[weft.debug.DeviceStop] = []
    f = lambda x, w: np.tanh(x @ w).sum(0)
    x, w = put(X, "x", "y"), put(W, "y")
    result = weft.debug.devices(f, stops.append)(x, w)
    expected = weft.jit(f)(x, w)
    assert result.sharding == expected.sharding
    onp.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    kinds = [row.kind for row in weft.jit(f).lower(x, w).compile().communication]
    assert [s.kind for s in stops if s.index == 0] == kinds
    assert [s.index for s in stops] == [*range(4)] * len(kinds)
    first = stops[1]
    assert first.position == {"x": 0, "y": 1} and first.device == mesh().device_tuple[1]
    onp.testing.assert_allclose(first.operands[0], X[:4, 4:] @ W[4:], rtol=1e-5, atol=1e-6)
    assert "test_device_steps.py" in first.line and "device 1 (x=0, y=1) step 0: " in str(first)


def test_loops_branches_and_shard_map() -> None:
    def body(x: Any) -> Any:
        def step(c: Any, i: Any) -> Any:
            c = lax.cond(
                i % 2 == 0, lambda d: lax.psum(d, "x") * 0.5, lambda d: lax.ppermute(d, "y", [(0, 1), (1, 0)]), c
            )
            return c + lax.axis_index("x"), lax.psum(c, "y").sum()

        return lax.scan(step, x, np.arange(3))[0]

    f = weft.shard_map(body, mesh=mesh(), in_specs=P("x", "y"), out_specs=P("x", "y"))
    stops: list[Any] = []
    found = weft.debug.devices(f, stops.append)(put(X, "x", "y"))
    onp.testing.assert_allclose(found, weft.jit(f)(X), rtol=1e-5, atol=1e-6)
    assert [s.kind for s in stops if s.index == 3] == ["psum", "ppermute", "psum"]
    g = weft.grad(lambda x: (f(x) ** 2).sum())
    onp.testing.assert_allclose(weft.debug.devices(g, stops.append)(put(X)), weft.jit(g)(X), rtol=1e-4, atol=1e-5)


def test_printing_breakpoints_and_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    f = lambda x: x.sum()
    weft.debug.devices(f)(put(X, "x"))
    assert capsys.readouterr().out.count("psum over ('x',)") == 4
    entered: list[int] = []
    monkeypatch.setattr("sys.breakpointhook", lambda: entered.append(1))
    weft.debug.devices(f, breakpoint=2)(put(X, "x"))
    assert entered == [1]

    def refuse(stop: Any) -> None:
        raise KeyError(stop.index)

    with pytest.raises(KeyError):
        weft.debug.devices(f, refuse)(put(X, "x"))
    with pytest.raises(ArgumentError, match="on a mesh"):
        weft.debug.devices(f)(X)
