"""Shrink a failing program: fewer results, fewer equations, and text that runs standalone.

A traced program is cut anywhere: an equation that goes away leaves its results as arguments, with the numbers that the
interpreter has for them; inside of loops and branches it leaves zeros.
"""

from __future__ import annotations

import base64
import pickle
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import weft
from tests.fuzz.checks import Mismatch, case_of, check_case
from tests.fuzz.draw import MODULES
from tests.fuzz.generator import Program, generate
from tests.fuzz.reference import Case, expected_of
from weft.base import dtypes
from weft.ir import interpreter
from weft.ir.jaxpr import Equation, Jaxpr, Literal, Var, drop_dead, subjaxprs
from weft.ir.primitive import NO_EFFECTS, lookup
from weft.ir.printer import to_text
from weft.ir.types import ArrayType
from weft.ir.verifier import verify

# Arrays with more elements are written as packed bytes.
MOST_WRITTEN = 200
Fails = Callable[[Case], bool]


def failure(case: Case) -> str | None:
    """Return how a program fails, without numbers: the judge that disagrees, or the error; None if it passes."""
    try:
        verify(case.jaxpr)
        expected = expected_of(case)
    except Exception:
        return None  # the cut made nonsense of it
    try:
        check_case(case, expected=expected)
    except Mismatch as error:
        return str(error).partition(":")[0]
    except Exception as error:
        return f"{type(error).__name__} {str(error)[:24]}"
    return None


def fails_like(case: Case) -> Fails:
    """Return a test for programs that fail as this one, so that shrinking does not end at another failure."""
    how = failure(case)
    return lambda smaller: how is not None and failure(smaller) == how


def shrink(case: Case, still_fails: Fails, rounds: int = 400, seconds: float = 300.0) -> Case:
    """Return a smaller jaxpr that still fails, found with a limited number of attempts and time."""
    attempts, end = 0, time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for smaller in candidates(case):
            attempts += 1
            if attempts > rounds or time.monotonic() > end:
                return case
            if still_fails(smaller):
                case, changed = smaller, True
                break
    return case


def candidates(case: Case) -> Iterator[Case]:
    """Smaller programs, the much smaller ones first."""
    jaxpr = case.jaxpr
    if len(jaxpr.outvars) > 1:
        for i in range(len(jaxpr.outvars)):
            yield pruned(case, [jaxpr.outvars[i]], jaxpr.eqns)
    count = len(jaxpr.eqns)
    if count > 1:
        values = values_of(case)
        # The results of an early equation instead of the program's, then later starts.
        for length in sorted({count // 2, 3 * count // 4, count - 1} - {0, count}):
            result = [v for e in jaxpr.eqns[length - 1 : length] for v in e.outvars]
            yield pruned(case, result, jaxpr.eqns[:length])
        size = count // 2
        while size:
            for first in range(0, count, size):
                yield without(case, range(first, min(first + size, count)), values)
            size //= 2
    for i, equation in enumerate(jaxpr.eqns):
        for smaller in smaller_equations(equation):
            equations = [*jaxpr.eqns[:i], *smaller, *jaxpr.eqns[i + 1 :]]
            yield pruned(case, jaxpr.outvars, equations)
    for i, array in enumerate(case.arrays):
        if array.any():
            for simpler in (np.zeros_like(array), np.ones_like(array)):
                if array.tobytes() != simpler.tobytes():
                    yield replace(case, arrays=[*case.arrays[:i], simpler, *case.arrays[i + 1 :]])
    if any(case.donated):
        yield replace(case, donated=(False,) * len(case.donated))


def values_of(case: Case) -> dict[Any, Any]:
    """Return the interpreter's values of all variables."""
    values: dict[Any, Any] = dict(zip(case.jaxpr.invars, case.arrays, strict=True))
    with weft.enable_x64(case.wide), np.errstate(all="ignore"):
        for equation in case.jaxpr.eqns:
            operands = [a.val if isinstance(a, Literal) else values[a] for a in equation.invars]
            values.update(zip(equation.outvars, interpreter.run_equation(equation, operands), strict=True))
    return values


def without(case: Case, cut: range, values: dict[Any, Any]) -> Case:
    """Remove equations from the program; their results become arguments."""
    jaxpr = case.jaxpr
    gone = [v for n in cut for v in jaxpr.eqns[n].outvars]
    if not all(isinstance(v.aval, ArrayType) for v in gone):
        return case
    equations = [e for n, e in enumerate(jaxpr.eqns) if n not in cut]
    arrays = [np.asarray(values[v]) for v in gone]
    donated = (case.donated or (False,) * len(case.arrays)) + (False,) * len(gone)
    larger = Case(
        jaxpr.replace(invars=(*jaxpr.invars, *gone), eqns=equations), [*case.arrays, *arrays], donated, case.wide
    )
    return pruned(larger, [v for v in jaxpr.outvars if v not in gone] or jaxpr.outvars, equations)


def pruned(case: Case, outvars: Sequence[Any], equations: Sequence[Equation]) -> Case:
    """Return the program with other results and equations, without unused arguments."""
    jaxpr = case.jaxpr.replace(outvars=outvars, eqns=equations)
    smaller, used = drop_dead(jaxpr, [True] * len(outvars), False)
    donated = case.donated or (False,) * len(case.arrays)
    return Case(
        smaller,
        [a for a, k in zip(case.arrays, used, strict=True) if k],
        tuple(d for d, k in zip(donated, used, strict=True) if k),
        case.wide,
    )


def zeros(v: Var) -> Equation:
    """Make an equation that sets a variable to zeros."""
    aval: Any = v.aval
    literal = Literal(np.zeros((), dtypes.storage(aval.dtype))[()], ArrayType((), aval.dtype))
    params = {"shape": aval.shape, "broadcast_dimensions": (), "sharding": None}
    return Equation([literal], [v], lookup("broadcast_in_dim"), params, NO_EFFECTS)


def smaller_equations(equation: Equation) -> Iterator[list[Equation]]:
    """Yield replacements of an equation with sub-jaxprs: the inlined sub-jaxpr, or smaller sub-jaxprs."""
    for name, value in equation.params.items():
        programs = value if isinstance(value, tuple) else (value,)
        if not programs or not all(isinstance(p, Jaxpr) for p in programs):
            continue
        for i, program in enumerate(programs):
            for smaller in smaller_bodies(program):
                changed = (*programs[:i], smaller, *programs[i + 1 :])
                yield [
                    equation.replace(params={**equation.params, name: changed if isinstance(value, tuple) else smaller})
                ]


def smaller_bodies(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Carried programs with zeros for the results of some equations."""
    count = len(jaxpr.eqns)
    size = count
    while size:
        for first in range(0, count, size):
            equations: list[Equation] = []
            worse = False
            for i, equation in enumerate(jaxpr.eqns):
                if first <= i < first + size:
                    if not all(isinstance(v.aval, ArrayType) for v in equation.outvars) or equation.effects:
                        worse = True
                        break
                    if equation.primitive.name == "broadcast_in_dim" and isinstance(equation.invars[0], Literal):
                        worse = worse or size == 1
                    equations += [zeros(v) for v in equation.outvars]
                else:
                    equations.append(equation)
            if not worse:
                yield drop_dead(jaxpr.replace(eqns=equations), [True] * len(jaxpr.outvars), True)[0]
        size //= 2
    for i, equation in enumerate(jaxpr.eqns):
        if subjaxprs(equation.params):
            for smaller in smaller_equations(equation):
                yield jaxpr.replace(eqns=[*jaxpr.eqns[:i], *smaller, *jaxpr.eqns[i + 1 :]])


def report(program: Program, seconds: float = 300.0) -> str:
    """Return the program of a failing seed as Python source and, shrunk, as a jaxpr in a script that fails."""
    text = standalone(program)
    sizes: tuple[int | None, ...] = (2, 3, 5, 9, None)
    for most in sizes:
        try:
            smaller = program if most is None else generate(program.seed, most)
            case = case_of(smaller)
        except Exception:  # with other sizes it is another program, which may not be one
            continue
        if failure(case) is not None:
            case = shrink(case, fails_like(case), seconds=seconds)
            return f"{text}\n# ---- made small:\n# {str(case.jaxpr).replace(chr(10), chr(10) + '# ')}\n{script(case)}"
    return f"{text}\n# It does not fail as a jaxpr alone: python -m tests.fuzz {program.seed}"


def standalone(program: Program) -> str:
    """Return the program as Python source that runs on its own."""
    imports = [f"import weft.{long} as {short}" for short, long in MODULES.items() if "." not in long]
    imports += ["from weft.lax import linalg", "from weft.numpy import fft", "from weft import io_callback"]
    arrays = ",\n    ".join(array_text(a) for a in program.arguments)
    donated = tuple(n for n, d in enumerate(program.donated) if d)
    return "\n".join(
        [
            f"# seed {program.seed}: {' of '.join(program.stages)}, {'small integers' if program.exact else 'edges'}"
            + (", checks" if program.checks else ""),
            "import base64, zlib",
            "import ml_dtypes, numpy as onp, numpy, weft as lib",
            *imports,
            f"lib.config.update('enable_x64', {program.wide})",
            f"lib.config.update('checks', {'all' if program.checks else 'off'!r})",
            program.text,
            f"ARRAYS = [\n    {arrays}\n]".replace("np.", "onp."),
            f"print(lib.jit(main, donate_argnums={donated})(*map(np.array, ARRAYS)))",
        ]
    )


def script(case: Case) -> str:
    """Return the program as Python source that runs on its own and fails in the same way."""
    table: list[Any] = []
    text = to_text(case.jaxpr, full=True, table=table)
    arrays = ",\n    ".join(array_text(a) for a in case.arrays)
    try:
        held = base64.b64encode(pickle.dumps(table)).decode() if table else ""
    except (AttributeError, pickle.PicklingError):
        return f"# The jaxpr has a Python function, so that there is no script of it alone.\n{text}"
    loads = f'pickle.loads(base64.b64decode("{held}"))' if table else "()"
    return f'''import base64, pickle, zlib
import ml_dtypes, numpy as np, weft
from tests.fuzz.checks import check_case
from tests.fuzz.reference import Case
from weft.ir.parser import parse

PROGRAM = """
{text}
"""
ARRAYS = [
    {arrays}
]
print(check_case(Case(parse(PROGRAM.strip(), {loads}), ARRAYS, {case.donated!r}, {case.wide!r})))
'''


def array_text(array: np.ndarray) -> str:
    """Format an array as Python source, shorter if all numbers are equal."""
    dtype = (
        f"np.{array.dtype}"
        if array.dtype.kind in "fiub?c" and array.dtype.names is None
        else f"ml_dtypes.{array.dtype}"
    )
    dtype = dtype.replace("np.bool", "np.bool_")
    wide = array.astype(np.complex128 if dtypes.kind(array.dtype) == "c" else np.float64)
    if dtypes.kind(array.dtype) in "iub":
        wide = array.astype(object)
    flat = wide.ravel()
    # Not every nan and infinity has a name that Python reads back.
    if flat.size > MOST_WRITTEN or (wide.dtype != object and not np.isfinite(wide).all()):
        held = base64.b64encode(zlib.compress(array.tobytes())).decode()
        return f'np.frombuffer(zlib.decompress(base64.b64decode("{held}")), {dtype}).reshape({array.shape})'
    if flat.size > 1 and array.tobytes() == array.ravel()[:1].tobytes() * array.size:
        return f"np.full({array.shape}, {flat[0]}, {dtype})"
    return f"np.array({wide.tolist()!r}, object).astype({dtype}).reshape({array.shape})"
