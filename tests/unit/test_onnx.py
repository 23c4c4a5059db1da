"""Models of ONNX as text and as bytes, without a runtime; `tests/onnx` runs them."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.protobuf import fields
from weft import export, lax
from weft.errors import ArgumentError, NotSupportedError

TEXTS = {
    "a layer": (
        lambda x: wnp.maximum(x @ np.eye(3, dtype=np.float32) + np.array([1, 2, 3], np.float32), 0),
        """
lambda (float[b,3] x) => (float[b,3] result) {
  float[3,3] c = ...
  float[1,3] c4 = {1.0, 2.0, 3.0}
  float[] c9 = {0.0}
  v3 = MatMul(x, c)
  v8 = Add(v3, c4)
  result = Max(v8, c9)
}
""",
    ),
}


def open_batch(*shape: int, dtype: Any = np.float32) -> weft.ShapeDtypeStruct:
    return weft.ShapeDtypeStruct((*export.symbolic_shape("b"), *shape), dtype)


def only(data: bytes, field: int) -> list[Any]:
    return [value for number, value in fields(data) if number == field]


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    function, expected = TEXTS[name]
    assert export.onnx(function, open_batch(3)).as_text() == expected.strip()


def test_the_bytes_have_the_graph() -> None:
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = export.onnx(lambda x: x @ weights, open_batch(2))
    data = model.serialize()
    (graph,) = only(data, 7)
    assert only(data, 1) == [8] and fields(only(data, 8)[0]) == [(1, b""), (2, 18)]
    (node,) = only(graph, 1)
    (tensor,) = only(graph, 5)
    assert only(node, 4) == [b"MatMul"] and only(node, 1) == [b"x", only(tensor, 8)[0]]
    assert only(tensor, 9) == [weights.tobytes()] and only(tensor, 2) == [1]
    (source,), (result,) = only(graph, 11), only(graph, 12)
    assert [only(value, 1)[0].decode() for value in (source, result)] == [*model.inputs, *model.outputs]
    dimensions = only(only(only(only(source, 2)[0], 1)[0], 2)[0], 1)
    assert [fields(d) for d in dimensions] == [[(2, b"b")], [(1, 2)]]


def test_negative_and_large_integers_of_attributes() -> None:
    model = export.onnx(lambda x: lax.top_k(x, 1), np.ones((2, 3), np.float32))
    assert b"TopK" in model.serialize()
    reversed_text = export.onnx(lambda x: x[::-1], np.ones(3, np.float32)).as_text()
    assert str(-(2**63) + 1) in reversed_text


def test_names_of_inputs_and_outputs() -> None:
    def function(params: Any, x: Any) -> Any:
        return {"sum": params["w"] + x, "same": x}

    args = {"w": np.ones(3, np.float32)}, np.ones(3, np.float32)
    model = export.onnx(function, *args)
    assert len(set(model.inputs)) == 2 and set(model.outputs) == {"result_sum", "result_same"}
    named = export.onnx(function, *args, input_names=["first", "second"], output_names=["a", "b"])
    assert (named.inputs, named.outputs) == (("first", "second"), ("a", "b"))
    with pytest.raises(ArgumentError, match="input_names must be one distinct name"):
        export.onnx(function, *args, input_names=["first", "first"])


def test_versions() -> None:
    x = np.ones(3, np.float32)
    assert export.onnx(wnp.sin, x).opset == 18 and export.onnx(wnp.sin, x, opset=20).opset == 20
    assert export.onnx(lambda x: x.astype("float8_e5m2"), x).opset == 19
    with pytest.raises(ArgumentError, match="opset must be a version from 18"):
        export.onnx(wnp.sin, x, opset=12)


def test_refused_programs_name_the_line() -> None:
    def function(x: Any) -> Any:
        return weft.pure_callback(np.sin, x, x)

    with pytest.raises(NotSupportedError, match="pure_callback"):
        export.onnx(function, np.ones(3, np.float32))
    reverse = weft.grad(lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * c + 1, x).sum())
    with pytest.raises(NotSupportedError, match=r"test_onnx.py:\d+"):
        export.onnx(reverse, np.ones(3, np.float32))


def test_files(tmp_path: pathlib.Path) -> None:
    weights = np.ones((64, 64), np.float32)
    model = export.onnx(lambda x: x @ weights, np.ones((2, 64), np.float32))
    model.save(tmp_path / "one.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == model.serialize()
    model.save(tmp_path / "two.onnx", external=True)
    assert (tmp_path / "two.onnx.data").read_bytes() == weights.tobytes()
    assert (tmp_path / "two.onnx").stat().st_size < 1000


def test_an_export_can_be_written() -> None:
    exported = export.export(weft.jit(wnp.sin))(np.ones(3, np.float32))
    again = export.deserialize(exported.serialize())
    assert export.onnx(exported).as_text() == export.onnx(again).as_text()
