"""Patterns of programs on many devices, as small functions of Weft's public names.

Shardings of trees: `data_parallel`, `fsdp`, `tensor_parallel`, `replicated`; together with `jit` they are all that
those patterns need. Functions for bodies of `shard_map`, where the axis of a mesh is named: `collective_matmul`,
`matmul_scatter`, `ring_attention`, `expert_parallel`. `pipeline` maps stages to devices.
"""

from weft.errors import suggest as _suggest
from weft.parallel.experts import expert_parallel
from weft.parallel.pipeline import pipeline
from weft.parallel.rings import collective_matmul, matmul_scatter, ring_attention
from weft.parallel.shardings import data_parallel, fsdp, replicated, sequence_parallel, tensor_parallel

__all__ = [
    "collective_matmul",
    "data_parallel",
    "expert_parallel",
    "fsdp",
    "matmul_scatter",
    "pipeline",
    "replicated",
    "ring_attention",
    "sequence_parallel",
    "tensor_parallel",
]

_suggest(__name__)
