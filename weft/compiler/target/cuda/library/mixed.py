"""Contractions of dtypes that libraries do not support, computed in wider dtypes that represent all their numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from weft.base import dtypes
from weft.compiler.passes.decompose import with_definitions
from weft.compiler.target.cuda.library.composites import is_operation
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr
from weft.primitives.contraction.contract import dot_general, matmul_sizes, suits_library
from weft.primitives.elementwise.convert import convert_element_type

_BYTE = 8  # bits


def with_one_dtype(jaxpr: Jaxpr, target: Target) -> Jaxpr:
    """Rewrite contractions whose operands are floats of two dtypes, or unsupported 8-bit floats."""
    if "cublasLt" not in target.libraries.present:
        return jaxpr
    return with_definitions(jaxpr, lambda equation: _definition(equation, target))


def _definition(equation: Equation, target: Target) -> Callable[..., Any] | None:
    if not is_operation(equation, "dot_general"):
        return None
    lhs, rhs, out = (a.aval.dtype for a in (*equation.invars, *equation.outvars))  # type: ignore[attr-defined]
    if dtypes.kind(lhs) != "f" or dtypes.kind(rhs) != "f":
        return None
    wide = _common(lhs, rhs)
    if lhs == rhs == wide:
        return None
    if lhs == rhs:
        # Of eight bits: by a call for these, or by one for wider ones if there is one that is worth it.
        m, n, k = matmul_sizes(equation)
        has_call = (wide, out) in target.libraries.contraction_dtypes
        if suits_library(equation, target) or not has_call or m * n * k < target.libraries.contraction_size:
            return None
    return partial(_contract_as, wide)


def _common(lhs: Any, rhs: Any) -> Any:
    """Return the shortest supported dtype that represents all numbers of both."""
    bits = sorted((dtypes.itemsize_bits(dtype), dtypes.name(dtype)) for dtype in (lhs, rhs))
    if bits[1][0] <= _BYTE:
        return dtypes.bfloat16
    return dtypes.float32 if bits[0][0] == bits[1][0] and lhs != rhs else dtypes.as_dtype(bits[1][1])


def _contract_as(wide: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    """Contract operands after converting them to another dtype."""
    operands = [x if x.dtype == wide else convert_element_type(x, new_dtype=wide, weak_type=False) for x in (lhs, rhs)]
    return dot_general(*operands, **params)
