"""Functions of trees under short names: `weft.optim.tree.norm`, `weft.optim.tree.add` and others."""

from weft.errors import suggest as _suggest
from weft.optim import tree_utils

add = tree_utils.tree_add
add_scale = tree_utils.tree_add_scale
allclose = tree_utils.tree_allclose
batch_shape = tree_utils.tree_batch_shape
bias_correction = tree_utils.tree_bias_correction
cast = tree_utils.tree_cast
cast_like = tree_utils.tree_cast_like
clip = tree_utils.tree_clip
conj = tree_utils.tree_conj
div = tree_utils.tree_div
dtype = tree_utils.tree_dtype
full_like = tree_utils.tree_full_like
get = tree_utils.tree_get
get_all_with_path = tree_utils.tree_get_all_with_path
map_params = tree_utils.tree_map_params
max = tree_utils.tree_max
min = tree_utils.tree_min
mul = tree_utils.tree_mul
norm = tree_utils.tree_norm
ones_like = tree_utils.tree_ones_like
random_like = tree_utils.tree_random_like
real = tree_utils.tree_real
scale = tree_utils.tree_scale
set = tree_utils.tree_set
size = tree_utils.tree_size
split_key_like = tree_utils.tree_split_key_like
sub = tree_utils.tree_sub
sum = tree_utils.tree_sum
unwrap_random_key_data = tree_utils.tree_unwrap_random_key_data
update_infinity_moment = tree_utils.tree_update_infinity_moment
update_moment = tree_utils.tree_update_moment
update_moment_per_elem_norm = tree_utils.tree_update_moment_per_elem_norm
vdot = tree_utils.tree_vdot
where = tree_utils.tree_where
zeros_like = tree_utils.tree_zeros_like


_suggest(__name__)
