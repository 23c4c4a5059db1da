"""Checks of a random program.

1. Machine code returns the bits of the interpreter of Programs, whose kernels the interpreter of Kernels runs.
2. It returns the bits of `eval` where no primitive has an error bound, else results within the bounds (`reference`).
3. Threads, tiers, code from disk, `weft.jit` and donation change nothing.

Bits are compared with the signs of zeros; a nan is equal to a nan of any payload, and what a program computes of the
bits of a nan is not compared (`nans`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import weft
from tests.compiler.host import compile_program, interpret
from tests.fuzz import nans
from tests.fuzz.generator import Program
from tests.fuzz.reference import MORE_VARIATIONS, Case, Expected, evaluated, expected_of, has_other_bits, lanes, varied
from weft.api.inspect import make_jaxpr
from weft.base import dtypes
from weft.compiler.kernel import interpreter as kernel_interpreter
from weft.compiler.kernel.operations import OWN, evaluate
from weft.compiler.load import from_steps
from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.passes.inline import inline
from weft.compiler.program import stored
from weft.compiler.program.ir import Launch
from weft.compiler.target.cpu import loops, pool
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.targets import host
from weft.compiler.verify import verify_program
from weft.errors import NonFiniteValueError, OutOfBoundsIndexError
from weft.ir import interpreter
from weft.ir.jaxpr import Equation, Jaxpr, constants_to_arguments, subjaxprs
from weft.ir.types import ArrayType
from weft.ir.verifier import verify as verify_jaxpr
from weft.primitives.control.custom import custom_lin
from weft.runtime.cpu.executable import Executable

# Programs of so many kernel iterations are run by the interpreter of kernels too.
MOST_INTERPRETED = 6_000
# Programs whose light code takes so many seconds are not compiled with full care: that would take many times as long.
MOST_LINKING = 0.4
# How often a difference is looked for with other nans before it counts.
NAN_VARIATIONS = 4
# What the setting `checks` raises.
CHECK_ERRORS = (OutOfBoundsIndexError, NonFiniteValueError, ZeroDivisionError)


class Mismatch(AssertionError):
    """Raised for a program with wrong results."""


def case_of(program: Program) -> Case:
    """Trace a program. Tangents of a custom vjp have no value: a program is refused that computes them, wherever it
    does, and one that does not is judged without them."""
    with program.settings():
        jaxpr = make_jaxpr(program.function())(*program.arguments)
        constants = [np.array(interpreter.storage_array(c)) for c in jaxpr.consts]
        verify_jaxpr(jaxpr)
    closed = constants_to_arguments(jaxpr)
    if any(equations_without_value(closed)):
        closed = drop_dead(inline(closed))
        for equation in equations_without_value(closed):
            interpreter.run_equation(equation, ())
    flags = (False,) * len(constants) + program.donated
    arrays = [
        np.asarray(a).astype(dtypes.storage(v.aval.dtype))
        for a, v in zip([*constants, *program.arguments], closed.invars, strict=True)
    ]
    return Case(closed, arrays, flags, program.wide)


def equations_without_value(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Yield the equations whose evaluation is the user's error, also in sub-jaxprs."""
    for equation in jaxpr.eqns:
        if equation.primitive is custom_lin:
            yield equation
        for inner in subjaxprs(equation.params):
            yield from equations_without_value(inner)


# ---------------------------------------------------------------------------------------------------------- comparing


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return where two arrays have the same bits, or nan."""
    if dtypes.kind(a.dtype) == "c":
        return same(a.real, b.real) & same(a.imag, b.imag)
    if not a.size:
        return np.ones(a.shape, bool)
    size = a.dtype.itemsize
    bits = [np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8).reshape(*a.shape, size) for x in (a, b)]
    found = (bits[0] == bits[1]).all(-1)
    return found | ((a != a) & (b != b)) if dtypes.kind(a.dtype) == "f" else found


def difference(actual: Any, expected: Any) -> str | None:
    """Describe the bitwise difference of two results, or return None."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{actual.shape} for {expected.dtype}{expected.shape}"
    return described(actual, expected, ~same(actual, expected))


def described(actual: np.ndarray, expected: np.ndarray, wrong: np.ndarray) -> str | None:
    if not wrong.any():
        return None
    positions = np.argwhere(wrong)
    first = tuple(positions[0])
    numbers = f"{actual[first]!r} for {expected[first]!r}"
    return f"{len(positions)} of {wrong.size} elements differ, first at {tuple(map(int, first))}: {numbers}"


def beyond(actual: Any, runs: Sequence[Any], factor: float) -> str | None:
    """Describe the elements of a result that neither equal all evaluations bitwise nor are as near to them as they are
    to each other."""
    actual, runs = np.asarray(actual), [np.asarray(r) for r in runs]
    plain = runs[0]
    if (actual.dtype, actual.shape) != (plain.dtype, plain.shape):
        return f"{actual.dtype}{actual.shape} for {plain.dtype}{plain.shape}"
    wrong = ~same(actual, plain)
    if not wrong.any():
        return None
    certain = np.logical_and.reduce([same(plain, r) for r in runs[1:]]) if len(runs) > 1 else np.ones(plain.shape, bool)
    if dtypes.kind(plain.dtype) not in "fc":
        return described(actual, plain, wrong & certain)
    with np.errstate(all="ignore"):
        wide = np.complex128 if dtypes.kind(plain.dtype) == "c" else np.float64
        stacked = np.stack([r.astype(wide) for r in runs])
        # Next to evaluations that are not all finite nothing is said.
        loose = ~np.isfinite(stacked).all(0)
        distance = np.max(np.abs(stacked - stacked[0]), axis=0)
        near = np.abs(actual.astype(wide) - stacked[0]) <= factor * distance
    return described(actual, plain, wrong & (certain | ~(near | loose)))


def compare(actual: Sequence[Any], case: Case, expected: Expected, how: str) -> None:
    """Raise unless results are as expected. A difference counts only if many more evaluations do not explain it."""
    if len(actual) != len(expected.results):
        raise Mismatch(f"{how}: {len(actual)} results for {len(expected.results)}")
    for more in (False, True):
        found = first_difference(actual, expected, 8.0 if more else 4.0)
        if found is None:
            return
        if len(expected.runs) > MORE_VARIATIONS:
            break
        expected.runs = varied(case, expected.results, MORE_VARIATIONS).runs
    raise Mismatch(f"{how}: {found}")


def first_difference(actual: Sequence[Any], expected: Expected, factor: float) -> str | None:
    for n, a in enumerate(actual):
        found = beyond(a, [run[n] for run in expected.runs], factor)
        if found:
            return f"result {n}: {found}"
    return None


def compare_bits(actual: Sequence[Any], expected: Sequence[Any], how: str) -> None:
    for n, (a, e) in enumerate(zip(actual, expected, strict=True)):
        found = difference(a, e)
        if found:
            raise Mismatch(f"{how}: result {n}: {found}")


# ------------------------------------------------------------------------------------------------------------- running


def compiled(case: Case) -> Executable:
    """Fresh machine code of a program."""
    with weft.enable_x64(case.wide):
        return Executable(compile_program(case.jaxpr, case.donated))


def run(executable: Executable, case: Case) -> list[np.ndarray]:
    """Return the results on copies, since donated arguments are overwritten; other arguments must stay."""
    args = [a.copy() for a in case.arrays]
    with weft.enable_x64(case.wide):
        results = [np.array(interpreter.storage_array(r)) for r in executable(args)]
    for n, (now, before) in enumerate(zip(args, case.arrays, strict=True)):
        if not (case.donated and case.donated[n]) and now.tobytes() != before.tobytes():
            raise Mismatch(f"argument {n} has been overwritten")
    return results


def work_of(executable: Executable) -> int:
    """Count the iterations of all kernels, if each runs once; loops count for more."""
    total = 0
    for step in executable.program.all_steps():
        if isinstance(step, Launch):
            total += sum(b.size for b in step.full.buffers)
        elif step.bodies:
            total *= 3
    return total


def interpreted(executable: Executable, case: Case, variation: int | None = None) -> list[np.ndarray] | None:
    """Return the results of the interpreters of Programs and Kernels, or None for programs that take too long. In a
    variation kernels compute other nans."""
    plain = all(isinstance(v.aval, ArrayType) for v in (*case.jaxpr.invars, *case.jaxpr.outvars))
    if not plain or work_of(executable) > MOST_INTERPRETED:
        return None
    with lanes_of_compiled_code(variation), weft.enable_x64(case.wide):
        results = interpret(executable.program, [a.copy() for a in case.arrays])
    types = [v.aval for v in case.jaxpr.outvars]
    return [
        r[: t.size * dtypes.storage(t.dtype).itemsize].view(dtypes.storage(t.dtype)).reshape(t.shape)  # type: ignore[attr-defined]
        for r, t in zip(results, types, strict=True)
    ]


@contextmanager
def lanes_of_compiled_code(variation: int | None) -> Iterator[None]:
    """Functions in the interpreter of kernels are those of compiled code, which primitives allow other last bits."""
    rng = np.random.default_rng(variation)

    def by_lanes(op: str, arrays: Sequence[np.ndarray], params: Mapping[str, Any]) -> np.ndarray:
        if op not in OWN and has_other_bits(op, arrays[-1].dtype):
            return lanes(op, arrays, dict(params))
        return evaluate(op, arrays, params)

    def with_other_nans(op: str, arrays: Sequence[np.ndarray], params: Mapping[str, Any]) -> np.ndarray:
        result = by_lanes(op, arrays, params)
        if variation is None or op in nans.EXACT or dtypes.kind(result.dtype) not in "fc":
            return result
        return nans.with_other_nans(result, rng, variation)

    kernel_interpreter.evaluate = with_other_nans
    try:
        yield
    finally:
        kernel_interpreter.evaluate = evaluate


@dataclass
class Outcome:
    """Extent to which a program was judged: whether `eval` fixes every bit, and whether interpreters of kernels ran
    it."""

    exact: bool
    interpreted: bool


def check_case(case: Case, thorough: bool = True, expected: Expected | None = None) -> Outcome:
    """Raise unless all judges agree. `thorough`: also on one and two threads, in all tiers, and from disk."""
    expected = expected or expected_of(case)
    executable = compiled(case)
    verify_program(executable.program, host().memory_spaces)
    results = run(executable, case)
    stepped = interpreted(executable, case)
    if stepped is not None:
        compare_interpreted(results, stepped, executable, case)
    compare(results, case, expected, "compiled, not as eval")
    if thorough:
        other_ways(executable, case, results)
    return Outcome(expected.exact, stepped is not None)


def compare_interpreted(
    results: Sequence[np.ndarray], stepped: Sequence[np.ndarray], executable: Executable, case: Case
) -> None:
    """Raise unless compiled code returns the bits of the interpreters, where those do not depend on bits of nans."""
    if all(difference(a, e) is None for a, e in zip(results, stepped, strict=True)):
        return
    certain = [np.ones(e.shape, bool) for e in stepped]
    for variation in range(NAN_VARIATIONS):
        other = interpreted(executable, case, variation) or []
        certain = [c & same(e, o) for c, e, o in zip(certain, stepped, other, strict=True)]
    masked = [np.where(c, a, e) for a, e, c in zip(results, stepped, certain, strict=True)]
    compare_bits(masked, stepped, "compiled, not as the interpreter of its Program")


def other_ways(executable: Executable, case: Case, results: Sequence[Any]) -> None:
    """Check that the bits are the same on one and two threads, in all tiers, and from disk."""
    try:
        for num_threads in (1, 2):
            pool.set_threads(num_threads)
            compare_bits(run(executable, case), results, f"compiled, with {num_threads} threads")
    finally:
        pool.set_threads(0)
    started = time.process_time()
    for tier in (Tier.LIGHT, Tier.FULL):
        with every_loop():
            executable._link(tier)
        compare_bits(run(executable, case), results, f"compiled in tier {tier.name}")
        if time.process_time() - started > MOST_LINKING:
            break
    content = stored.to_bytes(executable.program)
    if content is not None:
        again = stored.from_bytes(content, case.jaxpr.name)
        loaded = Executable(from_steps(case.jaxpr, case.donated, again, executable.compilation.target))
        compare_bits(run(loaded, case), results, "as it would come from disk")


@contextmanager
def every_loop() -> Iterator[None]:
    """Loops have code of their own however little they gain."""
    before = loops.LEAST_PART, loops.LEAST_NANOSECONDS
    loops.LEAST_PART = loops.LEAST_NANOSECONDS = 0.0
    try:
        yield
    finally:
        loops.LEAST_PART, loops.LEAST_NANOSECONDS = before


def check_jit(program: Program, expected: Expected | None = None) -> None:
    """Check `weft.jit`, with enough calls for its dispatcher and optimized code."""
    case = case_of(program)
    expected = expected or expected_of(case)
    with program.settings():
        donated = tuple(n for n, d in enumerate(program.donated) if d)
        jitted = weft.jit(program.function(), donate_argnums=donated)
        for count in range(3):
            leaves = weft.tree.leaves(jitted(*(weft.numpy.array(a) for a in program.arguments)))
            compare([interpreter.storage_array(r) for r in leaves], case, expected, f"jit, call {count}")


def check_checked(program: Program) -> Outcome:
    """Check the setting `checks`: compiled code and the interpreter both raise the error of a check, or return the same
    results. The order of two failing checks is not promised, and unused values are checked by neither."""
    case = case_of(program)
    live = replace(case, jaxpr=drop_dead(inline(case.jaxpr)))
    with program.settings():
        _, raised = attempted(lambda: evaluated(live, None))
        jitted = weft.jit(program.function())
        leaves, found = attempted(lambda: weft.tree.leaves(jitted(*map(weft.numpy.array, program.arguments))))
    if raised is not None or found is not None:
        with program.settings():
            # Within the budgets of primitives another result may be, or not be, what a check refuses.
            others = [attempted(lambda n=n: evaluated(live, n))[1] for n in range(8)] if found is not raised else []
        if (found is None) not in {other is None for other in (raised, *others)}:
            raise Mismatch(f"with checks, compiled code ends with {found!r}, the interpreter with {raised!r}")
        return Outcome(True, False)
    expected = expected_of(case_of(replace(program, checks=False)))
    compare([interpreter.storage_array(r) for r in leaves], case, expected, "jit with checks")
    return Outcome(expected.exact, False)


def attempted(function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Return the result, or the error of a check."""
    try:
        return function(), None
    except CHECK_ERRORS as error:
        return None, error
