"""Functions for neural networks: activations, softmax and its relatives, attention, pooling, initializers."""

from weft.base.publish import publish as _publish
from weft.nn import initializers
from weft.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
)
from weft.nn.attention import dot_product_attention
from weft.nn.moments import dropout, moments, normalize_by
from weft.nn.normalize import log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize
from weft.nn.pooling import avg_pool, max_pool, min_pool, pool
from weft.nn.recurrent import gru_step, lstm_step
from weft.nn.scaled import get_scaled_dot_general_config, scaled_dot_general, scaled_matmul
from weft.numpy import tanh

__all__ = [
    "avg_pool",
    "celu",
    "dot_product_attention",
    "dropout",
    "elu",
    "gelu",
    "get_scaled_dot_general_config",
    "glu",
    "gru_step",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "initializers",
    "leaky_relu",
    "log1mexp",
    "log_sigmoid",
    "log_softmax",
    "logmeanexp",
    "logsumexp",
    "lstm_step",
    "max_pool",
    "min_pool",
    "mish",
    "moments",
    "normalize_by",
    "one_hot",
    "pool",
    "relu",
    "relu6",
    "scaled_dot_general",
    "scaled_matmul",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "standardize",
    "swish",
    "tanh",
]

_publish(__name__)
