"""Models on many devices: the losses are those of one device, and each device has its part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft import keras
from weft.errors import ArgumentError
from weft.keras import distribution, layers
from weft.keras.distribution import (
    DataParallel,
    DeviceMesh,
    FullyShardedDataParallel,
    LayoutMap,
    ModelParallel,
    TensorLayout,
)
from weft.sharding import PartitionSpec as P

RANDOM = np.random.RandomState(0)
X, Y = RANDOM.normal(size=(50, 8)).astype("float32"), RANDOM.randint(0, 4, 50)
NAMES = [f"cpu:{i}" for i in range(4)]
LAYOUTS = {"up/kernel": (None, "model"), "up/bias": ("model",), "down/kernel": ("model", None)}


@pytest.fixture(autouse=True)
def no_distribution() -> Iterator[None]:
    yield
    distribution.set_distribution(None)


def grid() -> DeviceMesh:
    return DeviceMesh((2, 2), ("batch", "model"), NAMES)


def model_parallel(layouts: Any = LAYOUTS) -> ModelParallel:
    found = LayoutMap(grid())
    found.update(layouts)
    return ModelParallel(layout_map=found, batch_dim_name="batch")


def mlp() -> Any:
    keras.utils.set_random_seed(0)
    parts = [
        layers.Dense(16, activation="relu", name="up"),
        layers.BatchNormalization(),
        layers.Dropout(0.2),
        layers.Dense(4, name="down"),
    ]
    model = keras.Sequential(parts, name="mlp")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2, name="adam"), loss, metrics=["accuracy"])
    return model


def results_of(model: Any) -> dict[str, Any]:
    # 50 rows in batches of 12, and 12 rows over devices, do not divide.
    history = model.fit(X, Y, epochs=2, batch_size=12, verbose=0, validation_data=(X[:20], Y[:20]))
    return {
        **history.history,
        "evaluate": model.evaluate(X, Y, batch_size=25, verbose=0),
        "predict": model.predict(X, batch_size=25, verbose=0),
        "train_on_batch": model.train_on_batch(X[:9], Y[:9]),
    }


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return results_of(mlp())


def check_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5 if name == "predict" else 0, err_msg=name)


def test_data_parallel_has_the_losses_of_one_device(expected: dict[str, Any]) -> None:
    distribution.set_distribution(DataParallel(devices=NAMES))
    model = mlp()
    check_equal(results_of(model), expected)
    for variable in [*model.variables, *model.optimizer.variables, *model.metrics_variables]:
        assert variable.value.is_fully_replicated and len(variable.value.devices()) == 4, variable.path


def test_fully_sharded_has_the_losses_of_one_device(expected: dict[str, Any]) -> None:
    distribution.set_distribution(FullyShardedDataParallel(devices=NAMES, min_size=16))
    model = mlp()
    found = results_of(model)
    check_equal({name: found[name] for name in expected}, expected)
    specs = {"up/kernel": P(None, "batch"), "down/kernel": P("batch"), "up/bias": P("batch"), "down/bias": P()}
    variables = [*model.variables, *model.optimizer.variables]
    for name, spec in specs.items():
        beside = [v for v in variables if v.path.replace("/", "_").startswith(f"adam_mlp_{name.replace('/', '_')}_")]
        for variable in [*(v for v in variables if v.path.endswith(name)), *beside]:
            assert variable.value.sharding.spec == spec, variable.path
        assert len(beside) == 2


def test_model_parallel_has_the_losses_of_one_device(expected: dict[str, Any]) -> None:
    distribution.set_distribution(model_parallel())
    model = mlp()
    check_equal(results_of(model), expected)
    up, down = model.get_layer("up"), model.get_layer("down")
    for variable, spec in [(up.kernel, P(None, "model")), (up.bias, P("model")), (down.kernel, P("model"))]:
        slots = [v for v in model.optimizer.variables if v.path.startswith(f"adam/{variable.path.replace('/', '_')}_")]
        assert len(slots) == 2
        for each in (variable, *slots):
            assert each.value.sharding.spec == spec and each.layout.spec == spec, each.path
            assert each.value.addressable_shards[0].data.size == each.value.size // 2
    assert down.bias.value.is_fully_replicated


def test_layouts_that_are_searched_for(expected: dict[str, Any]) -> None:
    # A device has memory for a part of the model only; where there is enough, copies of such a small one are best.
    found = ModelParallel(auto=True, device_mesh=DeviceMesh((4,), ("batch",), NAMES), memory=5e3, seconds=0.1)
    distribution.set_distribution(found)
    model = mlp()
    model.build((None, 8))
    kernel = model.get_layer("up").kernel
    assert kernel.value.sharding.spec == P(None, "batch")  # no device has it all at first
    loss = model.fit(X, Y, batch_size=12, verbose=0).history["loss"]
    np.testing.assert_allclose(loss, expected["loss"][:1], rtol=1e-5)
    assert not kernel.value.is_fully_replicated and kernel.path in found.layout_map
    slot = next(v for v in model.optimizer.variables if v.path == "adam/mlp_up_kernel_momentum")
    assert slot.value.sharding == slot.layout
    with pytest.raises(ArgumentError, match="must be None when auto=True"):
        ModelParallel(auto=True, layout_map=LayoutMap(grid()))


def test_a_model_from_before_is_distributed(expected: dict[str, Any]) -> None:
    model = mlp()
    model.build((None, 8))
    model.optimizer.build(model.trainable_variables)
    distribution.set_distribution(model_parallel())
    loss = model.fit(X, Y, batch_size=12, verbose=0).history["loss"]
    np.testing.assert_allclose(loss, expected["loss"][:1], rtol=1e-5)
    kernel = model.get_layer("up").kernel
    slot = next(v for v in model.optimizer.variables if v.path == "adam/mlp_up_kernel_momentum")
    assert kernel.value.sharding.spec == slot.value.sharding.spec == P(None, "model")


class OwnStep(keras.Model):
    """It is built by its own step."""

    def __init__(self) -> None:
        super().__init__(name="own")
        self.down = layers.Dense(4, name="down")

    def call(self, x: Any) -> Any:
        return self.down(x)

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


@pytest.mark.parametrize("eagerly", [False, True])
def test_models_that_their_own_step_builds(eagerly: bool) -> None:
    def fitted(layouts: Any) -> tuple[Any, Any]:
        distribution.set_distribution(None if layouts is None else model_parallel(layouts))
        keras.utils.set_random_seed(0)
        model: Any = OwnStep()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(weft.optim.sgd(0.1, momentum=0.9), loss, run_eagerly=eagerly)
        return model.fit(X, Y, batch_size=25, verbose=0).history["loss"], model.down.kernel.value

    losses, kernel = fitted({"down/kernel": (None, "model")})
    np.testing.assert_allclose(losses, fitted(None)[0], rtol=1e-5)
    assert kernel.sharding.spec == P(None, "model")
    with pytest.raises(ArgumentError, match="matches no variable"):
        fitted({"down/kernel": (None, "model"), "up/kernel": (None, "model")})


@pytest.mark.parametrize(
    "make",
    [
        lambda: weft.optim.adam(1e-2),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(momentum=0.9)),
        lambda: keras.optimizers.SGD(gradient_accumulation_steps=2, use_ema=True),
        lambda: keras.optimizers.Adafactor(),
    ],
    ids=["transformation", "scale", "accumulation", "factors"],
)
def test_what_optimizers_have_beside_weights_is_split_like_them(make: Any) -> None:
    with model_parallel({"split/kernel": (None, "model")}).scope():
        layer = layers.Dense(4, name="split")
        layer.build((None, 8))
        optimizer = keras.optimizers.get(make())
        optimizer.build(layer.trainable_variables)
    for variable in optimizer.variables:
        expected = P(None, "model") if variable.shape == (8, 4) else P()
        assert variable.layout.spec == expected, variable.path


def test_variables_are_created_in_their_layouts() -> None:
    whole = keras.initializers.GlorotUniform(seed=3)((8, 6), dtype="float32")
    seen: list[bool] = []

    def initializer(shape: Any, dtype: Any) -> Any:
        value = keras.initializers.GlorotUniform(seed=3)(shape, dtype=dtype)
        seen.append(isinstance(value, weft.core.Tracer))
        return value

    with model_parallel({"kernel": (None, "model")}).scope():
        variable = keras.Variable(initializer, shape=(8, 6), name="kernel")
    assert seen == [True]  # it is part of a program whose result is split
    assert [s.data.shape for s in variable.value.addressable_shards] == [(8, 3)] * 4
    np.testing.assert_array_equal(variable.numpy(), whole)
    variable.assign(np.ones((8, 6)))
    assert variable.value.sharding.spec == P(None, "model")
    assert keras.distribution.distribution() is None


def test_initializers_that_draw_from_a_generator() -> None:
    def values(generator: Any) -> Any:
        make = lambda name: keras.Variable(
            lambda shape, dtype: keras.random.normal(shape, dtype=dtype, seed=generator), shape=(4, 2), name=name
        )
        return [make("a").numpy(), make("b").numpy()]

    expected = values(keras.random.SeedGenerator(5))
    with model_parallel({"a|b": ("model",)}).scope():
        found = values(keras.random.SeedGenerator(5))
    np.testing.assert_array_equal(found, expected)


def test_outputs_of_layers_have_layouts() -> None:
    with model_parallel({"wide/output": ("batch", "model")}).scope():
        layer = layers.Dense(6, name="wide")
        found = weft.jit(lambda x: layer(x))(X[:4])
    assert found.sharding.spec == P("batch", "model")
    np.testing.assert_allclose(found, layer(X[:4]), rtol=1e-5)


def test_outputs_inside_of_models_and_going_back_to_one_device() -> None:
    def model() -> Any:
        keras.utils.set_random_seed(0)
        inputs = keras.Input((8,))
        block = keras.Sequential([layers.Dense(16, name="first"), layers.Dense(16, name="second")], name="block")
        found = keras.Model(inputs, layers.Dense(1, name="head")(block(inputs)))
        found.compile("sgd", "mse")
        return found

    one = model()
    losses = [one.fit(X, Y, batch_size=25, verbose=0).history["loss"] for _ in range(2)]
    # Layers have the paths that their variables begin with.
    layouts = {"first/kernel": (None, "model"), "^block/first/output$": ("batch", "model")}
    distribution.set_distribution(model_parallel(layouts))
    many = model()
    found = [many.fit(X, Y, batch_size=25, verbose=0).history["loss"]]
    distribution.set_distribution(None)
    found.append(many.fit(X, Y, batch_size=25, verbose=0).history["loss"])
    np.testing.assert_allclose(found, losses, rtol=1e-5)


def test_steps_without_programs(expected: dict[str, Any]) -> None:
    distribution.set_distribution(model_parallel())
    model = mlp()
    model.run_eagerly = True
    loss = model.fit(X, Y, batch_size=25, verbose=0, steps_per_epoch=1).history["loss"]
    assert np.isfinite(loss[0]) and model.get_layer("up").kernel.value.sharding.spec == P(None, "model")


@pytest.mark.parametrize(
    ("layouts", "words"),
    [
        (
            {**LAYOUTS, "sideways/kernel": (None, "model")},
            ["sideways/kernel", "matches no variable", "mlp/down/kernel"],
        ),
        ({**LAYOUTS, "mlp/up": (None, "model")}, ["mlp/up/kernel", "2 patterns", "'up/kernel' and 'mlp/up'"]),
        ({"up/kernel": (None, "model", None)}, ["mlp/up/kernel", "more axes", "(8, 16)"]),
        ({"down/bias": (("batch", "model"),), "up/kernel": ("uneven",)}, ["no axis 'uneven'", "'batch', 'model'"]),
    ],
    ids=["nothing", "two", "rank", "axis"],
)
def test_errors_of_layouts(layouts: Any, words: list[str]) -> None:
    with pytest.raises(ArgumentError) as error:
        distribution.set_distribution(model_parallel(layouts))
        mlp().fit(X[:4], Y[:4], verbose=0)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_an_axis_that_does_not_divide() -> None:
    with model_parallel({"kernel": (None, "model")}).scope():
        with pytest.raises(
            ArgumentError, match=r"'model' has 2 devices, which do not divide dimension 1 of .*'kernel'"
        ):
            keras.Variable("zeros", shape=(4, 3), name="kernel")


def test_meshes_and_layouts() -> None:
    assert distribution.list_devices() == [f"cpu:{i}" for i in range(8)] and distribution.get_device_count() == 8
    mesh = grid()
    assert mesh.shape == (2, 2) and mesh.axis_names == ["batch", "model"] and mesh.devices[1, 0] == "cpu:2"
    assert DeviceMesh((8,), ("x",)).backend_mesh.devices.tolist() == weft.devices()
    layout = TensorLayout(["batch", None])
    layouts = LayoutMap(mesh)
    layouts["exact"], layouts["ex.*"] = layout, (None, "model")
    assert layouts["exact"] is layout and layout.device_mesh is mesh and layouts["extra"].axes == (None, "model")
    assert layouts["other"] is None and list(layouts) == ["exact", "ex.*"] and "extra" not in layouts
    found = distribution.distribute_tensor(X[:4], layout)
    assert found.sharding.spec == P("batch")
    for wrong in (
        lambda: DeviceMesh((3,), ("x",)),
        lambda: DeviceMesh((2, 2), ("x",)),
        lambda: DeviceMesh((1,), ("x",), ["cpu:99"]),
        lambda: layouts.__setitem__("exact", ("batch",)),
        lambda: layouts.__setitem__("(", ("batch",)),
        lambda: ModelParallel(layout_map=layouts, batch_dim_name="rows"),
        lambda: ModelParallel(),
        lambda: distribution.set_distribution("data"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentError):
            wrong()
    with pytest.warns(UserWarning, match="only 'batch'"):
        DataParallel(mesh)
