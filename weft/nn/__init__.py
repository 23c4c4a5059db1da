"""Functions for neural networks: activations, softmax and its relatives, attention, pooling, initializers."""

from weft.base.publish import publish as _publish
from weft.nn import initializers as initializers
from weft.nn.activations import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_swish as hard_swish,
    hard_tanh as hard_tanh,
    identity as identity,
    leaky_relu as leaky_relu,
    log1mexp as log1mexp,
    log_sigmoid as log_sigmoid,
    mish as mish,
    relu as relu,
    relu6 as relu6,
    selu as selu,
    sigmoid as sigmoid,
    silu as silu,
    soft_sign as soft_sign,
    softplus as softplus,
    sparse_plus as sparse_plus,
    sparse_sigmoid as sparse_sigmoid,
    squareplus as squareplus,
    swish as swish,
)
from weft.nn.attention import dot_product_attention as dot_product_attention
from weft.nn.moments import dropout as dropout, moments as moments, normalize_by as normalize_by
from weft.nn.normalize import (
    log_softmax as log_softmax,
    logmeanexp as logmeanexp,
    logsumexp as logsumexp,
    one_hot as one_hot,
    softmax as softmax,
    standardize as standardize,
)
from weft.nn.pooling import avg_pool as avg_pool, max_pool as max_pool, min_pool as min_pool, pool as pool
from weft.nn.recurrent import gru_step as gru_step, lstm_step as lstm_step
from weft.nn.scaled import (
    get_scaled_dot_general_config as get_scaled_dot_general_config,
    scaled_dot_general as scaled_dot_general,
    scaled_matmul as scaled_matmul,
)
from weft.numpy import tanh as tanh

_publish(__name__)
