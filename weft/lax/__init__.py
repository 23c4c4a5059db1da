"""The primitives' public face, with JAX's names and signatures: what `weft.numpy` is written with."""

# Each block belongs to one file; names are listed explicitly.

# shape.py
from weft.lax.shape import (
    broadcast,
    broadcast_in_dim,
    broadcast_shapes,
    broadcast_to_rank,
    broadcasted_iota,
    collapse,
    concatenate,
    empty,
    expand_dims,
    full,
    full_like,
    iota,
    pad,
    reshape,
    rev,
    split,
    squeeze,
    tile,
    transpose,
    zeros_like_array,
)

# slicing.py
from weft.lax.slicing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    gather,
    index_in_dim,
    scatter,
    scatter_add,
    scatter_apply,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
    slice,
    slice_in_dim,
)
