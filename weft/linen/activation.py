"""Activation functions; `PReLU` is the only one with a parameter."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft.errors import suggest as _suggest
from weft.linen.methods import compact
from weft.linen.module import Module
from weft.nn import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_swish as hard_swish,
    hard_tanh as hard_tanh,
    leaky_relu as leaky_relu,
    log_sigmoid as log_sigmoid,
    log_softmax as log_softmax,
    logsumexp as logsumexp,
    one_hot as one_hot,
    relu as relu,
    relu6 as relu6,
    selu as selu,
    sigmoid as sigmoid,
    silu as silu,
    soft_sign as soft_sign,
    softmax as softmax,
    softplus as softplus,
    standardize as standardize,
    swish as swish,
    tanh as tanh,
)

normalize = standardize


class PReLU(Module):
    """x for x ≥ 0, else x times a learned parameter."""

    param_dtype: Any = wnp.float32
    negative_slope_init: float = 0.01

    @compact
    def __call__(self, inputs: Any) -> Any:
        alpha = self.param("negative_slope", lambda key: wnp.asarray(self.negative_slope_init, self.param_dtype))
        return wnp.where(inputs >= 0, inputs, wnp.asarray(alpha, inputs.dtype) * inputs)


_suggest(__name__)
