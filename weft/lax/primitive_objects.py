"""Primitive objects under JAX's names, such as `add_p`.

An equation that adds has `add_p` as its `primitive`, and `add_p.bind(x, y)` adds. `weft.lax` and
`weft.extend.core.primitives` export them.
"""

from __future__ import annotations

from typing import Any

from weft.ir.primitive import lookup
from weft.primitives.control import calls, platform, sinks
from weft.primitives.elementwise import total_order
from weft.primitives.linalg import reflectors
from weft.primitives.movement import stack

# Modules whose primitives nothing else here imports.
_MODULES = (calls, platform, reflectors, sinks, stack, total_order)

# Primitives with the same name in JAX, where `_p` is appended.
_SHARED = """
abs acos acosh add after_all all_gather all_to_all and approx_top_k argmax argmin asin asinh atan atan2 atanh
axis_index bessel_i0e bessel_i1e bitcast_convert_type broadcast_in_dim cbrt ceil clamp clz complex concatenate cond
conj conv_general_dilated convert_element_type copy cos cosh create_token cumlogsumexp cummax cummin cumprod cumsum
dce_sink device_put digamma div dot_general dynamic_slice dynamic_update_slice eq eq_to erf erf_inv erfc exp exp2
expm1 fft floor gather ge gt igamma igamma_grad_a igammac imag integer_pow iota is_finite le le_to lgamma log log1p
logistic lt lt_to max min mul mulhi ne neg nextafter not optimization_barrier or pad pmax pmin polygamma
population_count pow ppermute psum real reduce reduce_and reduce_max reduce_min reduce_or reduce_precision reduce_prod
reduce_sum reduce_window reduce_window_max reduce_window_min reduce_window_sum reduce_xor regularized_incomplete_beta
rem reshape rev round rsqrt scan scatter select_and_gather_add select_and_scatter select_and_scatter_add select_n
sharding_constraint shift_left shift_right_arithmetic shift_right_logical sign sin sinh slice sort split sqrt square
squeeze stack stage stop_gradient sub tan tanh tile top_k transpose unstack while xor zeta
"""
_EXTENDED = """
cholesky closed_call custom_jvp_call custom_lin custom_vjp_call eig eigh hessenberg householder_product jit lu name qr
random_bits random_fold_in random_seed random_split schur svd threefry2x32 triangular_solve tridiagonal
tridiagonal_solve
"""
# Primitives with another name in Weft.
_OTHERS = {
    **{f"scatter_{word}_p": f"scatter-{word}" for word in ("add", "max", "min", "mul", "sub")},
    "linear_solve_p": "custom_linear_solve",
}
# Cotangents are added by `add`.
_EXTENDED_OTHERS = {"add_jaxvals_p": "add", "call_p": "core_call", "remat_p": "checkpoint"}

LAX = {**{f"{name}_p": name for name in _SHARED.split()}, **_OTHERS}
EXTENDED = {**LAX, **{f"{name}_p": name for name in _EXTENDED.split()}, **_EXTENDED_OTHERS}


def primitive_object(name: str, names: dict[str, str]) -> Any:
    """Look up the primitive that JAX calls `name`."""
    return lookup(names[name])
