"""Callbacks, optimizers, metrics and datasets beside a model, in the less usual forms that Keras accepts."""

import re

import numpy as np
import pytest

from weft import keras

L = keras.layers
X, Y = np.ones((8, 2), "float32"), np.zeros((8, 1), "float32")


def two_rates(**options):
    slow, fast = keras.optimizers.SGD(0.01, **options), keras.optimizers.SGD(0.1, **options)
    table = keras.optimizers.OptimizerMap(slow, {".*fast.*": fast})
    return slow, fast, keras.optimizers.MultiOptimizer(table)


def chain(optimizer):
    model = keras.Sequential([keras.Input((2,)), L.Dense(2, name="fast"), L.Dense(1, name="slow")])
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize("scaled", [False, True])
def test_rates_of_several_optimizers_are_scheduled(scaled):
    slow, fast, optimizer = two_rates()
    model = chain(keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer)
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    halve.set_model(model)
    halve.on_epoch_begin(0)
    assert (float(slow.learning_rate), float(fast.learning_rate)) == pytest.approx((0.005, 0.05))
    logs = {}
    halve.on_epoch_end(0, logs)
    assert logs == pytest.approx({"learning_rate_0": 0.05, "learning_rate_1": 0.005})
    reduce = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1)
    reduce.set_model(model)
    reduce.on_train_begin()
    for epoch in range(2):
        reduce.on_epoch_end(epoch, {"loss": 1.0})
    assert (float(slow.learning_rate), float(fast.learning_rate)) == pytest.approx((0.0025, 0.025))


def test_averages_of_several_optimizers_are_swapped():
    _, _, optimizer = two_rates(use_ema=True, ema_momentum=0.5)
    model = chain(optimizer)
    swap = keras.callbacks.SwapEMAWeights()
    model.fit(X, Y, verbose=0, epochs=2, callbacks=[swap], validation_data=(X, Y))
    assert len(optimizer.optimizers[0].averages()) == 2
    with pytest.raises(ValueError, match="use_ema=True"):
        chain(two_rates()[2]).fit(X, Y, verbose=0, validation_data=(X, Y), callbacks=[keras.callbacks.SwapEMAWeights()])


def test_scale_of_several_optimizers_is_that_of_the_outer_one():
    slow, fast, optimizer = two_rates()
    optimizer.loss_scale_factor = 5.0
    assert slow.loss_scale_factor == fast.loss_scale_factor == 5.0
    keras.optimizers.LossScaleOptimizer(optimizer)
    assert slow.loss_scale_factor is fast.loss_scale_factor is optimizer.loss_scale_factor is None


def test_old_configs_of_loss_scales_are_read():
    config = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()).get_config()
    found = keras.optimizers.LossScaleOptimizer.from_config({**config, "use_ema": False, "clipnorm": None})
    assert found.initial_scale == config["initial_scale"]


def test_a_name_that_no_metric_has_ends_training():
    for callback in (keras.callbacks.EarlyStopping("unknown"), keras.callbacks.ReduceLROnPlateau("unknown")):
        with pytest.raises(ValueError, match="larger or smaller"):
            chain("sgd").fit(X, Y, verbose=0, callbacks=[callback])
    with pytest.warns(UserWarning, match="mode must be"):
        stop = keras.callbacks.EarlyStopping("loss", mode="least")
    stop.set_model(chain("sgd"))
    assert stop.monitor_op is keras.ops.less


def test_variables_in_containers_belong_to_a_metric():
    class Parts(keras.metrics.Metric):
        def __init__(self):
            super().__init__()
            self.parts = {"a": [keras.Variable(0.0), keras.Variable(1.0)], "b": (keras.Variable(2.0),)}

    assert len(Parts().variables) == 3


def test_constraint_of_the_base_class_changes_nothing():
    np.testing.assert_array_equal(keras.constraints.Constraint()(np.ones(2)), [1.0, 1.0])


def test_arguments_of_other_types_are_refused():
    with pytest.raises(ValueError, match="must name a directory"):
        keras.callbacks.BackupAndRestore(None)
    with pytest.raises(ValueError, match="`threshold` must"):
        keras.metrics.FBetaScore(threshold="0.5")


def test_adamw_needs_a_decay():
    with pytest.raises(ValueError, match="needs a weight decay"):
        keras.optimizers.AdamW(weight_decay=None)


def test_batches_by_index_without_an_end():
    class Endless(keras.utils.PyDataset):
        def __getitem__(self, index):
            return index

    assert [batch for batch, _ in zip(Endless(), range(3), strict=False)] == [0, 1, 2]


@pytest.fixture
def texts(tmp_path):
    for name in ("top.txt", "a/one.txt", "a/two.txt", "b/three.txt", ".hidden/four.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path


def test_folders_without_labels_have_all_files(texts):
    read = keras.utils.text_dataset_from_directory
    for options in ({"label_mode": None}, {"labels": None}):
        dataset = read(texts, shuffle=False, verbose=False, **options)
        assert len(dataset.file_paths) == 5
        assert dataset.class_names is None
    dataset = read(texts, class_names=["b"], verbose=False)
    assert dataset.class_names == ["b"]
    assert len(dataset.file_paths) == 1
    assert read(texts, verbose=False).class_names == ["a", "b"]
    with pytest.raises(ValueError, match="`labels` must"):
        read(texts, labels="guessed")
    with pytest.raises(ValueError, match="an entry for each"):
        read(texts, labels=[0, 1])
    with pytest.raises(ValueError, match="a file each"):
        read(texts, validation_split=0.01, subset="validation", shuffle=False, verbose=False)
    with pytest.raises(ValueError, match="`format` must"):
        keras.utils.timeseries_dataset_from_array(X, None, 2, format="csv")


def test_folders_without_batches_give_samples(texts):
    pytest.importorskip("PIL")
    options = {"batch_size": None, "shuffle": False, "verbose": False}
    text, label = next(iter(keras.utils.text_dataset_from_directory(texts, **options)))
    assert (text, label) == ("a/one.txt", 0)
    for name in ("a/x.png", "b/y.png"):
        keras.utils.save_img(texts / name, np.zeros((4, 4, 3)))
    image, label = next(iter(keras.utils.image_dataset_from_directory(texts, image_size=(2, 3), **options)))
    assert image.shape == (2, 3, 3)
    assert label == 0


def scaled(params, state, inputs):
    return inputs * params["w"], {"steps": state["steps"], "none": None}


def drawn(params, inputs):
    return inputs @ params["w"]


def draw(rng, inputs):
    return {"w": np.ones((inputs.shape[-1], 3), "float32")}


@pytest.mark.parametrize(
    "build",
    [
        lambda: L.JaxLayer(scaled, params={"w": np.full(2, 3.0)}, state={"steps": np.zeros(()), "none": None}),
        lambda: L.JaxLayer(drawn, draw),
        lambda: L.JaxLayer(drawn, draw, params={"w": np.full((2, 3), 2.0, "float32")}),
    ],
)
def test_layers_of_functions_are_saved(build, tmp_path):
    model = keras.Sequential([keras.Input((2,)), build()])
    model.save(tmp_path / "m.keras")
    known = {function.__name__: function for function in (scaled, drawn, draw)}
    copy = keras.models.load_model(tmp_path / "m.keras", custom_objects=known)
    np.testing.assert_array_equal(copy.predict(X, verbose=0), model.predict(X, verbose=0))


def test_state_of_a_function_may_have_other_leaves():
    layer = L.JaxLayer(scaled, params={"w": np.ones(2)}, state={"kind": "moving", "none": None})
    assert layer.state == {"kind": "moving", "none": None}


def test_values_without_keys_are_no_dict_of_inputs():
    first, second = keras.Input((2,), name="zeta"), keras.Input((2,), name="alpha")
    model = keras.Model({"zeta": first, "alpha": second}, L.Subtract()([first, second]))
    for inputs in ([X, 0 * X], (X, 0 * X)):
        with pytest.raises(ValueError, match="must have the structure"):
            model(inputs)
    np.testing.assert_array_equal(model({"zeta": X, "alpha": 0 * X}), X)
    ordered = keras.Model({"alpha": second, "zeta": first}, L.Subtract()([second, first]))
    with pytest.warns(UserWarning, match="takes the dict"):
        np.testing.assert_array_equal(ordered([X, 0 * X]), X)
    with pytest.raises(ValueError, match="`input_tensors` must"):
        keras.models.clone_model(model, input_tensors=[first, second])


def test_executions_of_predictions_have_hooks():
    class Indices(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.began, self.ended = [], []

        def on_predict_batch_begin(self, batch, logs=None):
            self.began.append(batch)

        def on_predict_batch_end(self, batch, logs=None):
            self.ended.append((batch, logs["outputs"].shape[0]))

    model = chain("sgd")
    model.compile("sgd", "mse", steps_per_execution=3)
    for data, batch_size in ((X, 1), ((X[:1] for _ in range(8)), None)):
        seen = Indices()
        model.predict(data, batch_size=batch_size, callbacks=[seen], verbose=0)
        assert (seen.began, seen.ended) == ([0, 3, 6], [(2, 3), (5, 3), (7, 2)])


def test_summaries_have_operations_and_shapes():
    lines = []
    inputs = keras.Input((3,))
    hidden = L.Dense(2)(inputs)
    keras.Model(inputs, keras.ops.sum(hidden)).summary(print_fn=lines.append)
    assert re.search(r"sum\w* \(Sum\)", lines[0])
    assert " () " in lines[0]

    class Attending(keras.Model):
        def __init__(self):
            super().__init__()
            self.attention = L.MultiHeadAttention(2, 4)

        def call(self, inputs):
            return self.attention(inputs, inputs)

    model = Attending()
    model(np.ones((1, 2, 4), "float32"))
    model.summary(print_fn=lines.append)
    assert "(1, 2, 4)" in lines[1]


def test_one_value_in_an_array_can_be_monitored():
    stop = keras.callbacks.EarlyStopping("f1_score", mode="max")
    assert stop.read_monitor({"f1_score": np.array([0.5])}) == 0.5
    with pytest.raises(ValueError, match="must be one value"):
        stop.read_monitor({"f1_score": np.array([0.5, 0.6])})
