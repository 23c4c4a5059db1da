"""Element types: what promotes to what, what is canonical, limits and sizes."""

import ml_dtypes

from weft.base.dtypes import (
    canonicalize_dtype,
    extended,
    finfo,
    float0,
    iinfo,
    issubdtype,
    itemsize_bits,
    prng_key,
    result_type,
    scalar_type_of,
)
from weft.base.errors import TypePromotionError
from weft.base.publish import publish as _publish

__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]

bfloat16 = ml_dtypes.bfloat16

_publish(__name__)
