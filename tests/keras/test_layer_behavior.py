"""What a table cannot say about layers: masks that travel, states that stay, cells of users, precision, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.keras as keras
import weft.numpy as wnp
from tests.keras.layer_table import INPUTS
from weft import linen
from weft.errors import ArgumentError

layers = keras.layers
LINE = wnp.asarray(INPUTS["line"])
STEPS = wnp.asarray(INPUTS["steps"])
IDS = wnp.asarray(np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0], [1, 1, 1, 1, 1], [2, 3, 0, 0, 0]], np.int32))


def mask_of(x: Any) -> Any:
    return keras.core.context.get_keras_mask(x)


def test_masks_travel_from_an_embedding_to_recurrent_layers() -> None:
    embedded = layers.Embedding(5, 4, mask_zero=True)(IDS)
    rnn = layers.LSTM(3, return_sequences=True)
    out = rnn(embedded)
    np.testing.assert_array_equal(mask_of(out), IDS != 0)
    np.testing.assert_allclose(out, rnn(wnp.asarray(np.asarray(embedded)), mask=IDS != 0), rtol=1e-6)
    for layer in (layers.Dropout(0.5), layers.LayerNormalization(), layers.TimeDistributed(layers.Dense(2))):
        np.testing.assert_array_equal(mask_of(layer(out)), IDS != 0)
    assert mask_of(layers.GRU(2)(out)) is None
    assert mask_of(layers.GlobalAveragePooling1D()(out)) is None
    attended = layers.MultiHeadAttention(2, 2)(out, out)
    np.testing.assert_array_equal(mask_of(attended), IDS != 0)
    with pytest.warns(UserWarning, match="mask"):
        layers.Conv1D(2, 2)(out)


def test_masks_of_merging_layers() -> None:
    masked = layers.Masking(mask_value=0.0)
    a = masked(wnp.asarray(np.array([[[1.0, 2.0], [0.0, 0.0]]], np.float32)))
    b = masked(wnp.asarray(np.array([[[0.0, 0.0], [3.0, -4.0]]], np.float32)))
    assert layers.Maximum()([a, b]).tolist() == [[[1.0, 2.0], [3.0, -4.0]]]
    assert layers.Multiply()([a, b]).tolist() == [[[1.0, 2.0], [3.0, -4.0]]]
    assert mask_of(layers.Add()([a, b])).tolist() == [[True, True]]
    assert mask_of(layers.Concatenate(axis=1)([a, b])).tolist() == [[True, False, False, True]]


@pytest.mark.parametrize("make", [layers.SimpleRNN, layers.LSTM, layers.GRU])
def test_loops_and_masks(make: Any) -> None:
    """An unrolled loop is the loop; a mask at the end is a shorter sequence; backwards is the flipped sequence."""
    layer = make(3, return_sequences=True, return_state=True)
    out, *states = layer(LINE)
    unrolled = make(3, return_sequences=True, return_state=True, unroll=True)
    unrolled(LINE)
    unrolled.set_weights(layer.get_weights())
    for a, b in zip(unrolled(LINE, mask=STEPS), layer(LINE, mask=STEPS), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    _, *short = layer(LINE[:, :3])
    _, *masked = layer(LINE, mask=wnp.broadcast_to(wnp.arange(5) < 3, (4, 5)))
    for a, b in zip(short, masked, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    back = make(3, return_sequences=True, go_backwards=True)
    back(LINE)
    back.set_weights(layer.get_weights())
    np.testing.assert_allclose(back(LINE[:, ::-1]), out, rtol=1e-6, atol=1e-7)
    del states


def test_stateful_layers_go_on() -> None:
    layer = layers.LSTM(3, stateful=True, return_sequences=True)
    parts = [layer(LINE[:, :2]), layer(LINE[:, 2:])]
    whole = layers.LSTM(3, return_sequences=True)
    whole(LINE)
    whole.set_weights(layer.get_weights())
    np.testing.assert_allclose(wnp.concatenate(parts, axis=1), whole(LINE), rtol=1e-6, atol=1e-7)
    assert len(layer.weights) == 3 and [v.name for v in layer.variables].count("rnn_state") == 2
    layer.reset_state()
    np.testing.assert_allclose(layer(LINE[:, :2]), parts[0], rtol=1e-6, atol=1e-7)
    # In a program the states are values that come and go.
    layer.reset_state()
    run = weft.jit(lambda values, x: layer.stateless_call([v.value for v in layer.trainable_variables], values, x))
    state = [v.value for v in layer.non_trainable_variables]
    first, state = run(state, LINE[:, :2])
    np.testing.assert_allclose(first, parts[0], rtol=1e-6, atol=1e-7)
    with pytest.raises(ArgumentError, match="fixed batch size"):
        layer(LINE[:2])


class Counting(keras.layers.Layer):
    """A cell of a user: adds, and counts its steps in a variable."""

    state_size = 4

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(shape=(4,), initializer="ones")
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any, states: Any) -> Any:
        self.count.assign_add(1.0)
        total = states[0] + inputs * self.scale
        return 2 * total, [total]


def test_a_cell_of_a_user_may_write_variables() -> None:
    layer = layers.RNN(Counting(), return_sequences=True)
    out = layer(LINE)
    np.testing.assert_allclose(out, 2 * np.cumsum(LINE, axis=1), rtol=1e-5, atol=1e-6)
    assert float(layer.cell.count.value) == 5
    masked = layer(LINE, mask=STEPS)
    np.testing.assert_allclose(masked[0], out[0], rtol=1e-5)
    np.testing.assert_allclose(masked[1, 3], masked[1, 2], rtol=1e-6)
    stacked = layers.RNN([Counting(), layers.GRUCell(3)])
    assert stacked(LINE).shape == (4, 3)
    gradients = weft.grad(
        lambda values: layer.stateless_call(values, [v.value for v in layer.non_trainable_variables], LINE)[0].sum()
    )([v.value for v in layer.trainable_variables])
    np.testing.assert_allclose(gradients[0], 2 * np.cumsum(LINE, axis=1).sum(axis=(0, 1)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda **k: layers.Conv2D(3, 2, **k), "image"),
        (lambda **k: layers.BatchNormalization(**k), "image"),
        (lambda **k: layers.LayerNormalization(**k), "line"),
        (lambda **k: layers.MultiHeadAttention(2, 3, **k), "line"),
        (lambda **k: layers.LSTM(3, **k), "line"),
        (lambda **k: layers.Bidirectional(layers.GRU(3, **k), **k), "line"),
    ],
    ids=["Conv2D", "BatchNormalization", "LayerNormalization", "MultiHeadAttention", "LSTM", "Bidirectional"],
)
def test_policies(make: Any, name: str, policy: str) -> None:
    """Results have the compute dtype and are near those in float32; variables have the variable dtype."""
    layer, exact = make(dtype=policy), make()
    x = wnp.asarray(INPUTS[name])
    call = (lambda one: one(x, x)) if isinstance(layer, layers.MultiHeadAttention) else (lambda one: one(x))
    out = call(layer)
    call(exact)
    exact.set_weights([np.asarray(w, np.float32) for w in layer.get_weights()])
    assert str(out.dtype) == keras.DTypePolicy(policy).compute_dtype
    assert {str(v.dtype) for v in layer.weights} == {keras.DTypePolicy(policy).variable_dtype}
    np.testing.assert_allclose(np.asarray(out, np.float32), call(exact), atol=0.06, rtol=0.06)


def test_layers_in_transformations() -> None:
    """vmap over a leading axis is a loop, and a gradient is what differences say."""
    x = wnp.stack([LINE, 2 * LINE])
    for layer in (layers.LSTM(3), layers.MultiHeadAttention(2, 3), layers.Conv1D(3, 2), layers.BatchNormalization()):
        args = (lambda x: (x, x)) if isinstance(layer, layers.MultiHeadAttention) else (lambda x: (x,))
        layer(*args(LINE))
        np.testing.assert_allclose(
            weft.vmap(lambda x, layer=layer, args=args: layer(*args(x)))(x),
            wnp.stack([layer(*args(one)) for one in x]),
            rtol=1e-5,
            atol=1e-6,
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.Conv2D(0, 3), "filters"),
        (lambda: layers.Conv2D(3, 3, strides=2, dilation_rate=2), "strides > 1"),
        (lambda: layers.Conv2D(3, 3, padding="causal"), "padding"),
        (lambda: layers.Conv2D(3, 9)(wnp.ones((1, 8, 8, 3))), "does not fit"),
        (lambda: layers.Conv2D(4, 3, groups=2)(wnp.ones((1, 8, 8, 3))), "groups=2"),
        (lambda: layers.MaxPooling2D((2, 2, 2)), "pool_size"),
        (lambda: layers.Dropout(1.5), "rate"),
        (lambda: layers.Add()([wnp.ones((1, 2)), wnp.ones((1, 3))]), "broadcast"),
        (lambda: layers.Concatenate()([wnp.ones((1, 2)), wnp.ones((2, 2))]), "equal but for axis"),
        (lambda: layers.Reshape((4,))(wnp.ones((2, 3))), "Reshape"),
        (lambda: layers.Permute((0, 1)), "permutation"),
        (lambda: layers.Cropping2D(4)(wnp.ones((1, 8, 8, 3))), "leave nothing"),
        (lambda: layers.GroupNormalization(3)(wnp.ones((1, 4))), "3 groups"),
        (lambda: layers.LayerNormalization(axis=3)(wnp.ones((1, 4))), "Axis 3"),
        (lambda: layers.MultiHeadAttention(0, 3), "num_heads"),
        (lambda: layers.LSTM(-1), "units"),
        (lambda: layers.RNN(object()), "state_size"),
        (lambda: layers.Bidirectional(layers.LSTM(3), merge_mode="max"), "merge_mode"),
        (lambda: layers.LSTM(3)(wnp.ones((2, 5, 4)), initial_state=[wnp.ones((3, 3))] * 2), "batch of 2"),
    ],
)
def test_errors(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_low_rank_updates_of_convolutions() -> None:
    layer = layers.Conv2D(3, 2, lora_rank=2)
    x = wnp.asarray(INPUTS["image"])
    layer(x)
    assert [v.name for v in layer.trainable_variables] == ["bias", "lora_kernel_a", "lora_kernel_b"]
    plain = layers.Conv2D(3, 2)
    plain(x)
    plain.set_weights([np.asarray(layer.kernel), layer.bias.numpy()])
    np.testing.assert_allclose(layer(x), plain(x), rtol=1e-6)


def test_functions_and_modules_as_layers() -> None:
    x = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")

    def call(params: Any, state: Any, inputs: Any, training: bool) -> Any:
        return inputs @ params["w"], {"count": state["count"] + int(training)}

    def init(rng: Any, inputs: Any) -> Any:
        return {"w": weft.random.normal(rng, (inputs.shape[-1], 2))}, {"count": weft.numpy.zeros((), "int32")}

    layer = keras.layers.JaxLayer(call, init, seed=0)
    model = keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    before = np.asarray(layer(x))
    model.fit(x, x[:, :1], batch_size=2, verbose=0)
    assert int(layer.state["count"].value) == 3 and not np.array_equal(layer(x), before)

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x: Any, training: bool = False) -> Any:
            x = linen.Dense(4)(x)
            x = linen.BatchNorm(use_running_average=not training)(x)
            return linen.Dropout(0.5, deterministic=not training)(x)

    wrapped = keras.layers.FlaxLayer(Block(), seed=1)
    model = keras.Sequential([keras.Input((3,)), wrapped])
    assert len(wrapped.trainable_weights) == 4 and len(wrapped.non_trainable_weights) == 2
    values = {**weft.tree.map(lambda v: v.value, wrapped.params), **weft.tree.map(lambda v: v.value, wrapped.state)}
    np.testing.assert_allclose(wrapped(x), Block().apply(values, x), rtol=1e-6)
    again = keras.layers.FlaxLayer(Block(), variables=values)
    np.testing.assert_array_equal(again(x), wrapped(x))
    model.compile("sgd", "mse")
    model.fit(x, x[:, :1] * np.ones((1, 4), "float32"), verbose=0)
    mean = wrapped.state["batch_stats"]["BatchNorm_0"]["mean"]
    assert np.any(np.asarray(mean.value))
    with pytest.raises(ArgumentError, match="parameters of call_fn must be"):
        keras.layers.JaxLayer(lambda x: x)


def test_low_rank_updates_have_the_names_of_keras() -> None:
    dense, embedding = layers.Dense(4), layers.Embedding(5, 4)
    dense.build((None, 3))
    embedding.build()
    for layer in (dense, embedding):
        layer.enable_lora(2)
    assert (dense.lora_kernel_a.shape, dense.lora_kernel_b.shape) == ((3, 2), (2, 4))
    assert (embedding.lora_embeddings_a.shape, embedding.lora_embeddings_b.shape) == ((5, 2), (2, 4))


def test_scaling_by_the_variance_of_old_files() -> None:
    with pytest.warns(UserWarning, match="rms_scaling"):
        layer = layers.LayerNormalization(rms_scaling=True)
    np.testing.assert_allclose(layer(wnp.asarray([[1.0, 2.0]])), [[1.9960121, 3.9920242]], rtol=1e-6)
    assert [weight.name for weight in layer.weights] == ["gamma"]
    with pytest.warns(UserWarning, match="rms_scaling"):
        assert layers.LayerNormalization.from_config(layer.get_config()).rms_scaling


def test_windows_of_scipy() -> None:
    signal = pytest.importorskip("scipy.signal")
    for window in ("tukey", ("kaiser", 4.0)):
        initializer = keras.initializers.STFT("real", window, None)
        np.testing.assert_allclose(initializer((16, 1, 9))[:, 0, 0], signal.get_window(window, 16, False), rtol=1e-6)
    with pytest.raises(ArgumentError, match="must be the name of a window"):
        keras.initializers.STFT("real", "house")((16, 1, 9))


def test_wrappers_return_their_own_precision() -> None:
    x = np.ones((1, 2, 3), np.float32)
    assert str(layers.TimeDistributed(layers.Dense(2), dtype="mixed_float16")(x).dtype) == "float16"
    bins = layers.TimeDistributed(layers.Discretization([0.5]), dtype="mixed_float16")
    assert str(bins(x).dtype) == "int32"


def test_a_layer_changes_its_policy_in_a_map() -> None:
    policies = keras.dtype_policies.DTypePolicyMap()
    layer = layers.Dense(2, dtype=policies)
    layer.build((None, 1))
    layer.dtype_policy = "mixed_bfloat16"
    assert policies[layer.path].name == "mixed_bfloat16"
    assert layer.dtype_policy is policies
    assert layer.compute_dtype == "bfloat16"


def test_lambdas_are_saved_as_often_as_one_likes(tmp_path: Any) -> None:
    model = keras.Sequential([keras.Input((2,)), layers.Lambda(lambda x: x * 2)])
    for name in ("first.keras", "second.keras"):
        with pytest.warns(UserWarning, match="lambda"):
            model.save(tmp_path / name)
        model = keras.models.load_model(tmp_path / name, safe_mode=False)
    assert model(np.ones((1, 2), np.float32)).tolist() == [[2.0, 2.0]]
    with pytest.warns(UserWarning, match="lambda"):
        config = layers.Lambda(lambda x: x + 1).get_config()
    assert set(config["function"]["config"]) == {"code", "defaults", "closure"}  # as Keras writes it
    assert layers.Lambda.from_config(config, safe_mode=False)(wnp.ones(1)).tolist() == [2.0]
    with pytest.raises(weft.errors.FileFormatError, match="lambda"):
        layers.Lambda.from_config(config)


def test_layers_without_an_activation() -> None:
    for layer in (layers.Dense(2), layers.EinsumDense("ab,bc->ac", 2), layers.SimpleRNN(2)):
        layer.activation = None
        assert layer(LINE if isinstance(layer, layers.SimpleRNN) else wnp.ones((1, 3))).shape[-1] == 2


@pytest.mark.parametrize(
    ("cls", "args"), [(layers.ReLU, ()), (layers.Dropout, (0.5,)), (layers.MaxPooling1D, ()), (layers.Identity, ())]
)
def test_layers_without_variables_are_built_unless_a_subclass_has_variables(cls: Any, args: Any) -> None:
    class Scaled(cls):  # type: ignore[misc]
        def build(self, input_shape: Any) -> None:
            super().build(input_shape)
            self.scale = self.add_weight(shape=(), initializer="ones")

        def call(self, inputs: Any) -> Any:
            return super().call(inputs) * self.scale

    layer = Scaled(*args)
    assert cls(*args).built
    assert not layer.built
    layer(LINE)
    assert len(layer.weights) == 1


def test_low_rank_updates_are_saved_in_the_kernel(tmp_path: Any) -> None:
    def model() -> Any:
        return keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.Dense(2)])

    x, tuned, plain = wnp.ones((2, 3)), model(), model()
    tuned.layers[0].enable_lora(2)
    tuned.layers[0].lora_kernel_b.assign(wnp.ones((2, 4)))
    tuned.save_weights(tmp_path / "w.safetensors")
    plain.load_weights(tmp_path / "w.safetensors")
    np.testing.assert_allclose(plain(x), tuned(x), rtol=1e-6)
    expected = tuned(x)
    tuned.load_weights(tmp_path / "w.safetensors")
    np.testing.assert_allclose(tuned(x), expected, rtol=1e-6)
    tuned.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    assert again.layers[0].lora_enabled
    np.testing.assert_allclose(again(x), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: layers.DepthwiseConv1D(9)(np.ones((1, 5, 2), np.float32)), "zero or negative"),
        (lambda: layers.SeparableConv1D(2, 9)(np.ones((1, 5, 2), np.float32)), "zero or negative"),
        (lambda: keras.ops.conv(np.ones((1, 5, 2), np.float32), np.ones((9, 2, 2), np.float32)), "zero or negative"),
        (lambda: layers.RepeatVector(0), "`n` must be a positive integer"),
        (lambda: layers.Embedding(2.5, 3), "`input_dim` must be a positive integer"),
        (lambda: layers.Embedding(3, True), "`output_dim` must be a positive integer"),
        (lambda: layers.MultiHeadAttention(2, 2, output_shape=2.5), "`output_shape` must be"),
        (lambda: layers.AdditiveAttention()(np.ones((2, 3), np.float32)), "is called on a list"),
        (lambda: layers.Hashing(3, dtype="float32"), "must be one of integers"),
        (lambda: layers.IntegerLookup(vocabulary=[1], vocabulary_dtype="string"), "`vocabulary_dtype` must be"),
        (lambda: layers.TextVectorization(ngrams="a"), "`ngrams` must be"),
        (lambda: layers.Pipeline.from_config({"name": "p"}), "must have a list of layers"),
        (lambda: keras.ops.stft(np.ones(16, np.float32), 4, 0, 4), "`sequence_stride` must be"),
        (lambda: keras.ops.istft((np.ones((4, 3)), np.ones((4, 3))), 4, 0, 4), "`sequence_stride` must be"),
        (lambda: keras.ops.depth_to_space(np.ones((1, 2, 2, 4)), 0), "`block_size` must be an integer of at least 2"),
        (lambda: keras.ops.sparsemax(keras.KerasTensor((None, 3)), axis=5), "has no axis 5"),
        (lambda: keras.ops.normalize(np.ones(3), order=0), "`order` must be"),
        (lambda: keras.ops.histogram(np.ones(3), range=(1, 0)), "`range` must be"),
    ],
)
def test_arguments_that_cannot_be(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call()


def test_a_convolution_that_is_built_refuses_a_smaller_input() -> None:
    layer = layers.Conv1D(2, 5)
    layer(np.ones((1, 8, 3), np.float32))
    with pytest.raises(ArgumentError, match="zero or negative"):
        layer(np.ones((1, 3, 3), np.float32))


def test_pipelines_pass_masks_on() -> None:
    seen = []

    class Masked(layers.Layer):
        def call(self, inputs: Any, mask: Any = None) -> Any:
            seen.append(mask)
            return inputs

        def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
            return ~mask

    layers.Pipeline([Masked(), Masked()])(np.ones((1, 2), np.float32), mask=np.array([[True, False]]))
    assert [np.asarray(mask).tolist() for mask in seen] == [[[True, False]], [[False, True]]]


def test_a_mask_that_is_passed_is_that_of_the_result() -> None:
    class Passing(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.supports_masking = True

        def call(self, inputs: Any, mask: Any = None) -> Any:
            return inputs * 1

    mask = wnp.asarray([True, False])
    assert mask_of(Passing()(wnp.ones((2, 3)), mask=mask)).tolist() == [True, False]
    out = layers.LSTM(3, return_sequences=True)(LINE, mask=wnp.ones(LINE.shape[:2], bool))
    assert mask_of(out).shape == LINE.shape[:2]


def test_the_mask_of_a_result_that_is_the_input() -> None:
    class Identity(layers.Layer):
        def __init__(self, forgets: bool) -> None:
            super().__init__()
            self.supports_masking = True
            self.forgets = forgets

        def call(self, inputs: Any, mask: Any = None) -> Any:
            if self.forgets:
                keras.core.context.set_keras_mask(inputs, None)
            return inputs

    mask = wnp.asarray([True, False])
    assert mask_of(Identity(False)(wnp.ones((2, 3)), mask=mask)) is mask
    x = wnp.ones((2, 3))
    keras.core.context.set_keras_mask(x, mask)
    assert mask_of(Identity(True)(x)) is mask


def test_floats_of_a_layer_of_integers_stay_floats() -> None:
    class Shifted(layers.Layer):
        def __init__(self) -> None:
            super().__init__(dtype="int32")
            self.shift = self.add_weight(shape=(), initializer="ones", dtype="float32")

        def call(self, inputs: Any) -> Any:
            assert self.shift.value.dtype == np.float32
            return inputs * 0.5 + self.shift

    assert Shifted()(np.array([1, 2], np.int32)).tolist() == [1.5, 2.0]


def test_an_input_of_one_column_may_be_a_vector() -> None:
    inputs = keras.Input((1,))
    model = keras.Model(inputs, layers.Dense(2)(inputs))
    for x in (np.array([5.0], np.float32), np.array([1.0, 2.0, 3.0], np.float32)):
        np.testing.assert_array_equal(model(x), model(x[:, None]))
    with pytest.raises(weft.errors.ShapeMismatchError, match="must have the shape"):
        model(np.ones((3, 2), np.float32))


@pytest.mark.parametrize("mode", ["caffe", "tf", "torch"])
def test_images_are_preprocessed_in_models(mode: str) -> None:
    images = np.random.default_rng(0).uniform(0, 255, (2, 4, 4, 3)).astype(np.float32)
    preprocess = keras.applications.imagenet_utils.preprocess_input
    inputs = keras.Input((4, 4, 3))
    for outputs in (
        preprocess(inputs, mode=mode),
        layers.Lambda(lambda x: preprocess(x, mode=mode), output_shape=(4, 4, 3))(inputs),
    ):
        np.testing.assert_array_equal(
            keras.Model(inputs, outputs).predict(images, verbose=0), preprocess(images, mode=mode)
        )
    first = preprocess(np.moveaxis(images, -1, 1), "channels_first", mode)
    np.testing.assert_array_equal(np.moveaxis(np.asarray(first), 1, -1), preprocess(images, mode=mode))
