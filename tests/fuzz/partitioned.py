"""Random programs on a mesh: their arguments and results are split at random, evenly or not, and results must be those
of one device. Beyond the ends of parts arguments have garbage.

`python -m tests.fuzz.partitioned [--first F] [--count N] [--processes P] [SEED ...]`
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from tests.fuzz.checks import case_of, compare
from tests.fuzz.generator import NO_RULE, DrawError, generate
from tests.fuzz.reference import Case, Expected, TooLong, expected_of
from tests.fuzz.seeds import main
from tests.laws.parts import poisoned
from weft.base import dtypes
from weft.ir import interpreter
from weft.ir.jaxpr import Equation, Jaxpr, subjaxprs
from weft.ir.types import ArrayType
from weft.runtime import spmd
from weft.runtime.array import ConcreteArray
from weft.runtime.sharded import split
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def random_mesh(rng: np.random.Generator) -> Mesh:
    shape = [(2, 2), (2, 2), (3, 2), (2, 4), (4, 2)][rng.integers(5)]
    devices = weft.devices()[: shape[0] * shape[1]]
    return weft.make_mesh(shape, ("x", "y"), (AxisType.Auto,) * 2, devices=devices)


def random_spec(shape: tuple[int, ...], mesh: Mesh, rng: np.random.Generator) -> PartitionSpec:
    """Axes given to dimensions: to those that they divide, or, of every other array, to any."""
    entries: list[tuple[str, ...]] = [()] * len(shape)
    even = rng.random() < 0.5
    for axis in rng.permutation(mesh.axis_names).tolist():
        count = lambda d: math.prod(mesh.shape[a] for a in (*entries[d], axis))  # noqa: B023
        fitting = [d for d, n in enumerate(shape) if n and (not even or n % count(d) == 0)]
        if fitting and rng.random() < 0.75:
            d = int(rng.choice(fitting))
            entries[d] = (*entries[d], axis)
    return PartitionSpec(*entries)


def check_partitioned(case: Case, expected: Expected, seed: int) -> str:
    """Raise unless the program on a mesh returns what one device does; how many collectives it took, in words."""
    if not all(isinstance(v.aval, ArrayType) for v in (*case.jaxpr.invars, *case.jaxpr.outvars)):
        return "has tapes"
    rng = np.random.default_rng(seed)
    mesh = random_mesh(rng)
    order = lambda: "F" if rng.random() < 0.3 else "C"  # what is whole may be a view, as results of NumPy are
    args = [ConcreteArray(a.copy(order()), v.aval) for a, v in zip(case.arrays, case.jaxpr.invars, strict=True)]
    shardings = [NamedSharding(mesh, random_spec(a.shape, mesh, rng)) for a in args]
    wanted: list[Any] = [
        NamedSharding(mesh, random_spec(v.aval.shape, mesh, rng)) if rng.random() < 0.4 else None  # type: ignore[attr-defined]
        for v in case.jaxpr.outvars
    ]
    with weft.enable_x64(case.wide):
        compiled = spmd.compile_for_mesh(case.jaxpr, args, mesh, (), shardings, wanted)
        parts = [poisoned(a if s.is_even(a.shape) else split(a, s)) for a, s in zip(args, shardings, strict=True)]
        results = [np.array(interpreter.storage_array(r)) for r in spmd.run(compiled, parts)]
    if any_equation(compiled.jaxpr, is_short_sum):
        return "short sums"
    if any_equation(compiled.jaxpr, is_factorization):
        return "factorizations"
    if any_equation(compiled.jaxpr, is_sum):
        # The sign of a zero that terms cancel to depends on where a sum is negated: before it or after it.
        pairs = zip(results, map(np.asarray, expected.results), strict=True)
        results = [np.where((r == 0) & (e == 0), e, r) if r.shape == e.shape else r for r, e in pairs]
    splits = f"{[s.spec for s in shardings]}, results by {[s and s.spec for s in wanted]}"
    compare(results, case, expected, f"partitioned on {mesh} by {splits}")
    return f"{min(len(compiled.communication), 3)}{'+' if len(compiled.communication) > 3 else ''} collectives"


def is_sum(equation: Equation) -> bool:
    """Return whether an equation adds across devices."""
    return equation.primitive.name in ("psum", "reduce_scatter")


def is_short_sum(equation: Equation) -> bool:
    """Return whether an equation adds floats of fewer than 32 bits across devices: each device rounds its partial sum,
    unlike one device."""
    if not is_sum(equation):
        return False
    dtype = equation.invars[0].aval.dtype  # type: ignore[attr-defined]
    return dtypes.kind(dtype) == "f" and dtype.itemsize < 4


def is_factorization(equation: Equation) -> bool:
    """Return whether a library may compute an equation. Its choice, and so the last bits, depend on the number of
    matrices."""
    return type(equation.primitive).__module__.startswith("weft.primitives.linalg")


def any_equation(jaxpr: Jaxpr, holds: Callable[[Equation], bool]) -> bool:
    return any(holds(e) or any(any_equation(j, holds) for j in subjaxprs(e.params)) for e in jaxpr.eqns)


def check_seed(seed: int) -> str:
    """Return the outcome of a seed in a word; a failure begins with `failed`."""
    try:
        program = generate(seed)
        if program.checks:
            return "checks"
        case = case_of(program)
        expected = expected_of(case)
    except (*NO_RULE, DrawError, TooLong):
        return "not judged"
    try:
        return check_partitioned(case, expected, seed)
    except NO_RULE:
        return "not judged"
    except Exception:
        return f"failed: {traceback.format_exc(limit=-4)}"


if __name__ == "__main__":
    main(check_seed, __doc__)
