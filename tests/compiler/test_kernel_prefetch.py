"""Prefetches change no result, also if an index is past the end of a buffer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.running import MACHINES, assert_compiles
from weft.base.errors import InternalError
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Kernel, LoopKind
from weft.compiler.kernel.printer import to_text
from weft.compiler.kernel.verifier import verify
from weft.compiler.target.cpu.lower import module_text
from weft.compiler.target.cpu.targets import host


def prefetching(kind: LoopKind = LoopKind.SERIAL, written: bool = True) -> Kernel:
    k = KernelBuilder("prefetching")
    x, y = k.buffer("x", np.float32, 20), k.buffer("y", np.float32, 20, written=True)
    with k.loop(20, kind=kind, width=4 if kind is LoopKind.LANES else 1) as i:
        k.prefetch(y if written else x, i + 1_000_000)
        k.store(y, i, k.load(x, i))
    return k.finish()


@pytest.mark.parametrize("machine", MACHINES)
def test_indices_may_be_past_the_end(machine: str) -> None:
    kernel = prefetching()
    verify(kernel)
    assert "expect y1[i0 + 1000000]" in to_text(kernel)
    x = np.arange(20, dtype=np.float32)
    assert_compiles(kernel, [x, np.zeros(20, np.float32)], MACHINES[machine]())


def test_the_hint_is_in_the_code() -> None:
    assert "llvm.prefetch" in module_text([("prefetching", prefetching())], host())


def test_rejected_hints() -> None:
    with pytest.raises(InternalError, match="not written"):
        verify(prefetching(written=False))
    with pytest.raises(InternalError, match="loop over lanes"):
        verify(prefetching(LoopKind.LANES))
