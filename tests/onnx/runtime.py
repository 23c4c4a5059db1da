"""Models in onnxruntime: arrays in, arrays out, also of dtypes that NumPy does not have."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import export
from weft.base import dtypes
from weft.export.onnx.graph import Graph, element_type, model_message

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

# Dtypes that onnxruntime's Python interface converts by itself.
OF_NUMPY = frozenset(
    {"float16", "float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)


def to_runtime(array: np.ndarray) -> Any:
    """Convert an array to a value of the runtime."""
    array = np.array(array, order="C")
    if array.dtype.name in OF_NUMPY:
        return ort.OrtValue.ortvalue_from_numpy(array)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, element_type(array.dtype)[0])


def from_runtime(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert a value of the runtime to an array."""
    if dtype.name in OF_NUMPY:
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    count = math.prod(shape)
    small = dtype.name in ("int4", "uint4")
    data = ctypes.string_at(value.data_ptr(), -(-count // 2) if small else count * dtype.itemsize)
    if not small:
        return np.frombuffer(data, dtype).reshape(shape)
    pairs = np.frombuffer(data, np.uint8)
    nibbles = np.stack([pairs & 0xF, pairs >> 4], -1).reshape(-1)[:count]
    return nibbles.astype(np.int8).astype(dtype).reshape(shape)


def session(data: bytes) -> Any:
    """Check a model and load it."""
    onnx.checker.check_model(data)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run_graph(graph: Graph, version: int, arrays: Sequence[np.ndarray]) -> list[Any]:
    """Run a graph on the tensors of its inputs."""
    loaded = session(model_message(graph, version, ("weft", "")).encode())
    fed = {value.name: to_runtime(array) for value, array in zip(graph.inputs, arrays, strict=True)}
    found = loaded.run_with_ort_values(None, fed)
    return [from_runtime(value, out.dtype) for value, out in zip(found, graph.outputs, strict=True)]


def run_model(model: export.OnnxModel, *args: Any) -> list[np.ndarray]:
    """Run a model on the leaves of arguments."""
    return run_graph(model.graph, model.opset, [np.asarray(leaf) for leaf in weft.tree.leaves(args)])


def check(function: Any, *args: Any, specs: Sequence[Any] = (), tolerance: float = 2e-5) -> export.OnnxModel:
    """Export a function, for `specs` or the types of arguments, and compare the runtime's results with Weft's."""
    model = export.onnx(function, *(specs or args))
    compare(run_model(model, *args), parts_of(weft.tree.leaves(weft.jit(function)(*args))), tolerance)
    return model


def parts_of(results: Sequence[Any]) -> list[np.ndarray]:
    """Return arrays with complex ones in their two parts, as models have them."""
    arrays = [np.asarray(result) for result in results]
    return [part for a in arrays for part in ((a.real, a.imag) if np.iscomplexobj(a) else (a,))]


def compare(found: Sequence[np.ndarray], expected: Sequence[Any], tolerance: float) -> None:
    """Compare results: their dtypes, their shapes, and their elements relative to the largest one."""
    assert len(found) == len(expected)
    for own, wanted in zip(found, map(np.asarray, expected), strict=True):
        assert own.dtype == wanted.dtype and own.shape == wanted.shape
        if dtypes.kind(wanted.dtype) != "f":
            np.testing.assert_array_equal(own, wanted)
            continue
        sizes = np.abs(wanted.astype(np.float64))
        limit = tolerance * max(float(sizes[np.isfinite(sizes)].max(initial=0)), 1e-3)
        np.testing.assert_allclose(own.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=limit)


def errors_in_eps(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the greatest relative error of floats, in units of the dtype's precision."""
    own, wanted = found.astype(np.float64), expected.astype(np.float64)
    least = 1e-3 if expected.dtype.itemsize >= 4 else 1e-2
    with np.errstate(all="ignore"):
        errors = np.abs(own - wanted) / np.maximum(np.abs(wanted), least) / float(ml_dtypes.finfo(expected.dtype).eps)
    same = (own == wanted) | (np.isnan(own) & np.isnan(wanted))
    return float(np.nan_to_num(np.where(same, 0, errors), nan=np.inf).max(initial=0))
