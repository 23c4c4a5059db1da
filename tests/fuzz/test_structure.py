"""Random programs on whole numbers: machine code, interpreters, threads and tiers all give the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import weft
from tests.fuzz.checks import Case, case_of, check_case, check_jit, expected_of
from tests.fuzz.generator import TRANSFORMATIONS, Program, generate
from tests.fuzz.shrink import fails, script, shrink
from weft.errors import MissingRuleError
from weft.ir.jaxpr import Equation
from weft.ir.parser import parse

TOGETHER = 25
GROUPS = 16
ALL_GROUPS = 400
# Every so many programs are run in all ways: threads, tiers, interpreters of programs and kernels, and by `jit`.
THOROUGH = 5


@pytest.fixture(autouse=True)
def no_files() -> Iterator[None]:
    """Programs that nobody runs again are not worth files."""
    before = weft.config.compilation_cache
    weft.config.update("compilation_cache", False)
    yield
    weft.config.update("compilation_cache", before)


def traced(program: Program) -> Case | None:
    """The program, or None where it has no derivative."""
    try:
        return case_of(program)
    except MissingRuleError:
        return None


def check_seed(seed: int) -> str:
    """Check the program of a seed; a failure is made small and shown as a script."""
    program = generate(seed)
    case = traced(program)
    if case is None:
        return "no rule"
    thorough = seed % THOROUGH == 0
    try:
        outcome = check_case(case, thorough)
        if thorough:
            check_jit(program)
        return outcome
    except Exception as error:
        smaller = (traced(generate(seed, most)) for most in (2, 3, 5, 9))
        found = next((c for c in smaller if c is not None and fails(c)), case)
        text = script(shrink(found)) if fails(found) else f"python -m tests.fuzz {seed}"
        pytest.fail(f"seed {seed} ({program.transformation}): {error}\n{text}")


def check_group(group: int, base: int) -> None:
    first = 100_000 * base + TOGETHER * group
    outcomes = [check_seed(seed) for seed in range(first, first + TOGETHER)]
    assert outcomes.count("exact") >= TOGETHER * 0.6, f"too few programs can be compared: {outcomes}"


@pytest.mark.parametrize("group", range(GROUPS))
def test_programs(group: int, request: pytest.FixtureRequest) -> None:
    check_group(group, request.config.getoption("--seed"))


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS, ALL_GROUPS))
def test_many_programs(group: int, request: pytest.FixtureRequest) -> None:
    check_group(group, request.config.getoption("--seed"))


# ------------------------------------------------------------------------------------------------------ the tools here


def test_a_seed_is_a_program() -> None:
    for seed in range(5):
        first, second = case_of(generate(seed)), case_of(generate(seed))
        assert str(first.jaxpr) == str(second.jaxpr)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(first.arrays, second.arrays, strict=True))


def test_all_transformations_are_drawn() -> None:
    assert {generate(seed).transformation for seed in range(60)} == set(TRANSFORMATIONS)


def has_product(case: Case) -> bool:
    return any(e.primitive.name == "mul" for e in case.jaxpr.eqns)


def test_a_failure_becomes_small() -> None:
    """With "has a product" for a failure, what is left is one product, and its text gives the program back."""
    seeds = (case_of(generate(seed)) for seed in range(200))
    case = next(c for c in seeds if has_product(c) and len(c.jaxpr.eqns) > 20)
    small = shrink(case, has_product)
    assert [e.primitive.name for e in small.jaxpr.eqns] == ["mul"]
    names: dict[str, object] = {}
    exec(script(small).replace("print(check_case(", "found = (").replace(")))", "))"), names)
    found = names["found"]
    assert isinstance(found, Case) and str(found.jaxpr) == str(small.jaxpr)
    assert [a.tobytes() for a in found.arrays] == [a.tobytes() for a in small.arrays]


def test_sums_that_depend_on_their_order_are_seen() -> None:
    program = parse("{ lambda ; a:f32[4]. let b:f32[] = reduce_sum[axes=(0,)] a in (b,) }")
    assert isinstance(program.eqns[0], Equation)
    assert expected_of(Case(program, [np.array([1, 2, 4, -8], np.float32)], (False,))).exact
    assert expected_of(Case(program, [np.array([0.5, 2, 4, -8], np.float32)], (False,))).exact
    assert not expected_of(Case(program, [np.array([1e9, 1, 1, 1], np.float32)], (False,))).exact
    assert not expected_of(Case(program, [np.array([0.1, 1, 1, 1], np.float32)], (False,))).exact
