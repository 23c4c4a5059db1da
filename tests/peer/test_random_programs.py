"""Random programs of `tests/fuzz` with JAX: the same text over JAX's modules gives the same results.

They are compared with `eval` and the budgets of the cards, as compiled code is (`docs/design/testing.md`), with wider
factors, since XLA has functions of its own and sums in its own orders. REFUSED and DIFFERENT are where the libraries
differ on purpose or by what JAX cannot do.
"""

from __future__ import annotations

import warnings

import jax
import jax.experimental
import numpy as np
import pytest

import tests.peer.compare  # JAX compiles quickly, and shares what it compiled  # noqa: F401
import weft
from tests.fuzz.checks import case_of, first_difference
from tests.fuzz.coverage import Coverage
from tests.fuzz.draw import namespace
from tests.fuzz.generator import NO_RULE, generate
from tests.fuzz.reference import Case, Expected, expected_of

TOGETHER = 10
GROUPS, ALL_GROUPS = 5, 60
NAMES = namespace("jax")
# What results that move within budgets may be off, as a multiple of how far they move.
FACTOR, VARIATIONS = 64.0, 16

# Parts of the message with which JAX refuses a program that Weft runs.
REFUSED = {
    "Reverse-mode differentiation does not work for lax.while_loop": "Weft has tapes for loops of unknown length",
    "Differentiation rule for 'igamma_grad_a' not implemented": "Weft has its derivatives of all orders",
    "Differentiation rule for 'zeta' not implemented": "Weft has the derivative in q",
    "select cases must have the same shapes": "a batched scalar predicate beside whole arrays; JAX's own rule fails",
    "jax._src.ad_util.Zero": "a symbolic zero reaches one of JAX's own rules",
    "logical reduction requires operand dtype bool or int": "JAX has no such reductions of int4",
    "not implemented": "JAX has no rule or no kernel for some dtypes and derivatives",
    "not supported": "JAX has no rule or no kernel for some dtypes and derivatives",
    "Unimplemented": "XLA has no kernel for some dtypes",
    "UNIMPLEMENTED": "XLA has no kernel for some dtypes",
}
# Primitives whose results are not the same in JAX on some operands: programs with them are left to the other judges.
DIFFERENT: dict[str, str] = {}


def differs_on_purpose(case: Case) -> bool:
    met = Coverage()
    met.add(case.jaxpr, ())
    return any(met.primitives[name] for name in DIFFERENT)


def check(seed: int) -> str:
    """Run the program of a seed with both libraries; gives what came of it."""
    program = generate(seed)
    program.checks = False
    try:
        case = case_of(program)
        expected = expected_of(case)
    except NO_RULE:
        return "no rule"
    if differs_on_purpose(case):
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
    wrong = first_difference(theirs, expected, FACTOR)
    if wrong and not expected.exact:
        wrong = first_difference(theirs, Expected(expected_of(case, VARIATIONS).runs, False), FACTOR)
    assert not wrong, f"seed {seed} ({program.stages}): JAX has {wrong} of eval\n{program.text}"
    return "same"


def check_group(first: int) -> None:
    outcomes = [check(seed) for seed in range(first, first + TOGETHER)]
    assert outcomes.count("same") >= TOGETHER * 0.4, outcomes


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
