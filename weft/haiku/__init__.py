"""Haiku's way of working: functions that make modules as they run, transformed into pure `init` and `apply`."""

from weft.haiku import config, data_structures, initializers, mixed_precision, nets, pad, precision, testing, typing
from weft.haiku.frames import current_name, running_init
from weft.haiku.layer_stack import LayerStackTransparencyMapping, layer_stack
from weft.haiku.layers.averages import EMAParamsTree, ExponentialMovingAverage, SNParamsTree, SpectralNorm
from weft.haiku.layers.basic import (
    BatchApply,
    Flatten,
    Reshape,
    Sequential,
    dropout,
    expand_apply,
    multinomial,
    one_hot,
)
from weft.haiku.layers.convolution import (
    Conv1D,
    Conv1DTranspose,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
    ConvND,
    ConvNDTranspose,
)
from weft.haiku.layers.depthwise import DepthwiseConv1D, DepthwiseConv2D, DepthwiseConv3D, SeparableDepthwiseConv2D
from weft.haiku.layers.format import get_channel_index
from weft.haiku.layers.linear import Bias, Embed, EmbedLookupStyle, Linear, MultiHeadAttention
from weft.haiku.layers.normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from weft.haiku.layers.pooling import AvgPool, MaxPool, avg_pool, max_pool
from weft.haiku.layers.recurrent import (
    GRU,
    LSTM,
    Conv1DLSTM,
    Conv2DLSTM,
    Conv3DLSTM,
    DeepRNN,
    IdentityCore,
    LSTMState,
    ResetCore,
    RNNCore,
    VanillaRNN,
    deep_rnn_with_skip_connections,
    dynamic_unroll,
    static_unroll,
)
from weft.haiku.lifting import (
    LiftWithStateUpdater,
    lift,
    lift_with_state,
    transparent_lift,
    transparent_lift_with_state,
)
from weft.haiku.module import (
    Deferred,
    MethodContext,
    Module,
    force_name,
    intercept_methods,
    name_like,
    name_scope,
    to_module,
    transparent,
)
from weft.haiku.parameters import (
    DO_NOT_STORE,
    GetterContext,
    SetterContext,
    custom_creator,
    custom_getter,
    custom_setter,
    get_current_state,
    get_initial_state,
    get_parameter,
    get_params,
    get_state,
    maybe_get_rng_sequence_state,
    maybe_next_rng_key,
    next_rng_key,
    next_rng_keys,
    replace_rng_sequence_state,
    reserve_rng_keys,
    set_state,
    with_rng,
)
from weft.haiku.rng import PRNGSequence
from weft.haiku.stateful import (
    cond,
    eval_shape,
    fori_loop,
    grad,
    map,
    remat,
    scan,
    switch,
    value_and_grad,
    vmap,
    while_loop,
)
from weft.haiku.transform import (
    MultiTransformed,
    MultiTransformedWithState,
    Transformed,
    TransformedWithState,
    multi_transform,
    multi_transform_with_state,
    transform,
    transform_with_state,
    with_empty_state,
    without_apply_rng,
    without_state,
)
from weft.haiku.typing import (
    ModuleProtocol,
    MutableParams,
    MutableState,
    Params,
    State,
    SupportsCall,
)
