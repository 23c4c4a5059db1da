"""Layers of `weft.linen` against their definitions in NumPy, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.linen as nn
import weft.numpy as wnp
from weft.errors import ArgumentError, ShapeMismatchError
from weft.sharding import PartitionSpec

KEY = weft.random.key(0)
RNG = np.random.default_rng(1)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def run(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Return the variables that init makes, with random biases, and the result with them."""
    result = module.init(KEY, *args, **kwargs)
    leaves, tree = weft.tree.flatten(result.get("params", {}))
    params = weft.tree.unflatten(tree, [wnp.asarray(floats(*leaf.shape)) for leaf in leaves])
    variables = {**result, "params": params}
    return variables, module.apply(variables, *args, **kwargs)


def test_dense_is_a_matmul() -> None:
    x = floats(2, 3, 4)
    variables, y = run(nn.Dense(5), x)
    p = weft.tree.map(np.asarray, variables["params"])
    np.testing.assert_allclose(y, x @ p["kernel"] + p["bias"], rtol=1e-5, atol=1e-5)


def test_dense_general_is_an_einsum() -> None:
    x = floats(2, 3, 4, 5)
    variables, y = run(nn.DenseGeneral((6, 7), axis=(1, 3)), x)
    p = weft.tree.map(np.asarray, variables["params"])
    np.testing.assert_allclose(y, np.einsum("abcd,bdef->acef", x, p["kernel"]) + p["bias"], rtol=1e-4, atol=1e-5)
    variables, y = run(nn.DenseGeneral(6, axis=-1, batch_dims=(0, 1)), x)
    p = weft.tree.map(np.asarray, variables["params"])
    expected = np.einsum("abcd,abde->abce", x, p["kernel"]) + p["bias"][:, :, None]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="must be the first axes"):
        nn.DenseGeneral(6, batch_dims=(1,)).init(KEY, x)


def test_convolution_by_windows() -> None:
    x = floats(1, 6, 5, 2)
    variables, y = run(nn.Conv(3, (2, 3), padding="VALID", strides=(2, 1)), x)
    p = weft.tree.map(np.asarray, variables["params"])
    assert y.shape == (1, 3, 3, 3)
    for i in range(3):
        for j in range(3):
            window = x[0, 2 * i : 2 * i + 2, j : j + 3]
            np.testing.assert_allclose(y[0, i, j], np.einsum("abc,abcd->d", window, p["kernel"]) + p["bias"], rtol=1e-4)
    with pytest.raises(ShapeMismatchError, match="2 spatial dimensions"):
        nn.Conv(3, (2, 2)).init(KEY, floats(4, 2))
    with pytest.raises(ValueError, match="padding of /"):
        nn.Conv(3, (2, 2), padding=((1, 1),)).init(KEY, x)
    with pytest.raises(ShapeMismatchError, match="its groups divide"):
        nn.Conv(3, (2, 2), feature_group_count=3).init(KEY, x)


def test_circular_convolution_commutes_with_rolling() -> None:
    x = floats(1, 8, 2)
    for module in (nn.Conv(3, (3,), padding="CIRCULAR"), nn.ConvTranspose(3, (3,), padding="CIRCULAR")):
        variables, y = run(module, x)
        rolled = module.apply(variables, np.roll(x, 3, axis=1))
        np.testing.assert_allclose(rolled, np.roll(np.asarray(y), 3, axis=1), rtol=1e-5, atol=1e-5)


def test_causal_convolution_does_not_see_the_future() -> None:
    x = floats(1, 8, 2)
    module = nn.Conv(3, (3,), padding="CAUSAL")
    variables, y = run(module, x)
    later = x.copy()
    later[:, 5:] += 1
    np.testing.assert_array_equal(module.apply(variables, later)[:, :5], np.asarray(y)[:, :5])


def test_embedding_looks_up_and_attends() -> None:
    module = nn.Embed(5, 3)
    variables, y = run(module, np.array([[1, 4]]))
    table = np.asarray(variables["params"]["embedding"])
    np.testing.assert_array_equal(y, table[[1, 4]][None])
    query = floats(2, 3)
    np.testing.assert_allclose(module.apply(variables, query, method="attend"), query @ table.T, rtol=1e-5)
    with pytest.raises(ValueError, match="needs integers, got float32"):
        module.apply(variables, query)


@pytest.mark.parametrize(
    ("module", "axes"),
    [
        (nn.LayerNorm(use_bias=False, use_scale=False), (3,)),
        (nn.LayerNorm(use_bias=False, use_scale=False, use_fast_variance=False), (3,)),
        (nn.InstanceNorm(use_bias=False, use_scale=False), (1, 2)),
        (nn.BatchNorm(use_running_average=False, use_bias=False, use_scale=False), (0, 1, 2)),
        (nn.GroupNorm(1, use_bias=False, use_scale=False), (1, 2, 3)),
    ],
)
def test_normalization_has_mean_0_and_variance_1(module: nn.Module, axes: tuple[int, ...]) -> None:
    x = 3 + 5 * floats(2, 6, 7, 8)
    result = module.init(KEY, x)
    y, _ = module.apply(result, x, mutable=["batch_stats"])
    np.testing.assert_allclose(np.mean(y, axes), 0, atol=1e-5)
    np.testing.assert_allclose(np.var(y, axes), 1, rtol=1e-4)


def test_rms_norm_keeps_direction() -> None:
    x = floats(5, 8)
    y = nn.RMSNorm(use_scale=False).apply({}, x)
    np.testing.assert_allclose(y, x / np.sqrt((x**2).mean(-1, keepdims=True)), rtol=1e-4)


def test_running_averages() -> None:
    module = nn.BatchNorm(momentum=0.75, use_running_average=False)
    x = floats(10, 3)
    variables = module.init(KEY, x)
    for _ in range(60):
        _, changed = module.apply(variables, x, mutable=["batch_stats"])
        variables = {**variables, **changed}
    np.testing.assert_allclose(variables["batch_stats"]["mean"], x.mean(0), atol=1e-5)
    np.testing.assert_allclose(variables["batch_stats"]["var"], x.var(0), atol=1e-5)
    still = module.clone(use_running_average=True).apply(variables, x)
    np.testing.assert_allclose(still, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-3, atol=1e-4)


def test_group_norm_refuses() -> None:
    with pytest.raises(ValueError, match="cannot divide 8 channels by 3"):
        nn.GroupNorm(3).init(KEY, floats(2, 8))
    with pytest.raises(ValueError, match="num_groups or group_size"):
        nn.GroupNorm(2, group_size=4).init(KEY, floats(2, 8))


def test_weight_norm_and_spectral_norm() -> None:
    x = floats(4, 6)
    weight = nn.WeightNorm(nn.Dense(3, use_bias=False), use_scale=False)
    y = weight.apply(weight.init(KEY, x), np.eye(6, dtype=np.float32))
    np.testing.assert_allclose(np.linalg.norm(y, axis=0), 1, rtol=1e-5)
    spectral = nn.SpectralNorm(nn.Dense(3, use_bias=False), n_steps=100)
    y = spectral.apply(spectral.init(KEY, x, update_stats=False), np.eye(6, dtype=np.float32), update_stats=False)
    np.testing.assert_allclose(np.linalg.svd(y, compute_uv=False)[0], 1, rtol=1e-4)


def test_dropout_keeps_the_mean() -> None:
    x = wnp.ones((200, 50))
    y = np.asarray(nn.Dropout(0.25, deterministic=False).apply({}, x, rngs={"dropout": KEY}))
    assert abs(y.mean() - 1) < 0.02 and set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    rows = np.asarray(nn.Dropout(0.25, (1,), deterministic=False).apply({}, x, rngs={"dropout": KEY}))
    assert (rows == rows[:, :1]).all()
    np.testing.assert_array_equal(nn.Dropout(1.0, deterministic=False).apply({}, x, rngs={"dropout": KEY}), 0)
    with pytest.raises(ValueError, match="rate from 0 to 1"):
        nn.Dropout(1.5, deterministic=False).apply({}, x, rngs={"dropout": KEY})


def test_attention_is_a_weighted_mean() -> None:
    q, k, v = floats(2, 3, 2, 4), floats(2, 5, 2, 4), floats(2, 5, 2, 6)
    logits = np.einsum("bqhd,bkhd->bhqk", q, k) / 2
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        nn.dot_product_attention_weights(q, k, deterministic=True), weights, rtol=1e-4, atol=1e-6
    )
    expected = np.einsum("bhqk,bkhd->bqhd", weights, v)
    np.testing.assert_allclose(nn.dot_product_attention(q, k, v, deterministic=True), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeMismatchError, match="batch and heads"):
        nn.dot_product_attention(q, k[:1], v, deterministic=True)


def test_decoding_one_by_one_is_causal_attention() -> None:
    x = floats(2, 6, 8)
    module = nn.MultiHeadDotProductAttention(2, decode=True)
    variables = module.init(KEY, x)
    whole = module.clone(decode=False).apply(
        {"params": variables["params"]}, x, mask=nn.make_causal_mask(wnp.ones((2, 6)))
    )
    cache = variables["cache"]
    step = weft.jit(lambda cache, x: module.apply({**variables, "cache": cache}, x, mutable=["cache"]))
    for index in range(6):
        y, changed = step(cache, x[:, index : index + 1])
        cache = changed["cache"]
        np.testing.assert_allclose(y[:, 0], whole[:, index], rtol=1e-4, atol=1e-5)
    assert int(cache["cache_index"]) == 6
    with pytest.raises(ShapeMismatchError, match="one element at a time"):
        module.apply(variables, x, mutable=["cache"])


def test_masks() -> None:
    np.testing.assert_array_equal(nn.make_causal_mask(wnp.ones((1, 3)))[0, 0], np.tri(3))
    one = nn.make_attention_mask(wnp.array([1, 1, 0]), wnp.array([1, 0]))
    np.testing.assert_array_equal(one, [[[1, 0], [1, 0], [0, 0]]])
    assert nn.combine_masks(None, None) is None


def test_lstm_by_its_equations() -> None:
    cell = nn.LSTMCell(3)
    c, h, x = floats(2, 3), floats(2, 3), floats(2, 4)
    variables, ((new_c, new_h), y) = run(cell, (c, h), x)
    p = weft.tree.map(np.asarray, variables["params"])
    gate = {g: x @ p[f"i{g}"]["kernel"] + h @ p[f"h{g}"]["kernel"] + p[f"h{g}"]["bias"] for g in "ifgo"}
    sigmoid = lambda z: 1 / (1 + np.exp(-z))
    expected = sigmoid(gate["f"]) * c + sigmoid(gate["i"]) * np.tanh(gate["g"])
    np.testing.assert_allclose(new_c, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new_h, sigmoid(gate["o"]) * np.tanh(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(y, new_h)
    again = nn.OptimizedLSTMCell(3).apply(variables, (c, h), x)
    np.testing.assert_allclose(again[1], y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", [nn.LSTMCell(3), nn.GRUCell(3), nn.SimpleCell(3), nn.MGUCell(3)])
def test_rnn_is_a_loop_over_its_cell(cell: Any) -> None:
    x = floats(2, 5, 4)
    rnn = nn.RNN(cell, return_carry=True)
    variables = rnn.init(KEY, x)
    carry, ys = rnn.apply(variables, x)
    inside = {"params": variables["params"]["cell"]}
    by_hand = cell.initialize_carry(KEY, (2, 4))
    for t in range(5):
        by_hand, y = cell.apply(inside, by_hand, x[:, t])
        np.testing.assert_allclose(ys[:, t], y, rtol=1e-5, atol=1e-6)
    weft.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), carry, by_hand)


def test_sequences_end_where_their_lengths_say() -> None:
    x, lengths = floats(2, 5, 4), np.array([2, 5])
    rnn = nn.RNN(nn.GRUCell(3), return_carry=True)
    variables = rnn.init(KEY, x)
    carry, ys = rnn.apply(variables, x, seq_lengths=lengths)
    np.testing.assert_allclose(carry[0], ys[0, 1], rtol=1e-6)
    np.testing.assert_allclose(carry[1], ys[1, 4], rtol=1e-6)
    backward, _ = rnn.apply(variables, x, seq_lengths=lengths, reverse=True)
    alone, _ = rnn.apply(variables, x[:1, :2][:, ::-1])
    np.testing.assert_allclose(backward[0], alone[0], rtol=1e-5)


def test_pooling_by_windows() -> None:
    x = floats(1, 4, 6, 2)
    blocks = x.reshape(1, 2, 2, 3, 2, 2)
    np.testing.assert_array_equal(nn.max_pool(wnp.asarray(x), (2, 2), (2, 2)), blocks.max((2, 4)))
    np.testing.assert_array_equal(nn.min_pool(wnp.asarray(x), (2, 2), (2, 2)), blocks.min((2, 4)))
    np.testing.assert_allclose(nn.avg_pool(wnp.asarray(x), (2, 2), (2, 2)), blocks.mean((2, 4)), rtol=1e-5)
    ones = wnp.ones((1, 3, 3, 1))
    np.testing.assert_allclose(nn.avg_pool(ones, (2, 2), padding="SAME", count_include_pad=False), ones, rtol=1e-6)
    whole = wnp.asarray(np.arange(6, dtype=np.int32).reshape(1, 6, 1))
    np.testing.assert_array_equal(nn.max_pool(whole, (2,), (2,))[0, :, 0], [1, 3, 5])
    with pytest.raises(ValueError, match="a stride for each"):
        nn.max_pool(ones, (2, 2), (2,))


def test_frozen_dicts() -> None:
    frozen = nn.freeze({"a": {"b": 1}, "c": 2})
    assert isinstance(frozen["a"], nn.FrozenDict) and nn.unfreeze(frozen) == {"a": {"b": 1}, "c": 2}
    rest, value = frozen.pop("c")
    assert value == 2 and rest == nn.freeze({"a": {"b": 1}})
    assert frozen.copy({"c": 3})["c"] == 3 and hash(frozen) == hash(nn.freeze({"c": 2, "a": {"b": 1}}))
    assert weft.tree.leaves(frozen) == [1, 2]
    assert weft.tree.map(lambda leaf: leaf + 1, frozen) == nn.freeze({"a": {"b": 2}, "c": 3})
    with pytest.raises(ValueError, match="cannot be changed"):
        frozen["c"] = 4


def test_eight_bit_matmuls_keep_their_meta_values_in_gradients() -> None:
    history, scale, x = wnp.asarray([5.0, 6.0, 7.0, 8.0]), wnp.ones(1), wnp.asarray([[1.0, -3.0, 700.0]])
    e4m3 = wnp.float8_e4m3fn
    seen = nn.fp8_ops.in_qdq(wnp.float32, e4m3, x, scale, history)
    np.testing.assert_allclose(seen, [[1.0, -2.857143, 8.0]], rtol=1e-6)
    loss = lambda *args: nn.fp8_ops.in_qdq(wnp.float32, e4m3, *args).sum()
    straight, next_scale, next_history = weft.grad(loss, (0, 1, 2))(x, scale, history)
    np.testing.assert_array_equal(straight, 1)
    np.testing.assert_allclose(next_scale, 8 / 448, rtol=1e-6)
    np.testing.assert_allclose(next_history, [700, 7, 8, 5])
    loss = lambda *args: (nn.fp8_ops.out_qdq(wnp.float32, wnp.float8_e5m2, *args) * wnp.asarray([1.1, 2.3, 9e4])).sum()
    rounded, _, next_history = weft.grad(loss, (0, 1, 2))(x, scale, history)
    np.testing.assert_allclose(rounded, [[1.1428572, 2.2857144, 8.0]], rtol=1e-6)
    np.testing.assert_allclose(next_history, [9e4, 7, 8, 5])
    numbers = (((1,), (0,)), ((), ()))
    product = lambda a, b: nn.fp8_ops.dot_general_with_precision(a, b, numbers).sum()
    ones = wnp.ones((2, 3))
    np.testing.assert_array_equal(weft.grad(product)(ones, ones.T), 2)


@pytest.mark.parametrize(
    ("text", "left", "kernel", "bias"),
    [
        ("ab...,bc...->ac...", (3, 4, 6), (4, 5, 6), (5, 6)),
        ("d...ab,bc...->ad...c", (8, 6, 7, 3, 4), (4, 5, 6, 7), (6, 7, 5)),
        ("...a,ab->...b", (2, 3, 4), (4, 5), (5,)),
        ("abcd,cbedf->abfe", (3, 4, 5, 6), (5, 4, 7, 6, 8), (4, 8, 7)),
    ],
)
def test_einsum_has_a_bias_over_the_axes_of_its_kernel(text: str, left: Any, kernel: Any, bias: Any) -> None:
    layer = nn.Einsum(kernel, text, bias_init=nn.initializers.ones)
    x = wnp.ones(left)
    y, variables = layer.init_with_output(KEY, x)
    assert variables["params"]["bias"].shape == bias
    np.testing.assert_allclose(y, np.einsum(text, x, variables["params"]["kernel"]) + 1, rtol=1e-5)


def test_batch_apply_passes_on_arrays_of_lower_rank() -> None:
    y = nn.BatchApply(lambda a, b, scale: wnp.dot(a, b) * scale)(wnp.ones((2, 3, 4)), wnp.ones(4), 2.0)
    np.testing.assert_array_equal(y, np.full((2, 3), 8.0))
    with pytest.raises(ArgumentError, match="at least 2 axes"):
        nn.BatchApply(lambda a: a)(wnp.ones(4))


def test_layers_in_functions_of_sequential_and_names_of_attention() -> None:
    variables = nn.Sequential([lambda x: nn.Dense(x.shape[-1])(x), nn.relu]).init(KEY, wnp.ones((1, 4)))
    assert list(variables["params"]) == ["Dense_0"]
    attention = nn.Sequential([lambda x: nn.MultiHeadAttention(num_heads=2)(x)]).init(KEY, wnp.ones((3, 4)))
    assert list(attention["params"]) == ["MultiHeadAttention_0"]


def test_weight_norm_of_partitioned_kernels() -> None:
    kernel_init = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "x"))
    split = nn.WeightNorm(nn.Dense(3, kernel_init=kernel_init))
    y, variables = split.init_with_output(KEY, wnp.ones((2, 4)))
    assert sorted(variables["params"]) == ["layer_instance", "layer_instance/kernel/value/scale"]
    np.testing.assert_allclose(y, nn.WeightNorm(nn.Dense(3)).init_with_output(KEY, wnp.ones((2, 4)))[0], rtol=1e-6)
    assert split.tabulate(KEY, wnp.ones((2, 4)), compute_flops=True)


def test_logical_axes_of_trees_and_without_constraint() -> None:
    free = PartitionSpec.UNCONSTRAINED
    rules = [("foo", "data"), ("bar", free), ("baz", free)]
    assert nn.logical_to_mesh_axes(("foo", free, free, None), rules) == PartitionSpec("data", free, free, None)
    assert nn.logical_to_mesh_axes(("bar", "baz"), rules) == PartitionSpec(free, free)
    axes = {"a": ("foo", "bar"), "b": (("foo",), None)}

    class Tree(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            make = lambda key: {"a": wnp.ones((2, 2)), "b": (wnp.ones(2), wnp.ones(2))}
            return x + nn.partitioning.param_with_axes("foo", make, axes=axes)["a"]

    with nn.logical_axis_rules([("foo", None), ("bar", None)]):
        variables = Tree().init(KEY, wnp.ones((2, 2)))
    assert variables["params_axes"]["foo_axes"] == nn.partitioning.AxisMetadata(axes)
    names = nn.partitioning.get_axis_names(variables["params_axes"])
    assert names == {"foo": {"a": PartitionSpec("foo", "bar"), "b": (PartitionSpec("foo"), None)}}


def test_gradients_of_scales_replace_them_in_a_train_state() -> None:
    layer = nn.DenseGeneral(features=4, dot_general_cls=nn.Fp8DotGeneral)
    x = wnp.full((4, 4), 2.0)
    state = nn.train_state.TrainState.create(params=layer.init(KEY, x), tx=weft.optim.adam(0.1), apply_fn=layer.apply)
    grads = weft.grad(lambda params: wnp.sum(layer.apply(params, x)))(state.params)
    after = state.apply_gradients(grads=grads).params
    (scales,) = after["_overwrite_with_gradient"].values()
    np.testing.assert_array_equal(scales["input_amax_history"][0], 2.0)
    assert after["params"]["kernel"].shape == (4, 4)
