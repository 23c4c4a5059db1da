"""VGG19."""

from weft.errors import publish as _publish
from weft.keras.applications.vgg16 import (
    constructor as _constructor,
    decode_predictions as decode_predictions,
    preprocess_input as preprocess_input,
)

VGG19 = _constructor("VGG19", (2, 2, 4, 4, 4))

_publish(__name__)
