"""Activation functions, and the one that has a parameter."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft.errors import suggest as _suggest
from weft.linen.methods import compact
from weft.linen.module import Module
from weft.nn import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    logsumexp,
    one_hot,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softmax,
    softplus,
    standardize,
    swish,
    tanh,
)

normalize = standardize

__all__ = [
    "PReLU",
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "normalize",
    "one_hot",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "standardize",
    "swish",
    "tanh",
]


class PReLU(Module):
    """x where it is not negative, elsewhere x times a learnt parameter."""

    param_dtype: Any = wnp.float32
    negative_slope_init: float = 0.01

    @compact
    def __call__(self, inputs: Any) -> Any:
        alpha = self.param("negative_slope", lambda key: wnp.asarray(self.negative_slope_init, self.param_dtype))
        return wnp.where(inputs >= 0, inputs, wnp.asarray(alpha, inputs.dtype) * inputs)


_suggest(__name__)
