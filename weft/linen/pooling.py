"""Pooling over windows of the spatial dimensions."""

from weft.errors import suggest as _suggest
from weft.nn import avg_pool, max_pool, min_pool, pool

__all__ = ["avg_pool", "max_pool", "min_pool", "pool"]

_suggest(__name__)
