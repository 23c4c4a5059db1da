"""Random programs: machine code, interpreters, threads, tiers, `jit` and checks agree (`docs/design/testing.md`)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.fuzz import campaign, nans
from tests.fuzz.campaign import check_seed
from tests.fuzz.checks import Mismatch, case_of, check_case, compare, same
from tests.fuzz.coverage import coverage_of
from tests.fuzz.feasible import possible_pairs, registered
from tests.fuzz.generator import Program, generate
from tests.fuzz.numbers import small_integers
from tests.fuzz.reference import MORE_VARIATIONS, Case, Expected, expected_of
from tests.fuzz.shrink import script, shrink, standalone
from tests.fuzz.table import BY_NAME, NEVER
from weft import lax
from weft.base import dtypes
from weft.errors import NonFiniteValueError
from weft.ir.parser import parse

TOGETHER = 25
FIXED_GROUPS, FRESH_GROUPS, ALL_GROUPS = 6, 6, 400


@pytest.fixture(autouse=True)
def no_files() -> Iterator[None]:
    """Disable files, which programs that run once do not need."""
    before = weft.config.compilation_cache
    weft.config.update("compilation_cache", False)
    yield
    weft.config.update("compilation_cache", before)


def check_group(first: int) -> None:
    """Judge some programs; a failure shows its seed, its text and what it was made small to."""
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + TOGETHER):
        result = check_seed(seed)
        outcomes[result.outcome] += 1
        if result.failed:
            pytest.fail(f"replay with: python -m tests.fuzz {seed}\n{result.message}\n{result.text}")
    assert outcomes["no rule"] <= TOGETHER / 4, f"too few programs can be judged: {dict(outcomes)}"


@pytest.mark.parametrize("group", range(FIXED_GROUPS))
def test_programs(group: int, request: pytest.FixtureRequest) -> None:
    check_group(first_of(group, request))


@pytest.mark.parametrize("group", range(FRESH_GROUPS))
def test_fresh_programs(group: int) -> None:
    """Check programs from `WEFT_FUZZ_SEED` on; the scheduled run of CI sets it to a new number."""
    check_group(int(os.environ["WEFT_FUZZ_SEED"]) + TOGETHER * group)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(FIXED_GROUPS, ALL_GROUPS))
def test_many_programs(group: int, request: pytest.FixtureRequest) -> None:
    check_group(first_of(group, request))


def first_of(group: int, request: pytest.FixtureRequest) -> int:
    return TOGETHER * ALL_GROUPS * request.config.getoption("--seed") + TOGETHER * group


# ------------------------------------------------------------------------------------------------------ the tools here


def test_every_primitive_is_generated_or_has_a_reason() -> None:
    for primitive in registered():
        assert (primitive.name in BY_NAME) != (primitive.name in NEVER), primitive.name


def test_a_seed_determines_the_program() -> None:
    for seed in range(5):
        first, second = generate(seed), generate(seed)
        assert standalone(first) == standalone(second)


def test_programs_cover_what_can_occur() -> None:
    """Few programs reach most primitives, and no pair that types rule out (`--coverage` has the whole report)."""
    found = coverage_of(range(150))
    assert not found.unexpected()
    assert len(found.primitives) > 140
    assert len(possible_pairs() & found.pairs.keys()) > 900


def with_product(seeds: range) -> Case:
    return next(c for c in (case_of(generate(seed)) for seed in seeds) if has_product(c) and len(c.jaxpr.eqns) > 20)


def has_product(case: Case) -> bool:
    return any(e.primitive.name == "mul" for e in case.jaxpr.eqns)


def test_failures_are_shrunk() -> None:
    """With "has a matmul" as the failure, shrinking leaves one matmul, and the text of the result parses."""
    small = shrink(with_product(range(200)), has_product)
    assert [e.primitive.name for e in small.jaxpr.eqns] == ["mul"]
    names: dict[str, object] = {}
    exec(script(small).replace("print(check_case(", "found = (").replace(")))", "))"), names)
    found = names["found"]
    assert isinstance(found, Case) and str(found.jaxpr) == str(small.jaxpr)
    assert [a.tobytes() for a in found.arrays] == [a.tobytes() for a in small.arrays]


def test_sums_that_depend_on_their_order_are_recognized() -> None:
    jaxpr = parse("{ lambda ; a:f32[4]. let b:f32[] = reduce_sum[axes=(0,)] a in (b,) }")
    for numbers, exact in (
        ([1, 2, 4, -8], True),
        ([0.5, 2, 4, -8], True),
        ([1e9, 1, 1, 1], False),
        ([0.1, 1, 1, 1], False),
    ):
        assert expected_of(Case(jaxpr, [np.array(numbers, np.float32)], (False,))).exact == exact


@pytest.mark.parametrize("terms", [(1e8, 3, -1e8), (1 / 3, 1 / 3, 1.3333334)], ids=["zero", "two"])
def test_sums_that_may_be_integers_are(terms: tuple[float, ...]) -> None:
    """In some order of the terms: a remainder by zero is nan, and next to multiples of a divisor it jumps."""
    jaxpr = parse("{ lambda ; a:f32[3] b:f32[]. let c:f32[] = reduce_sum[axes=(0,)] a d:f32[] = rem b c in (d,) }")
    case = Case(jaxpr, [np.array(terms, np.float32), np.array(2, np.float32)], (False, False))
    results = np.array([run[0] for run in expected_of(case, MORE_VARIATIONS).runs])
    special = np.isnan(results) if terms[0] > 1 else results == 0
    assert special.any() and not special.all()


def test_values_near_an_integer_may_be_one() -> None:
    """A difference of two functions is exact, but they are not: it may be zero, where the next function has a pole."""
    jaxpr = parse(
        "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = atan2 a a d:f32[3] = mul c 2.0:f32[] e:f32[3] = acos b"
        " f:f32[3] = sub e d g:f32[3] = lgamma f in (g,) }"
    )
    case = Case(jaxpr, [np.array([1, 2, 3], np.float32), np.array([0, 0, 0.5], np.float32)], (False, False))
    expected = expected_of(case, MORE_VARIATIONS)
    infinite = np.array([np.isinf(run[0]) for run in expected.runs])
    assert infinite[:, :2].any(0).all() and not infinite.all(0).any() and not infinite[:, 2].any()
    last = np.array([0, 0, 1e-3], np.float32)
    with pytest.raises(Mismatch, match=r"1 of 3 .* at \(2,\)"):
        compare([expected.results[0] + last], case, expected, "wrong")
    check_case(case)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_a_nan_is_known_by_its_bits(dtype: str) -> None:
    positive = np.array([np.nan, 1.0]).astype(dtypes.as_dtype(dtype))
    negative = -positive
    assert nans.is_new(positive, [positive]).tolist() == [False, False]
    assert nans.is_new(negative, [negative[:1]]).tolist() == [False, False]
    assert nans.is_new(negative, [positive, positive]).tolist() == [True, False]
    assert nans.is_new(negative, []).tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_bits_of_copied_nans_are_compared(dtype: str) -> None:
    """Which nan a quotient of zeros is, nobody says; one that is an argument stays what it is, or changes its sign."""
    bits = 32 if dtype == "f32" else 16
    cast = f"i{bits}[2] = bitcast_convert_type[new_dtype=int{bits}]"
    jaxpr = parse(
        f"{{ lambda ; a:{dtype}[2]. let b:{dtype}[2] = neg a c:{cast} b"
        f" d:{dtype}[2] = div a 0.0:{dtype}[] e:{cast} d in (c, e) }}"
    )
    case = Case(jaxpr, [np.array([np.nan, 0]).astype(dtypes.storage(jaxpr.invars[0].aval.dtype))], (False,))
    expected = expected_of(case)
    assert expected.exact
    moved, computed = expected.results
    for other in (-1, 1 - np.iinfo(computed.dtype).max):
        compare([moved, computed + computed.dtype.type(other)], case, expected, "")
    with pytest.raises(Mismatch):
        compare([moved + np.iinfo(moved.dtype).min, computed], case, expected, "")
    check_case(case)


def test_unspecified_orders_are_not_compared() -> None:
    """Products of large and small numbers may overflow in some order, so that those of several rows may be sorted."""
    jaxpr = parse(
        "{ lambda ; a:f32[2,2] b:i32[2]. let c:f32[2] = reduce_prod[axes=(1,)] a"
        " d:f32[2] e:i32[2] = sort[dimension=0 is_stable=True num_keys=1] c b in (e,) }"
    )
    arrays = [np.array([[3e38, 1e-30], [1e-30, 3e38]], np.float32), np.arange(2, dtype=np.int32)]
    runs = expected_of(Case(jaxpr, arrays, (False, False)), MORE_VARIATIONS).runs
    assert {tuple(run[0]) for run in runs} == {(0, 1), (1, 0)}


def test_checks_detect_wrong_results() -> None:
    """A unit beyond a budget, another sign of a zero, another bit where nothing may move."""
    jaxpr = parse("{ lambda ; a:f32[4]. let b:f32[4] = exp a c:f32[4] = neg a in (b, c) }")
    case = Case(jaxpr, [np.array([0.0, 1, 2, 3], np.float32)], (False,))
    check_case(case)
    expected = expected_of(case)
    first, second = expected.results
    compare([np.nextafter(first, np.float32(9)), second], case, Expected(expected.runs, False), "a unit")
    for wrong in (
        [first * np.float32(1.0001), second],
        [first, second * np.float32(1.0000001)],
        [first, np.abs(second)],
    ):
        with pytest.raises(Mismatch):
            compare(wrong, case, expected_of(case), "wrong")


def test_budgets_are_those_of_the_operands() -> None:
    """The magnitude of a complex number is a float that may be a unit off, though that of a float may not."""
    numbers = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    for dtype, operand in (("c64", numbers[0] + 1j * numbers[1]), ("f32", numbers[0])):
        jaxpr = parse(f"{{ lambda ; a:{dtype}[64]. let b:f32[64] = abs a in (b,) }}")
        assert check_case(Case(jaxpr, [operand], (False,))).exact == (dtype == "f32")


def test_infinite_matmuls_are_certain_for_real_numbers_only() -> None:
    """Where one part of a complex matmul is infinite, whether the other is nan is up to the library."""
    for dtype, name, certain in ((np.complex64, "c64", False), (np.float32, "f32", True)):
        params = f"dimension_numbers=(((1,), (0,)), ((), ())) precision=None preferred_element_type={np.dtype(dtype)}"
        jaxpr = parse(f"{{ lambda ; a:{name}[4,4]. let b:{name}[4,4] = dot_general[{params}] a a in (b,) }}")
        args = np.full((4, 4), 0.1, dtype)
        args[1, 2] = np.inf
        case = Case(jaxpr, [args], (False,))
        check_case(case)
        plain, *moved = expected_of(case).runs
        infinite = ~np.isfinite(np.abs(plain[0]))
        # The row and the column of the infinity; all others stay certain within their budget.
        assert infinite.sum() == 7 and all(np.isfinite(run[0][~infinite]).all() for run in moved)
        assert all(same(plain[0], run[0])[infinite].all() for run in moved) == certain


def test_matmuls_that_underflow_may_be_zeros_of_either_sign() -> None:
    """A product that is added to zero before it is rounded keeps its sign; NumPy rounds it first."""
    params = "dimension_numbers=(((1,), (0,)), ((), ())) precision=None preferred_element_type=float32"
    jaxpr = parse(f"{{ lambda ; a:f32[1,1] b:f32[1,1]. let c:f32[1,1] = dot_general[{params}] a b in (c,) }}")
    for factor, exact in ((-4.4e-39, False), (-1.0, True)):
        arrays = [np.full((1, 1), factor, np.float32), np.full((1, 1), 5.5e-39, np.float32)]
        assert check_case(Case(jaxpr, arrays, (False, False))).exact == exact


def test_checks_of_one_program_are_not_those_of_the_next() -> None:
    """Code of single equations, which evaluation uses for matrix functions, outlives the settings of a program."""
    jaxpr = parse("{ lambda ; a:f32[3,3]. let b:f32[3,3] = cholesky a in (b,) }")
    case = Case(jaxpr, [-np.eye(3, dtype=np.float32)], (False,))
    for _ in range(2):
        with weft.checks("all"), pytest.raises(NonFiniteValueError, match="`cholesky`"):
            expected_of(case)
        assert np.isnan(expected_of(case).results[0]).any()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_derivatives_that_cancel(dtype: str) -> None:
    """Derivatives of `igamma` in its first argument have the digits of their terms; a wrong one is still seen."""
    numbers = np.array([1.6839579570466618, 0.36493728398183, 1.2e-4, 0.906361416214704, 2.5908690549275653, 181.6])
    operand = numbers.astype({"f32": np.float32, "f64": np.float64}[dtype])
    text = f"b:{dtype}[6] = igamma_derivative[order=2] a a  c:{dtype}[6] = igamma_grad_a a a"
    case = Case(parse(f"{{ lambda ; a:{dtype}[6]. let {text} in (b, c) }}"), [operand], (False,), dtype == "f64")
    check_case(case)
    expected = expected_of(case)
    wrong = [r * r.dtype.type(1 + 1e-4 * (dtype == "f32") + 1e-9) for r in expected.results]
    with pytest.raises(Mismatch):
        compare(wrong, case, expected, "wrong")


def test_small_integers_have_zeros_of_both_signs() -> None:
    found = small_integers(np.random.default_rng(0), (200,), np.float32)
    assert set(np.signbit(found[found == 0])) == {True, False}


def test_programs_run_on_their_own() -> None:
    """The printed text is a whole Python program."""
    program: Program = next(p for p in map(generate, range(50)) if p.stages == ("plain",) and not p.checks)
    before = weft.config.enable_x64, weft.config.checks
    try:
        exec(standalone(program), {})
    finally:
        weft.config.update("enable_x64", before[0])
        weft.config.update("checks", before[1])


def test_a_program_whose_loop_does_not_end_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(n: Any) -> Any:
        return lax.while_loop(lambda i: i < 2**31 - 1, lambda i: i + 1, n)

    endless = Case(weft.make_jaxpr(counts)(np.int32(0)), [np.array(0, np.int32)], (False,))
    monkeypatch.setattr(campaign, "case_of", lambda program: endless)
    seed = next(n for n in range(50) if not generate(n).checks)
    assert check_seed(seed).outcome == "too long"
