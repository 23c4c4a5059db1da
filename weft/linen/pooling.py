"""Pooling over windows of the spatial dimensions."""

from weft.nn import avg_pool, max_pool, min_pool, pool

__all__ = ["avg_pool", "max_pool", "min_pool", "pool"]
