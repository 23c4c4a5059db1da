"""Random programs of `tests/fuzz` three ways: by `eval`, by Weft's code, and by XLA on its plugin for CPUs.

XLA is judged by `eval` and the primitives' error bounds, as Weft's code is (docs/design/testing.md), with wider
factors. DIFFERENT has where XLA differs; `docs/design/stablehlo.md` lists the causes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import weft
from tests.fuzz.checks import case_of, compare, compiled, run
from tests.fuzz.coverage import Coverage
from tests.fuzz.generator import NO_RULE, DrawError, generate
from tests.fuzz.judge import different, is_derived
from tests.fuzz.reference import Case, Freedom, TooLong, expected_of, varied
from weft.base import dtypes
from weft.errors import NotSupportedError
from weft.ir import interpreter
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Equation
from weft.sharding.device import Device

TOGETHER, GROUPS, ALL_GROUPS, VARIATIONS = 10, 3, 60, 16
# XLA fuses products and sums, merges constants of sums, and flushes denormal numbers.
XLA = Freedom(flushes=True, rounds=True)
FACTORIZATIONS = frozenset(
    {"eig", "eigh", "svd", "qr", "geqrf", "schur", "hessenberg", "tridiagonal", "lu", "cholesky"}
    | {"triangular_solve", "tridiagonal_solve", "linear_solve"}
)  # signs, order and what singular matrices give are free
DIFFERENT = FACTORIZATIONS | {"reduce_precision"}  # XLA folds it with conversions of short floats


def of_complex(equation: Equation, operands: Sequence[Any]) -> bool:
    return dtypes.kind(operands[0].dtype) == "c"


def with_nan(equation: Equation, operands: Sequence[Any]) -> bool:
    return bool(np.any(operands[0] != operands[0]))


def with_denormals(equation: Equation, operands: Sequence[Any]) -> bool:
    return any(np.any((a != 0) & (np.abs(a) < dtypes.finfo(a.dtype).tiny)) for a in operands)


# The same for some operands only.
DIFFERENT_IF: dict[str, tuple[Callable[[Equation, Sequence[Any]], bool], str]] = {
    **dict.fromkeys(("asin", "acos", "atan", "asinh", "acosh", "atanh", "tan", "tanh", "pow", "log1p", "expm1"),
                    (of_complex, "of nan, infinities and branch cuts XLA has other limits")),
    "reduce": (with_nan, "the functions of the programs are not associative next to nan"),
    "atan2": (with_denormals, "XLA divides flushed numbers, which is nan"),
}  # fmt: skip


def differs(case: Case) -> bool:
    met = Coverage()
    met.add(case.jaxpr, ("any",))
    if any(met.primitives[name] for name in DIFFERENT):
        return True
    found = False
    original = interpreter.run_equation

    def run_equation(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        nonlocal found
        if equation.primitive.name in DIFFERENT_IF:
            found = found or DIFFERENT_IF[equation.primitive.name][0](equation, operands)
        return original(equation, operands)

    with patch.object(interpreter, "run_equation", run_equation), weft.enable_x64(case.wide):
        interpreter.run(case.jaxpr, [a.copy() for a in case.arrays])
    return found


def check(seed: int, device: Device) -> str:
    """Run the program of a seed three ways and return the outcome."""
    try:
        program = generate(seed)
        program.checks = False
        case = case_of(program)
        expected = expected_of(case)
    except (*NO_RULE, DrawError, TooLong) as error:
        return type(error).__name__
    compare(run(compiled(case), case), case, expected, "Weft's code")
    if differs(case):
        return "different"
    try:
        with weft.enable_x64(program.wide):
            operands = [weft.device_put(a, device) for a in case.arrays]
            found = weft.jit(lambda *args: tuple(replay(case.jaxpr, *args)))(*operands)
            theirs = [np.asarray(r._value) for r in found]
    except NotSupportedError:
        return "refused"  # callbacks, tapes
    derived = is_derived(program)
    wrong = different(theirs, expected, derived)
    if wrong:
        wrong = different(theirs, varied(case, expected.results, VARIATIONS, XLA), derived)
    assert not wrong, f"seed {seed} ({program.stages}): XLA has {wrong} of eval\n{program.text}"
    return "same"


def check_group(group: int, device: Device, request: pytest.FixtureRequest) -> None:
    first = 1000 * request.config.getoption("--seed") + TOGETHER * group
    outcomes = [check(seed, device) for seed in range(first, first + TOGETHER)]
    # Some programs are left out by the tables or refused; of ten at least one can be compared.
    assert outcomes.count("same") >= 1, outcomes


@pytest.mark.parametrize("group", range(GROUPS))
def test_programs(group: int, device: Device, request: pytest.FixtureRequest) -> None:
    check_group(group, device, request)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS, ALL_GROUPS))
def test_many_programs(group: int, device: Device, request: pytest.FixtureRequest) -> None:
    check_group(group, device, request)
