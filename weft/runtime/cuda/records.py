"""Structures of the driver: 2D copies and conditional nodes of graphs, with the functions and constants of the
latter.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

# Functions of drivers that support conditional nodes, with their argument types.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuGraphConditionalHandleCreate": (POINTER(c_uint64), c_void_p, c_void_p, c_uint, c_uint),
    "cuGraphAddNode": (POINTER(c_void_p), c_void_p, c_void_p, c_size_t, c_void_p),
    "cuStreamGetCaptureInfo_v2": (
        *(c_void_p, POINTER(c_int), POINTER(c_uint64)),
        *(POINTER(c_void_p), POINTER(c_void_p), POINTER(c_size_t)),
    ),
    "cuStreamUpdateCaptureDependencies": (c_void_p, POINTER(c_void_p), c_size_t, c_uint),
    "cuStreamBeginCaptureToGraph": (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int),
}
# CU_STREAM_SET_CAPTURE_DEPENDENCIES: the next node of a stream depends on these nodes only.
ONLY_THESE = 1
# CUgraphNodeType and CUgraphConditionalNodeType.
_CONDITIONAL = 13
KINDS = {"while": 1, "switch": 2}


class Rows(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        ("source_x", c_size_t),
        ("source_y", c_size_t),
        ("source_memory", c_int),
        ("source_host", c_void_p),
        ("source", c_uint64),
        ("source_array", c_void_p),
        ("source_pitch", c_size_t),
        ("target_x", c_size_t),
        ("target_y", c_size_t),
        ("target_memory", c_int),
        ("target_host", c_void_p),
        ("target", c_uint64),
        ("target_array", c_void_p),
        ("target_pitch", c_size_t),
        ("width", c_size_t),
        ("rows", c_size_t),
    )


class NodeParameters(ctypes.Structure):
    """CUgraphNodeParams of a conditional node; the driver writes the address of its bodies' graphs."""

    _fields_ = (
        ("type", c_int),
        ("reserved", c_int * 3),
        ("handle", c_uint64),
        ("kind", c_int),
        ("size", c_uint),
        ("graphs", c_void_p),
        ("context", c_void_p),
        ("rest", c_uint64 * 26),
    )


def node_parameters(handle: int, kind: str, bodies: int, context: c_void_p) -> NodeParameters:
    """Return the parameters of a conditional node with this many bodies."""
    parameters = NodeParameters(type=_CONDITIONAL, handle=handle, kind=KINDS[kind], size=bodies)
    parameters.context = context.value
    return parameters


def body_graphs(parameters: NodeParameters) -> list[int]:
    """Return the graphs of the bodies of a node, after it has been added."""
    return list((c_void_p * parameters.size).from_address(parameters.graphs))
