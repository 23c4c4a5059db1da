"""Kernels as text: for people to read, and the key of the code cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.compiler import kernels
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Kernel, LoopKind
from weft.compiler.kernel.printer import constant_text, to_text
from weft.compiler.kernel.verifier import verify

pytestmark = pytest.mark.tiny

EXAMPLES: dict[str, Callable[[], Kernel]] = {
    "fused_map": lambda: kernels.fused_map(1000),
    "row_sum": lambda: kernels.row_reduction(30, 40),
    "column_sum": lambda: kernels.column_reduction(30, 40),
    "whole_sum": lambda: kernels.whole_reduction(30, 40),
    "transposed": lambda: kernels.transposed(30, 40),
    "padded": lambda: kernels.padded(100, 3, 5),
    "taken": lambda: kernels.taken(100, 7),
    "softmax": lambda: kernels.softmax(30, 40),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"kernel/{name}.txt", to_text(verify(EXAMPLES[name]())))


def build(name: str, names: tuple[str, str, str], swapped: bool, factor: float) -> Kernel:
    k = KernelBuilder(name)
    x, _, y = (k.buffer(n, np.float32, 64, written=n == names[2]) for n in names)
    two = k.constant(factor, np.float32)
    with k.loop(4) as i:
        with k.loop(16, kind=LoopKind.LANES, width=16) as j:
            at = Index.of(j) + i * 16 if swapped else i * 16 + j
            if swapped:
                two = k.constant(factor, np.float32)
            k.store(y, at, k.scalars.mul(k.load(x, at), two))
    return k.finish()


def test_equal_kernels_have_equal_text() -> None:
    one = to_text(build("one", ("x", "u", "y"), False, 2.0))
    assert one == to_text(build("other", ("a", "b", "c"), True, 2.0))
    assert one != to_text(build("one", ("x", "u", "y"), False, 2.5))


def test_a_long_kernel_names_everything() -> None:
    k = KernelBuilder("long")
    y = k.buffer("y", np.float32, 100, written=True)
    with k.loop(100) as i:
        value = k.scalars.convert(k.position(i), np.dtype(np.float32))
        for _ in range(60):
            value = k.scalars.sin(value)
        k.store(y, i, value)
    text = to_text(k.finish())
    assert "?" not in text
    assert len({line.split(":")[0] for line in text.splitlines() if " = sin " in line}) == 60


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), "0.10000000149011612"),
        (np.float32(-0.0), "-0.0"),
        (np.float64(1e300), "1e+300"),
        (np.float32(np.inf), "inf"),
        (np.float32(np.nan), "nan<0000c07f>"),
        (np.int8(-3), "-3"),
        (np.bool_(True), "True"),
        (np.complex64(1 - 2j), "(1-2j)"),
    ],
)
def test_literal(value: object, text: str) -> None:
    assert constant_text(value) == text
