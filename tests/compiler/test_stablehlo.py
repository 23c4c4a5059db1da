"""Modules of StableHLO: their text, and what has no equivalent there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.compiler.target.stablehlo import emit
from weft.errors import NotSupportedError


def text(function: Any, *args: Any, **options: Any) -> str:
    return emit(weft.jit(function).trace(*args).jaxpr, **options)


def test_a_module_has_types_names_and_aliases() -> None:
    module = text(lambda x, y: (x + 2 * y, wnp.sum(x)), np.ones(3, np.float32), np.float32(1), donated=(0, None))
    assert "func.func public @main(%arg0: tensor<3xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<f32>)" in module
    assert '"stablehlo.multiply"(' in module
    assert "-> (tensor<3xf32>, tensor<f32>)" in module


def test_equal_programs_have_equal_text() -> None:
    def step(x: Any) -> Any:
        return lax.scan(lambda c, a: (wnp.sin(c) + a, c), x[0], x)

    assert text(step, np.ones((3, 2))) == text(step, np.ones((3, 2)))


def test_hashes_of_one_shape_are_one_function() -> None:
    def draw(seed: Any) -> Any:
        first, second = weft.random.split(weft.random.key(seed))
        return weft.random.bits(first, (4,)), weft.random.bits(second, (4,))

    module = text(draw, np.int32(3))
    called = {line.rpartition("callee = @")[2].partition("}")[0] for line in module.splitlines() if "func.call" in line}
    assert len(called) < module.count("func.call")
    assert all(f"func.func private @{name}(" in module for name in called)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: weft.debug.print("{}", x), "calls back into Python"),
        (weft.grad(lambda x: lax.while_loop(lambda c: c < 9.0, lambda c: c * x, x)), "without a bound"),
    ],
    ids=["callback", "tape"],
)
def test_what_has_no_equivalent_is_an_error_with_the_line(function: Any, reason: str) -> None:
    with pytest.raises(NotSupportedError, match=reason) as caught:
        text(function, 2.0)
    assert "test_stablehlo.py" in str(caught.value)
