"""Layers: calls, state, configs, shapes, masks, losses, errors. The table has those of `layers/core`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import keras
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras import layers
from weft.keras.core.context import get_keras_mask, set_keras_mask

TABLE: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "dense": (lambda: layers.Dense(3, activation="relu", kernel_regularizer="l2"), (2, 4)),
    "dense 3d": (lambda: layers.Dense(3, use_bias=False), (2, 5, 4)),
    "dense low rank": (lambda: layers.Dense(3, lora_rank=2, lora_alpha=3.0), (2, 4)),
    "einsum": (lambda: layers.EinsumDense("abc,cd->abd", (None, 6), bias_axes="d"), (2, 5, 4)),
    "einsum left": (lambda: layers.EinsumDense("...x,xy->...y", 6, bias_axes="y"), (2, 5, 4)),
    "einsum right": (lambda: layers.EinsumDense("ab...,bc->ac...", 6, bias_axes="c"), (2, 5, 4)),
    "embedding": (lambda: layers.Embedding(7, 3, mask_zero=True), (2, 4)),
    "activation": (lambda: layers.Activation("tanh"), (2, 4)),
    "relu": (lambda: layers.ReLU(max_value=0.5, negative_slope=0.1, threshold=0.2), (2, 4)),
    "leaky": (lambda: layers.LeakyReLU(0.2), (2, 4)),
    "elu": (lambda: layers.ELU(0.7), (2, 4)),
    "prelu": (lambda: layers.PReLU("ones", shared_axes=[1]), (2, 4, 3)),
    "softmax": (lambda: layers.Softmax(axis=1), (2, 4, 3)),
    "softmax axes": (lambda: layers.Softmax(axis=(1, 2)), (2, 4, 3)),
    "identity": (lambda: layers.Identity(), (2, 4)),
    "masking": (lambda: layers.Masking(0.0), (2, 4, 3)),
}


def sample(shape: tuple[int, ...], name: str) -> np.ndarray:
    generator = np.random.default_rng(0)
    if name == "embedding":
        return generator.integers(0, 7, shape).astype("int32")
    return generator.normal(size=shape).astype("float32")


@pytest.mark.parametrize("name", TABLE)
def test_laws(name: str) -> None:
    make, shape = TABLE[name]
    layer, x = make(), sample(shape, name)
    if layer.built is False:
        layer.build((None, *shape[1:]))
    before = [variable.numpy() for variable in layer.variables]
    y = layer(x)
    # jit = eager
    np.testing.assert_allclose(weft.jit(layer)(x), y, rtol=1e-6, atol=1e-6)
    # Two batches at once are the same as one after the other; vmap too.
    np.testing.assert_allclose(weft.vmap(layer)(np.stack([x, x]))[1], y, rtol=1e-6, atol=1e-6)
    # Calls write nothing.
    for variable, value in zip(layer.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    # The spec is what the result is, with and without a known batch.
    for batch in (None, shape[0]):
        found = layer.compute_output_spec(keras.KerasTensor((batch, *shape[1:]), str(x.dtype)))
        assert (found.shape, found.dtype) == ((batch, *y.shape[1:]), str(y.dtype))
    assert layer.compute_output_shape((None, *shape[1:])) == (None, *y.shape[1:])
    # A config makes an equal layer.
    data = keras.saving.serialize_keras_object(layer)
    copy = keras.saving.deserialize_keras_object(data)
    assert copy.get_config() == layer.get_config()
    if not copy.built:
        copy.build((None, *shape[1:]))
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(copy(x), y)
    # Gradients of all variables are finite, and those of a call in half precision are float32.
    values = [variable.value for variable in layer.trainable_variables]
    others = [variable.value for variable in layer.non_trainable_variables]
    loss = lambda values: (layer.stateless_call(values, others, x)[0] ** 2).sum()
    for gradient in weft.grad(loss)(values) if values else ():
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_policies_of_layers(policy: str) -> None:
    layer = layers.Dense(3, dtype=policy)
    y = layer(np.ones((2, 4), "float32"))
    assert str(y.dtype) == policy.removeprefix("mixed_")
    assert layer.kernel.dtype == "float32"
    assert layer.compute_output_spec(keras.KerasTensor((None, 4))).dtype == str(y.dtype)
    # Integers are not cast.
    seen: list[str] = []

    class Look(layers.Layer):
        def call(self, x: Any) -> Any:
            seen.append(str(x.dtype))
            return x

    Look(dtype=policy)(np.arange(3, dtype="int32"))
    assert seen == ["int32"]


class Block(layers.Layer):
    def __init__(self, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = units
        self.blocks: list[Any] = []
        self.last = layers.Dense(units)
        self.blocks.append(layers.Dense(units))
        self.named = {"inner": layers.Dense(units)}

    def call(self, x: Any, training: bool = False) -> Any:
        self.add_loss(wnp.sum(x) * 0 + (2.0 if training else 1.0))
        for layer in self.blocks:
            x = layer(x)
        return self.last(self.named["inner"](x))


def test_layers_in_attributes_lists_and_dicts_are_owned_in_order() -> None:
    keras.backend.clear_session()
    block = Block(4)
    block(np.ones((2, 4), "float32"))
    names = ["dense", "dense_1", "dense_2"]
    assert [layer.name for layer in block._layers] == names
    assert [w.path for w in block.weights] == [f"block/{name}/{part}" for name in names for part in ("kernel", "bias")]
    block.blocks.pop()
    assert [layer.name for layer in block._layers] == ["dense", "dense_2"]
    block.last = layers.Dense(4, name="new")
    assert [layer.name for layer in block._layers] == ["dense_2", "new"]


def test_trainable_flags() -> None:
    block = Block(4)
    block.build((None, 4))
    assert len(block.trainable_variables) == 6
    block.last.trainable = False
    assert [v.path for v in block.non_trainable_variables] == [v.path for v in block.last.weights]
    assert len(block.trainable_weights) == 4
    block.trainable = False
    assert block.trainable_variables == []
    assert [id(v) for v in block.non_trainable_weights] == [id(v) for v in block.weights]
    block.trainable = True
    assert len(block.trainable_variables) == 6


def test_a_layer_without_build_builds_its_layers_from_a_shape() -> None:
    block = Block(4)
    block.build((None, 3))
    assert [w.shape for w in block.weights[:2]] == [(4, 4), (4,)]
    assert block.compute_output_shape((None, 3)) == (None, 4)
    assert Block(5)(keras.KerasTensor((None, 3))).shape == (None, 5)


def test_what_a_subclass_was_constructed_with_is_its_config() -> None:
    block = Block(4, name="b", dtype="bfloat16")
    config = block.get_config()
    assert (config["units"], config["name"]) == (4, "b")
    copy = Block.from_config(config)
    assert (copy.units, copy.compute_dtype) == (4, "bfloat16")


def test_losses_are_those_of_the_last_call() -> None:
    block = Block(4, activity_regularizer="l2")
    x = np.ones((2, 4), "float32")
    block(x)
    assert len(block.losses) == 2 and float(block.losses[0]) == 1
    block(x, training=True)
    assert len(block.losses) == 2 and float(block.losses[0]) == 2
    values = [v.value for v in block.trainable_variables]
    run = weft.jit(lambda values: block.stateless_call(values, [], x, training=True, return_losses=True)[2])
    np.testing.assert_allclose(run(values), block.losses, rtol=1e-6)
    dense = layers.Dense(2, kernel_initializer="ones", activity_regularizer="l2", kernel_regularizer="l1")
    dense(np.ones((4, 3), "float32"))
    np.testing.assert_allclose(dense.losses, [0.18, 0.06], rtol=1e-6)


def test_training_is_that_of_the_enclosing_layer() -> None:
    seen: list[Any] = []

    class Inner(layers.Layer):
        def call(self, x: Any, training: Any = None) -> Any:
            seen.append(training)
            return x

    class Outer(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def call(self, x: Any) -> Any:
            return self.inner(self.inner(x, training=False))

    x = np.ones((1, 1), "float32")
    Outer()(x)
    Outer()(x, training=True)
    assert seen == [False, None, False, True]


def test_several_arguments_have_shapes_and_masks_by_name() -> None:
    class Two(layers.Layer):
        def build(self, query_shape: Any, value_shape: Any) -> None:
            self.sizes = (tuple(query_shape), tuple(value_shape))

        def call(self, query: Any, value: Any, value_mask: Any = None) -> Any:
            return wnp.where(value_mask, query, 0) if value_mask is not None else query

    layer, value = Two(), wnp.ones((2, 3))
    set_keras_mask(value, wnp.asarray([[True, False, True]] * 2))
    y = layer(np.ones((2, 3), "float32"), value)
    assert layer.sizes == ((2, 3), (2, 3))
    np.testing.assert_array_equal(y, [[1, 0, 1]] * 2)
    assert layer.get_build_config() == {"shapes_dict": {"query_shape": (2, 3), "value_shape": (2, 3)}}


def test_masks_go_on_until_a_layer_ends_them() -> None:
    ids = np.array([[1, 2, 0]])
    masked = layers.Dense(2)(layers.Embedding(5, 3, mask_zero=True)(ids))
    np.testing.assert_array_equal(get_keras_mask(masked), ids != 0)
    with pytest.warns(UserWarning, match="does not pass masks on"):
        assert get_keras_mask(layers.Lambda(lambda x: x + 1, name="ends")(masked)) is None

    class Adds(layers.Layer):
        supports_masking = True  # said by the class

        def call(self, x: Any) -> Any:
            return x + 1

    np.testing.assert_array_equal(get_keras_mask(Adds()(masked)), ids != 0)
    x = np.array([[[1.0, 2.0], [0.0, 0.0]]], "float32")
    np.testing.assert_array_equal(get_keras_mask(layers.Masking()(x)), [[True, False]])
    # In a trace as well.
    softmax = layers.Softmax()
    found = weft.jit(lambda x: softmax(x, mask=wnp.asarray([[True, False]])))(wnp.zeros((1, 2)))
    np.testing.assert_array_equal(found, [[1, 0]])


def test_errors_say_which_layer() -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.one = Block(4, name="one")
            self.two = Block(4, name="two")

        def call(self, x: Any) -> Any:
            return self.two(wnp.concatenate([self.one(x), x], -1))

    net = Net()
    net.two.build((None, 4))
    with pytest.raises(ShapeMismatchError) as caught:
        net(np.ones((2, 4), "float32"))
    layer = net.two.blocks[0].name
    assert f"in layer net/two/{layer} (Dense), called with float32[2, 8]" in caught.value.__notes__
    with pytest.raises(ArgumentError, match="needs to know the size"):
        layers.Dense(3)(keras.KerasTensor((None, None)))
    with pytest.raises(ArgumentError, match="does not call `super"):

        class Forgetful(layers.Layer):
            def __init__(self) -> None:
                pass

        Forgetful()(np.ones(3))
    with pytest.raises(TypeError, match="does not take"):
        layers.Dense(3)(np.ones((2, 2)), nothing=3)
    with pytest.raises(ArgumentError, match="does not take the arguments unit"):
        layers.Identity(unit=3)


def test_set_weights_lists_what_it_expects() -> None:
    layer = layers.Dense(3)
    layer.build((None, 2))
    with pytest.raises(ArgumentError, match=r"one array for each of its 2 weights: dense.*kernel \(2, 3\)"):
        layer.set_weights([np.ones((2, 3))])
    with pytest.raises(ArgumentError, match=r"kernel of layer .* must have the shape \(2, 3\)"):
        layer.set_weights([np.ones((3, 2)), np.ones(3)])


def test_a_built_layer_gets_no_more_state() -> None:
    layer = layers.Dense(3)
    layer.build((None, 2))
    with pytest.raises(ArgumentError, match="is built, and gets no further"):
        layer.extra = layers.Dense(2)


def test_two_threads_build_a_layer_once() -> None:
    layer, results = layers.Dense(3), []
    x = np.ones((2, 4), "float32")
    threads = [threading.Thread(target=lambda: results.append(np.asarray(layer(x)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(layer.weights) == 2
    assert all((result == results[0]).all() for result in results)


def test_layers_are_built_inside_of_jit() -> None:
    layer = Block(4)
    with weft.checking_leaks():
        y = weft.jit(layer)(np.ones((2, 4), "float32"))
    with pytest.raises(ArgumentError, match="added in a traced function"):
        layer.losses
    np.testing.assert_allclose(layer(np.ones((2, 4), "float32")), y, rtol=1e-6)
    assert len(layer.losses) == 1


def test_unknown_sizes_that_decide_something_are_tried_twice() -> None:
    class Halves(layers.Layer):
        def call(self, x: Any) -> Any:
            if x.shape[1] > 8:
                return x[:, : int(x.shape[1]) // 2]
            return x

    found = Halves()(keras.KerasTensor((None, None, 3)))
    assert found.shape == (None, None, 3)


def test_low_rank_updates_train_alone() -> None:
    layer = layers.Dense(3)
    x = np.ones((2, 4), "float32")
    before = layer(x)
    layer.enable_lora(2)
    assert [v.name for v in layer.trainable_variables] == ["bias", "lora_kernel_a", "lora_kernel_b"]
    np.testing.assert_allclose(layer(x), before, rtol=1e-6)


def test_copies_of_layers_are_independent() -> None:
    import copy

    layer = layers.Dense(3)
    layer.build((None, 2))
    other = copy.deepcopy(layer)
    other.kernel.assign(np.zeros((2, 3)))
    assert layer.kernel.numpy().any()
    assert [id(v) for v in other.weights] != [id(v) for v in layer.weights]


def test_remat_is_the_same_function() -> None:
    class Counted(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")
            self.dense = layers.Dense(3, activation="tanh")

        def call(self, x: Any, training: bool = False) -> Any:
            if training:
                self.count.assign_add(1.0)
            self.add_loss(wnp.sum(x))
            return self.dense(x)

    class Outer(layers.Layer):
        def __init__(self, again: bool) -> None:
            super().__init__()
            self.inner, self.again = Counted(), again

        def call(self, x: Any) -> Any:
            return (keras.remat(self.inner) if self.again else self.inner)(x)

    plain, again = Outer(False), Outer(True)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    for layer in (plain, again):
        layer.build((None, 3))
    again.set_weights(plain.get_weights())
    results = []
    for layer in (plain, again):
        values = [v.value for v in layer.trainable_variables]
        others = [v.value for v in layer.non_trainable_variables]

        def loss(values: Any, layer: Any = layer, others: Any = others) -> Any:
            y, new, losses = layer.stateless_call(values, others, x, training=True, return_losses=True)
            return (y**2).sum() + sum(losses), new

        results.append(weft.jit(weft.grad(loss, has_aux=True))(values))
    weft.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6), *results)
    assert float(results[0][1][0]) == 1.0
    traced = weft.make_jaxpr(lambda values: again.stateless_call(values, others, x)[0])(values)
    assert any(equation.primitive.name in ("remat", "checkpoint") for equation in traced.eqns)


def test_nothing_of_a_trace_is_left_behind() -> None:
    class Everything(layers.Layer):
        def __init__(self) -> None:
            super().__init__(activity_regularizer="l2")
            self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)
            self.embedding = layers.Embedding(5, 3, mask_zero=True)

        def call(self, ids: Any) -> Any:
            y = self.embedding(ids)
            self.count.assign(wnp.sum(y))
            self.add_loss(wnp.sum(y))
            return y

    with weft.checking_leaks():
        layer = Everything()
        assert layer(keras.KerasTensor((None, 4), "int32")).shape == (None, 4, 3)
        assert layer.compute_output_shape((None, 2)) == (None, 2, 3)
        values = [v.value for v in layer.trainable_variables]
        others = [v.value for v in layer.non_trainable_variables]
        run = weft.jit(lambda v, o, x: layer.stateless_call(v, o, x, return_losses=True))
        _, new, losses = run(values, others, np.array([[1, 0]]))
    assert len(losses) == 2 and float(new[0]) != 0 and float(layer.count.value) == 0


@pytest.mark.parametrize(
    ("mode", "options", "counts"),
    [
        (None, {}, False),
        ("full", {}, True),
        ("activations", {}, True),
        ("larger_than", {"output_size_threshold": 63}, True),
        ("larger_than", {"output_size_threshold": 64}, False),
        ("list_of_layers", {"layer_names": ["a"]}, True),
        ("list_of_layers", {"layer_names": ["b"]}, False),
    ],
)
def test_remat_scope_chooses_layers(mode: str | None, options: dict[str, Any], counts: bool) -> None:
    with keras.RematScope(mode, **options):
        layer = keras.layers.Dense(8, "relu", name="a")
        with keras.RematScope(None):
            plain = keras.layers.Dense(8, "relu", name="a")
    x = wnp.ones((8, 3))
    layer.build(x.shape), plain.build(x.shape)
    plain.set_weights(layer.get_weights())
    gradients = []
    for each, expected in ((layer, counts), (plain, False)):
        loss = lambda values, each=each: each.stateless_call(values, [], x)[0].sum()
        values = [v.value for v in each.trainable_variables]
        assert ("checkpoint" in str(weft.make_jaxpr(weft.grad(loss))(values))) == expected
        gradients.append(weft.grad(loss)(values))
    np.testing.assert_array_equal(gradients[0][0], gradients[1][0])
    np.testing.assert_array_equal(layer(x), plain(x))
    with pytest.raises(ArgumentError, match="`mode` must be one of"):
        keras.RematScope("some")
    with keras.RematScope("full"), pytest.warns(UserWarning, match="which has no effect"):
        plain(x)
