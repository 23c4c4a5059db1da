"""Mixed precision: policies of dtypes, and the optimizer that scales losses."""

from weft.errors import publish as _publish
from weft.keras.core.policy import (
    DTypePolicy as DTypePolicy,
    dtype_policy as dtype_policy,
    set_dtype_policy as set_dtype_policy,
)
from weft.keras.optimizers.loss_scale import LossScaleOptimizer as LossScaleOptimizer

Policy = DTypePolicy
global_policy = dtype_policy
set_global_policy = set_dtype_policy


_publish(__name__)
