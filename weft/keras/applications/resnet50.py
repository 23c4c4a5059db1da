"""ResNet50."""

from weft.errors import publish as _publish
from weft.keras.applications.resnet import ResNet50, decode_predictions, preprocess_input

__all__ = ["ResNet50", "decode_predictions", "preprocess_input"]

_publish(__name__)
