"""The emitter of each kind of fusion: a function from a `Fusion` to its `Emission`."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from weft.compiler.emit.emission import Emission, Fusion

Emitter = Callable[[Fusion], Emission]


def _in(module: str, name: str) -> Emitter:
    """An emitter whose module is loaded with the first fusion of its kind: all of them take longer to load than a small
    program to compile."""

    def emit(fusion: Fusion) -> Emission:
        emission: Emission = getattr(importlib.import_module(f"weft.compiler.emit.{module}"), name)(fusion)
        return emission

    return emit


EMITTERS: dict[str, Emitter] = {
    "loop": _in("maps.tile", "emit_loop_kind"),
    "concatenate": _in("maps.concatenate", "emit_concatenate"),
    "slices": _in("maps.slices", "emit_slices"),
    "transpose": _in("maps.transpose", "emit_transpose"),
    "dynamic_update_slice": _in("maps.update", "emit_update"),
    "gather": _in("maps.gather", "emit_gather"),
    "scatter": _in("maps.scatter", "emit_scatter"),
    "row": _in("reductions.reduction", "emit_reduction"),
    "column": _in("reductions.reduction", "emit_reduction"),
    "all": _in("reductions.reduction", "emit_reduction"),
    "argmax": _in("reductions.argmax", "emit_argmax"),
    "cumulative": _in("reductions.cumulative", "emit_cumulative"),
    "sort": _in("sorts.sort", "emit_sort"),
    "window": _in("windows.window", "emit_window"),
    "contraction": _in("contractions.contraction", "emit_contraction"),
    "convolution": _in("contractions.convolution", "emit_convolution"),
    "matrices": _in("contractions.matrices", "emit_matrices"),
}
