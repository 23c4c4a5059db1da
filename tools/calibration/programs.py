"""Whole programs compiled by Weft for a variant of the target, for constants that only show in a schedule."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.compiler.compile import compile_program
from weft.compiler.target.target import Target
from weft.runtime.cpu.executable import Executable

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def matmul(m: int, n: int, k: int, layout: str = "nn") -> Case:
    """Return a product of matrices and the shapes of its operands; `t` in the layout transposes one."""

    def product(a: Any, b: Any) -> Any:
        return (a.T if layout[0] == "t" else a) @ (b.T if layout[1] == "t" else b)

    return product, ((k, m) if layout[0] == "t" else (m, k), (n, k) if layout[1] == "t" else (k, n))


def exponential(size: int) -> Case:
    """Return exp of a vector."""
    return lambda x: wnp.exp(x), ((size,),)


def softmax(rows: int, columns: int) -> Case:
    """Return a softmax of rows."""
    return lambda x: weft.nn.softmax(x, axis=-1), ((rows, columns),)


def prologue(m: int, n: int, k: int) -> Case:
    """Return a product of matrices, one of which is computed from its operand."""
    return lambda a, b: wnp.tanh(a) @ b, ((m, k), (k, n))


def transpose(size: int) -> Case:
    """Return a transpose that is stored."""
    return lambda x: x.T + 1, ((size, size),)


def shared_value(size: int) -> Case:
    """Return two sums of rows that share a value of about four flops an element."""

    def both(x: Any) -> Any:
        y = (x * 2 + 1) * (x + 3)
        return wnp.sum(y, axis=1), wnp.max(wnp.exp(y), axis=0)

    return both, ((size, size),)


def factor(count: int, size: int) -> Case:
    """Return Cholesky factors of a batch of matrices."""
    eye = np.eye(size, dtype=np.float32)
    return lambda x: wnp.linalg.cholesky(x * 0.001 + 2 * eye), ((count, size, size),)


def barriers(count: int, size: int) -> Case:
    """Return a chain of kernels that barriers keep apart."""

    def chain(x: Any) -> Any:
        for _ in range(count):
            x = weft.lax.optimization_barrier(x + 1)
        return x

    return chain, ((size,),)


def routine(size: int) -> Case:
    """Return a call of a LAPACK routine."""
    return lambda x: weft.lax.linalg.qr(x), ((size, size),)


def run_time(case: Case, target: Target, quick: bool) -> float:
    """Return the least nanoseconds of a call of a program that is compiled for a target."""
    function, shapes = case
    arrays = [np.random.default_rng(0).random(shape, np.float32) for shape in shapes]
    executable = Executable(compile_program(weft.make_jaxpr(function)(*arrays), (), target))
    executable.optimise()
    executable(arrays)
    best, begin, runs = float("inf"), time.perf_counter(), 0
    while runs < 3 or (not quick and runs < 200 and time.perf_counter() - begin < 0.3):
        start = time.perf_counter_ns()
        executable(arrays)
        best, runs = min(best, time.perf_counter_ns() - start), runs + 1
    return best


def sweep(record: str, name: str, case: Case, target: Target, quick: bool) -> tuple[Any, str]:
    """Return the value of a constant for which a program is fastest, of half, all and twice the shipped one, and how
    much longer it takes with the shipped value."""
    costs = getattr(target, record)
    shipped = getattr(costs, name)
    kind = type(shipped)
    values = sorted({max(kind(1), kind(shipped / 2)), shipped, kind(shipped * 2)})
    times = {}
    for value in values[-2:] if quick else values:
        changed = replace(target, **{record: replace(costs, **{name: value})})
        times[value] = run_time(case, changed, quick)
    best = min(times, key=lambda value: times[value])
    return best, f"shipped takes {times[shipped] / times[best]:.2f} times as long"
