"""Loops that are one kernel: which of them consist of independent parts, and what they compute part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import simulated_gpu
from weft import lax
from weft.api.inspect import make_jaxpr
from weft.compiler.compile import compile_program
from weft.compiler.kernel.ir import Kernel
from weft.compiler.target.cuda.groups import choose_group
from weft.compiler.target.cuda.loops import LoopCode, find_loops
from weft.compiler.target.cuda.lower import module_text
from weft.compiler.target.cuda.ptx import ptx
from weft.compiler.target.cuda.targets import hopper, of_capability
from weft.compiler.target.target import Target
from weft.ir.jaxpr import constants_to_arguments

PROCESSORS = 132


def array(*shape: int) -> np.ndarray:
    return (np.random.default_rng(0).normal(size=shape) / shape[-1] ** 0.5).astype(np.float32)


def loops(function: Callable[..., Any], arrays: list[np.ndarray], target: Target) -> list[LoopCode]:
    jaxpr = constants_to_arguments(make_jaxpr(function)(*arrays))
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), target).program
    return list(find_loops(program, target, PROCESSORS, lambda step: True).values())


def recurrent(xs: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = wnp.tanh(x + h @ (w * 0.5))
        return h, h.sum(-1)

    return lax.scan(step, wnp.zeros(xs.shape[1:]), xs)


def final(x: Any, w: Any) -> Any:
    return lax.scan(lambda h, _: (wnp.tanh(x + h @ (w * 0.5)), None), wnp.zeros(x.shape), None, length=3)[0]


def mixed(xs: Any, w: Any) -> Any:
    """Rows are not independent: all of them get their mean."""

    def step(h: Any, x: Any) -> Any:
        return wnp.tanh(x + h @ w + h.mean(0)), None

    return lax.scan(step, wnp.zeros(xs.shape[1:]), xs)[0]


def gated(xs: Any, v: Any, w: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, s = carry
        i, f, g = wnp.split(x @ v + h @ w, 3, -1)
        s = weft.nn.sigmoid(f) * s + weft.nn.sigmoid(i) * wnp.tanh(g)
        return (wnp.tanh(s), s), s

    start = wnp.zeros((xs.shape[1], w.shape[0]))
    return lax.scan(step, (start, start), xs, reverse=True)


def test_rows_of_a_batch_are_parts() -> None:
    (code,) = loops(final, [array(64, 256), array(256, 256)], hopper())
    # The product by which the weights are scaled is computed before the loop; what is left is one kernel and a copy.
    assert [row[0] for row in code.outline.rows[0][4]] == ["launch", "copy"]
    assert (code.parts, code.blocks) == (16, 8)
    text = ptx(module_text((), hopper(), [code]), hopper())
    assert ".reqnctapercluster 8" in text and "barrier.cluster.wait" in text and "atom" not in text
    # Before clusters there is one block for each part.
    older = of_capability(8, 0)
    (code,) = loops(lambda x, w: final(x, w[:, :32]), [array(64, 32), array(32, 64)], older)
    assert code.parts > 1 and code.blocks == 1
    assert "cluster" not in ptx(module_text((), older, [code]), older)


def test_groups_of_a_block_have_memory_of_their_own() -> None:
    """Four rows of 256 are summed by the four groups of 64 threads that a block of a loop has."""

    def sums(xs: Any) -> Any:
        return lax.scan(lambda h, x: (h * 0.5 + x, h.sum(-1)), wnp.zeros(xs.shape[1:]), xs)

    (code,) = loops(sums, [array(3, 8, 256)], hopper())
    groups = [choose_group(k, hopper()) for k in code.outline.kernels.values() if isinstance(k, Kernel)]
    assert [g.members for g in groups if g is not None] == [64]
    # A float32 of each of four lanes of 256 threads.
    assert f"[{4 * 4 * 256} x i8] undef" in module_text((), hopper(), [code])


@pytest.mark.parametrize(
    ("function", "shapes", "parts"),
    [
        (recurrent, [(3, 64, 256), (256, 256)], 16),
        (gated, [(3, 64, 32), (32, 96), (32, 96)], 16),
        (mixed, [(3, 64, 256), (256, 256)], 1),
    ],
)
def test_parts(function: Callable[..., Any], shapes: list[tuple[int, ...]], parts: int) -> None:
    found = loops(function, [array(*shape) for shape in shapes], hopper())
    assert [code.parts for code in found if code.parts > 1] == [parts] * (parts > 1)


@pytest.mark.parametrize(("length", "batch"), [(2, 16), (3, 6)])
def test_parts_have_their_values(length: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part runs through all iterations alone, and carries change places."""
    arrays = [array(length, batch, 32), array(32, 96), array(32, 96)]
    with simulated_gpu(monkeypatch) as (device, driver):
        for function in (lambda xs, v, w: recurrent(xs, w[:, :32]), gated, lambda xs, v, w: final(xs[0], w[:, :32])):
            expected = weft.tree.leaves(weft.jit(function)(*arrays))
            got = weft.tree.leaves(weft.jit(function)(*(weft.device_put(a, device) for a in arrays)))
            for one, other in zip(got, expected, strict=True):
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=2e-6)
        assert driver.calls.count("loop") == 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("sizes", [(4, 40, 64), (7, 33, 101), (1, 128, 9), (2, 8, 8)], ids=str)
def test_contractions_by_teams(sizes: tuple[int, int, int], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns, k = sizes
    random = np.random.default_rng(0)
    x, w = (wnp.asarray(random.integers(-4, 5, shape)).astype(dtype) for shape in ((rows, k), (k, columns)))

    def function(x: Any, w: Any) -> Any:
        return (x @ w + 1) * x[:, :1]

    jaxpr = make_jaxpr(function)(x, w)
    program = compile_program(jaxpr, [False, False], hopper()).program
    (kernel,) = [step.full for step in program.all_steps() if hasattr(step, "full")]
    group = choose_group(kernel, hopper())
    assert kernel.local and group is not None and group.teams > 1
    with simulated_gpu(monkeypatch) as (device, _):
        got = weft.jit(function)(weft.device_put(x, device), weft.device_put(w, device))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(function(x, w)))


def test_a_loop_looks_for_interrupts() -> None:
    """Once in many iterations; a short loop does not at all."""

    def counted(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 100, lambda c: c * 2, x)

    (code,) = loops(counted, [np.ones(8, np.float32)], hopper())
    text = ptx(module_text((), hopper(), [code]), hopper())
    assert text.count("ld.relaxed.sys.global.u32") == 1 and "1023" in text
    (code,) = loops(final, [array(64, 256), array(256, 256)], hopper())
    assert "ld.relaxed.sys" not in ptx(module_text((), hopper(), [code]), hopper())


def test_what_was_computed_when_it_was_interrupted_has_no_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated_gpu(monkeypatch) as (device, driver):
        double = weft.jit(lambda x: lax.while_loop(lambda c: c[0] < 100, lambda c: c * 2, x))
        before = weft.device_put(np.ones(8, np.float32), device)
        known = double(before).block_until_ready()
        new = double(before)
        driver.busy = 1 << 30

        def signal(seconds: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("weft.runtime.cuda.interrupts.time.sleep", signal)
        with pytest.raises(KeyboardInterrupt):
            new.block_until_ready()
        assert new.is_deleted() and not driver.host_memory.any()
        with pytest.raises(weft.errors.JaxRuntimeError, match="was interrupted"):
            np.asarray(new)
        driver.busy = 0
        # What was there before is there, and so is what is computed from now on.
        np.testing.assert_array_equal(np.asarray(known), np.full(8, 128, np.float32))
        np.testing.assert_array_equal(np.asarray(double(before)), np.full(8, 128, np.float32))
