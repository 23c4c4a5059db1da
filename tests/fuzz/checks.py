"""What must hold of a random program: its machine code gives the bits of the interpreter, however it is run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from tests.fuzz.generator import Program
from weft.api.inspect import make_jaxpr
from weft.base import dtypes
from weft.compiler.compilation import Compilation
from weft.compiler.compile import compile_program
from weft.compiler.program import interpreter as program_interpreter
from weft.compiler.program import stored
from weft.compiler.program.ir import Launch
from weft.compiler.program.verifier import verify
from weft.compiler.target.cpu import loops, pool
from weft.compiler.target.cpu.link import Tier
from weft.ir import interpreter
from weft.ir.jaxpr import Equation, Jaxpr, constants_to_arguments, subjaxprs
from weft.ir.types import ArrayType
from weft.ir.verifier import verify as verify_jaxpr
from weft.runtime.executable import Executable

# Sums whose terms may be added in any order.
SUMS = frozenset({"reduce_sum", "cumsum", "dot_general", "conv_general_dilated", "reduce_window_sum", "scatter-add",
                  "scatter-sub", "select_and_scatter_add", "tape_sum"})  # fmt: skip
# Those that add up in a wider dtype and round once.
WIDENED = frozenset({"reduce_sum", "dot_general", "conv_general_dilated"})
PRODUCTS = frozenset({"reduce_prod", "cumprod", "scatter-mul"})
TWO_FACTORS = frozenset({"dot_general", "conv_general_dilated"})
# Which of two zeros is greater is not the same everywhere in NumPy; compiled code has -0 < 0.
EXTREMES = frozenset({"max", "min", "clamp", "reduce_max", "reduce_min", "cummax", "cummin", "reduce_window_max",
                      "reduce_window_min", "scatter-max", "scatter-min"})  # fmt: skip
# What tells zeros apart by their sign.
SEES_ZEROS = frozenset({"bitcast_convert_type", "sort", "top_k"})
# Programs of so many kernel iterations are run by the interpreter of kernels too.
MOST_INTERPRETED = 3_000


class Mismatch(AssertionError):
    """A program whose results are not what they must be."""


@dataclass
class Case:
    """A traced program, whose constants are arguments, with arrays for it."""

    jaxpr: Jaxpr
    arrays: list[np.ndarray]
    donated: tuple[bool, ...]
    wide: bool = False


def case_of(program: Program) -> Case:
    """Trace a program."""
    with program.settings():
        jaxpr = make_jaxpr(program.function)(*program.arguments)
        constants = [np.array(interpreter.storage_of(c)) for c in jaxpr.consts]
        verify_jaxpr(jaxpr)
    closed = constants_to_arguments(jaxpr)
    flags = (False,) * len(constants) + program.donated
    arrays = [
        np.asarray(a).astype(dtypes.storage(v.aval.dtype))
        for a, v in zip([*constants, *program.arguments], closed.invars, strict=True)
    ]
    return Case(closed, arrays, flags, program.wide)


# ---------------------------------------------------------------------------------------------------------- exactness


def parts(array: Any) -> list[np.ndarray]:
    """The numbers of an array as float64; of complex ones both parts."""
    wide = np.asarray(array)
    if dtypes.kind(wide.dtype) == "c":
        return [np.asarray(wide.real, np.float64), np.asarray(wide.imag, np.float64)]
    return [np.asarray(wide).astype(np.float64)]


def step_of(array: Any) -> float:
    """The largest power of two of which all finite numbers of an array are multiples."""
    least = math.inf
    for part in parts(array):
        numbers = np.abs(part[np.isfinite(part) & (part != 0)])
        if numbers.size:
            fraction, exponent = np.frexp(numbers)
            whole = np.asarray(fraction * 2.0**53).astype(np.int64)
            least = min(least, float(np.min(np.ldexp((whole & -whole).astype(np.float64), exponent - 53))))
    return least if math.isfinite(least) else 1.0


def magnitude(array: Any) -> Any:
    found = np.asarray(array)
    if dtypes.kind(found.dtype) == "c":
        return np.asarray(np.abs(found.real) + np.abs(found.imag)).astype(found.dtype)
    return np.abs(found) if dtypes.kind(found.dtype) == "f" else found


def largest(array: Any) -> float:
    return max((float(np.max(p, initial=0.0)) for p in map(np.abs, parts(array))), default=0.0)


def is_exact(equation: Equation, operands: Sequence[Any]) -> bool:
    """Whether a sum or product has the same bits in any order."""
    name = equation.primitive.name
    if name not in SUMS and name not in PRODUCTS:
        return True
    floats = [a for a in operands if isinstance(a, (np.ndarray, np.generic)) and dtypes.kind(a.dtype) in "fc"]
    if not floats:
        return True
    if name in PRODUCTS:
        return all(np.isin(np.abs(p), (0.0, 1.0)).all() for a in floats for p in parts(a))
    dtype = floats[0].dtype
    bits = dtypes.finfo(dtypes.accumulation_dtype(dtype) if name in WIDENED else dtype).nmant + 1
    step = math.prod(map(step_of, floats)) if name in TWO_FACTORS else min(map(step_of, floats))
    results = equation.primitive.eval(*map(magnitude, operands), **equation.params)
    most = max(map(largest, results if equation.primitive.multiple_results else (results,)))
    if not math.isfinite(most) and not any(np.isinf(p).any() for a in floats for p in parts(a)):
        return False
    # A result in a shorter dtype has been rounded, so some room is left.
    return not math.isfinite(most) or most <= step * 2.0 ** (bits - 1)


def has_both_zeros(operands: Sequence[Any]) -> bool:
    """Whether there are zeros of both signs, so that the greatest of them may be either."""
    zeros = [np.signbit(p[p == 0]) for a in operands if dtypes.kind(np.asarray(a).dtype) == "f" for p in parts(a)]
    signs = np.concatenate(zeros) if zeros else np.zeros(0, bool)
    return bool(signs.any() and not signs.all())


@dataclass
class Expected:
    """The interpreter's results. `exact`: no sum depends on its order; `zeros`: all zeros have a certain sign."""

    results: list[np.ndarray]
    exact: bool
    zeros: bool


def expected_of(case: Case) -> Expected:
    """Run by the interpreter, watching what depends on the order of operations."""
    exact = zeros = True
    run_equation = interpreter.run_equation

    def watched(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        nonlocal exact, zeros
        exact = exact and is_exact(equation, operands)
        zeros = zeros and not (equation.primitive.name in EXTREMES and has_both_zeros(operands))
        exact = exact and (zeros or equation.primitive.name not in SEES_ZEROS)
        return run_equation(equation, operands)

    interpreter.run_equation = watched
    try:
        with weft.enable_x64(case.wide), np.errstate(all="ignore"):
            results = interpreter.run(case.jaxpr, [a.copy() for a in case.arrays])
    finally:
        interpreter.run_equation = run_equation
    return Expected([np.asarray(r) for r in results], exact, zeros)


# --------------------------------------------------------------------------------------------------------- comparing


def difference(actual: Any, expected: Any, zeros: bool = True) -> str | None:
    """What is not the same of two results, but for the payload of a nan and, without `zeros`, the signs of zeros."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{actual.shape} for {expected.dtype}{expected.shape}"
    if dtypes.kind(expected.dtype) in "fc":
        nan = expected != expected
        if not np.array_equal(actual != actual, nan):
            return f"nan in other places:\n{actual}\nfor\n{expected}"
        ignored = nan if zeros else nan | (expected == 0) & (actual == 0)
        actual, expected = (np.where(ignored, np.zeros_like(a), a) for a in (actual, expected))
    if actual.tobytes() != expected.tobytes():
        size = expected.dtype.itemsize
        bytes_of = (
            np.frombuffer(np.ascontiguousarray(a).tobytes(), np.uint8).reshape(-1, size) for a in (actual, expected)
        )
        places = np.argwhere(np.any(np.not_equal(*bytes_of), axis=1).reshape(expected.shape))
        first = tuple(places[0])
        numbers = f"{actual[first]!r} for {expected[first]!r}"
        return f"{len(places)} of {expected.size} numbers differ, first at {tuple(map(int, first))}: {numbers}"
    return None


def compare(actual: Sequence[Any], expected: Expected, how: str) -> None:
    if len(actual) != len(expected.results):
        raise Mismatch(f"{how}: {len(actual)} results for {len(expected.results)}")
    for number, (a, e) in enumerate(zip(actual, expected.results, strict=True)):
        found = difference(a, e, expected.zeros)
        if found:
            raise Mismatch(f"{how}: result {number}: {found}")


def compiled(case: Case) -> Executable:
    """Fresh machine code of a program."""
    with weft.enable_x64(case.wide):
        return Executable(compile_program(case.jaxpr, case.donated))


def run(executable: Executable, case: Case) -> list[np.ndarray]:
    """The results on copies, since donated arguments are overwritten; what is not donated must stay."""
    given = [a.copy() for a in case.arrays]
    results = [np.array(interpreter.storage_of(r)) for r in executable(given)]
    for number, (now, before) in enumerate(zip(given, case.arrays, strict=True)):
        if not (case.donated and case.donated[number]) and now.tobytes() != before.tobytes():
            raise Mismatch(f"argument {number} has been overwritten")
    return results


def work_of(executable: Executable) -> int:
    """Iterations of all kernels, if each runs once; loops count for more."""
    total = 0
    for step in executable.program.all_steps():
        if isinstance(step, Launch):
            total += sum(b.size for b in step.full.buffers)
        elif step.bodies:
            total *= 4
    return total


def check_case(case: Case, thorough: bool = True, expected: Expected | None = None) -> str:
    """Raise unless compiled = interpreted; gives "exact", or "inexact" where there is nothing to compare.

    `thorough`: also on one and two threads, in all tiers, and by the interpreter of programs.
    """
    expected = expected or expected_of(case)
    if not expected.exact:
        return "inexact"
    executable = compiled(case)
    verify(executable.program)
    compare(run(executable, case), expected, "compiled")
    if not thorough:
        return "exact"
    try:
        for number in (1, 2):
            pool.set_threads(number)
            compare(run(executable, case), expected, f"compiled, with {number} threads")
    finally:
        pool.set_threads(0)
    for tier in (Tier.LIGHT, Tier.FULL):
        with every_loop():
            executable._link(tier)
        compare(run(executable, case), expected, f"compiled in tier {tier.name}")
    content = stored.to_bytes(executable.program)
    if content is not None:
        again = stored.from_bytes(content, case.jaxpr.name)
        kept = Executable(Compilation(case.jaxpr, case.donated, again, executable.compilation.features))
        compare(run(kept, case), expected, "as it would come from disk")
    plain = all(isinstance(v.aval, ArrayType) for v in (*case.jaxpr.invars, *case.jaxpr.outvars))
    if plain and work_of(executable) <= MOST_INTERPRETED:
        stepped = program_interpreter.run(executable.program, [a.copy() for a in case.arrays])
        pairs = zip(stepped, expected.results, strict=True)
        views = [b.view(e.dtype).reshape(e.shape) if e.size else e for b, e in pairs]
        compare(views, expected, "program interpreter")
    return "exact"


@contextmanager
def every_loop() -> Iterator[None]:
    """Loops have code of their own however little they gain."""
    before = loops.LEAST_PART, loops.LEAST_NANOSECONDS
    loops.LEAST_PART = loops.LEAST_NANOSECONDS = 0.0
    try:
        yield
    finally:
        loops.LEAST_PART, loops.LEAST_NANOSECONDS = before


def check_jit(program: Program) -> None:
    """The same by `weft.jit`, called often enough for its own dispatcher and better code."""
    with program.settings():
        expected = expected_of(case_of(program))
        if not expected.exact:
            return
        donated = tuple(n for n, d in enumerate(program.donated) if d)
        jitted = weft.jit(program.function, donate_argnums=donated)
        for turn in range(4):
            leaves = weft.tree.leaves(jitted(*(weft.numpy.array(a) for a in program.arguments)))
            compare([interpreter.storage_of(r) for r in leaves], expected, f"jit, call {turn}")


def primitives_in(jaxpr: Jaxpr) -> dict[str, int]:
    """How often each primitive is used, inside of loops and calls too."""
    found: dict[str, int] = {}
    for equation in jaxpr.eqns:
        found[equation.primitive.name] = found.get(equation.primitive.name, 0) + 1
        for inner in subjaxprs(equation.params):
            for name, count in primitives_in(inner).items():
                found[name] = found.get(name, 0) + count
    return found
