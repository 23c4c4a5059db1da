"""Names of Keras' backend that programs use: settings, dtypes, counters."""

from weft.errors import publish as _publish
from weft.keras.core.config import (
    backend,
    epsilon,
    floatx,
    image_data_format,
    is_float_dtype,
    is_int_dtype,
    result_type,
    set_epsilon,
    set_floatx,
    set_image_data_format,
    standardize_dtype,
)
from weft.keras.core.names import get_uid
from weft.keras.core.session import clear_session
from weft.keras.graph.tensor import is_keras_tensor

__all__ = [
    "backend",
    "clear_session",
    "epsilon",
    "floatx",
    "get_uid",
    "image_data_format",
    "is_float_dtype",
    "is_int_dtype",
    "is_keras_tensor",
    "result_type",
    "set_epsilon",
    "set_floatx",
    "set_image_data_format",
    "standardize_dtype",
]

_publish(__name__)
