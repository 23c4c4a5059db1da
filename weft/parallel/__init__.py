"""Patterns of programs on many devices, as small functions of Weft's public names.

Shardings of trees: `data_parallel`, `fsdp`, `tensor_parallel`, `replicated`; together with `jit` they are all that
those patterns need. Functions for bodies of `shard_map`, where the axis of a mesh is named: `collective_matmul`,
`matmul_scatter`, `ring_attention` (with `zigzag`, which balances causal masks), `expert_parallel`, `cross_entropy`.
`pipeline` maps stages to devices.
"""

from weft.errors import suggest as _suggest
from weft.parallel.experts import expert_parallel as expert_parallel
from weft.parallel.losses import cross_entropy as cross_entropy
from weft.parallel.pipeline import pipeline as pipeline
from weft.parallel.rings import (
    collective_matmul as collective_matmul,
    matmul_scatter as matmul_scatter,
    ring_attention as ring_attention,
    zigzag as zigzag,
    zigzag_inverse as zigzag_inverse,
)
from weft.parallel.shardings import (
    data_parallel as data_parallel,
    fsdp as fsdp,
    replicated as replicated,
    sequence_parallel as sequence_parallel,
    tensor_parallel as tensor_parallel,
)

_suggest(__name__)
