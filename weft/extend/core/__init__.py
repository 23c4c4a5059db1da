"""Jaxprs and primitives under the names of `jax.extend.core`."""

from weft.api.user_primitive import UserPrimitive as _UserPrimitive
from weft.base.errors import (
    InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    JaxprTypeError as JaxprTypeError,
)
from weft.base.publish import publish as _publish
from weft.core import check_jaxpr as check_jaxpr, get_opaque_trace_state as get_opaque_trace_state
from weft.extend.core import primitives as primitives
from weft.extend.core.jaxprs import (
    AbstractToken as AbstractToken,
    CallPrimitive as CallPrimitive,
    ClosedJaxpr as ClosedJaxpr,
    DebugInfo as DebugInfo,
    DropVar as DropVar,
    Effect as Effect,
    Effects as Effects,
    Token as Token,
    TraceTag as TraceTag,
    array_types as array_types,
    call_impl as call_impl,
    concrete_or_error as concrete_or_error,
    find_top_trace as find_top_trace,
    gensym as gensym,
    jaxpr_as_fun as jaxpr_as_fun,
    jaxprs_in_params as jaxprs_in_params,
    mapped_aval as mapped_aval,
    new_jaxpr_eqn as new_jaxpr_eqn,
    no_effects as no_effects,
    nonempty_axis_env_DO_NOT_USE as nonempty_axis_env_DO_NOT_USE,
    primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype,
    set_current_trace as set_current_trace,
    subjaxprs as subjaxprs,
    take_current_trace as take_current_trace,
    unmapped_aval as unmapped_aval,
    unsafe_am_i_under_a_jit_DO_NOT_USE as unsafe_am_i_under_a_jit_DO_NOT_USE,
    unsafe_am_i_under_a_vmap_DO_NOT_USE as unsafe_am_i_under_a_vmap_DO_NOT_USE,
    unsafe_get_axis_names_DO_NOT_USE as unsafe_get_axis_names_DO_NOT_USE,
    valid_jaxtype as valid_jaxtype,
)
from weft.ir.jaxpr import Equation as _Equation, Jaxpr as Jaxpr, Literal as Literal, Var as Var

Primitive = _UserPrimitive
JaxprEqn = _Equation

_publish(__name__)
