"""Derivatives written by the user."""

from weft.api.custom import (
    CustomVJPPrimal as CustomVJPPrimal,
    SymbolicZero as SymbolicZero,
    closure_convert as closure_convert,
    custom_gradient as custom_gradient,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
    custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
    zero_from_primal as zero_from_primal,
)
from weft.api.linear_call import linear_call as linear_call
from weft.base.publish import publish as _publish
from weft.primitives.control.custom import custom_jvp_call as _custom_jvp_call, custom_vjp_call as _custom_vjp_call

custom_jvp_call_p = _custom_jvp_call
custom_vjp_call_p = _custom_vjp_call

_publish(__name__)
