"""Jaxprs and primitives under the names of `jax.extend.core`."""

from weft.api.user_primitive import UserPrimitive as Primitive
from weft.base.errors import InconclusiveDimensionOperation, JaxprTypeError
from weft.base.publish import publish as _publish
from weft.core import check_jaxpr, get_opaque_trace_state
from weft.extend.core import primitives
from weft.extend.core.jaxprs import (
    AbstractToken,
    CallPrimitive,
    ClosedJaxpr,
    DebugInfo,
    DropVar,
    Effect,
    Effects,
    Token,
    TraceTag,
    array_types,
    call_impl,
    concrete_or_error,
    find_top_trace,
    gensym,
    jaxpr_as_fun,
    jaxprs_in_params,
    mapped_aval,
    new_jaxpr_eqn,
    no_effects,
    nonempty_axis_env_DO_NOT_USE,
    primal_dtype_to_tangent_dtype,
    set_current_trace,
    subjaxprs,
    take_current_trace,
    unmapped_aval,
    unsafe_am_i_under_a_jit_DO_NOT_USE,
    unsafe_am_i_under_a_vmap_DO_NOT_USE,
    unsafe_get_axis_names_DO_NOT_USE,
    valid_jaxtype,
)
from weft.ir.jaxpr import Equation as JaxprEqn
from weft.ir.jaxpr import Jaxpr, Literal, Var

__all__ = [
    "AbstractToken",
    "CallPrimitive",
    "ClosedJaxpr",
    "DebugInfo",
    "DropVar",
    "Effect",
    "Effects",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "JaxprTypeError",
    "Literal",
    "Primitive",
    "Token",
    "TraceTag",
    "Var",
    "array_types",
    "call_impl",
    "check_jaxpr",
    "concrete_or_error",
    "find_top_trace",
    "gensym",
    "get_opaque_trace_state",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "mapped_aval",
    "new_jaxpr_eqn",
    "no_effects",
    "primitives",
    "nonempty_axis_env_DO_NOT_USE",
    "primal_dtype_to_tangent_dtype",
    "set_current_trace",
    "subjaxprs",
    "take_current_trace",
    "unmapped_aval",
    "unsafe_am_i_under_a_jit_DO_NOT_USE",
    "unsafe_am_i_under_a_vmap_DO_NOT_USE",
    "unsafe_get_axis_names_DO_NOT_USE",
    "valid_jaxtype",
]

_publish(__name__)
