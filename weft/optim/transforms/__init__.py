"""Transformations of updates, the parts that optimizers are chained from."""

from weft.errors import suggest as _suggest
from weft.optim.transforms.accumulation import (
    EmaState,
    MultiSteps,
    MultiStepsState,
    ShouldSkipUpdateFunction,
    TraceState,
    ema,
    skip_large_updates,
    skip_not_finite,
    trace,
)
from weft.optim.transforms.adding import AddNoiseState, add_decayed_weights, add_noise
from weft.optim.transforms.clipping import (
    adaptive_grad_clip,
    clip,
    clip_by_block_rms,
    clip_by_global_norm,
    per_example_global_norm_clip,
    per_example_layer_norm_clip,
    unitwise_clip,
    unitwise_norm,
)
from weft.optim.transforms.combining import PartitionState, chain, named_chain, partition, selective_transform
from weft.optim.transforms.conditionality import (
    ApplyIfFiniteState,
    ConditionallyMaskState,
    ConditionallyTransformState,
    ConditionFn,
    apply_if_finite,
    conditionally_mask,
    conditionally_transform,
)
from weft.optim.transforms.constraining import (
    NonNegativeParamsState,
    ZeroNansState,
    flatten,
    keep_params_nonnegative,
    zero_nans,
)
from weft.optim.transforms.masking import MaskedNode, MaskedState, freeze, masked
from weft.optim.transforms.monitoring import MonitorState, SnapshotState, measure_with_ema, monitor, snapshot

__all__ = [
    "AddNoiseState",
    "ApplyIfFiniteState",
    "ConditionFn",
    "ConditionallyMaskState",
    "ConditionallyTransformState",
    "EmaState",
    "MaskedNode",
    "MaskedState",
    "MonitorState",
    "MultiSteps",
    "MultiStepsState",
    "NonNegativeParamsState",
    "PartitionState",
    "ShouldSkipUpdateFunction",
    "SnapshotState",
    "TraceState",
    "ZeroNansState",
    "adaptive_grad_clip",
    "add_decayed_weights",
    "add_noise",
    "apply_if_finite",
    "chain",
    "clip",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "conditionally_mask",
    "conditionally_transform",
    "ema",
    "flatten",
    "freeze",
    "keep_params_nonnegative",
    "masked",
    "measure_with_ema",
    "monitor",
    "named_chain",
    "partition",
    "per_example_global_norm_clip",
    "per_example_layer_norm_clip",
    "selective_transform",
    "skip_large_updates",
    "skip_not_finite",
    "snapshot",
    "trace",
    "unitwise_clip",
    "unitwise_norm",
    "zero_nans",
]

_suggest(__name__)
