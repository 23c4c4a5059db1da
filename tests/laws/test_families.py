"""Law of symbolic sizes: with a symbol for a size, the program of every sample has the bits that it has without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.laws.laws import assert_close
from tests.laws.samples import Case
from tests.laws.test_compiled import GROUPS, merged
from tests.laws.test_meaning import SIZE_PARAMETERS, sizes_of
from weft.base.errors import InconclusiveDimensionOperation
from weft.base.settings import enable_checks
from weft.indexing.dimension import symbol
from weft.indexing.expression import Symbol
from weft.ir.at_sizes import AtSizes, JaxprAtSizes
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.types import array_type
from weft.runtime.execute import get_executable

# Of the groups of samples, every so manieth is compiled in quick runs.
QUICK = 8
# Matrices of known sizes that are small have kernels of their own; those of symbolic sizes go to a library.
BY_LIBRARY = ("triangular_solve", "lu", "linear_solve")


def with_symbols(case: Case, n: int, less: int = 0, times: int = 1) -> tuple[Equation, dict[Symbol, int]]:
    """Return the equation of a sample with a symbol, times a number and less a number, for the greatest of its sizes
    that may be one; unchanged if none may. The subtracted number is for sizes of 1, which occur for some values of the
    symbol only."""
    unknown = symbol(f"s{n}", 2)
    for size in [1] if less else [d for d in reversed(sizes_of(case)) if d % times == 0 and d >= 2 * times]:
        value = size // times + less
        for dimension, parameters in [(times * unknown - less, False), (times * unknown - less, True)]:
            params = dict(case.params)
            replaced = lambda shape, d=dimension, s=size: tuple(d if x == s else x for x in shape)
            for name in SIZE_PARAMETERS if parameters else ():
                if isinstance(params.get(name), tuple):
                    params[name] = replaced(params[name])
            types = [array_type(replaced(t.shape), t.dtype, t.weak_type) for t in case.types]
            try:
                out = case.primitive.type(*types, **params)
            except (InconclusiveDimensionOperation, ValueError, TypeError):
                continue
            results = list(out) if case.primitive.multiple_results else [out]
            at = AtSizes({unknown: value})
            if [at.type(t) for t in results] == list(case.result_types):
                operands = [Var(t) for t in types]
                effects = case.primitive.effects(types, params)
                equation = Equation(operands, [Var(t) for t in results], case.primitive, params, effects)
                return equation, {unknown: value}
    operands, effects = [Var(t) for t in case.types], case.primitive.effects(case.types, case.params)
    return Equation(operands, [Var(t) for t in case.result_types], case.primitive, case.params, effects), {}


def marked(n: int, name: str, cases: list[Case]) -> Any:
    return pytest.param(cases, id=name, marks=() if n % QUICK == 0 else pytest.mark.slow)


@pytest.mark.parametrize("group", [marked(n, name, cases) for n, (name, cases) in enumerate(GROUPS)])
def test_symbolic_programs_have_the_bits_of_concrete_ones(group: list[Case]) -> None:
    if not check(group, 0):
        pytest.skip("no size of these samples may be a symbol")


def test_expressions_that_are_one_have_the_bits_of_ones() -> None:
    # Each by itself: where one sample needs to know its sizes, programs of several are compiled for each size.
    cases = [case for _, group in GROUPS for case in group if any(1 in t.shape for t in case.types)]
    assert sum(check([case], 1) for case in cases) > 10


@pytest.mark.parametrize("group", [marked(n, name, cases) for n, (name, cases) in enumerate(GROUPS)])
def test_even_sizes_have_the_bits_of_concrete_ones(group: list[Case]) -> None:
    """What is left of them by a power of two is known, or has fewer values."""
    if not check(group, 0, 2):
        pytest.skip("no size of these samples may be twice a symbol")


def check(group: list[Case], less: int, times: int = 1) -> bool:
    """Compare a program of samples with and without symbols, if a size of them may be a symbol."""
    sizes: dict[Symbol, int] = {}
    equations = []
    for n, case in enumerate(group):
        equation, own = with_symbols(case, n, less, times)
        equations.append(equation)
        sizes |= own
    if not sizes:
        return False
    invars = [v for e in equations for v in e.invars]
    general = Jaxpr((), invars, [v for e in equations for v in e.outvars], equations)
    arrays = [a for case in group for a in case.arrays]
    with enable_checks(True):  # no access is out of bounds, even if bits are right
        results = get_executable(JaxprAtSizes(general, sizes))(arrays)
    expected = get_executable(merged(group))(arrays)
    owners = [case for case in group for _ in case.result_types]
    for case, a, b in zip(owners, results, expected, strict=True):
        assert a.aval.matches(b.aval), case
        if case.primitive.name in BY_LIBRARY:
            assert_close(a, b._value, case.tolerance, str(case))
            continue
        assert np.asarray(a._value).tobytes() == np.asarray(b._value).tobytes(), case
    return True
