"""Kernels for arrays of any length compute the first elements and touch nothing else, on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.running import MACHINES, assert_compiles
from weft.compiler.compilation import FLAT_LENGTH, FLAT_MOST, Flat
from weft.compiler.flat import compile_flat
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.ir import Launch
from weft.ir.types import array_type
from weft.primitives.elementwise.arithmetic import mul
from weft.primitives.elementwise.exponential import sqrt
from weft.runtime.execute import get_equation_jaxpr


def kernel_of(primitive: Any, shapes: list[tuple[int, ...]], dtype: Any, machine: Any) -> Kernel:
    jaxpr = get_equation_jaxpr(primitive, [array_type(shape, np.dtype(dtype)) for shape in shapes], {})
    (step,) = compile_flat(jaxpr, machine, Flat.THREADS).program.steps
    assert isinstance(step, Launch) and step.grain == 1
    return step.full


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_any_length(machine: str, dtype: Any) -> None:
    kernel = kernel_of(mul, [(FLAT_LENGTH,), ()], dtype, MACHINES[machine]())
    x = np.linspace(-4, 4, FLAT_MOST).astype(dtype)
    for length in (0, 17, 8193):
        arrays = [np.array([length]), x, np.array([1.5], dtype), np.full(FLAT_MOST, 7, dtype)]
        result = assert_compiles(kernel, arrays, MACHINES[machine](), parts=3)[-1]
        np.testing.assert_array_equal(result[:length], x[:length] * dtype(1.5))
        assert (result[length:] == 7).all()


def test_one_operand() -> None:
    kernel = kernel_of(sqrt, [(FLAT_LENGTH,)], np.float32, MACHINES["host"]())
    x = np.linspace(0, 4, FLAT_MOST, dtype=np.float32)
    result = assert_compiles(kernel, [np.array([100]), x, np.zeros_like(x)], MACHINES["host"]())[-1]
    np.testing.assert_array_equal(result[:100], np.sqrt(x[:100]))
