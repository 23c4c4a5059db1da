"""Types with placements: `infer_type` places results as the axis factors say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.laws.samples import Case, as_list, every_sample
from weft.base.errors import ShardingTypeError
from weft.ir.staged import infer_type, is_constant
from weft.ir.types import ArrayType
from weft.sharding import AbstractMesh, AxisType, ManualAxisType, NamedSharding, PartitionSpec
from weft.sharding.device import MemorySpace
from weft.sharding.factors import AxisFactors

MESH = AbstractMesh((1, 1), ("x", "y"), (AxisType.Explicit,) * 2)  # of size 1, so that any dimension can be split
V, U, R = (ManualAxisType(**{word: {"m"}}) for word in ("varying", "unreduced", "reduced"))


def factors_of(case: Case) -> AxisFactors | None:
    """Return the axis factors that types follow."""
    return case.primitive.explicit_factors(*case.types, **case.params)


def split(aval: ArrayType, names: Any, factor: str | None, dim: int | None = None) -> ArrayType:
    """Split a type over x along a factor, or one dimension."""
    entries = ["x" if (name == factor if dim is None else i == dim) else None for i, name in enumerate(names)]
    return aval.with_placement(sharding=NamedSharding(MESH, PartitionSpec(*entries)))


def staged(case: Case, types: Any) -> list[Any]:
    return as_list(case.primitive, infer_type(case.primitive, types, case.params))


def results(case: Case, state: ManualAxisType) -> list[Any]:
    """Return the types of results of operands in this state; communication changes it along its axes."""
    return [t.with_placement(manual=case.primitive.manual(state, case.params)) for t in case.result_types]


@every_sample()
def test_placement(case: Case) -> None:
    """The laws below, on one sample: the line of a failure says which of them does not hold."""
    check_plain_types_stay_plain(case)
    if case.primitive.types_placement:
        return
    factors = factors_of(case)
    check_dimensions_without_a_factor_are_whole(case, factors)
    if factors is not None:
        check_results_are_split_along_the_factors_of_operands(case, factors)
        check_operands_split_differently_are_refused(case, factors)
    if case.types:
        check_results_vary_where_an_operand_does(case)
        check_sums_wait_only_where_the_operation_is_linear(case)


def check_plain_types_stay_plain(case: Case) -> None:
    results = staged(case, case.types)
    assert all(a is b for a, b in zip(results, case.result_types, strict=True))
    assert all(t.is_plain for t in results)


def check_results_are_split_along_the_factors_of_operands(case: Case, factors: AxisFactors) -> None:
    for name in {n for names in factors.operands for n in names if n is not None}:
        types = [split(t, names, name) for t, names in zip(case.types, factors.operands, strict=True)]
        carriers = [i for i, names in enumerate(factors.operands) if name in names]
        if name in factors.combine and len(carriers) > 1:
            with pytest.raises(ShardingTypeError, match="sums over dimension"):
                staged(case, types)
            # One of them whole: the result is, too.
            types[carriers[0]] = case.types[carriers[0]]
        expected = [
            t if name in factors.combine else split(t, names, name)
            for t, names in zip(case.result_types, factors.results, strict=True)
        ]
        assert staged(case, types) == expected, f"split over {name} of {factors}"
        # An operand that is whole follows the others.
        for i in carriers if name not in factors.combine and len(carriers) > 1 else ():
            followed = [t.plain if i == j else t for j, t in enumerate(types)]
            if name in factors.alike:
                with pytest.raises(ShardingTypeError, match="the other is whole"):
                    staged(case, followed)
            else:
                assert staged(case, followed) == expected


def check_dimensions_without_a_factor_are_whole(case: Case, factors: AxisFactors | None) -> None:
    for i, t in enumerate(case.types):
        for dim in range(t.ndim):
            names = (None,) * t.ndim if factors is None else factors.operands[i]
            if names[dim] is not None:
                continue
            types = [split(u, names, None, dim) if i == j else u for j, u in enumerate(case.types)]
            with pytest.raises(ShardingTypeError, match=r"whole|is not said"):
                staged(case, types)


def check_operands_split_differently_are_refused(case: Case, factors: AxisFactors) -> None:
    for name in {n for names in factors.operands for n in names if n is not None}:
        carriers = [i for i, names in enumerate(factors.operands) if name in names]
        if len(carriers) < 2:
            continue
        types = [split(t, names, name) for t, names in zip(case.types, factors.operands, strict=True)]
        last = carriers[-1]
        entries = ["y" if n == name else None for n in factors.operands[last]]
        types[last] = case.types[last].with_placement(sharding=NamedSharding(MESH, PartitionSpec(*entries)))
        with pytest.raises(ShardingTypeError, match="belong together"):
            staged(case, types)


def check_results_vary_where_an_operand_does(case: Case) -> None:
    for i in range(len(case.types)):
        types = [t.with_placement(manual=V) if i == j else t for j, t in enumerate(case.types)]
        assert staged(case, types) == results(case, V)
    types = [t.with_placement(manual=R, memory_space=MemorySpace.Host) for t in case.types]
    assert staged(case, types) == [t.with_placement(memory_space=MemorySpace.Host) for t in results(case, R)]


def check_sums_wait_only_where_the_operation_is_linear(case: Case) -> None:
    primitive, types = case.primitive, case.types
    linear = set(primitive.linear_operands(types, case.params))
    for i in range(len(types)):
        alone = [t.with_placement(manual=U) if i == j else t for j, t in enumerate(types)]
        others = [j for j in range(len(types)) if j != i and not is_constant(types[j])]
        passes = i in linear and (not others if primitive.multilinear else linear == {i})
        if passes:
            assert staged(case, alone) == results(case, U)
        else:
            with pytest.raises(ShardingTypeError):
                staged(case, alone)
    if primitive.multilinear:
        types = [t.with_placement(manual=U if i == min(linear) else R) for i, t in enumerate(types)]
        assert staged(case, types) == results(case, U)
    elif linear:
        types = [t.with_placement(manual=U) if i in linear else t for i, t in enumerate(types)]
        assert staged(case, types) == results(case, U)
