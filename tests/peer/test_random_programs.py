"""Random programs of `tests/fuzz` with JAX: the same text with JAX's modules returns the same results.

They are compared with `eval` and the primitives' error bounds, as compiled code is (docs/design/testing.md), with wider
factors, since XLA has functions of its own and sums in its own orders. REFUSED and DIFFERENT are where the libraries
differ on purpose or by what JAX cannot do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import jax
import jax.experimental
import numpy as np
import pytest

import tests.peer.compare  # JAX compiles quickly, and shares what it compiled  # noqa: F401
import weft
from tests.fuzz.checks import case_of
from tests.fuzz.coverage import Coverage
from tests.fuzz.draw import namespace
from tests.fuzz.generator import NO_RULE, generate
from tests.fuzz.judge import different, is_derived
from tests.fuzz.reference import SUMS, WIDENED, Case, Freedom, expected_of, varied
from weft.base import dtypes
from weft.ir import interpreter
from weft.ir.jaxpr import Equation

TOGETHER = 10
GROUPS, ALL_GROUPS = 5, 60
NAMES = namespace("jax")
# XLA adds short floats up as they are, but for matmuls and convolutions: 256 and 64 ones of bfloat16 are 304. It
# flushes denormal numbers in arithmetic and comparisons, not in what moves them. JAX's rules of derivatives have other
# formulas: that of tanh is (t + t * y) * (1 - y) for t * ((1 - y) * (1 + y)), and x / y has an integer power of y.
XLA = Freedom(widened=WIDENED - {"reduce_sum"}, flushes=True)
VARIATIONS = 16

# Parts of the message with which JAX refuses a program that Weft runs.
REFUSED = {
    "Reverse-mode differentiation does not work for lax.while_loop": "Weft has tapes for loops of unknown length",
    "Differentiation rule for 'igamma_grad_a' not implemented": "Weft has its derivatives of all orders",
    "Differentiation rule for 'zeta' not implemented": "Weft has the derivative in q",
    "select cases must have the same shapes": "a batched scalar predicate beside whole arrays; JAX's own rule fails",
    "jax._src.ad_util.Zero": "a symbolic zero reaches one of JAX's own rules",
    "logical reduction requires operand dtype bool or int": "JAX has no such reductions of int4",
    "Support for narrow-width integers is platform-dependent": "Weft has all operations of int4",
    "does not accept dtype": "Weft has some operations for more dtypes, such as abs of unsigned integers",
    "scatter_mul gradients are only implemented": "Weft has them in the operand",
    "can't apply forward-mode autodiff (jvp) to a custom_vjp": "Weft does where the tangents are not needed",
    "out of bounds for int8": "JAX compares indices of 8 bits with sizes that have more",
    "does not support custom element sizes": "XLA has no top_k of int4",
    "Unsupported elementwise operation": "XLA does not compile mulhi of some shapes",
    "Linearization failed to produce known values": "JAX's way to say that a rule for reverse mode is missing",
    "not implemented": "JAX has no rule or no kernel for some dtypes and derivatives",
    "not supported": "JAX has no rule or no kernel for some dtypes and derivatives",
    "Unimplemented": "XLA has no kernel for some dtypes",
    "UNIMPLEMENTED": "XLA has no kernel for some dtypes",
}
# Primitives of which JAX may give other results: programs with them are left to the other judges.
DIFFERENT: dict[str, str] = {
    **dict.fromkeys(("eig", "eigh", "svd", "qr", "geqrf", "schur", "hessenberg", "tridiagonal", "lu", "cholesky"),
                    "signs, order and what singular matrices give are free"),
    **dict.fromkeys(("triangular_solve", "tridiagonal_solve", "linear_solve"), "what singular matrices give is free"),
    **dict.fromkeys(("igamma", "igammac", "igamma_grad_a", "igamma_derivative", "random_gamma_grad", "polygamma",
                     "zeta", "regularized_incomplete_beta", "lgamma", "digamma"),
                    "at poles and infinities Weft has SciPy's limits, JAX nan; far out it has more digits"),
    **dict.fromkeys(("pow", "atan2", "rem"), "of complex or infinite operands XLA has other limits"),
    "reduce_precision": "XLA folds it with conversions of short floats",
    "nextafter": "XLA flushes denormal numbers there",
}  # fmt: skip


def differs_on_purpose(case: Case) -> bool:
    met = Coverage()
    met.add(case.jaxpr, ("any",))
    # XLA adds float8 up in float8 or float16, Weft in float32.
    sums = any(name in SUMS and dtype.startswith("float8") for name, dtype, _ in met.triples)
    return sums or any(met.primitives[name] for name in DIFFERENT)


def by_zeros(equation: Equation, operands: Sequence[Any]) -> bool:
    return dtypes.kind(operands[1].dtype) in "iu" and not np.any(operands[1])


def with_nan(equation: Equation, operands: Sequence[Any]) -> bool:
    return bool(np.any(operands[0] != operands[0]))


def of_complex(equation: Equation, operands: Sequence[Any]) -> bool:
    return dtypes.kind(operands[0].dtype) == "c"


def of_few_bits(equation: Equation, operands: Sequence[Any]) -> bool:
    return dtypes.name(equation.invars[0].aval.dtype) in ("int4", "uint4")  # type: ignore[attr-defined]


def in_several_dimensions(equation: Equation, operands: Sequence[Any]) -> bool:
    return sum(size > 1 for size in equation.params["window_dimensions"]) > 1


# The same for some operands and parameters of a primitive only.
DIFFERENT_IF: dict[str, tuple[Callable[[Equation, Sequence[Any]], bool], str]] = {
    "div": (by_zeros, "XLA divides constants, as in 5 / (x - x), when it compiles: the process ends with SIGFPE"),
    "top_k": (with_nan, "XLA puts a nan with a sign, which computed ones may have, last; Weft puts all of them first"),
    "reduce": (with_nan, "the functions of the programs are not associative next to nan"),
    "reduce_max": (with_nan, "XLA may return the infinity beside a nan"),
    "reduce_min": (with_nan, "XLA may return the infinity beside a nan"),
    "exp2": (of_complex, "XLA rounds the exponent times log(2) to float32 before the angle is taken"),
    "population_count": (of_few_bits, "XLA counts the sign of an int4 in all 8 bits"),
    "select_and_gather_add": (in_several_dimensions, "of equal elements XLA takes the first, but in some shapes, as "
                              "(8, 16) with windows of (2, 3) and strides of (1, 2), the first column's"),
}  # fmt: skip


def differs_for_operands(case: Case) -> bool:
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


def check(seed: int) -> str:
    """Run the program of a seed with both libraries and return the outcome."""
    try:
        program = generate(seed)
        program.checks = False
        case = case_of(program)
        expected = expected_of(case)
    except NO_RULE:
        return "no rule"
    if differs_on_purpose(case) or differs_for_operands(case):
        return "different"
    try:
        with jax.enable_x64(program.wide), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = jax.jit(program.function(NAMES))(*program.arguments)
            theirs = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(found)]
    except Exception as error:
        if any(text in str(error) for text in REFUSED):
            return "refused"
        raise AssertionError(f"seed {seed}: JAX raises {type(error).__name__}: {error}\n{program.text}") from error
    derived = is_derived(program)
    wrong = different(theirs, expected, derived)
    if wrong:
        wrong = different(theirs, varied(case, expected.results, VARIATIONS, replace(XLA, rounds=derived)), derived)
    assert not wrong, f"seed {seed} ({program.stages}): JAX has {wrong} of eval\n{program.text}"
    return "same"


def check_group(first: int) -> None:
    outcomes = [check(seed) for seed in range(first, first + TOGETHER)]
    # About half of the programs are left out by the tables, and some refused; of ten at least one can be compared.
    assert outcomes.count("same") >= 1, outcomes


@pytest.fixture(autouse=True)
def no_files() -> object:
    before = weft.config.compilation_cache
    weft.config.update("compilation_cache", False)
    yield
    weft.config.update("compilation_cache", before)


@pytest.mark.parametrize("group", range(GROUPS))
def test_programs(group: int, request: pytest.FixtureRequest) -> None:
    check_group(1000 * request.config.getoption("--seed") + TOGETHER * group)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS, ALL_GROUPS))
def test_many_programs(group: int, request: pytest.FixtureRequest) -> None:
    check_group(1000 * request.config.getoption("--seed") + TOGETHER * group)
