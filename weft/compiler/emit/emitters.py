"""Table of the emitter of each kind of fusion: a function from a `Fusion` to its `Emission`.

Emitters are imported on first use: a program has few kinds of fusions, and importing all of them takes longer than
compiling a small program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.lazy import lazy
from weft.compiler.emit.emission import Emission, Fusion

_REDUCTION = (lazy("weft.compiler.emit.reductions.reduction"), "emit_reduction")

# The module and function of each kind.
EMITTERS: dict[str, tuple[Any, str]] = {
    "loop": (lazy("weft.compiler.emit.maps.tile"), "emit_loop_kind"),
    "concatenate": (lazy("weft.compiler.emit.maps.concatenate"), "emit_concatenate"),
    "slices": (lazy("weft.compiler.emit.maps.slices"), "emit_slices"),
    "transpose": (lazy("weft.compiler.emit.maps.transpose"), "emit_transpose"),
    "dynamic_update_slice": (lazy("weft.compiler.emit.maps.update"), "emit_update"),
    "gather": (lazy("weft.compiler.emit.maps.gather"), "emit_gather"),
    "scatter": (lazy("weft.compiler.emit.maps.scatter"), "emit_scatter"),
    "row": _REDUCTION,
    "column": _REDUCTION,
    "all": _REDUCTION,
    "argmax": (lazy("weft.compiler.emit.reductions.argmax"), "emit_argmax"),
    "cumulative": (lazy("weft.compiler.emit.reductions.cumulative"), "emit_cumulative"),
    "sort": (lazy("weft.compiler.emit.sorts.sort"), "emit_sort"),
    "window": (lazy("weft.compiler.emit.windows.window"), "emit_window"),
    "contraction": (lazy("weft.compiler.emit.contractions.contraction"), "emit_contraction"),
    "convolution": (lazy("weft.compiler.emit.contractions.convolution"), "emit_convolution"),
    "matrices": (lazy("weft.compiler.emit.contractions.matrices"), "emit_matrices"),
}


def get_emitter(kind: str) -> Callable[[Fusion], Emission] | None:
    """Return the emitter of a kind of fusion, or None if the kind is unknown."""
    if kind not in EMITTERS:
        return None
    module, name = EMITTERS[kind]
    emitter: Callable[[Fusion], Emission] = getattr(module, name)
    return emitter
