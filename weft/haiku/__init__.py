"""Haiku's programming model: functions that create modules as they run, transformed into pure `init` and `apply`."""

from weft.errors import publish as _publish
from weft.haiku import (
    config as config,
    data_structures as data_structures,
    experimental as experimental,
    initializers as initializers,
    mixed_precision as mixed_precision,
    nets as nets,
    pad as pad,
    precision as precision,
    testing as testing,
    typing as typing,
)
from weft.haiku.dot import to_dot as to_dot
from weft.haiku.frames import current_name as current_name, running_init as running_init
from weft.haiku.layer_stack import (
    LayerStackTransparencyMapping as LayerStackTransparencyMapping,
    layer_stack as layer_stack,
)
from weft.haiku.layers.averages import (
    EMAParamsTree as EMAParamsTree,
    ExponentialMovingAverage as ExponentialMovingAverage,
    SNParamsTree as SNParamsTree,
    SpectralNorm as SpectralNorm,
)
from weft.haiku.layers.basic import (
    BatchApply as BatchApply,
    Flatten as Flatten,
    Reshape as Reshape,
    Sequential as Sequential,
    dropout as dropout,
    expand_apply as expand_apply,
    multinomial as multinomial,
    one_hot as one_hot,
)
from weft.haiku.layers.convolution import (
    Conv1D as Conv1D,
    Conv1DTranspose as Conv1DTranspose,
    Conv2D as Conv2D,
    Conv2DTranspose as Conv2DTranspose,
    Conv3D as Conv3D,
    Conv3DTranspose as Conv3DTranspose,
    ConvND as ConvND,
    ConvNDTranspose as ConvNDTranspose,
)
from weft.haiku.layers.depthwise import (
    DepthwiseConv1D as DepthwiseConv1D,
    DepthwiseConv2D as DepthwiseConv2D,
    DepthwiseConv3D as DepthwiseConv3D,
    SeparableDepthwiseConv2D as SeparableDepthwiseConv2D,
)
from weft.haiku.layers.format import get_channel_index as get_channel_index
from weft.haiku.layers.linear import (
    Bias as Bias,
    Embed as Embed,
    EmbedLookupStyle as EmbedLookupStyle,
    Linear as Linear,
    MultiHeadAttention as MultiHeadAttention,
)
from weft.haiku.layers.normalization import (
    BatchNorm as BatchNorm,
    GroupNorm as GroupNorm,
    InstanceNorm as InstanceNorm,
    LayerNorm as LayerNorm,
    RMSNorm as RMSNorm,
)
from weft.haiku.layers.pooling import AvgPool as AvgPool, MaxPool as MaxPool, avg_pool as avg_pool, max_pool as max_pool
from weft.haiku.layers.recurrent import (
    GRU as GRU,
    LSTM as LSTM,
    Conv1DLSTM as Conv1DLSTM,
    Conv2DLSTM as Conv2DLSTM,
    Conv3DLSTM as Conv3DLSTM,
    DeepRNN as DeepRNN,
    IdentityCore as IdentityCore,
    LSTMState as LSTMState,
    ResetCore as ResetCore,
    RNNCore as RNNCore,
    VanillaRNN as VanillaRNN,
    deep_rnn_with_skip_connections as deep_rnn_with_skip_connections,
    dynamic_unroll as dynamic_unroll,
    static_unroll as static_unroll,
)
from weft.haiku.lifting import (
    LiftWithStateUpdater as LiftWithStateUpdater,
    lift as lift,
    lift_with_state as lift_with_state,
    transparent_lift as transparent_lift,
    transparent_lift_with_state as transparent_lift_with_state,
)
from weft.haiku.module import (
    Deferred as Deferred,
    MethodContext as MethodContext,
    Module as Module,
    force_name as force_name,
    intercept_methods as intercept_methods,
    name_like as name_like,
    name_scope as name_scope,
    to_module as to_module,
    transparent as transparent,
)
from weft.haiku.parameters import (
    DO_NOT_STORE as DO_NOT_STORE,
    GetterContext as GetterContext,
    SetterContext as SetterContext,
    custom_creator as custom_creator,
    custom_getter as custom_getter,
    custom_setter as custom_setter,
    get_current_state as get_current_state,
    get_initial_state as get_initial_state,
    get_parameter as get_parameter,
    get_params as get_params,
    get_state as get_state,
    maybe_get_rng_sequence_state as maybe_get_rng_sequence_state,
    maybe_next_rng_key as maybe_next_rng_key,
    next_rng_key as next_rng_key,
    next_rng_keys as next_rng_keys,
    replace_rng_sequence_state as replace_rng_sequence_state,
    reserve_rng_keys as reserve_rng_keys,
    set_state as set_state,
    with_rng as with_rng,
)
from weft.haiku.rng import PRNGSequence as PRNGSequence
from weft.haiku.stateful import (
    cond as cond,
    eval_shape as eval_shape,
    fori_loop as fori_loop,
    grad as grad,
    map as map,
    remat as remat,
    scan as scan,
    switch as switch,
    value_and_grad as value_and_grad,
    vmap as vmap,
    while_loop as while_loop,
)
from weft.haiku.transform import (
    MultiTransformed as MultiTransformed,
    MultiTransformedWithState as MultiTransformedWithState,
    Transformed as Transformed,
    TransformedWithState as TransformedWithState,
    multi_transform as multi_transform,
    multi_transform_with_state as multi_transform_with_state,
    transform as transform,
    transform_with_state as transform_with_state,
    with_empty_state as with_empty_state,
    without_apply_rng as without_apply_rng,
    without_state as without_state,
)
from weft.haiku.typing import (
    ModuleProtocol as ModuleProtocol,
    MutableParams as MutableParams,
    MutableState as MutableState,
    Params as Params,
    State as State,
    SupportsCall as SupportsCall,
)

_publish(__name__)
