"""Training: `compile`, `fit`, `evaluate`, `predict` of models, as the mixin `Trainer`."""

from weft.keras.training.gradients import gradients
from weft.keras.training.trainer import Trainer

__all__ = ["Trainer", "gradients"]
