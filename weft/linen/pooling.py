"""Pooling over windows of the spatial dimensions."""

from weft.errors import suggest as _suggest
from weft.nn import avg_pool as avg_pool, max_pool as max_pool, min_pool as min_pool, pool as pool

_suggest(__name__)
