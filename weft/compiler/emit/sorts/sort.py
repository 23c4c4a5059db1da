"""The sort emitter. Heroes: `sort` and `top_k`, which is a sort in descending order of which the first are taken.

Both work on rows: the elements along the sorted dimension. Short rows are sorted by ranks, a few of the largest
elements are found in registers, and all else is radix sort: of one long row by several threads.
"""

from __future__ import annotations

from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.emit.sorts.sort_encoding import Order
from weft.compiler.emit.sorts.sort_radix import emit_radix
from weft.compiler.emit.sorts.sort_ranks import emit_ranks
from weft.compiler.emit.sorts.sort_rows import task_of
from weft.compiler.emit.sorts.sort_select import MORE, emit_selection, emit_threshold, fits_selection
from weft.compiler.emit.sorts.sort_split import emit_split, fits_split

# Rows up to this long are sorted by ranks.
RANKED = 128
# So many of the largest are held in registers.
SELECTED = 16
# A few more are found by reading a row twice, if it is so many times longer.
SCANNING = 8


def emit_sort(fusion: Fusion) -> Emission:
    """The kernel of a sort or of the k largest; none where there is nothing to write."""
    task = task_of(fusion)
    if not task.rows.count or not task.taken or not task.results:
        return fusion.finish()
    if task.rows.length <= RANKED:
        emit_ranks(task)
    elif task.order is Order.DESCENDING and task.taken <= SELECTED and fits_selection(task):
        emit_selection(task)
    elif task.order is Order.DESCENDING and task.taken <= MORE and task.rows.length >= SCANNING * task.taken:
        (emit_threshold if fits_selection(task) else emit_radix)(task)
    elif fits_split(task):
        emit_split(task)
    else:
        emit_radix(task)
    return fusion.finish()
