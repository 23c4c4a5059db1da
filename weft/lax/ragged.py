"""Exchange of slices of different sizes between the elements along a named axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.errors import ArgumentError
from weft.ir.types import ArrayType, get_aval
from weft.lax.named_axes import Name, axis_names, axis_size, canonical_groups, varying
from weft.lax.parallel import all_gather, all_to_all
from weft.primitives.collectives import gather_rows
from weft.primitives.elementwise.arithmetic import add, sub
from weft.primitives.elementwise.bitwise import and_
from weft.primitives.elementwise.compare import ge, lt
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, reshape


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Name,
    axis_index_groups: Any = None,
) -> Any:
    """Send slices of different sizes to the other elements along named axes.

    Element j receives the `send_sizes[j]` rows of `operand` from `input_offsets[j]` on, and writes them into its
    `output` from this element's `output_offsets[j]` on; other rows of `output` are unchanged. `recv_sizes[i]` is the
    number of rows that element i sends here.

    Args:
        operand: the rows to send.
        output: the array that received rows are written over.
        input_offsets, send_sizes: for each element, the first row to send to it, and the number of rows.
        output_offsets, recv_sizes: for each element, the first row in its output, and the number of rows it sends here.
        axis_name: the name of an axis, or a tuple of names.
        axis_index_groups: lists of indices along the axis; each group exchanges separately.

    Returns:
        An array like `output`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> one = wnp.array([[1, 1], [1, 1]])
    >>> first = wnp.array([[0, 1], [0, 1]])
    >>> back = wnp.array([[0, 0], [1, 1]])
    >>> rows = wnp.array([[10, 11], [20, 21]])
    >>> exchange = lambda *args: lax.ragged_all_to_all(*args, axis_name="i")
    >>> weft.vmap(exchange, axis_name="i")(rows, wnp.zeros((2, 2), dtype=int), first, one, back, one)
    Array([[10, 20],
           [11, 21]], dtype=int32)
    """
    names = axis_names(axis_name)
    groups = canonical_groups("ragged_all_to_all", axis_name, axis_index_groups)
    count = axis_size(names) if groups is None else len(groups[0])
    x, result = get_aval(operand), get_aval(output)
    assert isinstance(x, ArrayType) and isinstance(result, ArrayType)
    if x.dtype != result.dtype or x.shape[1:] != result.shape[1:] or not x.shape:
        what = "lax.ragged_all_to_all: operand and output must have the same dtype and dimensions except the first."
        raise ArgumentError(what, received=f"{x.short()} and {result.short()}")
    tables = {
        "input_offsets": input_offsets, "send_sizes": send_sizes,
        "output_offsets": output_offsets, "recv_sizes": recv_sizes,
    }  # fmt: skip
    for word, table in tables.items():
        aval = get_aval(table)
        if not isinstance(aval, ArrayType) or aval.shape != (count,) or np.dtype(aval.dtype).kind not in "iu":
            raise ArgumentError(
                f"lax.ragged_all_to_all: {word} must be a vector of {count} integers, one for each element.",
                received=aval.short(),
            )
    exchange = lambda table: all_to_all(table, names, 0, 0, axis_index_groups=axis_index_groups)
    begins, sizes, goals = (exchange(tables[word]) for word in ("input_offsets", "send_sizes", "output_offsets"))
    every = all_gather(operand, names, axis_index_groups=axis_index_groups)
    rows = iota(dtype=np.dtype(np.int32), shape=(result.shape[0],), dimension=0)
    filled = varying(output, names)
    for i in range(count):
        begin, size, goal = (entry(table, i) for table in (begins, sizes, goals))
        step = sub(rows, goal)
        sent = gather_rows(entry(every, i), add(step, begin))
        own = and_(ge(step, np.int32(0)), lt(step, size))
        own = broadcast_in_dim(own, shape=result.shape, broadcast_dimensions=(0,))
        filled = select_n(own, filled, sent)
    return filled


def entry(x: Any, i: int) -> Any:
    """Return entry i along the first dimension; a scalar integer as int32."""
    found = reshape(gather_rows(x, [i]), new_sizes=x.shape[1:], dimensions=None)
    whole = np.dtype(found.dtype).kind in "iu" and not found.shape
    return convert_element_type(found, new_dtype=np.dtype(np.int32), weak_type=False) if whole else found
