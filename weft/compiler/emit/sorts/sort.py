"""Emitter of sorts. Heroes: `sort` and `top_k`, which selects the first elements of a descending sort.

Both work on rows, the elements along the sorted dimension. Short rows are sorted by ranks, a few of the largest
elements are found in registers, and everything else is radix sort; several threads share one long row.
"""

from __future__ import annotations

from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.emit.sorts.sort_encoding import SortOrder
from weft.compiler.emit.sorts.sort_group_rows import MOST_SELECTED, emit_group_rows, emit_group_selection, most_elements
from weft.compiler.emit.sorts.sort_long_rows import emit_long_rows
from weft.compiler.emit.sorts.sort_radix import emit_radix
from weft.compiler.emit.sorts.sort_ranks import emit_ranks
from weft.compiler.emit.sorts.sort_rows import SortTask, describe_task
from weft.compiler.emit.sorts.sort_select import MORE, emit_selection, emit_threshold, fits_selection
from weft.compiler.emit.sorts.sort_split import emit_split, fits_split

# Rows up to this long are sorted by ranks.
RANKED = 128
RANKED_BY_GROUPS = 64
# Up to this many of the largest elements are held in registers.
SELECTED = 16
# A few more are found by reading a row twice, if it is at least this many times longer than `k`.
SCANNING = 8


def emit_sort(fusion: Fusion) -> Emission:
    """Emit the kernels of a sort or of the k largest elements, none if there is nothing to write."""
    task = describe_task(fusion)
    if not task.rows.count or not task.selected or not task.results:
        return fusion.finish()
    if fusion.target.group_lanes and task.rows.length < 1 << 31:
        _emit_by_groups(task)
    elif task.rows.length <= RANKED:
        emit_ranks(task)
    elif task.order is SortOrder.DESCENDING and task.selected <= SELECTED and fits_selection(task):
        emit_selection(task)
    elif task.order is SortOrder.DESCENDING and task.selected <= MORE and task.rows.length >= SCANNING * task.selected:
        (emit_threshold if fits_selection(task) else emit_radix)(task)
    elif fits_split(task):
        emit_split(task)
    else:
        emit_radix(task)
    return fusion.finish()


def _emit_by_groups(task: SortTask) -> None:
    """Emit the kernels of a sort for targets whose lanes are threads."""
    if task.rows.length <= RANKED_BY_GROUPS:
        emit_ranks(task)
    elif task.rows.length <= most_elements(task):
        emit_group_rows(task)
    elif task.selected <= MOST_SELECTED:
        emit_group_selection(task)
    else:
        emit_long_rows(task)
