"""The emitter of each kind of fusion: a function from a `Fusion` to its `Emission`."""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler.emit.contractions.contraction import emit_contraction
from weft.compiler.emit.contractions.convolution import emit_convolution
from weft.compiler.emit.contractions.matrices import emit_matrices
from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.emit.maps.concatenate import emit_concatenate
from weft.compiler.emit.maps.gather import emit_gather
from weft.compiler.emit.maps.scatter import emit_scatter
from weft.compiler.emit.maps.slices import emit_slices
from weft.compiler.emit.maps.tile import emit_loop_kind
from weft.compiler.emit.maps.transpose import emit_transpose
from weft.compiler.emit.maps.update import emit_update
from weft.compiler.emit.reductions.argmax import emit_argmax
from weft.compiler.emit.reductions.cumulative import emit_cumulative
from weft.compiler.emit.reductions.reduction import emit_reduction
from weft.compiler.emit.sorts.sort import emit_sort
from weft.compiler.emit.windows.window import emit_window

EMITTERS: dict[str, Callable[[Fusion], Emission]] = {
    "loop": emit_loop_kind,
    "concatenate": emit_concatenate,
    "slices": emit_slices,
    "transpose": emit_transpose,
    "dynamic_update_slice": emit_update,
    "gather": emit_gather,
    "scatter": emit_scatter,
    "row": emit_reduction,
    "column": emit_reduction,
    "all": emit_reduction,
    "argmax": emit_argmax,
    "cumulative": emit_cumulative,
    "sort": emit_sort,
    "window": emit_window,
    "contraction": emit_contraction,
    "convolution": emit_convolution,
    "matrices": emit_matrices,
}
