"""Layers of `weft.linen` against Flax: the same tree of variables, and with the same variables the same results.

One row is a text that makes a module from `nn`, and one that calls it; the same lines run with both libraries.
"""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

jax = pytest.importorskip("jax")
flax_linen = pytest.importorskip("flax.linen")

import weft  # noqa: E402
import weft.linen  # noqa: E402
from tests.peer.compare import assert_same  # noqa: E402

RNG = onp.random.default_rng(3)


def floats(*shape: int) -> onp.ndarray:
    return RNG.normal(size=shape).astype(onp.float32)


INPUTS: dict[str, Any] = {
    "x": floats(3, 4),
    "x3": floats(2, 5, 4),
    "x4": floats(2, 3, 5, 6),
    "image": floats(2, 8, 7, 4),
    "signal": floats(2, 9, 4),
    "volume": floats(1, 5, 4, 3, 2),
    "batches": floats(2, 3, 8, 7, 4),
    "one": floats(8, 7, 4),
    "half": floats(3, 4).astype(onp.float16),
    "c": floats(3, 6),
    "h": floats(3, 6),
    "ch": floats(2, 8, 7, 3),
    "tokens": onp.array([[1, 4, 2], [0, 3, 3]], onp.int32),
    # None or several in each row and column: of one element the variance and its derivative are nothing but rounding.
    "mask": onp.array([[1, 0, 1, 1], [1, 0, 1, 0], [0, 0, 1, 1]], bool),
    "attention_mask": onp.tril(onp.ones((2, 1, 5, 5), bool)),
    "lengths": onp.array([3, 5], onp.int32),
    "other": floats(2, 7, 4),
}

ROWS = """
nn.Dense(5) | x
nn.Dense(5, use_bias=False) | x3
nn.Dense(5, dtype=np.float16) | x
nn.Dense(5, bias_init=nn.initializers.normal(1.0)) | half
nn.DenseGeneral(5) | x3
nn.DenseGeneral((2, 3), axis=(-2, -1)) | x4
nn.DenseGeneral((2, 3), axis=-1, batch_dims=(0,), bias_init=nn.initializers.normal(1.0)) | x3
nn.DenseGeneral(7, axis=(1, -1), batch_dims=0) | x4
nn.Einsum((4, 6, 2), 'abc,cde->abde', bias_init=nn.initializers.normal(1.0)) | x3
nn.Einsum((4, 6), '...c,cd->...d') | x3
nn.Einsum((5, 4, 6), 'abc,bcd->abd', use_bias=False) | x3
nn.Embed(6, 3) | tokens
nn.Embed(1, 3) | tokens * 0
nn.Conv(5, (3, 3)) | image
nn.Conv(5, (3, 2), strides=(2, 1), padding='VALID') | image
nn.Conv(6, (3, 3), feature_group_count=2, kernel_dilation=2, strides=2) | image
nn.Conv(5, (3, 3), padding='CIRCULAR') | image
nn.Conv(5, (4, 3), padding='CIRCULAR', kernel_dilation=(1, 2)) | image
nn.Conv(5, (3, 3), padding='REFLECT') | image
nn.Conv(5, 3, padding='CAUSAL', kernel_dilation=2) | signal
nn.Conv(5, (3,), padding=2) | signal
nn.Conv(5, (3, 3), padding=((1, 2), (0, 1)), input_dilation=(2, 1)) | image
nn.Conv(5, (3, 3), padding=(1, 2)) | batches
nn.Conv(5, (3, 3)) | one
nn.Conv(3, (2, 2, 2)) | volume
nn.Conv(5, (3, 3), use_bias=False, dtype=np.float16) | image
nn.Conv(5, (1, 1), mask=np.ones((1, 1, 4, 5)) * 0.5) | image
nn.ConvLocal(5, (3, 3), strides=2) | image
nn.ConvLocal(5, (3,), padding='VALID', bias_init=nn.initializers.normal(1.0)) | signal
nn.ConvTranspose(5, (3, 3), strides=(2, 2)) | image
nn.ConvTranspose(5, (3, 2), strides=(2, 1), padding='VALID', transpose_kernel=True) | image
nn.ConvTranspose(5, (3,), kernel_dilation=(2,)) | signal
nn.ConvTranspose(5, (3, 3), strides=(2, 2), padding='CIRCULAR') | image
nn.ConvTranspose(5, (4, 5), strides=(1, 3), padding='CIRCULAR', transpose_kernel=True) | image
nn.ConvTranspose(5, (3, 3), padding=((1, 2), (0, 1))) | one
nn.LayerNorm() | x3
nn.LayerNorm(use_bias=False, epsilon=1e-3, use_fast_variance=False) | x3
nn.LayerNorm(reduction_axes=(1, 2), feature_axes=(1, 2), scale_init=nn.initializers.normal(1.0)) | x3
nn.LayerNorm(dtype=np.float16) | half
nn.LayerNorm() | half
nn.LayerNorm() | x, mask=mask
nn.RMSNorm() | x3
nn.RMSNorm(use_scale=False) | half
nn.RMSNorm(reduction_axes=(0, 2), feature_axes=1, scale_init=nn.initializers.normal(1.0)) | x3
nn.GroupNorm(2, scale_init=nn.initializers.normal(1.0)) | image
nn.GroupNorm(num_groups=None, group_size=1) | image
nn.GroupNorm(2, reduction_axes=(-1,), use_fast_variance=False) | image
nn.GroupNorm(4) | x
nn.InstanceNorm(bias_init=nn.initializers.normal(1.0)) | image
nn.InstanceNorm(feature_axes=(1, -1)) | image
nn.BatchNorm(use_running_average=False) | image
nn.BatchNorm(use_running_average=True, axis=1) | image
nn.BatchNorm(momentum=0.9, use_fast_variance=False, use_bias=False) | x, use_running_average=False
nn.BatchNorm(use_running_average=False) | x, mask=mask
nn.BatchNorm(use_running_average=False) | half
nn.WeightNorm(nn.Dense(5)) | x
nn.WeightNorm(nn.Conv(5, (3, 3)), feature_axes=None, scale_init=nn.initializers.normal(1.0)) | image
nn.WeightNorm(nn.Dense(5), variable_filter=None, use_scale=False) | x
nn.SpectralNorm(nn.Dense(5), n_steps=3) | x, update_stats=True
nn.SpectralNorm(nn.Conv(5, (3, 3))) | image, update_stats=False
nn.PReLU(negative_slope_init=0.3) | x
nn.Dropout(0.5, deterministic=True) | x
nn.Sequential([nn.Dense(5), nn.relu, nn.Dense(2)]) | x
nn.MultiHeadDotProductAttention(2) | x3
nn.MultiHeadDotProductAttention(2, qkv_features=6, out_features=3, normalize_qk=True) | x3, mask=attention_mask
nn.MultiHeadDotProductAttention(2, use_bias=False, dtype=np.float16, force_fp32_for_softmax=True) | x3, other
nn.MultiHeadAttention(2, dropout_rate=0.3, deterministic=True) | x3, inputs_kv=other
nn.MultiHeadDotProductAttention(4) | x3, other, other * 2
nn.SelfAttention(2) | x3, mask=attention_mask
nn.MultiHeadDotProductAttention(2, decode=True) | x3
nn.LSTMCell(6) | (c, h), x
nn.OptimizedLSTMCell(6) | (c, h), x
nn.GRUCell(6) | h, x
nn.MGUCell(6) | h, x
nn.SimpleCell(6) | h, x
nn.SimpleCell(6, residual=True) | h, x
nn.ConvLSTMCell(3, (3, 3)) | (ch, ch * 2), image
nn.RNN(nn.LSTMCell(6)) | x3
nn.RNN(nn.GRUCell(6), return_carry=True) | x3
nn.RNN(nn.GRUCell(6), time_major=True, reverse=True) | x3
nn.RNN(nn.SimpleCell(6), reverse=True, keep_order=True) | x3, seq_lengths=lengths
nn.RNN(nn.OptimizedLSTMCell(6), return_carry=True) | x3, seq_lengths=lengths
nn.RNN(nn.GRUCell(6), reverse=True, return_carry=True) | x3, seq_lengths=lengths
nn.Bidirectional(nn.RNN(nn.LSTMCell(6)), nn.RNN(nn.GRUCell(3))) | x3
nn.Bidirectional(nn.RNN(nn.GRUCell(3)), nn.RNN(nn.GRUCell(3)), return_carry=True) | x3, seq_lengths=lengths
nn.remat(nn.Dense)(5) | x
nn.vmap(nn.Dense, variable_axes={'params': 0}, split_rngs={'params': True})(5) | x3
nn.vmap(nn.Dense, variable_axes={'params': None}, split_rngs={'params': False}, in_axes=1, out_axes=1)(5) | x3
nn.vmap(nn.Dense, variable_axes={'params': 1}, split_rngs={'params': True}, in_axes=2, axis_size=5)(5) | x4[..., :4]
nn.jit(nn.Dense)(5) | x
nn.scan(nn.GRUCell, variable_broadcast='params', split_rngs={'params': False})(6) | c[:2], x3.swapaxes(0, 1)
nn.scan(nn.GRUCell, variable_axes={'params': 0}, split_rngs={'params': True}, in_axes=1, out_axes=1)(6) | c[:2], x3
"""


def parse(row: str) -> tuple[str, str]:
    module, call = row.split(" | ")
    return module, call


def carried(tree: Any) -> Any:
    """Convert a tree of JAX arrays to one of Weft's, by NumPy."""
    return jax.tree.map(lambda leaf: weft.numpy.asarray(onp.asarray(leaf)), tree)


def make(library: Any, text: str) -> Any:
    return eval(text, {"nn": library, "np": onp})


def arguments(call: str, convert: Any) -> tuple[Any, Any]:
    values = {name: convert(value) for name, value in INPUTS.items()}
    return eval(f"(lambda *args, **kwargs: (args, kwargs))({call})", values)


def weights_like(result: Any) -> list[onp.ndarray]:
    rng = onp.random.default_rng(11)
    return [rng.normal(size=onp.shape(leaf)).astype(onp.float32) for leaf in jax.tree.leaves(result)]


def assert_same_gradients(ours: Any, theirs: Any, rtol: float) -> None:
    """Equal up to rounding on the scale of the largest element of all: some gradients are 0 but for rounding."""
    found, wanted = jax.tree_util.tree_flatten_with_path(theirs), weft.tree.leaves(ours)
    scale = max((float(onp.abs(leaf).max()) for _, leaf in found[0] if leaf.size), default=1.0)
    for (path, leaf), our in zip(found[0], wanted, strict=True):
        assert our.dtype == leaf.dtype, (path, our.dtype, leaf.dtype)
        loose = 4e-3 if leaf.dtype == onp.float16 else rtol
        left, right = onp.asarray(our).astype(onp.float64), onp.asarray(leaf).astype(onp.float64)
        onp.testing.assert_allclose(left, right, rtol=loose, atol=loose * scale, err_msg=str(path))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("row", [row for row in ROWS.splitlines() if row])
def test_layer(row: str) -> None:
    text, call = parse(row)
    their_module, our_module = make(flax_linen, text), make(weft.linen, text)
    their_args, their_kwargs = arguments(call, jax.numpy.asarray)
    our_args, our_kwargs = arguments(call, weft.numpy.asarray)
    static = {name: their_kwargs.pop(name) for name in list(their_kwargs) if isinstance(their_kwargs[name], bool)}
    for name in static:
        our_kwargs.pop(name)

    theirs = jax.jit(lambda key: their_module.init(key, *their_args, **their_kwargs, **static))(jax.random.key(0))
    out = our_module.init(weft.random.key(0), *our_args, **our_kwargs, **static)
    describe = lambda tree: {
        jax.tree_util.keystr(path): (tuple(leaf.shape), str(leaf.dtype))
        for path, leaf in jax.tree_util.tree_flatten_with_path(jax.tree.map(lambda leaf: leaf, tree))[0]
    }
    assert describe(weft.tree.map(onp.asarray, out)) == describe(theirs), "the tree of variables differs"
    if not any(leaf.dtype == onp.float16 for leaf in jax.tree.leaves(theirs)):
        assert_same(out, theirs, 3e-5, weak=False)  # the same key: see test_seeds.py

    variables = carried(theirs)
    mutable = [name for name in theirs if name != "params"] if "cache" not in theirs else False

    def their_loss(params: Any, args: Any) -> Any:
        if "decode=True" in text:
            result, changed = their_module.apply({"params": params}, *args, **their_kwargs, **static), {}
        else:
            result, changed = their_module.apply(
                {**theirs, "params": params}, *args, **their_kwargs, **static, mutable=mutable
            )
        pairs = zip(jax.tree.leaves(result), weights_like(result), strict=True)
        return sum((leaf.astype(onp.float32) * weight).sum() for leaf, weight in pairs), (result, changed)

    def our_loss(params: Any, args: Any) -> Any:
        if "decode=True" in text:
            result, changed = our_module.apply({"params": params}, *args, **our_kwargs, **static), {}
        else:
            result, changed = our_module.apply(
                {**variables, "params": params}, *args, **our_kwargs, **static, mutable=mutable
            )
        pairs = zip(weft.tree.leaves(result), weights_like(expected), strict=True)
        return sum((leaf.astype(onp.float32) * weight).sum() for leaf, weight in pairs), (result, changed)

    if "decode=True" in text:
        their_module, our_module = their_module.clone(decode=False), our_module.clone(decode=False)
    whole = "Embed" in text
    where = 0 if whole else (0, 1)
    params = theirs.get("params", {})
    grad, (expected, their_changed) = jax.jit(jax.grad(their_loss, where, has_aux=True))(params, their_args)
    got_grad, (got, changed) = weft.jit(weft.grad(our_loss, where, has_aux=True))(variables.get("params", {}), our_args)
    tolerance = 3e-5
    assert_same(got, expected, tolerance, weak=False)
    assert_same(changed, their_changed, tolerance, weak=False, path="changed")
    assert_same_gradients(got_grad, grad, 30 * tolerance)
    eager = our_module.apply(variables, *our_args, **our_kwargs, **static, mutable=mutable or ["none"])[0]
    assert_same(eager, expected, tolerance, weak=False, path="eager")
