"""Lowerings of primitives, under the names of `jax.interpreters.mlir`. There is no MLIR: a lowering is a function of
Weft's operations, which `lower_fun` says."""

from weft.api.user_primitive import lower_fun as lower_fun, register_lowering as register_lowering
from weft.base.publish import publish as _publish

_publish(__name__)
