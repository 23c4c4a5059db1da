"""Element types: what promotes to what, what is canonical, limits and sizes."""

import ml_dtypes

from weft.base.dtypes import (
    canonicalize_dtype as canonicalize_dtype,
    extended as extended,
    finfo as finfo,
    float0 as float0,
    iinfo as iinfo,
    issubdtype as issubdtype,
    itemsize_bits as itemsize_bits,
    prng_key as prng_key,
    result_type as result_type,
    scalar_type_of as scalar_type_of,
)
from weft.base.errors import TypePromotionError as TypePromotionError
from weft.base.publish import publish as _publish

bfloat16 = ml_dtypes.bfloat16

_publish(__name__)
