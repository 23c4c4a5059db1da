"""Training: `compile`, `fit`, `evaluate`, `predict` of models, as the mixin `Trainer`."""

from weft.keras.training.gradients import gradients as gradients
from weft.keras.training.trainer import Trainer as Trainer
