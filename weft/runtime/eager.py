"""Compiled evaluation of single operations outside of programs, with the same bits as in programs.

NumPy computes what has one right answer (`Primitive.exact`): arithmetic, comparisons, data movement, integers. All else
is computed by the code that programs have: elementwise functions by one kernel for arrays of every length
(`compiler/flat.py`), sums, products of matrices, factorisations and the like by a program of one equation, compiled for
the shapes at hand. What both can compute, and there is much of it, is compiled too, because that is quicker.
`docs/design/eager.md` says what follows from this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.lazy import lazy
from weft.base.settings import overrides
from weft.compiler.kernel.names import ELEMENTWISE
from weft.ir.primitive import Params, Primitive
from weft.ir.types import ArrayType, Type, array_type
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import SumOfProducts
from weft.runtime.device import Placement
from weft.runtime.execute import flat_executable, get_equation_jaxpr, get_executable
from weft.runtime.execution_backend import execution_backend

if TYPE_CHECKING:
    from weft.compiler import compilation
else:
    compilation = lazy("weft.compiler.compilation")

# The least number of elements from which a map or a reduction is compiled for its size: by then it is often faster than
# NumPy by enough to pay for the compilation: 20 ms once, against 1 to 20 ms in each call. Shorter maps run code for
# any length.
LARGE = 1 << 18
# The least number of elements from which threads share a map of any length.
SHARED = 1 << 16

Run = Callable[[Sequence[Any]], list[Any]]


def native_run(
    primitive: Primitive, types: Sequence[Type], params: Params, results: Sequence[Type], placement: Placement
) -> Run | None:
    """Return a function that computes an operation by compiled code; None if NumPy should evaluate it.

    The function takes arrays of these types (or NumPy arrays of their storage) and returns results at a placement.
    """
    if primitive.higher_order or not all(isinstance(t, ArrayType) for t in (*types, *results)):
        return None
    size = max((math.prod(t.shape) for t in (*types, *results)), default=0)  # type: ignore[attr-defined]
    elementwise = isinstance(primitive, Elementwise)
    if isinstance(primitive, Elementwise) and not primitive.has_body(ELEMENTWISE):
        return None
    if primitive.exact(types, params) and not isinstance(primitive, SumOfProducts):
        if execution_backend(placement.device).prefers_numpy(primitive, size >= LARGE):
            return None
    if not elementwise or not primitive.one_kernel:  # type: ignore[attr-defined]
        return _program_run(primitive, types, types, params, results, placement)
    if size < LARGE and execution_backend(placement.device).has_flat_programs:
        return _flat_run(primitive, types, params, results, placement)
    flat = [_as_long(t, size) for t in types]
    return _program_run(primitive, types, flat, params, results, placement)


def _as_long(aval: Any, length: int) -> ArrayType:
    """Return the flattened type of an operand of an elementwise operation; scalars keep theirs."""
    return array_type((length,) if aval.shape else (), aval.dtype, aval.weak_type)


def _program_run(
    primitive: Primitive,
    types: Sequence[Any],
    shapes: Sequence[Any],
    params: Params,
    results: Sequence[Any],
    placement: Placement,
) -> Run:
    """Compile a program of one equation, whose operands have the types `shapes`."""
    # `evaluate` checks the results of eager operations itself, since it has their source line.
    with overrides(debug_nans=False, debug_infs=False, checks="off"):
        executable = get_executable(get_equation_jaxpr(primitive, shapes, params), device=placement.device)
    return execution_backend(placement.device).eager_call(executable, types, results, placement)


def _flat_run(
    primitive: Primitive, types: Sequence[Any], params: Params, results: Sequence[Any], placement: Placement
) -> Run:
    """Compile the kernel for arrays of any length."""
    scalar = not results[0].shape
    shapes = [array_type((compilation.FLAT_LENGTH,) if t.shape or scalar else (), t.dtype) for t in types]
    size = math.prod(results[0].shape)
    with overrides(debug_nans=False, debug_infs=False, checks="off"):
        executable = flat_executable(get_equation_jaxpr(primitive, shapes, params), size >= SHARED, placement.device)
    return execution_backend(placement.device).eager_call(executable, types, results, placement, size)
