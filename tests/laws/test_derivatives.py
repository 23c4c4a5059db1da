"""Laws of differentiation, on every sample of every primitive, in float64 against finite differences."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.laws import laws
from tests.laws.samples import Case, concrete, differentiable, every_sample, is_inexact
from weft.base.settings import enable_x64
from weft.ir.missing_rule import MissingRule
from weft.ir.types import get_aval
from weft.ir.zeros import Linear

pytestmark = pytest.mark.usefixtures("by_meaning")


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with enable_x64(True):
        yield


def smooth(case: Case) -> laws.Smooth:
    arrays, params = case.widened()
    return laws.Smooth(lambda *args: case.bind(*args, **params), arrays, case.tolerance)


@every_sample(differentiable)
def test_derivatives(case: Case, rng: np.random.Generator) -> None:
    """Forward mode is the derivative, reverse mode is its adjoint, and both may be differentiated again."""
    function = smooth(case)
    laws.check_jvp(function, rng)
    laws.check_adjoint(function, rng)
    laws.check_second_order(function, rng)
    laws.check_forward_over_reverse(function, rng)
    check_types(case, rng)
    if linear_operands(case) and not isinstance(case.primitive.transpose, MissingRule):
        check_transpose(case, rng)


def linear_operands(case: Case) -> list[int]:
    linear = case.primitive.linear
    numbers = range(len(case.types)) if linear == "all" else linear
    return [i for i in numbers if is_inexact(case.types[i].dtype)]


def check_transpose(case: Case, rng: np.random.Generator) -> None:
    """Check that the transpose is the adjoint: in each linear operand with the others held, and where linear jointly in
    every set of operands."""
    arrays, params = case.widened()
    linear = linear_operands(case)
    most = 1 if case.primitive.multilinear else len(linear)
    sets = [s for size in range(1, most + 1) for s in itertools.combinations(linear, size)]
    before = case.meaning(arrays, params)
    for moving in sets if len(sets) <= 15 else [*((i,) for i in linear), tuple(linear)]:
        tangents = {i: laws.random_like(rng, arrays[i]) for i in moving}
        after = case.meaning([a + tangents[i] if i in moving else a for i, a in enumerate(arrays)], params)
        cotangents = [concrete(laws.random_like(rng, r)) for r in before]

        def pull(*values: Any, moving: Any = moving) -> list[Any]:
            """Cotangents of the operands that move, from those of results and the operands."""
            cotangents, args = values[: len(before)], values[len(before) :]
            operands = [Linear(get_aval(a)) if i in moving else a for i, a in enumerate(args)]
            inputs = cotangents if case.primitive.multiple_results else cotangents[0]
            pulled = case.primitive.transpose(inputs, *operands, **params)
            assert len(pulled) == len(arrays)
            for i in moving:
                assert get_aval(pulled[i]).matches(operands[i].aval), (
                    f"cotangent {get_aval(pulled[i])} for operand {operands[i]}"
                )
            return [pulled[i] for i in moving]

        pulled = case.under_axes(pull, *cotangents, *map(concrete, arrays))
        changes = [a - b for a, b in zip(after, before, strict=True)]
        laws.assert_adjoint(cotangents, changes, pulled, list(tangents.values()), f"operands {moving}")


def check_types(case: Case, rng: np.random.Generator) -> None:
    """In the sample's own dtypes, tangents have the types of results and cotangents those of operands."""
    with enable_x64(False):
        function = laws.Smooth(case.bind, case.operands)
        point = [concrete(p) for p in function.point]
        tangents = [concrete(laws.random_like(rng, p)) for p in function.point]
        results, pushed = laws.jvp_flat(function, point, tangents)
        for result, tangent in zip(results, pushed, strict=True):
            assert tangent.aval.matches(result.aval), f"tangent {tangent.aval} of a result {result.aval}"
        _, program, live = laws.linearize_flat(function, point)
        cotangents = [concrete(laws.numbers(r)) for r, n in zip(results, live, strict=True) if n]
        for pulled, primal in zip(laws.backward_to_arrays(program, program.consts, cotangents), point, strict=True):
            assert pulled.aval.matches(primal.aval), f"cotangent {pulled.aval} of an operand {primal.aval}"
