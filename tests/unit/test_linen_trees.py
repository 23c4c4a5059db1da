"""Trees of variables: axis metadata, and saving to files."""

from __future__ import annotations

import json
import pathlib
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.linen as nn
import weft.numpy as wnp
from weft.linen import PartitionSpec as P, partitioning
from weft.modules import safetensors, serialization
from weft.modules.struct import PyTreeNode, field

KEY = weft.random.key(0)
X = wnp.ones((3, 4))


class Named(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        init = nn.with_partitioning(nn.initializers.lecun_normal(), ("in", "out"))
        return nn.Dense(5, kernel_init=init)(x)


# ------------------------------------------------------------------------------------------------------ names of axes


def test_boxes_are_unboxed_inside_and_preserved_outside() -> None:
    variables = Named().init(KEY, X)
    kernel = variables["params"]["Dense_0"]["kernel"]
    assert isinstance(kernel, nn.Partitioned) and kernel.names == ("in", "out")
    opened = nn.unbox(variables)
    np.testing.assert_array_equal(Named().apply(variables, X), Named().apply(opened, X))
    grads = weft.grad(lambda v: Named().apply(v, X).sum())(variables)
    assert grads["params"]["Dense_0"]["kernel"].names == ("in", "out")
    assert nn.get_partition_spec(variables) == {"params": {"Dense_0": {"kernel": P("in", "out"), "bias": P()}}}


@pytest.mark.parametrize(("axis", "expected"), [(0, P("layers", "in", "out")), (1, P("in", "layers", "out"))])
def test_transformations_add_their_axis(axis: int, expected: P) -> None:
    options = {"variable_axes": {"params": axis}, "split_rngs": {"params": True}}
    params = {nn.PARTITION_NAME: "layers"}
    many = nn.vmap(Named, **options, metadata_params=params)()
    variables = many.init(KEY, wnp.ones((2, 3, 4)))
    assert nn.get_partition_spec(variables)["params"]["Dense_0"]["kernel"] == expected
    assert many.apply(variables, wnp.ones((2, 3, 4))).shape == (2, 3, 5)

    class Step(nn.Module):
        @nn.compact
        def __call__(self, x: Any, _: Any) -> Any:
            return x, Named()(x)

    loop = nn.scan(Step, **options, metadata_params=params, length=2)()
    variables = loop.init(KEY, X, None)
    assert nn.get_partition_spec(variables)["params"]["Named_0"]["Dense_0"]["kernel"] == expected
    assert loop.apply(variables, X, None)[1].shape == (2, 3, 5)

    with pytest.raises(ValueError, match="must name the axis"):
        nn.vmap(Named, **options)().init(KEY, wnp.ones((2, 3, 4)))

    added = nn.add_metadata_axis(Named, {"params": axis}, params)()
    variables = added.init(KEY, X)
    assert nn.get_partition_spec(variables)["params"]["Dense_0"]["kernel"] == expected
    assert added.apply(variables, X).shape == (3, 5)


def test_logical_axes_follow_the_first_rule_that_is_free() -> None:
    rules = (("batch", "data"), ("embed", "model"), ("heads", None), ("mlp", "model"), ("embed", "data"))
    with nn.logical_axis_rules(rules):
        assert nn.get_logical_axis_rules() == rules
        assert nn.logical_to_mesh_axes(("batch", "embed")) == P("data", "model")
        assert nn.logical_to_mesh_axes(("mlp", "embed")) == P(None, "model")
        assert nn.logical_to_mesh_axes(("x", "heads", None)) == P(None, None, None)
        tree = {"w": P("embed", "batch"), "b": P()}
        assert nn.logical_to_mesh(tree) == {"w": P("model", "data"), "b": P()}
        mesh = weft.sharding.AbstractMesh((2, 2), ("data", "model"))
        assert nn.logical_to_mesh_sharding(tree, mesh)["w"] is weft.NamedSharding(mesh, P("model", "data"))
        assert nn.with_logical_constraint(X, ("batch", "embed")) is X
        with pytest.raises(ValueError, match="3 names"):
            nn.with_logical_constraint(X, ("batch", "embed", "heads"))
        with pytest.raises(ValueError, match="must be distinct"):
            nn.logical_to_mesh_axes(("embed", "embed"))
        fallback = nn.spmd.RulesFallback.RAISE_ERROR
        with pytest.raises(ValueError, match="No rule for"):
            nn.with_logical_constraint(X, ("batch", "unknown"), fallback=fallback)
    assert nn.get_logical_axis_rules() == ()


def test_logical_boxes() -> None:
    init = nn.with_logical_partitioning(nn.initializers.ones, ("embed",))
    box = init(KEY, (3,))
    assert isinstance(box, nn.LogicallyPartitioned) and nn.get_partition_spec({"x": box}) == {"x": P("embed")}
    np.testing.assert_array_equal(nn.unbox(box), np.ones(3))


def test_axes_beside_parameters() -> None:
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            kernel = partitioning.param_with_axes("kernel", nn.initializers.ones, (4, 2), axes=("in", "out"))
            seen = partitioning.variable_with_axes("stats", "seen", wnp.zeros, (2,), axes=("out",))
            return x @ kernel + seen.value

    variables = Model().init(KEY, X)
    assert partitioning.get_axis_names(variables["params_axes"]) == {"kernel": P("in", "out")}
    assert partitioning.get_axis_names(variables["stats_axes"]) == {"seen": P("out")}
    assert Model().apply(variables, X).shape == (3, 2)

    class Step(nn.Module):
        @nn.compact
        def __call__(self, x: Any, _: Any) -> Any:
            return x, Model()(x)

    loop = partitioning.scan_with_axes(Step, {"params": 1, "stats": 0}, split_rngs={"params": True}, length=3)()
    variables = loop.init(KEY, X, None)
    assert partitioning.get_axis_names(variables["params_axes"]) == {"Model_0": {"kernel": P("in", "layers", "out")}}
    assert variables["params"]["Model_0"]["kernel"].shape == (4, 3, 2)
    assert loop.apply(variables, X, None)[1].shape == (3, 3, 2)

    class Wrong(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return partitioning.param_with_axes("kernel", nn.initializers.ones, (4, 2), axes=("in",))

    with pytest.raises(ValueError, match=r"'kernel' of / \(Wrong\) has shape \(4, 2\)"):
        Wrong().init(KEY, X)


# --------------------------------------------------------------------------------------------------------------- files


def a_tree() -> dict[str, Any]:
    return {
        "params": {"a": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "empty": np.zeros((0, 2), np.int8)}},
        "stats": {"half": np.ones(3, ml_dtypes.bfloat16), "flag": np.array(True), "count": np.array(7, np.int32)},
    }


def assert_equal_trees(left: Any, right: Any) -> None:
    assert weft.tree.structure(left) == weft.tree.structure(right)
    for a, b in zip(weft.tree.leaves(left), weft.tree.leaves(right), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)


def test_safetensors_round_trips(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.save_file(a_tree(), path, metadata={"step": "3"})
    assert_equal_trees(safetensors.load_file(path), a_tree())
    assert safetensors.metadata_of(path.read_bytes()) == {"step": "3"}
    assert list(tmp_path.iterdir()) == [path]
    model = Named()
    variables = model.init(KEY, X)
    safetensors.save_file(variables, path)
    np.testing.assert_array_equal(model.apply(safetensors.load_file(path), X), model.apply(variables, X))


def test_the_bytes_are_those_of_the_format() -> None:
    data = safetensors.serialize({"b": {"x": np.array([1, 2], np.int16)}, "a": np.array(1.5, np.float32)})
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    assert json.loads(data[8 : 8 + length]) == {
        "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
        "b.x": {"dtype": "I16", "shape": [2], "data_offsets": [4, 8]},
    }
    assert data[8 + length :] == struct.pack("<f2h", 1.5, 1, 2)


def test_broken_files_are_rejected() -> None:
    data = safetensors.serialize({"a": np.zeros(4, np.float32)})
    for broken, words in (
        (data[:5], "too few"),
        (data[:-1], "is at bytes"),
        (data + b"x", "the arrays end"),
        (struct.pack("<Q", 1 << 40) + data[8:], "does not fit"),
        (data.replace(b'"F32"', b'"F99"'), "'F99'"),
        (data.replace(b"[4]", b"[5]"), "must be at"),
        (data.replace(b'{"a"', b'["a"'), "not valid JSON"),
    ):
        with pytest.raises(ValueError, match=words):
            safetensors.deserialize(broken)
    with pytest.raises(ValueError, match=r"without '\.'"):
        safetensors.serialize({"a.b": np.zeros(1)})
    with pytest.raises(TypeError, match="no dtype complex128"):
        safetensors.serialize({"a": np.zeros(1, np.complex128)})


def test_state_dicts() -> None:
    class Node(PyTreeNode):
        weights: Any
        count: int
        name: str = field(pytree_node=False, default="n")

    tree = {"node": Node(wnp.ones(2), 3), "list": [1, (2, None)], "frozen": nn.freeze({"k": 5})}
    state = serialization.to_state_dict(tree)
    assert state["list"] == {"0": 1, "1": {"0": 2, "1": {}}} and state["frozen"] == {"k": 5}
    assert sorted(state["node"]) == ["count", "weights"]
    doubled = weft.tree.map(lambda leaf: leaf * 2, tree)
    back = serialization.from_state_dict(tree, serialization.to_state_dict(doubled))
    assert weft.tree.structure(back) == weft.tree.structure(tree)
    assert back["list"] == [2, (4, None)] and back["node"].count == 6 and back["node"].name == "n"
    with pytest.raises(ValueError, match=r"at \./list must have the keys of the target: missing \['1'\]"):
        serialization.from_state_dict(tree, {**state, "list": {"0": 1}})
