"""Named axes in scope: their sizes, the element's index along them, and groups of indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.errors import ArgumentError, UnboundAxisError
from weft.base.source import user_line
from weft.ir.context import context
from weft.ir.types import get_aval
from weft.ir.varying import apply_casts, casts_to
from weft.lax.argument_docs import document
from weft.primitives import collectives
from weft.primitives.collectives import Groups, gather_rows
from weft.primitives.elementwise.arithmetic import add, mul
from weft.primitives.movement.shape import reshape

Name = Any


def axis_names(axis_name: Name) -> tuple[Any, ...]:
    """Return the named axes as a tuple; raise an error for one that is not in scope."""
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for name in names:
        if getattr(type(name), "__hash__", None) is None or name not in context.axes:
            known = ", ".join(map(repr, context.axes)) or "none"
            raise UnboundAxisError(
                f"There is no axis named {name!r} here; in scope: {known}.",
                fix=(
                    *([f"one of the axes in scope: {known}"] if context.axes else []),
                    f"call this inside vmap(f, axis_name={name!r})",
                    f"call this inside shard_map(f, mesh=...), whose mesh has an axis {name!r}",
                ),
                at=user_line(),
            )
    return names


def one_name(axis_name: Name, function: str) -> Any:
    """Return the named axis that `function` needs exactly one of."""
    names = axis_names(axis_name)
    if len(names) != 1:
        what = f"lax.{function} needs exactly one named axis."
        raise ArgumentError(what, received=f"{axis_name!r}", fix="call it for one after the other")
    return names[0]


def axis_size(axis_name: Name) -> int:
    """Return the size of a named axis, or the product of the sizes of several."""
    return math.prod(context.axes[n] for n in axis_names(axis_name))


def canonical_groups(function: str, axis_name: Name, axis_index_groups: Any, equal: bool = True) -> Groups:
    """Check `axis_index_groups` and return them as a parameter of a collective, or None.

    Every index must occur once; `equal` requires groups of one size. Indices along several axes are in row-major order.
    """
    if axis_index_groups is None:
        return None
    size = axis_size(axis_name)
    groups = tuple(tuple(int(i) for i in group) for group in axis_index_groups)
    if sorted(i for group in groups for i in group) != list(range(size)):
        raise ArgumentError(
            f"lax.{function}: axis_index_groups must have every position along {axis_name!r} once.",
            received=f"{axis_index_groups} for an axis of size {size}",
            fix=f"groups of the numbers in range({size})",
        )
    if equal and len({len(group) for group in groups}) > 1:
        what = f"lax.{function}: axis_index_groups must be of one size."
        raise ArgumentError(what, received=f"{axis_index_groups}", fix="groups with equally many positions each")
    return groups


def group_params(groups: Groups) -> dict[str, Any]:
    """Return the keyword parameter of a collective for groups; an empty dict without groups."""
    return {} if groups is None else {"axis_index_groups": groups}


def by_position(axis_name: Name, table: Sequence[int]) -> Any:
    """Look up this element's entry of a table that has one entry for each index along a named axis."""
    position = reshape(axis_index(axis_name), new_sizes=(1,), dimensions=None)
    return reshape(gather_rows(np.array(table, np.int32), position), new_sizes=(), dimensions=None)


def varying(x: Any, names: Sequence[Any]) -> Any:
    """Cast a value to vary along those named axes that are manual axes of a `shard_map`, except where it is unreduced.
    stays so."""
    if not context.manual:
        return x
    state = get_aval(x).manual  # type: ignore[attr-defined]
    return apply_casts(x, casts_to(state, context.manual.intersection(names), frozenset()))


@document("A scalar integer.", axis_name="the name of an axis, or a tuple of names.")
def axis_index(axis_name: Name) -> Any:
    """Return the index of this element along a named axis; along several, in row-major order.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> weft.vmap(lambda x: x + lax.axis_index("i"), axis_name="i")(wnp.zeros(3, dtype=int))
    Array([0, 1, 2], dtype=int32)
    """
    index: Any = None
    for name in axis_names(axis_name):
        own = collectives.axis_index(axis_name=name, **({"varying": True} if name in context.manual else {}))
        index = own if index is None else add(mul(index, np.int32(context.axes[name])), own)
    return index
