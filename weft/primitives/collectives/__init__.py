"""Collectives over named axes: communication between the elements of a `vmap`, and between the devices of a mesh."""

from weft.primitives.collectives.base import Collective, Groups, Names
from weft.primitives.collectives.gathers import (
    all_gather,
    all_gather_invariant,
    all_gather_reduced,
    reduce_scatter,
)
from weft.primitives.collectives.members import merge_dims, own_slices, rows_of, split_dim, without_unit
from weft.primitives.collectives.permutations import all_to_all, axis_index, pbroadcast, ppermute
from weft.primitives.collectives.reductions import AllReduce, pmax, pmin, psum

__all__ = [
    "AllReduce",
    "Collective",
    "Groups",
    "Names",
    "all_gather",
    "all_gather_invariant",
    "all_gather_reduced",
    "all_to_all",
    "axis_index",
    "merge_dims",
    "own_slices",
    "pbroadcast",
    "pmax",
    "pmin",
    "ppermute",
    "psum",
    "reduce_scatter",
    "rows_of",
    "split_dim",
    "without_unit",
]
