"""Contractions of two dtypes: libraries have calls for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.compiler.passes.decompose import with_definitions
from weft.compiler.target.cuda.library.composites import is_operation
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr
from weft.primitives.contraction.contract import dot_general
from weft.primitives.elementwise.convert import convert_element_type


def with_one_dtype(jaxpr: Jaxpr, target: Target) -> Jaxpr:
    """The jaxpr without contractions whose operands have floats of two dtypes."""
    if "cublasLt" not in target.libraries.present:
        return jaxpr
    return with_definitions(jaxpr, _definition)


def _definition(equation: Equation) -> Callable[..., Any] | None:
    if not is_operation(equation, "dot_general"):
        return None
    found = {a.aval.dtype for a in equation.invars}  # type: ignore[attr-defined]
    return _converted if len(found) == 2 and all(dtypes.kind(d) == "f" for d in found) else None


def _converted(lhs: Any, rhs: Any, **params: Any) -> Any:
    """The contraction of operands of the wider dtype, which has all numbers of the other one."""
    wide = max(lhs.dtype, rhs.dtype, key=lambda dtype: dtype.itemsize)
    operands = [x if x.dtype == wide else convert_element_type(x, new_dtype=wide, weak_type=False) for x in (lhs, rhs)]
    return dot_general(*operands, **params)
