"""ResNet50."""

from weft.errors import publish as _publish
from weft.keras.applications.resnet import (
    ResNet50 as ResNet50,
    decode_predictions as decode_predictions,
    preprocess_input as preprocess_input,
)

_publish(__name__)
