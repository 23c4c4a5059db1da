"""Transformations that know of modules: each lifts one of Weft's over the variables and random keys of a scope."""

from weft.errors import suggest as _suggest
from weft.linen.transforms.calls import (
    add_metadata_axis,
    checkpoint,
    fold_rngs,
    jit,
    map_variables,
    remat,
    vmap,
)
from weft.linen.transforms.core import InstancePlaceholder, lift_transform
from weft.linen.transforms.derivatives import custom_vjp, grad, jvp, value_and_grad, vjp
from weft.linen.transforms.loops import broadcast, cond, remat_scan, scan, switch, while_loop
from weft.linen.transforms.names import disable_named_call, enable_named_call, named_call, override_named_call

__all__ = [
    "InstancePlaceholder",
    "add_metadata_axis",
    "broadcast",
    "checkpoint",
    "cond",
    "custom_vjp",
    "disable_named_call",
    "enable_named_call",
    "fold_rngs",
    "grad",
    "jit",
    "jvp",
    "lift_transform",
    "map_variables",
    "named_call",
    "override_named_call",
    "remat",
    "remat_scan",
    "scan",
    "switch",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]

_suggest(__name__)
