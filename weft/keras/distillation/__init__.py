"""Distillation: a small model, the student, learns from the outputs or features of a large one, the teacher."""

from weft.errors import publish as _publish
from weft.keras.distillation.distiller import Distiller as Distiller
from weft.keras.distillation.losses import (
    DistillationLoss as DistillationLoss,
    FeatureDistillation as FeatureDistillation,
    LogitsDistillation as LogitsDistillation,
)

_publish(__name__)
