"""Texts that users print while a function is traced."""

from __future__ import annotations

from typing import Any

import pytest

import weft
import weft.numpy as wnp


def seen(transformation: Any, *args: Any) -> str:
    found: list[str] = []

    def function(x: Any) -> Any:
        found.append(f"{x}" if repr(x) == str(x) == f"{x}" else "differ")
        return x

    transformation(function)(*args)
    return found[0]


@pytest.mark.parametrize(
    ("transformation", "text"),
    [
        (weft.jit, "JitTracer(~float32[])"),
        (weft.grad, "GradTracer(primal=1.0, typeof(tangent)=f32[])"),
        (lambda f: weft.jit(weft.grad(f)), "GradTracer(primal=JitTracer(~float32[]), typeof(tangent)=f32[])"),
        (lambda f: lambda x: weft.jvp(f, (x,), (2.0,)), "JVPTracer(primal=1.0, tangent=2.0)"),
        (lambda f: lambda x: weft.vmap(f)(wnp.ones((3, 2)) * x), "VmapTracer(aval=float32[2], batched=float32[3,2])"),
    ],
)
def test_tracers(transformation: Any, text: str) -> None:
    assert seen(transformation, 1.0) == text


def test_keys() -> None:
    key = weft.random.key(43)
    text = "Array((), dtype=key<fry>) overlaying:\n[ 0 43]"
    assert str(key) == repr(key) == f"{key}" == text
    assert seen(weft.jit, key) == "JitTracer(key<fry>[])"
