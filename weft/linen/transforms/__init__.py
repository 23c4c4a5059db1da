"""Transformations of modules: each lifts one of Weft's over the variables and random keys of a scope."""

from weft.errors import suggest as _suggest
from weft.linen.transforms.calls import (
    add_metadata_axis as add_metadata_axis,
    checkpoint as checkpoint,
    fold_rngs as fold_rngs,
    jit as jit,
    map_variables as map_variables,
    remat as remat,
    vmap as vmap,
)
from weft.linen.transforms.core import InstancePlaceholder as InstancePlaceholder, lift_transform as lift_transform
from weft.linen.transforms.derivatives import (
    custom_vjp as custom_vjp,
    grad as grad,
    jvp as jvp,
    value_and_grad as value_and_grad,
    vjp as vjp,
)
from weft.linen.transforms.loops import (
    broadcast as broadcast,
    cond as cond,
    remat_scan as remat_scan,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from weft.linen.transforms.names import (
    disable_named_call as disable_named_call,
    enable_named_call as enable_named_call,
    named_call as named_call,
    override_named_call as override_named_call,
)

_suggest(__name__)
