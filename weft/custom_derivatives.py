"""Derivatives written by the user."""

from weft.api.custom import (
    CustomVJPPrimal,
    SymbolicZero,
    closure_convert,
    custom_gradient,
    custom_jvp,
    custom_vjp,
    zero_from_primal,
)
from weft.base.publish import publish as _publish

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "zero_from_primal",
]

_publish(__name__)
