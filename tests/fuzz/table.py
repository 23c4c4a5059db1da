"""For every primitive: how random programs contain it, or why no user program can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.fuzz import contractions, control, elementwise, movement, reductions
from tests.fuzz.draw import Draw, Skip
from tests.fuzz.elementwise import binary, bitwise, comparison, function, shift, unary

ANY_DEPTH = 9
# Operations that draw a body are not drawn inside of two others.
NESTED = 1


@dataclass(frozen=True)
class Entry:
    """Generator of a primitive, with its weight and the greatest nesting in bodies."""

    primitive: str
    weight: float
    draw: Callable[[Draw], None]
    depth: int = ANY_DEPTH
    # Several primitives that one drawing brings about count once where all have equal chances.
    again: bool = False


FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log1p", "logistic", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv", "lgamma", "digamma",
    "bessel_i0e", "bessel_i1e",
)  # fmt: skip
MOVEMENT = ("reshape", "transpose", "broadcast_in_dim", "squeeze", "rev", "slice", "pad", "concatenate", "roll", "tile",
         "gather", "dynamic_slice", "dynamic_update_slice", "select_n")  # fmt: skip
ARITHMETIC = ("add", "mul", "sub", "neg", "max", "square", "abs", "convert_element_type", "select_n", "tanh")
REDUCTIONS = ("reduce_sum", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or",
              "argmax", "cumsum", "cummax", "sort", "dot_general", "reduce_window_sum",
              "reduce_window_max")  # fmt: skip


def chain(draw: Draw) -> None:
    """Draw data movement, arithmetic, data movement and a reduction, each on the result of the one before."""
    focus, done = draw.focus, 0
    moved = [MOVEMENT[draw.below(len(MOVEMENT))] for _ in range(draw.between(1, 3))]
    again = [MOVEMENT[draw.below(len(MOVEMENT))] for _ in range(draw.between(1, 3))]
    names = [*moved, *(draw.one_of(ARITHMETIC) for _ in range(draw.below(3))), *again, draw.one_of(REDUCTIONS)]
    for name in names:
        result = draw.attempt(BY_NAME[name], focus)
        if result:
            done, focus = done + 1, result[-1]
    if not done:
        raise Skip


ENTRIES: tuple[Entry, ...] = (
    # Movement of data.
    Entry("reshape", 4, movement.reshape), Entry("transpose", 4, movement.transpose),
    Entry("broadcast_in_dim", 4, movement.broadcast), Entry("squeeze", 2, movement.squeeze),
    Entry("rev", 2, movement.reverse), Entry("tile", 1, movement.tile), Entry("slice", 3, movement.cut),
    Entry("pad", 4, movement.pad), Entry("concatenate", 3, movement.concatenate), Entry("split", 1, movement.split),
    Entry("stack", 1, movement.stack), Entry("unstack", 1, movement.unstack),
    Entry("gather", 3, movement.gather), Entry("dynamic_slice", 2, movement.dynamic_slice),
    Entry("dynamic_update_slice", 3, movement.dynamic_update), Entry("iota", 1, movement.iota),
    Entry("scatter", 1, movement.scatter("set")), Entry("scatter-add", 1, movement.scatter("add")),
    Entry("scatter-sub", 1, movement.scatter("subtract")), Entry("scatter-mul", 1, movement.scatter("multiply")),
    Entry("scatter-min", 1, movement.scatter("min")), Entry("scatter-max", 1, movement.scatter("max")),
    Entry("optimization_barrier", 1, movement.barrier),
    # Numbers one by one.
    *(Entry(n, 1, comparison(n)) for n in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(Entry(n, 1, bitwise(n)) for n in ("and", "or", "xor")), Entry("not", 1, unary("bitwise_not", "iub")),
    *(Entry(n, 1, shift(n)) for n in ("shift_left", "shift_right_logical", "shift_right_arithmetic")),
    Entry("is_finite", 1, unary("is_finite", "f", elementwise.one)),
    *(Entry(n, 0.5, unary(n, "iu", elementwise.width)) for n in ("population_count", "clz")),
    Entry("mulhi", 0.5, elementwise.high_product),
    Entry("select_n", 4, elementwise.select), Entry("clamp", 2, elementwise.clamp),
    Entry("real", 1, unary("real", "c")), Entry("imag", 1, unary("imag", "c")),
    Entry("complex", 1, elementwise.complex_of), Entry("conj", 1, elementwise.conjugate),
    Entry("convert_element_type", 4, elementwise.convert), Entry("stop_gradient", 0.5, elementwise.stopped),
    Entry("bitcast_convert_type", 1, elementwise.bitcast),
    Entry("floor", 1, unary("floor", "f")), Entry("ceil", 1, unary("ceil", "f")),
    Entry("round", 1, elementwise.rounding), Entry("nextafter", 0.3, elementwise.nextafter),
    Entry("reduce_precision", 0.5, elementwise.reduced_precision),
    *(Entry(n, 4, binary(n, "fiuc")) for n in ("add", "sub", "mul")),
    *(Entry(n, 2, binary(n, "fiub")) for n in ("max", "min")),
    Entry("neg", 2, unary("neg", "fiuc")), Entry("sign", 1, unary("sign", "fiuc")),
    Entry("abs", 1, unary("abs", "fiuc")), Entry("square", 1, unary("square", "fiuc", elementwise.scaled, 8)),
    Entry("div", 1, elementwise.divide), Entry("rem", 1, elementwise.remainder),
    Entry("integer_pow", 1, elementwise.integer_power), Entry("pow", 0.5, elementwise.power),
    *(Entry(n, 0.3, function(n)) for n in FUNCTIONS),
    *(Entry(n, 0.3, elementwise.function_of_two(n)) for n in ("atan2", "zeta")),
    *(Entry(n, 0.1, elementwise.gamma_function(n))
      for n in ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad")),
    Entry("igamma_derivative", 0.03, elementwise.second_gamma_derivative),
    Entry("polygamma", 0.1, elementwise.polygamma),
    Entry("regularized_incomplete_beta", 0.1, elementwise.function_of_three("betainc")),
    Entry("name", 0.3, elementwise.named),
    # Reductions and what is like them.
    Entry("reduce_sum", 6, reductions.reduction("sum", "fiuc")),
    Entry("reduce_prod", 1, reductions.reduction("prod", "fiuc")),
    Entry("reduce_max", 3, reductions.reduction("max", "fiub")),
    Entry("reduce_min", 2, reductions.reduction("min", "fiub")),
    *(Entry(f"reduce_{n}", 1, reductions.reduction(n, "iub")) for n in ("and", "or", "xor")),
    Entry("reduce", 0.5, reductions.general_reduction),
    Entry("argmax", 1, reductions.argument("argmax")), Entry("argmin", 1, reductions.argument("argmin")),
    *(Entry(f"cum{n}", 1, reductions.cumulative(n)) for n in ("sum", "prod", "max", "min", "logsumexp")),
    Entry("sort", 2, reductions.sort), Entry("top_k", 1, reductions.top_k),
    *(Entry(f"reduce_window_{n}", 1, reductions.window(n)) for n in ("sum", "max", "min")),
    Entry("reduce_window", 0.5, reductions.general_window),
    Entry("select_and_gather_add", 0.5, reductions.window_tangent),
    Entry("select_and_scatter_add", 0.5, reductions.window_cotangent),
    # Contractions, linear algebra.
    Entry("dot_general", 4, contractions.contract), Entry("conv_general_dilated", 3, contractions.convolve),
    Entry("cholesky", 0.3, contractions.cholesky), Entry("lu", 0.3, contractions.decomposition("lu")),
    Entry("qr", 0.3, contractions.decomposition("qr", full_matrices=False)), Entry("geqrf", 0.2, contractions.geqrf),
    Entry("svd", 0.3, contractions.decomposition("svd", full_matrices=False)),
    Entry("eigh", 0.3, contractions.decomposition("eigh")),
    Entry("eig", 0.2, contractions.decomposition("eig", compute_left_eigenvectors=False)),
    Entry("schur", 0.2, contractions.schur),
    Entry("hessenberg", 0.2, contractions.decomposition("hessenberg")),
    Entry("tridiagonal", 0.2, contractions.decomposition("tridiagonal")),
    Entry("triangular_solve", 0.3, contractions.triangular_solve),
    Entry("tridiagonal_solve", 0.3, contractions.tridiagonal_solve),
    Entry("lu_pivots_to_permutation", 0.2, contractions.permutation_of_pivots),
    Entry("linear_solve", 0.3, contractions.linear_solve), Entry("fft", 0.5, contractions.fft),
    # Control flow, calls, derivatives.
    Entry("scan", 3, control.scan, NESTED), Entry("while", 2, control.while_loop, NESTED),
    Entry("lanes", 0.5, control.mapped_branch, NESTED),
    Entry("cond", 3, control.branch, NESTED), Entry("jit", 1, control.call("jit"), NESTED),
    Entry("checkpoint", 1, control.call("checkpoint"), NESTED),
    Entry("custom_jvp_call", 1, control.custom_derivative("jvp")),
    Entry("custom_vjp_call", 1, control.custom_derivative("vjp")),
    Entry("custom_linear_solve", 0.5, control.implicit_solve),
    Entry("repeat", 0.5, control.gradient_of_loop("once")),
    *(Entry(n, 0.1, control.gradient_of_loop("once"), again=True) for n in ("tape_new", "tape_write", "tape_read")),
    *(Entry(n, 0.2, control.gradient_of_loop("mapped"), again=True) for n in ("tape_select", "tape_broadcast")),
    *(Entry(n, 0.1, control.gradient_of_loop("twice"), again=True) for n in ("tape_length", "tape_add", "tape_sum")),
    # Random numbers, Python.
    Entry("random_seed", 0.3, control.seeded), Entry("random_wrap", 0.3, control.wrapped),
    Entry("random_unwrap", 0.3, control.unwrapped), Entry("random_bits", 0.5, control.bits),
    Entry("random_split", 0.3, control.split_key), Entry("random_fold_in", 0.3, control.fold_in),
    Entry("random_clone", 0.2, control.clone),
    Entry("pure_callback", 0.2, control.callback("pure")), Entry("io_callback", 0.1, control.callback("io")),
    Entry("debug_callback", 0.1, control.callback("debug")),
)  # fmt: skip
# What draws no primitive of its own: other ways to the same ones.
OTHERS: tuple[Entry, ...] = (
    Entry("chain", 60, chain), Entry("there and back", 140, movement.there_and_back),
    Entry("roll", 2, movement.roll), Entry("expand_dims", 1, movement.expand),
    Entry("scatter of windows", 1, movement.scatter_windows), Entry("fori_loop", 2, control.fori, NESTED),
    Entry("vmap", 2, control.mapped, NESTED), Entry("grad", 2, control.gradient, NESTED),
    Entry("jvp", 1, control.tangent, NESTED), Entry("distribution", 0.5, control.distribution),
)  # fmt: skip
BY_NAME = {entry.primitive: entry for entry in (*ENTRIES, *OTHERS)}
WEIGHTED = (*ENTRIES, *OTHERS)
EQUAL = tuple(entry for entry in ENTRIES if not entry.again)
WEIGHTS = np.cumsum([entry.weight for entry in WEIGHTED]) / sum(entry.weight for entry in WEIGHTED)


def choose(draw: Draw, weighted: float = 0.35) -> Entry:
    """Choose the next operation: mostly uniformly, so that rare pairs of neighbours occur; with some chance by the
    frequencies of real programs."""
    if draw.flag(weighted):
        return WEIGHTED[int(np.searchsorted(WEIGHTS, draw.rng.random()))]
    return EQUAL[draw.below(len(EQUAL))]


# Primitives that no traced program of a user has where the compiler sees it.
NEVER: dict[str, str] = {
    "fusion": "made by the compiler",
    "scatter_flagged": "made by the compiler",
    **dict.fromkeys(
        ("composite", "core_call", "closed_call", "linear_call", "custom_vmap_call"),
        "a call, which is inlined; tests/unit/test_lax_names.py and test_custom_batching.py have it",
    ),
    **dict.fromkeys(
        ("dce_sink", "create_token", "after_all", "copy", "stage", "platform_index"),
        "leaves numbers as they are; tests/unit/test_lax_names.py has it",
    ),
    **dict.fromkeys(
        ("eq_to", "le_to", "lt_to", "approx_top_k", "householder_product"),
        "has no name of its own in programs, but for its primitive; tests/laws have its samples",
    ),
    "rotation": "only in derivatives of eigenvectors and singular vectors; tests/unit/test_linalg.py has them",
    "ffi_call": "needs a function in C; tests/unit/test_ffi.py has it",
    "size": "the size of a symbolic dimension, which concrete programs do not have",
    "threefry2x32": "what random bits become inside of the compiler; no function of the package binds it",
    "check": "inserted by the setting `checks` when the program is staged, not written by users",
    "trap": "what `check` becomes inside of the compiler",
    "psum": "a named axis is one of vmap, which replaces the collective by a reduction",
    "pmax": "a named axis is one of vmap, which replaces the collective by a reduction",
    "pmin": "a named axis is one of vmap, which replaces the collective by a reduction",
    "axis_index": "a named axis is one of vmap, which replaces it by an iota",
    "all_gather": "a named axis is one of vmap, which replaces it by a broadcast",
    "reduce_scatter": "a named axis is one of vmap, which replaces it by a reduction",
    "all_to_all": "a named axis is one of vmap, which replaces it by a transpose",
    "ppermute": "a named axis is one of vmap, which replaces it by a gather",
    "sharding_constraint": "the operand as it is, on one device; tests/compiler/test_partition.py has it",
    **dict.fromkeys(
        (
            "all_gather_invariant",
            "all_gather_reduced",
            "pbroadcast",
            "preduced",
            "reduced_vary_cast",
            "vary_unreduced_cast",
        ),
        "only inside of shard_map; tests/laws/test_shard_map.py and test_collectives.py have it",
    ),
    "unsum": "is written when programs are partitioned; tests/unit/test_unreduced.py has it",
    "reshard": "says how a value is split; tests/unit/test_explicit.py has it",
    "inspect_sharding": "shows how a value is split; tests/unit/test_see_sharding.py has it",
    "pvary": "changes types inside of shard_map; tests/unit/test_shard_map.py has it",
    "shard_map": "its meaning is vmap; tests/unit/test_shard_map.py has it under every transformation",
    "device_put": "programs run on one device; tests/unit/test_devices.py has it under every transformation",
    "custom_lin": "a placeholder for the tangents of a custom vjp until they are transposed",
    "select_and_scatter": "no function of the package binds it: derivatives of windows use select_and_scatter_add",
}
