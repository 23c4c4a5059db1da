"""Layouts of arrays in memory: always row-major."""

from __future__ import annotations

from typing import Any

from weft.base import tree
from weft.base.errors import ArgumentError
from weft.base.publish import publish as _publish
from weft.ir.types import get_aval
from weft.sharding.layout import Format as Format, Layout as Layout


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """Return `x` with the layouts `layouts`: a Layout, or a tree prefix of them. Arrays are row-major; another layout
    is an error."""
    is_layout = lambda value: isinstance(value, Layout)
    found = [layouts] * len(tree.leaves(x)) if is_layout(layouts) else tree.broadcast_prefix(layouts, x, is_layout)
    for leaf, layout in zip(tree.leaves(x), found, strict=True):
        aval: Any = get_aval(leaf)
        layout.check_compatible_aval(aval.shape)
        if layout.major_to_minor != tuple(range(aval.ndim)) or layout.tiling:
            raise ArgumentError(
                "Arrays lie in memory in row-major order, without tiles.",
                received=f"{layout!r} for {aval.short()}",
                fix=f"Layout({tuple(range(aval.ndim))})",
            )
    return x


_publish(__name__)
