"""Names of kernel operations, in a module of its own so that importing it does not load the compiler."""

from __future__ import annotations

# Elementwise primitives that every target computes in lanes. The `emit` rules of others are written in terms of these.
ELEMENTWISE = frozenset((
    "abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e",
    "bitcast_convert_type", "cbrt", "ceil", "clamp", "clz", "complex", "conj", "convert_element_type", "cos", "cosh",
    "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "igamma",
    "igamma_derivative", "igamma_grad_a", "igammac", "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "mulhi", "ne", "neg", "nextafter", "not", "or", "polygamma",
    "population_count", "pow", "random_gamma_grad", "real", "reduce_precision", "regularized_incomplete_beta", "rem",
    "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh",
    "sqrt", "sub", "tan", "tanh", "xor", "zeta",
))  # fmt: skip
