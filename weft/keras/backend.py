"""Names of Keras' backend that programs use: settings, dtypes, counters."""

from weft.errors import publish as _publish
from weft.keras.core.config import (
    backend as backend,
    epsilon as epsilon,
    floatx as floatx,
    image_data_format as image_data_format,
    is_float_dtype as is_float_dtype,
    is_int_dtype as is_int_dtype,
    result_type as result_type,
    set_epsilon as set_epsilon,
    set_floatx as set_floatx,
    set_image_data_format as set_image_data_format,
    standardize_dtype as standardize_dtype,
)
from weft.keras.core.names import get_uid as get_uid
from weft.keras.core.session import clear_session as clear_session
from weft.keras.graph.tensor import is_keras_tensor as is_keras_tensor

_publish(__name__)
