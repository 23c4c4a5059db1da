"""Optimizers as pairs of pure functions that can be chained, with losses and schedules. Names are those of Optax."""

from weft.errors import publish as _publish
from weft.optim import (
    assignment as assignment,
    contrib as contrib,
    losses as losses,
    microbatching as microbatching,
    perturbations as perturbations,
    projections as projections,
    schedules as schedules,
    second_order as second_order,
    transforms as transforms,
    tree as tree,
    tree_utils as tree_utils,
)
from weft.optim.base import (
    EmptyState as EmptyState,
    GradientTransformation as GradientTransformation,
    GradientTransformationExtraArgs as GradientTransformationExtraArgs,
    MaskOrFn as MaskOrFn,
    OptState as OptState,
    Params as Params,
    ScalarOrSchedule as ScalarOrSchedule,
    Schedule as Schedule,
    StatefulSchedule as StatefulSchedule,
    TransformInitFn as TransformInitFn,
    TransformUpdateExtraArgsFn as TransformUpdateExtraArgsFn,
    TransformUpdateFn as TransformUpdateFn,
    Updates as Updates,
    identity as identity,
    init_empty_state as init_empty_state,
    set_to_zero as set_to_zero,
    stateless as stateless,
    stateless_with_tree_map as stateless_with_tree_map,
    with_extra_args_support as with_extra_args_support,
)
from weft.optim.linear_algebra import (
    matrix_inverse_pth_root as matrix_inverse_pth_root,
    nnls as nnls,
    power_iteration as power_iteration,
)
from weft.optim.linesearch.backtracking import (
    BacktrackingLinesearchInfo as BacktrackingLinesearchInfo,
    ScaleByBacktrackingLinesearchState as ScaleByBacktrackingLinesearchState,
    scale_by_backtracking_linesearch as scale_by_backtracking_linesearch,
)
from weft.optim.linesearch.common import value_and_grad_from_state as value_and_grad_from_state
from weft.optim.linesearch.lbfgs import (
    ScaleByLBFGSState as ScaleByLBFGSState,
    lbfgs as lbfgs,
    scale_by_lbfgs as scale_by_lbfgs,
)
from weft.optim.linesearch.zoom import (
    ScaleByZoomLinesearchState as ScaleByZoomLinesearchState,
    ZoomLinesearchInfo as ZoomLinesearchInfo,
    scale_by_zoom_linesearch as scale_by_zoom_linesearch,
)
from weft.optim.lookahead import (
    LookaheadParams as LookaheadParams,
    LookaheadState as LookaheadState,
    lookahead as lookahead,
)
from weft.optim.losses.classification import (
    convex_kl_divergence as convex_kl_divergence,
    generalized_kl_divergence as generalized_kl_divergence,
    hinge_loss as hinge_loss,
    kl_divergence as kl_divergence,
    kl_divergence_with_log_targets as kl_divergence_with_log_targets,
    multiclass_hinge_loss as multiclass_hinge_loss,
    perceptron_loss as perceptron_loss,
    poly_loss_cross_entropy as poly_loss_cross_entropy,
    safe_softmax_cross_entropy as safe_softmax_cross_entropy,
    sigmoid_binary_cross_entropy as sigmoid_binary_cross_entropy,
    sigmoid_focal_loss as sigmoid_focal_loss,
    smooth_labels as smooth_labels,
    softmax_cross_entropy as softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels as softmax_cross_entropy_with_integer_labels,
    sparsemax_loss as sparsemax_loss,
)
from weft.optim.losses.ctc import ctc_loss as ctc_loss, ctc_loss_with_forward_probs as ctc_loss_with_forward_probs
from weft.optim.losses.other import ntxent as ntxent
from weft.optim.losses.regression import (
    cosine_distance as cosine_distance,
    cosine_similarity as cosine_similarity,
    huber_loss as huber_loss,
    l2_loss as l2_loss,
    log_cosh as log_cosh,
    squared_error as squared_error,
    triplet_margin_loss as triplet_margin_loss,
)
from weft.optim.microbatching import microbatch as microbatch
from weft.optim.numerics import (
    abs_sq as abs_sq,
    safe_increment as safe_increment,
    safe_int32_increment as safe_int32_increment,
    safe_norm as safe_norm,
    safe_root_mean_squares as safe_root_mean_squares,
)
from weft.optim.optimizers.adam import (
    adabelief as adabelief,
    adam as adam,
    adamax as adamax,
    adamaxw as adamaxw,
    adamw as adamw,
    adan as adan,
    amsgrad as amsgrad,
    lamb as lamb,
    lion as lion,
    nadam as nadam,
    nadamw as nadamw,
    novograd as novograd,
    optimistic_adam as optimistic_adam,
    optimistic_adam_v2 as optimistic_adam_v2,
    radam as radam,
    yogi as yogi,
)
from weft.optim.optimizers.descent import (
    adadelta as adadelta,
    adafactor as adafactor,
    adagrad as adagrad,
    fromage as fromage,
    lars as lars,
    noisy_sgd as noisy_sgd,
    optimistic_gradient_descent as optimistic_gradient_descent,
    polyak_sgd as polyak_sgd,
    rmsprop as rmsprop,
    rprop as rprop,
    sgd as sgd,
    sign_sgd as sign_sgd,
    signum as signum,
    sm3 as sm3,
)
from weft.optim.schedules.functions import (
    constant_schedule as constant_schedule,
    cosine_decay_schedule as cosine_decay_schedule,
    cosine_onecycle_schedule as cosine_onecycle_schedule,
    exponential_decay as exponential_decay,
    join_schedules as join_schedules,
    linear_onecycle_schedule as linear_onecycle_schedule,
    linear_schedule as linear_schedule,
    piecewise_constant_schedule as piecewise_constant_schedule,
    piecewise_interpolate_schedule as piecewise_interpolate_schedule,
    polynomial_schedule as polynomial_schedule,
    sgdr_schedule as sgdr_schedule,
    warmup_constant_schedule as warmup_constant_schedule,
    warmup_cosine_decay_schedule as warmup_cosine_decay_schedule,
    warmup_exponential_decay_schedule as warmup_exponential_decay_schedule,
)
from weft.optim.schedules.inject import (
    InjectHyperparamsState as InjectHyperparamsState,
    InjectStatefulHyperparamsState as InjectStatefulHyperparamsState,
    WrappedSchedule as WrappedSchedule,
    inject_hyperparams as inject_hyperparams,
    inject_stateful_hyperparams as inject_stateful_hyperparams,
)
from weft.optim.stochastic import multi_normal as multi_normal, scale_gradient as scale_gradient
from weft.optim.transforms.accumulation import (
    ApplyEvery as ApplyEvery,
    EmaState as EmaState,
    MultiSteps as MultiSteps,
    MultiStepsState as MultiStepsState,
    ShouldSkipUpdateFunction as ShouldSkipUpdateFunction,
    TraceState as TraceState,
    apply_every as apply_every,
    ema as ema,
    skip_large_updates as skip_large_updates,
    skip_not_finite as skip_not_finite,
    trace as trace,
)
from weft.optim.transforms.adaptive import (
    ScaleByAdamState as ScaleByAdamState,
    ScaleByAdanState as ScaleByAdanState,
    ScaleByAmsgradState as ScaleByAmsgradState,
    ScaleByBeliefState as ScaleByBeliefState,
    ScaleByLionState as ScaleByLionState,
    ScaleByNovogradState as ScaleByNovogradState,
    scale_by_adam as scale_by_adam,
    scale_by_adamax as scale_by_adamax,
    scale_by_adan as scale_by_adan,
    scale_by_amsgrad as scale_by_amsgrad,
    scale_by_belief as scale_by_belief,
    scale_by_lion as scale_by_lion,
    scale_by_novograd as scale_by_novograd,
    scale_by_radam as scale_by_radam,
    scale_by_yogi as scale_by_yogi,
)
from weft.optim.transforms.adding import (
    AddDecayedWeightsState as AddDecayedWeightsState,
    AddNoiseState as AddNoiseState,
    add_decayed_weights as add_decayed_weights,
    add_noise as add_noise,
)
from weft.optim.transforms.clipping import (
    AdaptiveGradClipState as AdaptiveGradClipState,
    ClipByGlobalNormState as ClipByGlobalNormState,
    ClipState as ClipState,
    adaptive_grad_clip as adaptive_grad_clip,
    clip as clip,
    clip_by_block_rms as clip_by_block_rms,
    clip_by_global_norm as clip_by_global_norm,
    per_example_global_norm_clip as per_example_global_norm_clip,
    per_example_layer_norm_clip as per_example_layer_norm_clip,
)
from weft.optim.transforms.combining import (
    MultiTransformState as MultiTransformState,
    PartitionState as PartitionState,
    chain as chain,
    multi_transform as multi_transform,
    named_chain as named_chain,
    partition as partition,
    selective_transform as selective_transform,
)
from weft.optim.transforms.conditionality import (
    ApplyIfFiniteState as ApplyIfFiniteState,
    ConditionallyMaskState as ConditionallyMaskState,
    ConditionallyTransformState as ConditionallyTransformState,
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
from weft.optim.transforms.scaling import (
    ScaleByScheduleState as ScaleByScheduleState,
    ScaleByTrustRatioState as ScaleByTrustRatioState,
    ScaleState as ScaleState,
    centralize as centralize,
    normalize_by_update_norm as normalize_by_update_norm,
    scale as scale,
    scale_by_distance_over_gradients as scale_by_distance_over_gradients,
    scale_by_learning_rate as scale_by_learning_rate,
    scale_by_optimistic_gradient as scale_by_optimistic_gradient,
    scale_by_param_block_norm as scale_by_param_block_norm,
    scale_by_param_block_rms as scale_by_param_block_rms,
    scale_by_polyak as scale_by_polyak,
    scale_by_schedule as scale_by_schedule,
    scale_by_sign as scale_by_sign,
    scale_by_trust_ratio as scale_by_trust_ratio,
)
from weft.optim.transforms.squares import (
    FactoredState as FactoredState,
    ScaleByAdaDeltaState as ScaleByAdaDeltaState,
    ScaleByRmsState as ScaleByRmsState,
    ScaleByRmsWithCountState as ScaleByRmsWithCountState,
    ScaleByRpropState as ScaleByRpropState,
    ScaleByRssState as ScaleByRssState,
    ScaleByRStdDevState as ScaleByRStdDevState,
    ScaleByRStdDevWithCountState as ScaleByRStdDevWithCountState,
    ScaleBySM3State as ScaleBySM3State,
    scale_by_adadelta as scale_by_adadelta,
    scale_by_factored_rms as scale_by_factored_rms,
    scale_by_rms as scale_by_rms,
    scale_by_rprop as scale_by_rprop,
    scale_by_rss as scale_by_rss,
    scale_by_sm3 as scale_by_sm3,
    scale_by_stddev as scale_by_stddev,
)
from weft.optim.tree_mapping import MissingParamsError as MissingParamsError
from weft.optim.tree_utils.arithmetic import global_norm as global_norm
from weft.optim.tree_utils.moments import (
    tree_bias_correction as _tree_bias_correction,
    tree_update_infinity_moment as _tree_update_infinity_moment,
    tree_update_moment as _tree_update_moment,
    tree_update_moment_per_elem_norm as _tree_update_moment_per_elem_norm,
)
from weft.optim.tree_utils.state import tree_map_params as tree_map_params
from weft.optim.update import (
    apply_updates as apply_updates,
    incremental_update as incremental_update,
    periodic_update as periodic_update,
)

bias_correction = _tree_bias_correction
update_infinity_moment = _tree_update_infinity_moment
update_moment = _tree_update_moment
update_moment_per_elem_norm = _tree_update_moment_per_elem_norm

_publish(__name__)
