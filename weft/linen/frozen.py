"""Linen's names of `FrozenDict` and its functions."""

from weft.modules.frozen import (
    FrozenDict as FrozenDict,
    copy as copy,
    freeze as freeze,
    pop as pop,
    pretty_repr as pretty_repr,
    unfreeze as unfreeze,
)
