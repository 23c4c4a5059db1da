"""Methods contributed to Optax, which are less established than the others."""

from weft.errors import suggest as _suggest
from weft.optim.contrib.adaptation import (
    DAdaptAdamWState as DAdaptAdamWState,
    MomoAdamState as MomoAdamState,
    MomoState as MomoState,
    ProdigyState as ProdigyState,
    dadapt_adamw as dadapt_adamw,
    momo as momo,
    momo_adam as momo_adam,
    prodigy as prodigy,
)
from weft.optim.contrib.distance import (
    COCOBState as COCOBState,
    DoGState as DoGState,
    DoWGState as DoWGState,
    cocob as cocob,
    dog as dog,
    dowg as dowg,
    scale_by_cocob as scale_by_cocob,
)
from weft.optim.contrib.galore import (
    GaLoreDimensionNumbers as GaLoreDimensionNumbers,
    GaLoreState as GaLoreState,
    galore as galore,
    scale_by_galore as scale_by_galore,
)
from weft.optim.contrib.mechanic import MechanicState as MechanicState, mechanize as mechanize
from weft.optim.contrib.moments import (
    MadgradState as MadgradState,
    ScaleByAdemamixState as ScaleByAdemamixState,
    ScaleBySimplifiedAdEMAMixState as ScaleBySimplifiedAdEMAMixState,
    acprop as acprop,
    ademamix as ademamix,
    adopt as adopt,
    madgrad as madgrad,
    scale_by_acprop as scale_by_acprop,
    scale_by_ademamix as scale_by_ademamix,
    scale_by_adopt as scale_by_adopt,
    scale_by_madgrad as scale_by_madgrad,
    scale_by_simplified_ademamix as scale_by_simplified_ademamix,
    simplified_ademamix as simplified_ademamix,
)
from weft.optim.contrib.muon import (
    MuonDimensionNumbers as MuonDimensionNumbers,
    MuonState as MuonState,
    muon as muon,
    scale_by_muon as scale_by_muon,
)
from weft.optim.contrib.privacy import (
    DifferentiallyPrivateAggregateState as DifferentiallyPrivateAggregateState,
    differentially_private_aggregate as differentially_private_aggregate,
    dpsgd as dpsgd,
)
from weft.optim.contrib.schedule_free import (
    ScheduleFreeState as ScheduleFreeState,
    schedule_free as schedule_free,
    schedule_free_adamw as schedule_free_adamw,
    schedule_free_eval_params as schedule_free_eval_params,
    schedule_free_sgd as schedule_free_sgd,
)
from weft.optim.contrib.sophia import (
    HutchinsonState as HutchinsonState,
    SophiaState as SophiaState,
    hutchinson_estimator_diag_hessian as hutchinson_estimator_diag_hessian,
    sophia as sophia,
)
from weft.optim.contrib.wrappers import (
    NormalizeState as NormalizeState,
    ReduceLROnPlateauState as ReduceLROnPlateauState,
    SAMState as SAMState,
    SplitRealAndImaginaryState as SplitRealAndImaginaryState,
    normalize as normalize,
    reduce_on_plateau as reduce_on_plateau,
    sam as sam,
    split_real_and_imaginary as split_real_and_imaginary,
)

_suggest(__name__)
