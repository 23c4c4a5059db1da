"""Dicts that do not change: `FrozenDict` of `weft.modules` and its helpers, under their linen names."""

from weft.modules.frozen import FrozenDict, copy, freeze, pop, pretty_repr, unfreeze

__all__ = ["FrozenDict", "copy", "freeze", "pop", "pretty_repr", "unfreeze"]
