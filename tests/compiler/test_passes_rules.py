"""Every rewrite rule on programs that it must match, with the same bits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.compiler.passes_bits import assert_same_bits, edge_array, results_of
from weft.compiler.passes.simplify import RULES
from weft.compiler.rewrite import rewrite
from weft.ir.parser import parse
from weft.ir.printer import to_text
from weft.ir.verifier import verify

# T is replaced by each of the dtypes after the bar. Arguments are filled with nan, infinities, zeros of both signs,
# denormals and the greatest and least numbers.
REAL = "f32 f64 f16 bf16 i32 u8 i64"
FLOAT = "f32 f64 f16 bf16"
WHOLE = "i32 u8 i64 u32"
ANY = "f32 bf16 i32 bool c64"

FIRES: dict[str, list[str]] = {
    "multiply_by_one": [f"a:T[40]. let b:T[40] = mul a 1:T[] in (b,) | {REAL}"],
    "multiply_by_zero": [f"a:T[40]. let b:T[40] = mul a 0:T[] in (b,) | {WHOLE}"],
    "divide_by_one": [f"a:T[40]. let b:T[40] = div a 1:T[] in (b,) | {REAL}"],
    "divide_by_power_of_two": [
        "a:T[40]. let b:T[40] = div a 4:T[] in (b,) | f32 f64",
        "a:T[40]. let b:T[40] = div a -0.03125:T[] in (b,) | f32 f64",
        "a:T[40]. let b:T[40] = div a 5e-31:T[]; c:T[40] = div a 1.2676506002282294e+30:T[] in (b, c) | f32 f64",
    ],
    "add_negative_zero": [
        f"a:T[40]. let b:T[40] = add a -0.0:T[] in (b,) | {FLOAT}",
        f"a:T[40]. let b:T[40] = add a 0:T[] in (b,) | {WHOLE}",
    ],
    "add_zero": [
        f"a:T[40]. let b:T[40] = exp a; c:T[40] = add b 0:T[] in (c,) | {FLOAT}",
        "a:T[40]. let b:T[40] = abs a; c:T[4,10] = reshape[new_sizes=(4,10)] b;"
        f" d:T[4,10] = add c 0:T[] in (d,) | {FLOAT}",
        f"a:T[40]. let b:T[40] = mul a a; c:T[40] = add b 0:T[] in (c,) | {FLOAT}",
        f"a:T[40]. let b:T[40] = add a 0:T[]; c:T[40] = add b 0:T[] in (c,) | {FLOAT}",
        "a:i32[40]. let b:T[40] = convert_element_type[new_dtype=N weak_type=False] a;"
        " c:T[40] = add b 0:T[] in (c,) | f32=float32",
        f"a:T[40]. let b:T[] = reduce_sum[axes=(0,)] a; c:T[] = add b 0:T[] in (c,) | {FLOAT}",
        "p:bool[40] a:T[40]. let b:T[40] = abs a; c:T[40] = select_n p b 0:T[];"
        f" d:T[40] = add c 0:T[] in (d,) | {FLOAT}",
    ],
    "subtract_zero": [f"a:T[40]. let b:T[40] = sub a 0:T[] in (b,) | {REAL}"],
    "subtract_itself": [f"a:T[40]. let b:T[40] = sub a a in (b,) | {WHOLE}"],
    "negate_twice": [f"a:T[40]. let b:T[40] = neg a; c:T[40] = neg b in (c,) | {REAL} c64"],
    "magnitude_of_negative": [f"a:T[40]. let b:T[40] = neg a; c:T[40] = abs b in (c,) | {FLOAT} i32 i64"],
    "magnitude_twice": [f"a:T[40]. let b:T[40] = abs a; c:T[40] = abs b in (c,) | {FLOAT} i32 i64"],
    "max_of_itself": [f"a:T[40]. let b:T[40] = max a a in (b,) | {REAL}"],
    "min_of_itself": [f"a:T[40]. let b:T[40] = min a a in (b,) | {REAL}"],
    "floor_twice": [f"a:T[40]. let b:T[40] = floor a; c:T[40] = floor b in (c,) | {FLOAT}"],
    "ceil_twice": [f"a:T[40]. let b:T[40] = ceil a; c:T[40] = ceil b in (c,) | {FLOAT}"],
    "small_power": [
        f"a:T[40]. let b:T[40] = integer_pow[y=1] a in (b,) | {REAL} c64",
        f"a:T[40]. let b:T[40] = integer_pow[y=2] a in (b,) | {REAL} c64",
    ],
    "and_with_constant": [
        "a:T[40]. let b:T[40] = and a 0:T[] in (b,) | i32 u8",
        "a:T[40]. let b:T[40] = and a -1:T[] in (b,) | i32 i64",
        "a:bool[40]. let b:bool[40] = and a True:bool[]; c:bool[40] = and a False:bool[] in (b, c)",
    ],
    "or_with_constant": [
        "a:T[40]. let b:T[40] = or a 0:T[] in (b,) | i32 u8",
        "a:T[40]. let b:T[40] = or a -1:T[] in (b,) | i32 i64",
        "a:bool[40]. let b:bool[40] = or a True:bool[]; c:bool[40] = or a False:bool[] in (b, c)",
    ],
    "xor_with_nothing": ["a:T[40]. let b:T[40] = xor a 0:T[] in (b,) | i32 u8"],
    "and_with_itself": ["a:T[40]. let b:T[40] = and a a in (b,) | i32 u8 bool"],
    "or_with_itself": ["a:T[40]. let b:T[40] = or a a in (b,) | i32 u8 bool"],
    "xor_with_itself": ["a:T[40]. let b:T[40] = xor a a in (b,) | i32 u8 bool"],
    "not_twice": ["a:T[40]. let b:T[40] = not a; c:T[40] = not b in (c,) | i32 u8 bool"],
    "boolean_from_integer": [
        "a:bool[40]. let b:T[40] = convert_element_type[new_dtype=N weak_type=False] a; c:bool[40] = ne b 0:T[] in (c,)"
        " | i32=int32 f32=float32"
    ],
    "select_among_equals": [
        f"p:bool[40] a:T[40]. let b:T[40] = select_n p a a in (b,) | {ANY}",
        "p:bool[40]. let b:T[40] = select_n p 3:T[] 3:T[] in (b,) | f32 i32",
    ],
    "select_by_constant": [
        "a:T[40] b:T[40]. let c:T[40] = select_n True:bool[] a b;"
        f" d:T[40] = select_n False:bool[] a b in (c, d) | {ANY}",
        "a:f32[40] b:f32[40] c:f32[40]. let d:f32[40] = select_n 7:i32[] a b c;"
        " e:f32[40] = select_n -1:i32[] a b c in (d, e)",
        "a:f32[4]. let b:f32[4] = select_n True:bool[] a 2.0:f32[] in (b,)",
    ],
    "select_by_negation": [
        f"p:bool[40] a:T[40] b:T[40]. let q:bool[40] = not p; c:T[40] = select_n q a b in (c,) | {ANY}"
    ],
    "merge_conversions": [
        "a:T[40]. let b:f32[40] = convert_element_type[new_dtype=float32 weak_type=False] a;"
        " c:T[40] = convert_element_type[new_dtype=N weak_type=False] b in (c,)"
        " | f16=float16 bf16=bfloat16 i8=int8 u16=uint16 bool=bool",
        "a:T[40]. let b:f64[40] = convert_element_type[new_dtype=float64 weak_type=False] a;"
        " c:i32[40] = convert_element_type[new_dtype=int32 weak_type=False] b in (c,) | f32 f16 bf16 i32 u16 u8",
        "a:T[40]. let b:f32[40] = convert_element_type[new_dtype=float32 weak_type=False] a;"
        " c:bf16[40] = convert_element_type[new_dtype=bfloat16 weak_type=False] b in (c,) | f16 u16 i8",
        "a:T[40]. let b:i64[40] = convert_element_type[new_dtype=int64 weak_type=False] a;"
        " c:f32[40] = convert_element_type[new_dtype=float32 weak_type=False] b in (c,) | u32 i32 u8",
        "a:T[40]. let b:c64[40] = convert_element_type[new_dtype=complex64 weak_type=False] a;"
        " c:T[40] = convert_element_type[new_dtype=N weak_type=False] b in (c,) | f32=float32",
    ],
    "real_of_complex": [
        "a:f32[40] b:f32[40]. let c:c64[40] = complex a b; d:f32[40] = real c in (d,)",
        "b:f32[40]. let c:c64[40] = complex 2.0:f32[] b; d:f32[40] = real c in (d,)",
    ],
    "imaginary_of_complex": [
        "a:f32[40] b:f32[40]. let c:c64[40] = complex a b; d:f32[40] = imag c in (d,)",
        "a:f32[40]. let c:c64[40] = complex a 2.0:f32[]; d:f32[40] = imag c in (d,)",
    ],
    "conjugate_twice": [
        "a:c64[40]. let b:c64[40] = conj[input_dtype=complex64] a; c:c64[40] = conj[input_dtype=complex64] b in (c,)"
    ],
    "slice_inside_padding": [
        f"a:T[9] v:T[]. let b:T[14] = pad[padding_config=((2, 3, 0),)] a v;"
        f" c:T[4] = slice[limit_indices=(8,) start_indices=(4,)] b in (c,) | {ANY}",
        "a:f32[9] v:f32[]. let b:f32[14] = pad[padding_config=((2, 3, 0),)] a v;"
        " c:f32[2] = slice[limit_indices=(13,) start_indices=(11,)] b in (c,)",
        "a:f32[3,9] v:f32[]. let b:f32[3,10] = pad[padding_config=((0, 0, 0), (-1, 2, 0))] a v;"
        " c:f32[3,4] = slice[limit_indices=(3, 8) start_indices=(0, 1) strides=(1, 2)] b in (c,)",
    ],
    "slice_of_one_part": [
        f"a:T[3] b:T[4]. let c:T[7] = concatenate[dimension=0] a b;"
        f" d:T[2] = slice[limit_indices=(6,) start_indices=(4,)] c in (d,) | {ANY}",
        "a:f32[2,3] b:f32[2,4]. let c:f32[2,7] = concatenate[dimension=1] a b;"
        " d:f32[2,2] = slice[limit_indices=(2, 6) start_indices=(0, 3) strides=(1, 2)] c in (d,)",
    ],
    "reduction_of_one": [
        "a:T[4,1,10]. let b:T[4,10] = reduce_sum[axes=(1,)] a;"
        f" c:T[4,1,10] = reduce_sum[axes=()] a in (b, c) | {REAL} c64",
        f"a:T[4,1,10]. let b:T[4,10] = reduce_max[axes=(1,)] a; c:T[4,10] = reduce_min[axes=(1,)] a in (b, c) | {REAL}",
        f"a:T[4,1,10]. let b:T[4,10] = reduce_prod[axes=(1,)] a in (b,) | {REAL}",
        "a:T[4,1,10]. let b:T[4,10] = reduce_and[axes=(1,)] a;"
        " c:T[4,10] = reduce_xor[axes=(1,)] a in (b, c) | bool i32",
    ],
    "reduction_of_broadcast": [
        f"a:T[40]. let b:T[5,40,2] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(5, 40, 2)] a;"
        f" c:T[40,2] = reduce_max[axes=(0,)] b; d:T[40] = reduce_min[axes=(0, 2)] b in (c, d) | {WHOLE}",
        "a:T[40,3]. let b:T[5,40,3] = broadcast_in_dim[broadcast_dimensions=(1, 2) shape=(5, 40, 3)] a;"
        " c:T[40] = reduce_max[axes=(0, 2)] b in (c,) | i32 u8",
    ],
    "merge_reductions": [
        "a:T[4,5,6]. let b:T[4,6] = reduce_sum[axes=(1,)] a; c:T[6] = reduce_sum[axes=(0,)] b in (c,) | i32 u8 i64",
        "a:T[4,5,6]. let b:T[4,6] = reduce_max[axes=(1,)] a; c:T[4] = reduce_max[axes=(1,)] b in (c,) | i32 u8",
    ],
    # -- canonical form
    "one_shape": [
        f"a:T[40] b:T[]. let c:T[40] = add a b in (c,) | {REAL} c64",
        "p:bool[] a:T[40] b:T[40]. let c:T[40] = select_n p a b in (c,) | f32 c64 bool",
        "a:T[40]. let b:T[40] = broadcast_in_dim[broadcast_dimensions=() shape=(40,)] 2:T[];"
        " c:T[40] = max a b in (c,) | f32 i32",
        "a:f32[] b:f32[8] c:f32[]. let d:f32[8] = clamp a b c in (d,)",
    ],
    "one_shape_of_hash": [
        "a:u32[] b:u32[4,1] c:u32[4,3]. let d:u32[4,3] e:u32[4,3] = threefry2x32 a b 7:u32[] c in (d, e)",
        "a:u32[1,3] b:u32[4,1]. let c:u32[4,3] d:u32[4,3] = threefry2x32 a a b b in (c, d)",
    ],
    "constant_right": [
        f"a:T[40]. let b:T[40] = add 3:T[] a in (b,) | {REAL} c64",
        f"a:T[40]. let b:T[40] = mul 3:T[] a in (b,) | {REAL}",
        "a:T[40]. let b:T[40] = and 6:T[] a in (b,) | i32 u8",
        "a:T[40]. let b:T[40] = or 6:T[] a in (b,) | i32 u8",
        "a:T[40]. let b:T[40] = xor 6:T[] a in (b,) | i32 u8",
        f"a:T[40]. let b:bool[40] = eq 1:T[] a; c:bool[40] = eq 0:T[] a in (b, c) | {REAL} c64",
        f"a:T[40]. let b:bool[40] = ne 1:T[] a; c:bool[40] = ne 0:T[] a in (b, c) | {REAL} c64",
        f"a:T[40]. let b:T[40] = max 1:T[] a in (b,) | {REAL}",
        f"a:T[40]. let b:T[40] = min 1:T[] a in (b,) | {REAL}",
        f"a:T[40]. let b:bool[40] = lt 1:T[] a; c:bool[40] = lt 0:T[] a in (b, c) | {REAL}",
        f"a:T[40]. let b:bool[40] = le 1:T[] a; c:bool[40] = le 0:T[] a in (b, c) | {REAL}",
        f"a:T[40]. let b:bool[40] = gt 1:T[] a; c:bool[40] = gt 0:T[] a in (b, c) | {REAL}",
        f"a:T[40]. let b:bool[40] = ge 1:T[] a; c:bool[40] = ge 0:T[] a in (b, c) | {REAL}",
    ],
    "convert_to_same": [
        "a:T[40]. let b:T[40] = convert_element_type[new_dtype=N weak_type=True] a in (b,)"
        " | f32=float32 i8=int8 bf16=bfloat16"
    ],
    "convert_literal": [
        ". let b:i32[] = convert_element_type[new_dtype=int32 weak_type=False] 3e10:f32[];"
        " c:bf16[] = convert_element_type[new_dtype=bfloat16 weak_type=False] 0.1:f32[] in (b, c)"
    ],
    # -- movement
    "squeeze_is_reshape": [f"a:T[4,1,10]. let b:T[4,10] = squeeze[dimensions=(1,)] a in (b,) | {ANY}"],
    "reshape_to_same": [f"a:T[4,10]. let b:T[4,10] = reshape[new_sizes=(4, 10)] a in (b,) | {ANY}"],
    "merge_reshapes": [
        "a:T[4,10]. let b:T[40] = reshape[new_sizes=(40,)] a;"
        " c:T[5,8] = reshape[new_sizes=(5, 8)] b in (c,) | f32 bool"
    ],
    "transpose_of_nothing": [
        "a:T[4,10]. let b:T[4,10] = transpose[permutation=(0, 1)] a in (b,) | f32",
        "a:T[4,1,10]. let b:T[1,4,10] = transpose[permutation=(1, 0, 2)] a in (b,) | f32",
    ],
    "merge_transposes": [
        "a:f32[2,3,4]. let b:f32[3,4,2] = transpose[permutation=(1, 2, 0)] a;"
        " c:f32[2,4,3] = transpose[permutation=(2, 1, 0)] b in (c,)"
    ],
    "transpose_before_broadcast": [
        "a:f32[2,3]. let b:f32[2,4,3] = broadcast_in_dim[broadcast_dimensions=(0, 2) shape=(2, 4, 3)] a;"
        " c:f32[3,4,2] = transpose[permutation=(2, 1, 0)] b in (c,)",
        "a:f32[2,3]. let b:f32[2,4,3] = broadcast_in_dim[broadcast_dimensions=(0, 2) shape=(2, 4, 3)] a;"
        " c:f32[4,3,2] = transpose[permutation=(1, 2, 0)] b in (c,)",
        "a:f32[2]. let b:f32[2,4] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(2, 4)] a;"
        " c:f32[4,2] = transpose[permutation=(1, 0)] b in (c,)",
    ],
    "broadcast_of_nothing": [
        "a:f32[40]. let b:f32[1,40] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(1, 40)] a in (b,)",
        "a:f32[]. let b:f32[1,1] = broadcast_in_dim[broadcast_dimensions=() shape=(1, 1)] a in (b,)",
        ". let b:f32[] = broadcast_in_dim[broadcast_dimensions=() shape=()] 2.0:f32[] in (b,)",
    ],
    "broadcast_without_ones": [
        "a:f32[1,4,1]. let b:f32[3,4,5] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2) shape=(3, 4, 5)] a in (b,)"
    ],
    "merge_broadcasts": [
        "a:f32[3]. let b:f32[3,4] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(3, 4)] a;"
        " c:f32[2,3,5,4] = broadcast_in_dim[broadcast_dimensions=(1, 3) shape=(2, 3, 5, 4)] b in (c,)"
    ],
    "index_repeated_scalar": [
        "a:f32[]. let b:f32[3,4] = broadcast_in_dim[broadcast_dimensions=() shape=(3, 4)] a;"
        " c:f32[12] = reshape[new_sizes=(12,)] b;"
        " d:f32[2,4] = slice[limit_indices=(3, 4) start_indices=(1, 0)] b;"
        " e:f32[4,3] = transpose[permutation=(1, 0)] b;"
        " f:f32[3,4] = rev[dimensions=(0,)] b; g:f32[6,4] = tile[reps=(2, 1)] b in (c, d, e, f, g)"
    ],
    "reshape_repeated_scalar": [
        ". let b:f32[1,1] = broadcast_in_dim[broadcast_dimensions=() shape=(1, 1)] 2.0:f32[];"
        " c:f32[] = reshape[new_sizes=()] b in (c,)"
    ],
    "slice_of_everything": [
        f"a:T[4,10]. let b:T[4,10] = slice[limit_indices=(4, 10) start_indices=(0, 0) strides=(1, 1)] a in (b,) | {ANY}"
    ],
    "slice_without_strides": [
        "a:f32[9]. let b:f32[4] = slice[limit_indices=(6,) start_indices=(2,) strides=(1,)] a;"
        " c:f32[1] = slice[limit_indices=(9,) start_indices=(7,) strides=(5,)] a;"
        " d:f32[0] = slice[limit_indices=(9,) start_indices=(9,) strides=(5,)] a in (b, c, d)"
    ],
    "merge_slices": [
        "a:f32[40]. let b:f32[12] = slice[limit_indices=(38,) start_indices=(3,) strides=(3,)] a;"
        " c:f32[5] = slice[limit_indices=(11,) start_indices=(1,) strides=(2,)] b;"
        " d:f32[3] = slice[limit_indices=(5,) start_indices=(2,)] b;"
        " e:f32[0] = slice[limit_indices=(12,) start_indices=(12,)] b"
        " in (c, d, e)"
    ],
    "slice_before_broadcast": [
        "a:f32[5]. let b:f32[4,5] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(4, 5)] a;"
        " c:f32[2,3] = slice[limit_indices=(3, 5) start_indices=(1, 0) strides=(1, 2)] b in (c,)"
    ],
    "dynamic_slice_at_known_start": [
        "a:f32[9] i:i32[]. let b:f32[4] = dynamic_slice[slice_sizes=(4,)] a 7:i32[];"
        " c:f32[9] = dynamic_slice[slice_sizes=(9,)] a i;"
        " d:f32[2] = dynamic_slice[slice_sizes=(2,)] a -3:i32[] in (b, c, d)"
    ],
    "update_of_everything": ["a:f32[9] b:f32[9] i:i32[]. let c:f32[9] = dynamic_update_slice a b i in (c,)"],
    "pad_by_nothing": ["a:f32[9,1] v:f32[]. let b:f32[9,1] = pad[padding_config=((0, 0, 0), (0, 0, 3))] a v in (b,)"],
    "cropping_is_slice": ["a:f32[9] v:f32[]. let b:f32[6] = pad[padding_config=((-1, -2, 0),)] a v in (b,)"],
    "reverse_of_nothing": [
        "a:f32[9,1]. let b:f32[9,1] = rev[dimensions=()] a; c:f32[9,1] = rev[dimensions=(0, 1)] a;"
        " d:f32[9,1] = rev[dimensions=(1,)] a"
        " in (b, c, d)"
    ],
    "merge_reverses": [
        "a:f32[3,4]. let b:f32[3,4] = rev[dimensions=(0, 1)] a; c:f32[3,4] = rev[dimensions=(1,)] b;"
        " d:f32[3,4] = rev[dimensions=(0, 1)] b"
        " in (c, d)"
    ],
    "tile_once": ["a:f32[3,4]. let b:f32[3,4] = tile[reps=(1, 1)] a in (b,)"],
    "concatenate_nonempty": [
        "a:f32[3] b:f32[0] c:f32[2]. let d:f32[3] = concatenate[dimension=0] a;"
        " e:f32[5] = concatenate[dimension=0] a b c;"
        " f:f32[3] = concatenate[dimension=0] b a; g:f32[0] = concatenate[dimension=0] b b in (d, e, f, g)"
    ],
}  # fmt: skip

# Programs that look as if a rule applied. Nothing may fire: each would change a bit.
STAYS = {
    "adding 0.0 turns -0.0 into 0.0": "a:f32[4]. let b:f32[4] = add a 0.0:f32[] in (b,)",
    "subtracting -0.0 does too": "a:f32[4]. let b:f32[4] = sub a -0.0:f32[] in (b,)",
    "inf - inf is nan": "a:f32[4]. let b:f32[4] = sub a a in (b,)",
    "inf * 0 is nan": "a:f32[4]. let b:f32[4] = mul a 0.0:f32[] in (b,)",
    "inf times complex 1 has a nan": "a:c64[4]. let b:c64[4] = mul a (1+0j):c64[] in (b,)",
    "a third is not exact": "a:f32[4]. let b:f32[4] = div a 3.0:f32[] in (b,)",
    "a half float rounds after the quotient": "a:f16[4]. let b:f16[4] = div a 1024.0:f16[] in (b,)",
    "the reciprocal of 2^127 is denormal": "a:f32[4]. let b:f32[4] = div a 1.7014118346046923e+38:f32[] in (b,)",
    "of zeros the maximum is either": "a:f32[4]. let b:f32[4] = max 0.0:f32[] a in (b,)",
    "f32 does not hold i32": (
        "a:i32[4]. let b:f32[4] = convert_element_type[new_dtype=float32 weak_type=False] a;"
        " c:i32[4] = convert_element_type[new_dtype=int32 weak_type=False] b in (c,)"
    ),
    "u32 wraps where f64 stops": (
        "a:u32[4]. let b:f64[4] = convert_element_type[new_dtype=float64 weak_type=False] a;"
        " c:i32[4] = convert_element_type[new_dtype=int32 weak_type=False] b in (c,)"
    ),
    "a fold of floats may change the sign of nan": (
        "a:f32[4]. let b:f32[3,4] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(3, 4)] a;"
        " c:f32[4] = reduce_max[axes=(0,)] b in (c,)"
    ),
    "i8 does not hold u8": (
        "a:u8[4]. let b:i8[4] = convert_element_type[new_dtype=int8 weak_type=False] a;"
        " c:i32[4] = convert_element_type[new_dtype=int32 weak_type=False] b in (c,)"
    ),
    "a sum of copies is rounded often": (
        "a:f32[4]. let b:f32[3,4] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(3, 4)] a;"
        " c:f32[4] = reduce_sum[axes=(0,)] b in (c,)"
    ),
    "a sum of integers counts every copy": (
        "a:i32[4]. let b:i32[3,4] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(3, 4)] a;"
        " c:i32[4] = reduce_sum[axes=(0,)] b in (c,)"
    ),
    "of two equal bits the exclusive or is 0": (
        "a:u8[4]. let b:u8[2,4] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(2, 4)] a;"
        " c:u8[4] = reduce_xor[axes=(0,)] b in (c,)"
    ),
    "sums of floats are not reordered": (
        "a:f32[4,5]. let b:f32[4] = reduce_sum[axes=(1,)] a; c:f32[] = reduce_sum[axes=(0,)] b in (c,)"
    ),
    "a slice across the edge of padding": (
        "a:f32[9] v:f32[]. let b:f32[14] = pad[padding_config=((2, 3, 0),)] a v;"
        " c:f32[4] = slice[limit_indices=(5,) start_indices=(1,)] b in (c,)"
    ),
    "a barrier hides what is behind it": (
        "a:f32[4]. let b:f32[4] = neg a; c:f32[4] = optimization_barrier b; d:f32[4] = neg c in (d,)"
    ),
    "a short float may become -0.0": (
        "a:f64[4]. let b:f64[4] = neg a; c:f32[4] = convert_element_type[new_dtype=float32 weak_type=False] b;"
        " d:f32[4] = add c 0.0:f32[] in (d,)"
    ),
}


def programs(template: str) -> list[str]:
    """The texts of a template: `T` for each type listed, `N` for the name of its dtype where one is given."""
    body, _, listed = template.partition(" | ")
    texts = []
    for item in listed.split() or [""]:
        short, _, name = item.partition("=")
        text = body.replace(":T[", f":{short}[").replace("new_dtype=N", f"new_dtype={name}")
        texts.append("{ lambda ; " + text + " }")
    return texts


def test_every_rule_has_examples() -> None:
    assert set(FIRES) == {r.name for r in RULES}


@pytest.mark.parametrize("name", FIRES)
def test_rules_match_and_preserve_bits(name: str, rng: np.random.Generator, monkeypatch: Any) -> None:
    for text in (t for template in FIRES[name] for t in programs(template)):
        before = verify(parse(text))
        fired: Counter[str] = Counter()
        after = verify(rewrite(before, RULES, fired=fired))
        assert fired[name], f"{name} did not fire, but {dict(fired)}, on\n{text}"
        arrays = [edge_array(v.aval, rng) for v in before.invars]  # type: ignore[arg-type]
        expected = results_of(before, arrays, monkeypatch)
        assert_same_bits(results_of(after, arrays, monkeypatch), expected, f"{text}\n{to_text(after)}")
        assert rewrite(after, RULES) is after


@pytest.mark.parametrize("why", STAYS)
def test_rewrites_that_would_change_bits_are_skipped(why: str) -> None:
    before = verify(parse("{ lambda ; " + STAYS[why] + " }"))
    fired: Counter[str] = Counter()
    assert rewrite(before, RULES, fired=fired) is before, dict(fired)
