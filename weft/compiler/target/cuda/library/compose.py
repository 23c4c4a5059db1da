"""Composition of equations that one library call computes."""

from __future__ import annotations

from weft.compiler.target.cuda.library.attention import with_attention
from weft.compiler.target.cuda.library.composites import JaxprReader, regroup
from weft.compiler.target.cuda.library.convolutions import with_library_convolutions
from weft.compiler.target.cuda.library.epilogues import find_epilogues
from weft.compiler.target.cuda.library.mixed import with_one_dtype
from weft.compiler.target.cuda.one_hot import with_one_hot
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr


def compose(jaxpr: Jaxpr, target: Target) -> Jaxpr:
    """Replace each group of equations that one call computes by a fusion of kind "library"."""
    jaxpr = with_one_hot(jaxpr)
    jaxpr, convolutions = with_library_convolutions(jaxpr, target)
    jaxpr, attention = with_attention(jaxpr, target)
    reader = JaxprReader(jaxpr)
    used = {id(e) for group in attention for e in group.equations}
    matmuls = [g for g in find_epilogues(reader, target) if not any(id(e) in used for e in g.equations)]
    return with_one_dtype(regroup(jaxpr, [*attention, *convolutions, *matmuls]), target)
