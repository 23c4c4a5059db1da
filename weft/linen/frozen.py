"""Dicts that do not change: `FrozenDict` of `weft.modules` and its helpers, under their linen names."""

from weft.modules.frozen import (
    FrozenDict as FrozenDict,
    copy as copy,
    freeze as freeze,
    pop as pop,
    pretty_repr as pretty_repr,
    unfreeze as unfreeze,
)
