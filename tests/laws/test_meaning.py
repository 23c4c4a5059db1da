"""Laws that relate the `eval` of a primitive to its types, axis factors and emission."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.laws.laws import assert_close
from tests.laws.numpy_builder import NumpyBuilder
from tests.laws.samples import (
    BROKEN,
    WITHOUT_SAMPLES,
    Case,
    as_list,
    every_sample,
    may_have_no_samples,
)
from weft.base import dtypes
from weft.base.errors import InconclusiveDimensionOperation
from weft.indexing import index_map
from weft.indexing.dimension import Symbol, substitute_shape, symbol
from weft.ir.primitive import lookup
from weft.ir.types import ArrayType, array_type
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import Indexing, Reduction

# -------------------------------------------------------------------------------------------------------------- samples


def test_modules_import() -> None:
    if BROKEN:
        raise ExceptionGroup(f"modules that cannot be imported: {', '.join(BROKEN)}", list(BROKEN.values()))


def test_primitives_have_samples() -> None:
    errors = [f"samples of {name} raised {error!r}" for name, error in WITHOUT_SAMPLES.items() if error is not None]
    assert not errors, "\n".join(errors)
    silent = [name for name in WITHOUT_SAMPLES if not may_have_no_samples(lookup(name))]
    assert not silent, f"no law is checked on {', '.join(silent)}: there are no samples"


@every_sample()
def test_meaning(case: Case) -> None:
    """The laws below that a sample of its kind obeys: the line of a failure says which of them does not hold."""
    check_type_is_that_of_eval(case)
    if not case.environment:
        check_memory_order_does_not_matter(case)
    check_factors_fit_types(case)
    if isinstance(case.primitive, Indexing) and type(case.primitive).sources is not Indexing.sources:
        check_sources_match_eval(case)
    if isinstance(case.primitive, Elementwise):
        check_emit_matches_eval(case)
    if isinstance(case.primitive, Reduction) and not case.primitive.multiple_results:
        check_combine_reduces_to_eval(case)


# ---------------------------------------------------------------------------------------------------------------- types


def check_type_is_that_of_eval(case: Case) -> None:
    assert len(case.results) == len(case.result_types)
    for array, aval in zip(case.results, case.result_types, strict=True):
        assert array.shape == aval.shape
        assert array.dtype == dtypes.storage(aval.dtype)


SIZE_PARAMETERS = ("limit_indices", "new_sizes", "shape", "sizes", "slice_sizes")


def with_symbol(case: Case, size: int, dimension: Symbol, parameters: bool) -> list[ArrayType]:
    """Return result types with one size of the operands (and of parameters that are shapes) replaced by a symbol."""

    def replaced(shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dimension if d == size else d for d in shape)

    params = dict(case.params)
    for name in SIZE_PARAMETERS if parameters else ():
        if isinstance(params.get(name), tuple):
            params[name] = replaced(params[name])
    types = [array_type(replaced(t.shape), t.dtype, t.weak_type) for t in case.types]
    return as_list(case.primitive, case.primitive.type(*types, **params))


def sizes_of(case: Case) -> list[int]:
    return sorted({d for t in case.types for d in t.shape if d > 1})


@every_sample(lambda case: bool(sizes_of(case)))
def test_symbolic_equals_concrete(case: Case) -> None:
    """The type with a symbol for a size, and then the size for the symbol, is the type.

    A rule may refuse a symbol where the answer depends on its value, or where parameters fix the size; never so for
    elementwise operations and reductions. A sample that refuses every symbol counts as skipped.
    """
    accepted, refused = 0, []
    for size in sizes_of(case):
        for dimension, parameters in [(symbol("b"), False), (symbol("b"), True), (symbol("b", size), True)]:
            try:
                result = with_symbol(case, size, dimension, parameters)
            except (InconclusiveDimensionOperation, ValueError, TypeError) as error:
                refused.append(error)
                continue
            accepted += 1
            for aval, expected in zip(result, case.result_types, strict=True):
                assert substitute_shape(aval.shape, {dimension: size}) == expected.shape
                assert (aval.dtype, aval.weak_type) == (expected.dtype, expected.weak_type)
            break
    if not accepted:
        assert not isinstance(case.primitive, (Elementwise, Reduction)), f"refused: {refused[-1]}"
        pytest.skip(f"every symbol is refused: {refused[-1]}")


def check_memory_order_does_not_matter(case: Case) -> None:
    """Results of eager operations may be views of others: their elements are in any order in memory."""
    arrays = [np.asfortranarray(a) if np.ndim(a) > 1 else a for a in case.arrays]
    if any(a is not b for a, b in zip(arrays, case.arrays, strict=True)):
        found = as_list(case.primitive, case.primitive.eval(*arrays, **case.params))
        for i, (a, b) in enumerate(zip(found, case.results, strict=True)):
            assert_close(a, b, case.tolerance, f"result {i} of operands in another order in memory")


# ------------------------------------------------------------------------------------------------------------- sharding


def check_factors_fit_types(case: Case) -> None:
    """There is a factor, or None, for each dimension, and the dimensions of a factor have one size or a common part."""
    factors = case.primitive.factors(*case.types, **case.params)
    if factors is None:
        return
    sizes: dict[str, set[int]] = {}
    pairs = [*zip(factors.operands, case.types, strict=True), *zip(factors.results, case.result_types, strict=True)]
    for names, t in pairs:
        assert len(names) == t.ndim, f"{len(names)} factors for {t}"
        for name, size in zip(names, t.shape, strict=True):
            if name is not None:
                sizes.setdefault(name, set()).add(size)
    results = {name for names in factors.results for name in names}
    for name, found in sizes.items():
        if name in factors.sizes:
            assert all(size % factors.sizes[name] == 0 for size in found), f"factor {name} has sizes {found}"
        elif name not in factors.inside:
            assert len(found) == 1, f"factor {name} has sizes {found}"
        assert name in results or name in factors.combine or name in factors.inside, (
            f"factor {name} is not in the results, and nothing says how parts are combined"
        )


# ------------------------------------------------------------------------------------------------------------- emission


def check_sources_match_eval(case: Case) -> None:
    found = case.primitive.sources(*case.types, **case.params)  # type: ignore[attr-defined]
    sources = [s if isinstance(s, index_map.Source) else index_map.source(*s) for s in found]
    used = sorted({s.operand for s in sources})
    operands = [case.arrays[i] for i in used]
    renumbered = [s._replace(operand=used.index(s.operand)) for s in sources]
    read = index_map.read(case.result_types[0].shape, renumbered, operands)
    assert_close(read, case.results[0], 0.0)


def check_emit_matches_eval(case: Case) -> None:
    """Check the emission with a builder of NumPy arrays, if it knows all emitted operations."""
    try:
        with np.errstate(all="ignore"):
            out = case.primitive.emit(NumpyBuilder(), *case.arrays, **case.params)  # type: ignore[attr-defined]
    except NumpyBuilder.Unknown:
        return
    for result, expected in zip(as_list(case.primitive, out), case.results, strict=True):
        rounded = np.broadcast_to(np.asarray(result), expected.shape)
        assert_close(rounded, expected, case.tolerance)


def check_combine_reduces_to_eval(case: Case) -> None:
    """Check that combining elements one by one, from the identity element, computes the reduction."""
    reduction: Any = case.primitive
    axes = case.params["axes"]
    array = case.arrays[0]
    front = np.moveaxis(array, axes, range(len(axes))) if axes else array[None]
    rows = (
        front.reshape(-1, *case.results[0].shape) if array.size else np.zeros((0, *case.results[0].shape), array.dtype)
    )
    wider = dtypes.accumulation_dtype(array.dtype) if dtypes.kind(array.dtype) in "fc" else array.dtype
    # Of nothing it is the result, and so a number of the dtype: the greatest float8 may be 448.
    start = np.asarray(reduction.initial(wider if len(rows) else array.dtype)).astype(wider)
    total = np.broadcast_to(start, case.results[0].shape)
    for row in rows:
        total = reduction.combine(NumpyBuilder(), total, row.astype(wider))
    assert_close(np.asarray(total).astype(array.dtype), case.results[0], case.tolerance)
