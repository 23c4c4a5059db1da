"""AArch64: kernels for 16-byte vectors compute the right results, and compile to AArch64 code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import close, fusions_with_operands, launched
from tests.compiler.running import interpreted
from weft import lax, nn
from weft.compiler.emit.dispatch import emit
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.lower import module_text
from weft.compiler.target.cpu.targets import aarch64
from weft.ir.interpreter import run


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def convolved(x: Any, w: Any) -> Any:
    return nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "map": (lambda x: wnp.sin(x) * wnp.exp(-x * x) + 1.0, (normal(3, 21),)),
    "short floats": (lambda x: (x.astype(wnp.bfloat16) * 2 + 1).astype(wnp.float16), (normal(37),)),
    "softmax": (nn.softmax, (normal(5, 19),)),
    "column sum": (lambda x: wnp.sum(x, 0), (normal(9, 13),)),
    "argmax": (lambda x: wnp.argmax(x, -1), (normal(4, 30),)),
    "cumsum": (lambda x: wnp.cumsum(x, 1), (normal(4, 30),)),
    "transpose": (lambda x: x.T * 2.0, (normal(70, 68),)),
    "gather": (lambda x, i: x[i] + 1.0, (normal(9, 5), np.array([3, 8, 0], np.int32))),
    "scatter": (lambda x, i: x.at[i].add(1.0), (normal(9, 5), np.array([3, 8, 3], np.int32))),
    "sort": (lambda x: wnp.sort(x, -1), (normal(3, 20),)),
    "contraction": (lambda x, w: wnp.tanh(x @ w), (normal(7, 11), normal(11, 9))),
    "convolution": (convolved, (normal(2, 6, 6, 3), normal(3, 3, 3, 5))),
    "pooling": (pooled, (normal(2, 6, 6, 3),)),
    "keys": (lambda x: weft.random.bits(weft.random.key(x), (6,)), (np.uint32(3),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_for_arm(name: str) -> None:
    function, args = PROGRAMS[name]
    machine = aarch64()
    found = []
    for equation, operands in fusions_with_operands(function, *args):
        jaxpr = equation.params["jaxpr"]
        emission = emit(equation.params["kind"], jaxpr, equation.params["hero"], machine)
        for got, want in zip(launched(emission, operands, jaxpr, interpreted), run(jaxpr, operands), strict=True):
            close(1e-5)(got, np.asarray(want))
        found += [launch.kernel for launch in emission.launches]
    named = {kernel_symbol(kernel): kernel for kernel in found}
    assert named
    result = link.make_object(module_text(named.items(), machine), machine)
    assert set(result.exports) == set(named) and result.code[:4] == b"\x7fELF"
    assert int.from_bytes(result.code[18:20], "little") == 183  # the number of AArch64 in ELF
