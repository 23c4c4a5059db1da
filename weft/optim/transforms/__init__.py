"""Transformations of updates, the parts that optimizers are chained from."""

from weft.errors import suggest as _suggest
from weft.optim.transforms.accumulation import (
    EmaState as EmaState,
    MultiSteps as MultiSteps,
    MultiStepsState as MultiStepsState,
    ShouldSkipUpdateFunction as ShouldSkipUpdateFunction,
    TraceState as TraceState,
    ema as ema,
    skip_large_updates as skip_large_updates,
    skip_not_finite as skip_not_finite,
    trace as trace,
)
from weft.optim.transforms.adding import (
    AddNoiseState as AddNoiseState,
    add_decayed_weights as add_decayed_weights,
    add_noise as add_noise,
)
from weft.optim.transforms.clipping import (
    adaptive_grad_clip as adaptive_grad_clip,
    clip as clip,
    clip_by_block_rms as clip_by_block_rms,
    clip_by_global_norm as clip_by_global_norm,
    per_example_global_norm_clip as per_example_global_norm_clip,
    per_example_layer_norm_clip as per_example_layer_norm_clip,
    unitwise_clip as unitwise_clip,
    unitwise_norm as unitwise_norm,
)
from weft.optim.transforms.combining import (
    PartitionState as PartitionState,
    chain as chain,
    named_chain as named_chain,
    partition as partition,
    selective_transform as selective_transform,
)
from weft.optim.transforms.conditionality import (
    ApplyIfFiniteState as ApplyIfFiniteState,
    ConditionallyMaskState as ConditionallyMaskState,
    ConditionallyTransformState as ConditionallyTransformState,
    ConditionFn as ConditionFn,
    apply_if_finite as apply_if_finite,
    conditionally_mask as conditionally_mask,
    conditionally_transform as conditionally_transform,
)
from weft.optim.transforms.constraining import (
    NonNegativeParamsState as NonNegativeParamsState,
    ZeroNansState as ZeroNansState,
    flatten as flatten,
    keep_params_nonnegative as keep_params_nonnegative,
    zero_nans as zero_nans,
)
from weft.optim.transforms.masking import (
    MaskedNode as MaskedNode,
    MaskedState as MaskedState,
    freeze as freeze,
    masked as masked,
)
from weft.optim.transforms.monitoring import (
    MonitorState as MonitorState,
    SnapshotState as SnapshotState,
    measure_with_ema as measure_with_ema,
    monitor as monitor,
    snapshot as snapshot,
)

_suggest(__name__)
