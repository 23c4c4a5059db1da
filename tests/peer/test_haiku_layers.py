"""Every layer: parameters, state, result and gradients as Haiku's, from the same key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peer.haiku_cases import INPUTS, LIBRARIES, arguments, as_numpy, assert_same, transformed, values

ROWS = [
    # linear
    "hk.Linear(5)(x)",
    "hk.Linear(5)(v)",
    "hk.Linear(5, with_bias=False, w_init=hk.initializers.RandomNormal(0.3, 0.1))(seq)",
    "hk.Bias()(x)",
    "hk.Bias(bias_dims=[-1], b_init=hk.initializers.RandomUniform(-1, 1))(seq, multiplier=2.0)",
    "hk.Bias(bias_dims=[1], b_init=hk.initializers.RandomUniform())(image)",
    "hk.Bias(bias_dims=[], b_init=hk.initializers.Constant(0.5))(x)",
    "hk.Embed(7, 3)(ids)",
    "hk.Embed(7, 3, lookup_style='ONE_HOT')(ids)",
    "hk.Embed(embedding_matrix=onp.arange(14.0).reshape(7, 2))(ids)",
    "(lambda m: m(ids) @ m.embeddings.T)(hk.Embed(7, 3))",
    "hk.MultiHeadAttention(2, 3, 1.0)(seq, seq, seq)",
    "hk.MultiHeadAttention(2, 3, w_init=hk.initializers.VarianceScaling(0.5), value_size=5, model_size=7)"
    "(seq, seq[:, :2], seq[:, :2], mask=np.arange(3)[:, None] >= np.arange(2)[None] + np.zeros((5, 1, 3, 2)))",
    # convolutions
    "hk.Conv1D(3, 3)(line)",
    "hk.Conv1D(3, 3, padding=hk.pad.causal, rate=2)(line)",
    "hk.Conv1D(3, 3, padding=(2, 1), stride=2)(line)",
    "hk.Conv2D(3, 3)(image)",
    "hk.Conv2D(3, 3)(image[0])",
    "hk.Conv2D(3, (3, 2), stride=2, padding='VALID', with_bias=False)(image)",
    "hk.Conv2D(6, 3, feature_group_count=2, padding=[(1, 0), (0, 1)])(image)",
    "hk.Conv2D(3, 3, data_format='NCHW', b_init=hk.initializers.RandomNormal())(first)",
    "hk.Conv2D(3, 3, mask=onp.tril(onp.ones((3, 3)))[:, :, None, None] * onp.ones((1, 1, 4, 3)))(image)",
    "hk.Conv2D(3, 3, padding=(hk.pad.full, hk.pad.same))(image)",
    "hk.Conv3D(3, 2)(cube)",
    "hk.ConvND(2, 3, 3)(image)",
    "hk.Conv1DTranspose(3, 3, stride=2)(line)",
    "hk.Conv2DTranspose(3, 3, stride=2)(image)",
    "hk.Conv2DTranspose(3, 3, stride=2, padding='VALID')(image)",
    "hk.Conv2DTranspose(3, 3, stride=2, output_shape=(15, 16))(image)",
    "hk.Conv2DTranspose(3, 3, stride=2, output_shape=17, padding='VALID')(image)",
    "hk.Conv2DTranspose(3, 4, padding=[(1, 2), (3, 1)], data_format='NCHW')(first)",
    "hk.Conv3DTranspose(2, 3, stride=2)(cube)",
    "hk.ConvNDTranspose(1, 3, 2)(line[0])",
    "hk.DepthwiseConv1D(2, 3)(line)",
    "hk.DepthwiseConv2D(2, 3, stride=2)(image)",
    "hk.DepthwiseConv2D(1, 3, data_format='NCHW')(first)",
    "hk.DepthwiseConv3D(2, 3)(cube)",
    "hk.SeparableDepthwiseConv2D(2, 3)(image)",
    # pooling
    "hk.MaxPool(2, 2, 'SAME')(image)",
    "hk.max_pool(first, (1, 3, 3), 2, 'VALID', channel_axis=1)",
    "hk.AvgPool(3, 2, 'SAME')(image)",
    "hk.avg_pool(image, 3, 1, 'VALID')",
    "hk.avg_pool(first, 3, (1, 1, 2, 2), 'SAME', channel_axis=1)",
    "hk.max_pool(line, 2, 2, 'SAME', channel_axis=None)",
    # normalization
    "hk.LayerNorm(-1, True, True)(seq)",
    "hk.LayerNorm(slice(1, None), True, False, eps=1e-3)(seq)",
    "hk.LayerNorm(1, True, True, param_axis=1, scale_init=hk.initializers.RandomNormal())(seq)",
    "hk.LayerNorm((1, 2), False, False, use_fast_variance=True)(seq, scale=2.0, offset=np.ones(4))",
    "hk.LayerNorm((0, 2), True, True, param_axis=(0, 2))(seq)",
    "hk.RMSNorm(-1)(seq)",
    "hk.RMSNorm((1, 2), create_scale=False)(seq)",
    "hk.RMSNorm(-1, scale_init=hk.initializers.RandomNormal(), param_axis=(1, 2))(seq)",
    "hk.GroupNorm(2)(image)",
    "hk.GroupNorm(2, data_format='NCHW', scale_init=hk.initializers.RandomNormal())(first)",
    "hk.GroupNorm(4, axis=slice(2, None), create_offset=False)(image)",
    "hk.InstanceNorm(True, True)(image)",
    "hk.InstanceNorm(True, True, data_format='channels_first')(first)",
    "hk.BatchNorm(True, True, 0.9)(x, True)",
    "hk.BatchNorm(False, False, 0.9, eps=1e-3)(image, True, scale=2.0 * np.ones(4), offset=np.ones(4))",
    "hk.BatchNorm(True, True, 0.9, data_format='NCHW')(first, True)",
    "hk.BatchNorm(True, True, 0.9, axis=(0, 1))(image, True)",
    "(lambda m: (m(x, True), m(2 * x, False), m(x, False, test_local_stats=True)))(hk.BatchNorm(True, True, 0.9))",
    "hk.SpectralNorm()(x)",
    "hk.SpectralNorm(n_steps=3)(seq)",
    # averages
    "(lambda m: (m(x), m(x + 1), m(x * 2, update_stats=False), m.average))(hk.ExponentialMovingAverage(0.9))",
    "(lambda m: [m(x * i) for i in range(4)])(hk.ExponentialMovingAverage(0.9, zero_debias=False, warmup_length=2))",
    "(lambda m: [m({'a/~/b': {'w': x * i, 'b': v}}) for i in range(2)])(hk.EMAParamsTree(0.9, ignore_regex='.*/b$'))",
    "hk.SNParamsTree(ignore_regex='.*b$')({'a/~/b': {'w': x, 'b': v}})",
    # shapes
    "hk.Flatten()(image)",
    "hk.Flatten(preserve_dims=2)(image)",
    "hk.Reshape((-1, 2), preserve_dims=-2)(image)",
    "hk.Sequential([hk.Linear(3), nn.relu, hk.Linear(2)])(x)",
    "hk.BatchApply(hk.Linear(3))(seq)",
    "hk.expand_apply(hk.Linear(3))(v)",
    "hk.one_hot(ids, 7)",
    "hk.to_module(lambda a: a + hk.get_parameter('b', [], init=np.ones))(name='add')(x)",
    # random
    "hk.dropout(hk.next_rng_key(), 0.3, x)",
    "hk.dropout(hk.next_rng_key(), 0.3, seq, broadcast_dims=(1,))",
    "hk.multinomial(hk.next_rng_key(), x, 5)",
    # recurrent
    "(lambda c: c(x, c.initial_state(4)))(hk.LSTM(5))",
    "(lambda c: c(v, c.initial_state(None)))(hk.LSTM(5))",
    "(lambda c: c(x, c.initial_state(4) + 0.5))(hk.GRU(5))",
    "(lambda c: c(x, c.initial_state(4) + 0.5))(hk.VanillaRNN(5))",
    "(lambda c: c(x, c.initial_state(4) + 0.5))(hk.VanillaRNN(5, double_bias=False))",
    "(lambda c: c(line, c.initial_state(2)))(hk.Conv1DLSTM((9,), 3, 3))",
    "(lambda c: c(image, c.initial_state(2)))(hk.Conv2DLSTM((8, 8), 3, 3))",
    "(lambda c: c(cube, c.initial_state(2)))(hk.Conv3DLSTM((5, 5, 5), 2, 2))",
    "(lambda c: hk.dynamic_unroll(c, seq, c.initial_state(3)))(hk.LSTM(5))",
    "(lambda c: hk.dynamic_unroll(c, seq, c.initial_state(5), time_major=False, return_all_states=True))(hk.GRU(2))",
    "(lambda c: hk.dynamic_unroll(c, seq, c.initial_state(3), reverse=True, unroll=2))(hk.GRU(2))",
    "(lambda c: hk.static_unroll(c, seq, c.initial_state(3)))(hk.LSTM(5))",
    "(lambda c: hk.static_unroll(c, seq, c.initial_state(5), time_major=False))(hk.VanillaRNN(2))",
    "(lambda c: hk.dynamic_unroll(c, (seq, resets), c.initial_state(3)))(hk.ResetCore(hk.LSTM(5)))",
    "(lambda c: hk.dynamic_unroll(c, seq, c.initial_state(3)))(hk.DeepRNN([hk.LSTM(5), nn.tanh, hk.GRU(2)]))",
    "(lambda c: c(x, c.initial_state(4)))(hk.deep_rnn_with_skip_connections([hk.LSTM(5), hk.GRU(2), hk.GRU(3)]))",
    "(lambda c: c(x, c.initial_state(4)))(hk.IdentityCore())",
    # networks
    "hk.nets.MLP([5, 3])(x)",
    "hk.nets.MLP([5, 3], activation=np.tanh, activate_final=True, with_bias=False)(x)",
    "hk.nets.MLP([5, 3])(x, 0.4, hk.next_rng_key())",
    "(lambda m: (lambda y: m.reverse()(y))(m(x)))(hk.nets.MLP([5, 3]))",
    "{k: a for k, a in hk.nets.VectorQuantizer(4, 5, 0.25)(seq, True).items() if k != 'encoding_indices'}",
    "{k: a for k, a in hk.nets.VectorQuantizerEMA(4, 5, 0.25, 0.9)(seq, True).items() if k != 'encoding_indices'}",
    "hk.nets.ResNet((1, 1, 1, 1), 5, channels_per_group=(8, 8, 16, 16))(big, True)",
    "hk.nets.ResNet((1, 2, 1, 1), 5, channels_per_group=(8, 8, 8, 8), resnet_v2=True, bottleneck=False,"
    " logits_config={'w_init': hk.initializers.RandomNormal()})(big, True)",
    "hk.nets.MobileNetV1(num_classes=3, strides=(1, 2), channels=(4, 8))(big, True)",
    "hk.nets.MobileNetV1(num_classes=3, strides=(1, 1), channels=(4, 8), use_bn=False)(big, True)",
]


def result(library: str, text: str) -> dict[str, Any]:
    """Return all results of a row: of `init`, of `apply`, and gradients of a weighted sum of the latter."""
    lib = LIBRARIES[library]
    init, apply = transformed(text, library)
    inputs = values(text)
    floating = [i for i, name in enumerate(arguments(text)) if INPUTS[name].dtype.kind == "f"]

    def loss(params: Any, chosen: Any, state: Any, key: Any) -> Any:
        args = list(inputs)
        for i, value in zip(floating, chosen, strict=True):
            args[i] = value
        out, after = apply(params, state, key, *args)
        total = 0.0
        for leaf in lib.tree.leaves(out):
            if lib.numpy.issubdtype(leaf.dtype, lib.numpy.floating):
                weights = lib.numpy.reshape(lib.numpy.cos(lib.numpy.arange(leaf.size)), leaf.shape)
                total = total + lib.numpy.sum(leaf * weights)
        return total, (out, after)

    def everything(key: Any, chosen: Any) -> dict[str, Any]:
        params, state = init(key, *inputs)
        if not floating:
            out, after = apply(params, state, key, *inputs)
            return {"params": params, "state": state, "result": out, "after": after}
        derivative = lib.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        (_, (out, after)), gradients = derivative(params, chosen, state, key)
        return {"params": params, "state": state, "result": out, "after": after, "gradients": gradients}

    return as_numpy(lib.jit(everything)(lib.random.PRNGKey(0), [inputs[i] for i in floating]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("text", ROWS)
def test_layer_is_as_in_haiku(text: str) -> None:
    ours, theirs = result("weft", text), result("jax", text)
    for part in ("params", "state", "result", "after"):
        assert_same(ours[part], theirs[part], where=part)
    assert_same(ours.get("gradients"), theirs.get("gradients"), 2e-4, 1e-4, "gradients")
