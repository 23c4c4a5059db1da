"""StableHLO: a jaxpr as the text of a module, for every compiler that reads it.

`emit` is the entry point. `types`, `writer` and `emitter` are the base; every other module has the rules of a family
of primitives. A primitive without a rule is replaced by its definition.
"""

from __future__ import annotations

from weft.compiler.target.stablehlo.module import Module as Module, donation_aliases as donation_aliases, emit as emit
