"""Split a function into fusions, and compare the kernels of each fusion with its jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import weft
from tests.compiler.host import AVX512
from tests.compiler.running import MACHINES, compiled, interpreted, numbers
from weft.base import dtypes
from weft.compiler import pipeline
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.emission import Emission, get_size, literal_arrays, storage
from weft.compiler.fuse import driver
from weft.compiler.fuse.fusion import is_fusion
from weft.compiler.kernel.verifier import verify
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.target import Target
from weft.ir.interpreter import run
from weft.ir.jaxpr import Equation, Jaxpr, Literal

Runner = Callable[[Any, Sequence[np.ndarray]], list[np.ndarray]]
# Shapes and an axis to work along: short and long, first, inner and last, of length one, and beside an empty one.
ALONG_AXES: list[tuple[tuple[int, ...], int]] = [
    ((37,), 0),
    ((5, 37), 0),
    ((5, 37), 1),
    ((3, 4, 29), 1),
    ((40, 3), 1),
    ((40, 3), 0),
    ((1, 6, 1), 1),
    ((1, 6, 1), 2),
    ((7, 1), 1),
    ((2, 130), 1),
    ((0, 3), 1),
]


def array(*shape: int, dtype: Any = "float32", seed: int = 0) -> np.ndarray:
    """Numbers that are exact in a dtype, the same for the same seed."""
    size = int(np.prod(shape))
    return numbers(np.random.default_rng(seed), dtypes.as_dtype(dtype), size).reshape(shape)


def fused_program(function: Callable[..., Any], *args: Any, target: Target | None = None) -> Jaxpr:
    """The program of a function after all passes: for this machine if for no other, but with products that are emitted
    where an older one would call a library."""
    target = target or replace(host(), libraries=AVX512.libraries)
    return driver.fuse(pipeline.run(weft.make_jaxpr(function)(*args), target, check=True), target)


def fusions_with_operands(function: Callable[..., Any], *args: Any) -> list[tuple[Equation, list[np.ndarray]]]:
    """Every fusion of the function's program at top level (but aliases), with the operands that it gets when the
    function is called on `args`."""
    jaxpr = fused_program(function, *args)
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(np.asarray, jaxpr.consts), strict=True))
    values.update(zip(jaxpr.invars, map(np.asarray, weft.tree.leaves(args)), strict=True))
    found = []
    for equation in jaxpr.eqns:
        operands = [np.asarray(a.val if isinstance(a, Literal) else values[a]) for a in equation.invars]
        if is_fusion(equation) and equation.params["kind"] != "alias":
            found.append((equation, operands))
        results = equation.primitive.eval(*operands, **equation.params)
        values.update(zip(equation.outvars, results if equation.primitive.multiple_results else [results], strict=True))
    return found


def launched(emission: Emission, operands: Sequence[np.ndarray], program: Jaxpr, runner: Runner) -> list[np.ndarray]:
    """The results of a fusion by running its kernels one after the other. Results and scratch start as bits that no
    number has; the interpreter also checks that none of them is read before it is written."""
    buffers = [
        np.ascontiguousarray(a).reshape(-1).view(storage(v)) for a, v in zip(operands, program.invars, strict=True)
    ]
    buffers += [poisoned(get_size(v), storage(v)) for v in program.outvars]
    buffers += [poisoned(s.size, s.dtype) for s in emission.scratch]
    written: list[np.ndarray | None] = [None] * len(operands)
    written += [np.zeros((b.size, b.dtype.itemsize), np.bool_) for b in buffers[len(operands) :]]
    literals = literal_arrays(program)
    buffers, written = [*buffers, *literals], [*written, *(None for _ in literals)]
    for argument, result in emission.updated:
        buffers[len(operands) + result] = buffers[argument].copy()
        written[len(operands) + result] = None
    for launch in emission.launches:
        verify(launch.kernel)
        # Kernels know what they only move as numbers of the same bits.
        args = [buffers[n].view(b.dtype) for n, b in zip(launch.operands, launch.kernel.buffers, strict=True)]
        if runner is interpreted:
            after = interpreted(launch.kernel, args, [written[n] for n in launch.operands])
        else:
            after = runner(launch.kernel, args)
        for index, buffer, array in zip(launch.operands, launch.kernel.buffers, after, strict=True):
            if buffer.written:
                buffers[index] = array.view(buffers[index].dtype)
    results = buffers[len(operands) : len(operands) + len(program.outvars)]
    return [
        r.view(dtypes.storage(v.aval.dtype)).reshape(v.aval.shape)  # type: ignore[attr-defined]
        for r, v in zip(results, program.outvars, strict=True)
    ]


def poisoned(size: int, dtype: Any) -> np.ndarray:
    """Memory that nobody has written: all bits are ones, which no number but a nan has."""
    return np.full(size * np.dtype(dtype).itemsize, 0xFF, np.uint8).view(dtype)


def check(
    function: Callable[..., Any],
    *args: Any,
    compare: Callable[[np.ndarray, np.ndarray], None] = np.testing.assert_array_equal,
    machines: Sequence[str] = ("host", "avx2"),
    interpret: bool = True,
) -> list[str]:
    """Check that every fusion of the function, interpreted and compiled, matches its jaxpr; return their kinds.

    `compare(got, want)` compares with the meaning by NumPy; compiled kernels of exact operations must give the bits of
    interpreted ones, which is left to `test_kernels`.
    """
    kinds = []
    for equation, operands in fusions_with_operands(function, *args):
        program, kind = equation.params["jaxpr"], equation.params["kind"]
        kinds.append(kind)
        wanted = [np.asarray(w) for w in run(program, operands)]
        runners: list[tuple[Target, Runner]] = [(AVX512, interpreted)] if interpret else []
        runners += [
            (MACHINES[m](), lambda kernel, arrays, m=m: compiled(kernel, arrays, MACHINES[m]())) for m in machines
        ]
        for target, runner in runners:
            emission = emit(kind, program, equation.params["hero"], target)
            for got, want in zip(launched(emission, operands, program, runner), wanted, strict=True):
                assert (got.dtype, got.shape) == (want.dtype, want.shape)
                compare(got, want)
    return kinds


def close(rtol: float) -> Callable[[np.ndarray, np.ndarray], None]:
    """Compare within a relative tolerance (of the largest number)."""

    def compare(got: np.ndarray, want: np.ndarray) -> None:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        got, want = got.astype(wide), want.astype(wide)
        finite = np.isfinite(want)
        scale = np.max(np.abs(want[finite]), initial=0.0)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * scale)

    return compare
