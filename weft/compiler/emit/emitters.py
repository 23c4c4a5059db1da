"""The emitter of each kind of fusion: a function from a `Fusion` to its `Emission`."""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler.emit.emission import Emission, Fusion


def emitter_of(kind: str) -> Callable[[Fusion], Emission] | None:
    """Return the emitter of a kind of fusion, or None if the kind is unknown. Emitters are imported on first use,
    because importing all of them takes longer than compiling a small program.
    """
    match kind:
        case "loop":
            from weft.compiler.emit.maps.tile import emit_loop_kind

            return emit_loop_kind
        case "concatenate":
            from weft.compiler.emit.maps.concatenate import emit_concatenate

            return emit_concatenate
        case "slices":
            from weft.compiler.emit.maps.slices import emit_slices

            return emit_slices
        case "transpose":
            from weft.compiler.emit.maps.transpose import emit_transpose

            return emit_transpose
        case "dynamic_update_slice":
            from weft.compiler.emit.maps.update import emit_update

            return emit_update
        case "gather":
            from weft.compiler.emit.maps.gather import emit_gather

            return emit_gather
        case "scatter":
            from weft.compiler.emit.maps.scatter import emit_scatter

            return emit_scatter
        case "row" | "column" | "all":
            from weft.compiler.emit.reductions.reduction import emit_reduction

            return emit_reduction
        case "argmax":
            from weft.compiler.emit.reductions.argmax import emit_argmax

            return emit_argmax
        case "cumulative":
            from weft.compiler.emit.reductions.cumulative import emit_cumulative

            return emit_cumulative
        case "sort":
            from weft.compiler.emit.sorts.sort import emit_sort

            return emit_sort
        case "window":
            from weft.compiler.emit.windows.window import emit_window

            return emit_window
        case "contraction":
            from weft.compiler.emit.contractions.contraction import emit_contraction

            return emit_contraction
        case "convolution":
            from weft.compiler.emit.contractions.convolution import emit_convolution

            return emit_convolution
        case "matrices":
            from weft.compiler.emit.contractions.matrices import emit_matrices

            return emit_matrices
    return None
