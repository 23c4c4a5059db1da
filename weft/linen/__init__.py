"""Modules as dataclasses: options are fields, parameters are found in the scope that `init` and `apply` bind."""

from weft.errors import publish as _publish
from weft.linen import (
    activation as activation,
    attention as attention,
    dtypes as dtypes,
    fp8_ops as fp8_ops,
    initializers as initializers,
    kw_only_dataclasses,
    linear,
    partitioning as partitioning,
    spmd as spmd,
    summary as summary,
    train_state as train_state,
    transforms as transforms,
)
from weft.linen.activation import (
    PReLU as PReLU,
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
    normalize as normalize,
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
from weft.linen.attention import (
    MultiHeadAttention as MultiHeadAttention,
    MultiHeadDotProductAttention as MultiHeadDotProductAttention,
    SelfAttention as SelfAttention,
    combine_masks as combine_masks,
    dot_product_attention as dot_product_attention,
    dot_product_attention_weights as dot_product_attention_weights,
    make_attention_mask as make_attention_mask,
    make_causal_mask as make_causal_mask,
)
from weft.linen.combinators import (
    BatchApply as BatchApply,
    Sequential as Sequential,
    compact_name_scope as compact_name_scope,
)
from weft.linen.convolution import Conv as Conv, ConvLocal as ConvLocal, ConvTranspose as ConvTranspose
from weft.linen.fp8_ops import (
    Fp8DirectDotGeneralOp as Fp8DirectDotGeneralOp,
    Fp8DotGeneral as Fp8DotGeneral,
    Fp8DotGeneralOp as Fp8DotGeneralOp,
    Fp8Einsum as Fp8Einsum,
    NANOOFp8DotGeneralOp as NANOOFp8DotGeneralOp,
)
from weft.linen.initializers import ones as ones, ones_init as ones_init, zeros as zeros, zeros_init as zeros_init
from weft.linen.linear import Dense as Dense, DenseGeneral as DenseGeneral, Einsum as Einsum, Embed as Embed
from weft.linen.methods import compact as compact, nowrap as nowrap
from weft.linen.module import Module as Module, apply as apply, init as init, init_with_output as init_with_output
from weft.linen.normalization import (
    BatchNorm as BatchNorm,
    GroupNorm as GroupNorm,
    InstanceNorm as InstanceNorm,
    LayerNorm as LayerNorm,
    RMSNorm as RMSNorm,
    SpectralNorm as SpectralNorm,
    WeightNorm as WeightNorm,
)
from weft.linen.pooling import avg_pool as avg_pool, max_pool as max_pool, min_pool as min_pool, pool as pool
from weft.linen.recurrent import (
    RNN as RNN,
    Bidirectional as Bidirectional,
    ConvLSTMCell as ConvLSTMCell,
    GRUCell as GRUCell,
    LSTMCell as LSTMCell,
    MGUCell as MGUCell,
    OptimizedLSTMCell as OptimizedLSTMCell,
    RNNCellBase as RNNCellBase,
    SimpleCell as SimpleCell,
)
from weft.linen.sharing import merge_param as merge_param, share_scope as share_scope
from weft.linen.spmd import (
    LogicallyPartitioned as LogicallyPartitioned,
    get_logical_axis_rules as get_logical_axis_rules,
    logical_axis_rules as logical_axis_rules,
    logical_to_mesh as logical_to_mesh,
    logical_to_mesh_axes as logical_to_mesh_axes,
    logical_to_mesh_sharding as logical_to_mesh_sharding,
    set_logical_axis_rules as set_logical_axis_rules,
    with_logical_constraint as with_logical_constraint,
    with_logical_partitioning as with_logical_partitioning,
)
from weft.linen.state import intercept_methods as intercept_methods
from weft.linen.stochastic import Dropout as Dropout
from weft.linen.summary import tabulate as tabulate
from weft.linen.train_state import TrainState as TrainState
from weft.linen.transforms import (
    add_metadata_axis as add_metadata_axis,
    broadcast as broadcast,
    checkpoint as checkpoint,
    cond as cond,
    custom_vjp as custom_vjp,
    disable_named_call as disable_named_call,
    enable_named_call as enable_named_call,
    fold_rngs as fold_rngs,
    grad as grad,
    jit as jit,
    jvp as jvp,
    map_variables as map_variables,
    named_call as named_call,
    override_named_call as override_named_call,
    remat as remat,
    remat_scan as remat_scan,
    scan as scan,
    switch as switch,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
    while_loop as while_loop,
)
from weft.modules.filters import DenyList as DenyList
from weft.modules.frozen import FrozenDict as FrozenDict, freeze as freeze, unfreeze as unfreeze
from weft.modules.metadata import unbox as unbox
from weft.modules.partitions import (
    PARTITION_NAME as PARTITION_NAME,
    Partitioned as Partitioned,
    PartitionSpec as PartitionSpec,
    get_partition_spec as get_partition_spec,
    get_sharding as get_sharding,
    with_partitioning as with_partitioning,
)
from weft.modules.scope import Variable as Variable

_publish(__name__)
