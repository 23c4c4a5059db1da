"""Mixed precision: policies of dtypes, and the optimizer that scales losses."""

from weft.errors import publish as _publish
from weft.keras.core.policy import DTypePolicy, dtype_policy, set_dtype_policy
from weft.keras.optimizers.loss_scale import LossScaleOptimizer

Policy = DTypePolicy
global_policy = dtype_policy
set_global_policy = set_dtype_policy

__all__ = [
    "DTypePolicy",
    "LossScaleOptimizer",
    "Policy",
    "dtype_policy",
    "global_policy",
    "set_dtype_policy",
    "set_global_policy",
]

_publish(__name__)
