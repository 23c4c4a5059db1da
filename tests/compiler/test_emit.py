"""Emitters: the kernel of a small jaxpr, run by the kernel interpreter, computes what the jaxpr computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft.numpy as wnp
from tests.compiler.emitting import check, close, fused_program
from tests.compiler.host import AVX512
from weft import lax
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.emission import Emission
from weft.compiler.fuse.fusion import fusions
from weft.compiler.kernel.ir import Loop, LoopKind, Store
from weft.compiler.kernel.printer import to_text
from weft.compiler.kernel.threads import BLOCK


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LOOPS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "map": (lambda x, y: wnp.sin(x) * y + 1.0, (normal(3, 37), normal(3, 37))),
    "scalar": (lambda x: x * 2.0 + 1.0, (normal(),)),
    "rank-0 operand": (lambda x, s: x * s, (normal(5, 7), normal())),
    "transposed": (lambda x, y: x.T + y, (normal(5, 19), normal(19, 5))),
    "broadcast row": (lambda x, b: x + b, (normal(4, 33), normal(33))),
    "broadcast column": (lambda x, b: x - b[:, None], (normal(4, 33), normal(4))),
    "padded": (lambda x: lax.pad(x, 7.0, ((1, 2, 0), (0, 3, 1))) * 2.0, (normal(3, 5),)),
    "padded beside itself": (lambda x: lax.pad(x[:5], 7.0, ((0, 3, 0),)) + x, (normal(8),)),
    "parts beside the whole": (
        lambda x, y: (wnp.concatenate([x[:3], y, x[9:]]) * x, wnp.where(x > 0, x, lax.pad(x[2:], 1.0, ((2, 0, 0),)))),
        (normal(20), normal(6)),
    ),
    "joined": (lambda x, y: wnp.concatenate([x, y], axis=1) + 1.0, (normal(3, 5), normal(3, 18))),
    "reversed and sliced": (lambda x: x[::-1, 1:20:2] * 3.0, (normal(4, 40),)),
    "reshaped": (lambda x: (x.reshape(6, 10) + 1.0).T, (normal(4, 15),)),
    "counting": (lambda x: x + lax.iota(wnp.float32, 21), (normal(21),)),
    "slice at a run-time place": (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 9)) * 2.0, (normal(6, 9), np.int32(3))),
    "two results": (lambda x: (wnp.exp(x), wnp.exp(x) * x), (normal(2, 3, 18),)),
    "choices": (lambda x, y: wnp.where(x > y, x, -y), (normal(50), normal(50, seed=1))),
    "integers": (lambda x: (x * 3) // 2 - 1, (np.arange(40, dtype=np.int32),)),
    "size zero": (lambda x: x + 1.0, (normal(0, 3),)),
    "longer than blocks for threads": (lambda x: x * 2.0, (normal(2 * BLOCK + 5),)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loop_kernels_compute_their_jaxpr(name: str) -> None:
    function, args = LOOPS[name]
    check(function, *args, compare=close(2e-6))


REDUCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "row sum": (lambda x: wnp.sum(x * x, axis=1), (normal(5, 37),)),
    "column sum": (lambda x: wnp.sum(x + 1.0, axis=0), (normal(5, 37),)),
    "everything": (lambda x: wnp.sum(wnp.sin(x)), (normal(6, 37),)),
    "maximum": (lambda x: wnp.max(x, axis=-1), (normal(3, 4, 29),)),
    "middle axis": (lambda x: wnp.min(x, axis=1), (normal(3, 4, 29),)),
    "then a map": (lambda x: wnp.sqrt(wnp.sum(x * x, axis=1)) * 0.5, (normal(5, 37),)),
    "outer and inner": (lambda x: wnp.sum(x, axis=(0, 2)), (normal(3, 4, 29),)),
    "bfloat16": (lambda x: wnp.sum(x.astype(wnp.bfloat16), axis=1), (normal(5, 200),)),
    "any": (lambda x: wnp.any(x > 2.0, axis=1), (normal(9, 23),)),
    "no elements": (lambda x: wnp.sum(x, axis=1), (normal(3, 0),)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_kernels_compute_their_jaxpr(name: str) -> None:
    function, args = REDUCTIONS[name]
    check(function, *args, compare=close(args[0].size * 1.2e-7))


def emission_of(function: Callable[..., Any], *args: Any) -> Emission:
    (fusion,) = fusions(fused_program(function, *args))
    return emit(fusion.params["kind"], fusion.params["jaxpr"], fusion.params["hero"], AVX512)


def test_contiguous_loops_become_one() -> None:
    (loop,) = emission_of(lambda x, y: x * y, normal(4, 5, 6), normal(4, 5, 6)).launches[0].kernel.body
    assert isinstance(loop, Loop) and loop.kind is LoopKind.LANES and loop.stop == 120
    assert not any(isinstance(s, Loop) for s in loop.body)


def test_a_transposed_read_keeps_its_loops() -> None:
    (loop,) = emission_of(lambda x, y: x.T * y, normal(4, 5), normal(5, 4)).launches[0].kernel.body
    assert isinstance(loop, Loop) and loop.stop == 5 and isinstance(loop.body[0], Loop)


def test_long_loops_are_split_for_threads() -> None:
    (loop,) = emission_of(lambda x, y: x * y, normal(100, 1000), normal(100, 1000)).launches[0].kernel.body
    assert isinstance(loop, Loop) and loop.kind is LoopKind.THREADS and loop.count == 13


def test_literals_do_not_change_the_kernel() -> None:
    one, other = (emission_of(lambda x, c=c: x * c + 0.25, normal(4, 5)) for c in (0.1, 0.3))
    assert to_text(one.launches[0].kernel) == to_text(other.launches[0].kernel)


def test_loop_invariant_values_are_hoisted() -> None:
    kernel = emission_of(lambda x, b: x * wnp.exp(b)[:, None], normal(4, 5), normal(4)).launches[0].kernel
    (outer,) = kernel.body
    assert isinstance(outer, Loop)
    *before, inner = outer.body
    assert len(before) == 2 and isinstance(inner, Loop)  # the load and the exponential
    assert isinstance(inner.body[-1], Store) and len(inner.body) == 3


def test_pointwise_results_may_overwrite_arguments() -> None:
    assert emission_of(lambda x, y: x * y + 1.0, normal(4, 5), normal(4, 5)).in_place == {(0, 0), (1, 0)}
    # A row that is repeated is read at other indices than it has, and so is what is transposed.
    assert len(emission_of(lambda x, b: (x + 1.0) * b, normal(4, 5), normal(5)).in_place) == 1
    assert len(emission_of(lambda x, y: x + y.T, normal(3, 3), normal(3, 3)).in_place) == 1
