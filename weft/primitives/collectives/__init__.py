"""Collectives over named axes: communication between the elements of a `vmap`, and between the devices of a mesh."""

from weft.primitives.collectives.base import (
    ALONE as ALONE,
    Collective as Collective,
    Groups as Groups,
    Names as Names,
    dimension_names as dimension_names,
    insert_unnamed as insert_unnamed,
)
from weft.primitives.collectives.gathers import (
    Gather as Gather,
    GatherAlike as GatherAlike,
    all_gather as all_gather,
    all_gather_invariant as all_gather_invariant,
    all_gather_reduced as all_gather_reduced,
    reduce_scatter as reduce_scatter,
)
from weft.primitives.collectives.members import (
    by_group as by_group,
    combine_tree as combine_tree,
    gather_rows as gather_rows,
    merge_dims as merge_dims,
    own_slices as own_slices,
    repeat_rows as repeat_rows,
    split_dim as split_dim,
    stack_members as stack_members,
    sum_copies as sum_copies,
    tree_sum as tree_sum,
    unstack_members as unstack_members,
    with_unit as with_unit,
    without_unit as without_unit,
    zeros_like as zeros_like,
)
from weft.primitives.collectives.permutations import (
    all_to_all as all_to_all,
    axis_index as axis_index,
    pbroadcast as pbroadcast,
    ppermute as ppermute,
)
from weft.primitives.collectives.reductions import (
    AllReduce as AllReduce,
    Extremum as Extremum,
    pmax as pmax,
    pmin as pmin,
    psum as psum,
)
