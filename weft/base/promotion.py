"""The type promotion lattice: which dtype two dtypes promote to.

A node is a dtype, or Python's `int`, `float` or `complex` for the weak type of that kind. An edge leads from a type to
those that it is converted to implicitly, and two types promote to the lowest node that both reach. Weak types are below
the dtypes of their kind, so that `x + 1` has the dtype of x:

    bool -> int* -> u8, i8, ... -> i64, u64 -> float* -> bf16, f16 -> f32 -> f64
                                                float* -> complex* -> c64 -> c128

Types below 8 bits, float8 and the like have no edges: mixing them with other types loses precision, and only the author
of a program can judge whether that is acceptable. In the strict mode only weak types have edges.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Node: TypeAlias = "np.dtype[Any] | type"


def _present(*names: str) -> tuple[str, ...]:
    """Return those of `names` that the installed ml_dtypes has; older releases lack the smallest types."""
    return tuple(name for name in names if hasattr(ml_dtypes, name))


INTEGERS_BELOW_A_BYTE = _present("int1", "int2", "int4", "uint1", "uint2", "uint4")
SMALL_FLOATS = _present(
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_FLOATS = ("bfloat16", "float16", "float32", "float64")
_COMPLEX = ("complex64", "complex128")

_ML_DTYPES = (*INTEGERS_BELOW_A_BYTE, *SMALL_FLOATS, "bfloat16")

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name) if name in _ML_DTYPES else name)
    for name in ("bool", *INTEGERS_BELOW_A_BYTE, *_SIGNED, *_UNSIGNED, *SMALL_FLOATS, *_FLOATS, *_COMPLEX)
}
"""Every number type that an array may have, by name."""

_STANDARD: dict[str, tuple[str, ...]] = {
    "bool": ("int*",),
    "int*": (*INTEGERS_BELOW_A_BYTE, "int8", "uint8"),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("float*",),
    "uint8": ("int16", "uint16"),
    "uint16": ("int32", "uint32"),
    "uint32": ("int64", "uint64"),
    "uint64": ("float*",),
    "float*": (*SMALL_FLOATS, "bfloat16", "float16", "complex*"),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "float32": ("float64", "complex64"),
    "float64": ("complex128",),
    "complex*": ("complex64",),
    "complex64": ("complex128",),
}

_STRICT: dict[str, tuple[str, ...]] = {
    "int*": (*INTEGERS_BELOW_A_BYTE, *_SIGNED, *_UNSIGNED, "float*"),
    "float*": (*SMALL_FLOATS, *_FLOATS, "complex*"),
    "complex*": _COMPLEX,
}

_WEAK: dict[str, type] = {"int*": int, "float*": float, "complex*": complex}
_WEAK_OF_KIND: dict[str, type] = {"i": int, "u": int, "f": float, "c": complex}


def _reachable(edges: dict[str, tuple[str, ...]]) -> dict[Node, frozenset[Node]]:
    """Return for each node all nodes that it reaches, including itself."""
    nodes: dict[str, Node] = {**DTYPES, **_WEAK}
    reached: dict[str, frozenset[Node]] = {}

    def visit(name: str) -> frozenset[Node]:
        if name not in reached:
            above = [visit(next_name) for next_name in edges.get(name, ())]
            reached[name] = frozenset({nodes[name]}).union(*above)
        return reached[name]

    return {nodes[name]: visit(name) for name in nodes}


_REACHABLE = {"standard": _reachable(_STANDARD), "strict": _reachable(_STRICT)}


def join(mode: str, first: Node, second: Node) -> Node | None:
    """Return the lowest node that both reach in the mode 'standard' or 'strict', or None if they have none in
    common."""
    reachable = _REACHABLE[mode]
    common = reachable[first] & reachable[second]
    lowest = [node for node in common if common <= reachable[node]]
    return lowest[0] if lowest else None


def weak_node(dtype: np.dtype[Any]) -> Node:
    """Return the node for a weakly typed value of `dtype`; a bool has no weak form."""
    kind: str = dtype.kind
    if kind == "V":
        kind = "f" if "float" in dtype.name else dtype.name[0]
    return _WEAK_OF_KIND.get(kind, dtype)


def node_name(node: Node) -> str:
    """Return the name of a dtype, or a description of a weak type."""
    return node.name if isinstance(node, np.dtype) else f"Python {node.__name__} (weak)"
