"""Training in the forms that Keras accepts: batches, eager mode, averages, layers in several graphs."""

import numpy as np
import pytest

import weft
from weft import keras

L = keras.layers
X, Y = np.ones((8, 2), "float32"), np.zeros((8, 1), "float32")


def functional(**options):
    inputs = keras.Input((2,))
    model = keras.Model(inputs, L.Dense(1, kernel_initializer="ones")(inputs))
    model.compile("sgd", "mse", metrics=["mae"], **options)
    return model


@pytest.mark.parametrize("eager", [False, True])
def test_methods_of_one_batch(eager):
    model = functional(run_eagerly=eager)
    assert model.test_on_batch(X, Y) == pytest.approx([4.0, 2.0])
    assert model.train_on_batch(X, Y, return_dict=True) == pytest.approx({"loss": 4.0, "mae": 2.0})
    assert model.predict_on_batch(X).shape == (8, 1)
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    pair = keras.Model({"a": a, "b": b}, L.Add()([a, b]))
    np.testing.assert_array_equal(pair.predict_on_batch({"a": X, "b": X}), 2 * X)


def test_swapped_averages_are_the_weights_after_fit():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 2)).astype("float32"), rng.normal(size=(32, 1)).astype("float32")
    weights = []
    for callbacks in ([], [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]):
        model = keras.Sequential([keras.Input((2,)), L.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse")
        model.fit(x, y, epochs=2, batch_size=8, shuffle=False, verbose=0, callbacks=callbacks, validation_data=(x, y))
        weights.append(model.get_weights()[0])
    np.testing.assert_array_equal(*weights)


def test_input_and_output_of_a_shared_layer_are_those_of_its_first_call():
    inputs = keras.Input((2,))
    hidden = L.Dense(3, name="a")(inputs)
    full = keras.Model(inputs, L.Dense(4, name="b")(hidden))
    keras.Model(hidden, full.output)
    assert full.get_layer("b").input is hidden
    assert full.get_layer("b").output is full.output


def test_build_of_the_base_class_comes_first():
    class Scale(L.Layer):
        def build(self, input_shape):
            super().build(input_shape)
            self.scale = self.add_weight(shape=(input_shape[-1],), initializer="ones")

        def call(self, inputs):
            return inputs * self.scale

    assert len(keras.Sequential([keras.Input((2,)), Scale()]).weights) == 1


def test_state_is_not_added_in_a_call():
    class Late(L.Layer):
        def call(self, inputs):
            self.w = self.add_weight(shape=(), initializer="zeros")
            return inputs

    with pytest.raises(ValueError, match="built"):
        Late()(X)


def test_layers_without_a_call_or_shapes():
    class Holder(L.Layer):
        def __init__(self):
            super().__init__()
            self.inner = L.Dense(2)

    holder = Holder()
    holder.build(None)
    assert holder.built

    class Late(L.Layer):
        def call(self, inputs):
            return inputs + 1.0

        def compute_output_spec(self, *args, **kwargs):
            raise NotImplementedError

    np.testing.assert_array_equal(keras.Sequential([keras.Input((2,)), Late()])(X), X + 1)


def test_activation_can_be_taken_away():
    layer = L.Dense(2, activation="relu", kernel_initializer="ones")
    layer.activation = None
    np.testing.assert_array_equal(layer(-X), -2 * X)


def test_activity_of_an_empty_batch_costs_nothing():
    layer = L.ActivityRegularization(l2=0.1)
    layer(np.ones((0, 5), "float32"))
    assert float(layer.losses[0]) == 0.0


def test_results_have_masks():
    y = L.Embedding(4, 2, mask_zero=True)(np.array([[1, 0]]))
    np.testing.assert_array_equal(y._keras_mask, [[True, False]])
    assert L.Dense(2)(X)._keras_mask is None


def outputs_model(build):
    inputs = keras.Input((2,))
    dense = lambda name: L.Dense(1, name=name, kernel_initializer="ones")(inputs)
    return keras.Model(inputs, build(dense))


@pytest.mark.parametrize(
    ("build", "loss", "targets", "names"),
    [
        (lambda d: d("a"), [["mse"]], Y, ["loss"]),
        (lambda d: d("a"), ["mse", "mae"], None, None),
        (lambda d: [d("a"), d("b")], [["mse"], ["mae"]], [Y, Y], ["a_loss", "b_loss", "loss"]),
        (lambda d: [d("a"), d("b")], ["mse", None], Y, ["loss"]),
        (
            lambda d: {"a": d("a"), "b": d("b")},
            {"a": ["mse"], "b": "mae"},
            {"a": Y, "b": Y},
            ["a_loss", "b_loss", "loss"],
        ),
        (
            lambda d: {"x": (d("a"), d("b")), "y": d("c")},
            {"x": ("mse", "mae"), "y": "mse"},
            {"x": (Y, Y), "y": Y},
            ["loss", "x/a_loss", "x/b_loss", "y_loss"],
        ),
        (lambda d: {"x": (d("a"), d("b")), "y": d("c")}, "mse", {"x": (Y, Y), "y": Y}, None),
    ],
)
def test_losses_of_nested_outputs(build, loss, targets, names):
    model = outputs_model(build)
    model.compile("sgd", loss=loss)
    if targets is None:
        with pytest.raises(ValueError, match="as many entries"):
            model.fit(X, Y, verbose=0)
        return
    history = model.fit(X, targets, verbose=0).history
    if names is not None:
        assert sorted(history) == names
    parts = [value[0] for name, value in history.items() if name != "loss"]
    if parts:
        assert sum(parts) == pytest.approx(history["loss"][0])


def test_metrics_may_be_empty():
    model = outputs_model(lambda d: [d("a"), d("b")])
    model.compile("sgd", "mse", metrics=[], weighted_metrics=[])
    assert sorted(model.fit(X, [Y, Y], verbose=0).history) == ["a_loss", "b_loss", "loss"]


def test_callbacks_end_evaluation_and_prediction():
    class Stop(keras.callbacks.Callback):
        seen = 0

        def count(self, index, logs=None):
            self.seen += 1
            if self.seen == 3:
                self.model.stop_evaluating = self.model.stop_predicting = True

        on_test_batch_end = on_predict_batch_end = count

    def batches(*parts):
        while True:
            yield parts

    model = functional()
    stop = Stop()
    model.evaluate(batches(X, Y), callbacks=[stop], verbose=0)
    assert stop.seen == 3
    assert model.predict(batches(X), callbacks=[Stop()], verbose=0).shape == (24, 1)


def test_fit_ends_where_a_generator_ends():
    model = functional()
    with pytest.warns(UserWarning, match="ran out"):
        history = model.fit(((X, Y) for _ in range(3)), epochs=3, verbose=0)
    assert len(history.history["loss"]) == 1


def test_steps_of_states():
    class Stateless(keras.Model):
        def train_step(self, state, data):
            return super().train_step(state, data)

        def test_step(self, state, data):
            return super().test_step(state, data)

    losses = []
    for cls in (keras.Model, Stateless):
        inputs = keras.Input((2,))
        model = cls(inputs, L.Dense(1, kernel_initializer="ones")(inputs))
        model.compile("sgd", "mse")
        losses.append([*model.fit(X, Y, epochs=2, verbose=0).history["loss"], model.evaluate(X, Y, verbose=0)])
    assert losses[0] == pytest.approx(losses[1])


def test_loss_and_updates_are_a_function_of_values():
    import weft

    model = functional()
    model.test_on_batch(X, Y)
    values = lambda variables: [variable.value for variable in variables]
    groups = [values(model.trainable_variables), values(model.non_trainable_variables), values(model.metrics_variables)]
    (loss, (unscaled, y_pred, _, _)), found = weft.value_and_grad(model.compute_loss_and_updates, has_aux=True)(
        *groups, X, Y, None, training=True
    )
    assert float(loss) == float(unscaled) == 4.0
    assert y_pred.shape == (8, 1)
    np.testing.assert_allclose(found[0], [[4.0], [4.0]])


def test_a_clone_is_compiled():
    copy = keras.models.clone_model(functional())
    assert copy.compiled
    assert len(copy.evaluate(X, Y, verbose=0)) == 2


def test_state_trees():
    model = functional()
    model.fit(X, Y, verbose=0)
    tree = model.get_state_tree("numpy_array")
    assert sorted(tree) == [
        "metrics_variables",
        "non_trainable_variables",
        "optimizer_variables",
        "trainable_variables",
    ]
    other = functional()
    name, other_name = model.layers[-1].name, other.layers[-1].name
    other.set_state_tree({"trainable_variables": {other_name: tree["trainable_variables"][name]}})
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
    with pytest.raises(ValueError, match="Paths"):
        other.set_state_tree({"trainable_variables": {"none": np.ones(1)}})


def test_a_checkpoint_without_its_value_is_written(tmp_path):
    path = tmp_path / "model.keras"
    with pytest.warns(UserWarning, match="unknown"):
        functional().fit(
            X, Y, verbose=0, callbacks=[keras.callbacks.ModelCheckpoint(path, "unknown", save_best_only=True)]
        )
    assert path.exists()


def test_operators_of_variables_are_logical():
    a, b = keras.Variable([2.0, 0.0, 2.5]), keras.Variable([1.0, 1.0, 0.0])
    np.testing.assert_array_equal(a & b, [True, False, False])
    np.testing.assert_array_equal(a | b, [True, True, True])
    np.testing.assert_array_equal(a ^ b, [False, True, True])
    np.testing.assert_array_equal(round(a), [2.0, 0.0, 2.0])


def test_metrics_at_a_value_have_it():
    assert keras.metrics.PrecisionAtRecall(0.25).recall == 0.25
    assert keras.metrics.SensitivityAtSpecificity(0.25).specificity == 0.25
    accuracy = keras.metrics.SparseCategoricalAccuracy()
    accuracy.update_state(np.array([[0], [0]]), np.array([[[0.9, 0.1, 0.0], [0.8, 0.15, 0.05]]]))
    assert float(accuracy.result()) == 1.0


@pytest.mark.parametrize(
    ("build", "metrics", "names"),
    [
        (
            lambda d: {"x": (d("a"), d("b")), "y": d("c")},
            {"x": ("mse", ["mae", "mse"]), "y": "mae"},
            ["a_mse", "b_mae", "b_mse", "c_mae"],
        ),
        (lambda d: {"x": (d("a"), d("b")), "y": d("c")}, {"x": (None, ["mae"]), "y": None}, ["b_mae"]),
        (lambda d: [d("b"), d("a")], [["mse"], ["mae"]], ["a_mae", "b_mse"]),
        (lambda d: [d("b"), d("a")], {"a": "mse"}, ["a_mse"]),
        (lambda d: {"y": d("b"), "x": d("a")}, {"y": ["mae"], "x": ["mse"]}, ["x_mse", "y_mae"]),
    ],
)
def test_metrics_of_nested_outputs_come_last_and_sorted(build, metrics, names):
    model = outputs_model(build)
    model.compile("sgd", "mse", metrics=metrics)
    targets = keras.tree.map_structure(lambda _: Y, model.output)
    result = model.evaluate(X, targets, verbose=0, return_dict=True)
    values = model.evaluate(X, targets, verbose=0)
    assert model.metrics_names[-len(names) :] == names
    assert values[-len(names) :] == [result[name] for name in names]
    assert [value for name in names for value in [2.0 if "mae" in name else 4.0]] == values[-len(names) :]


def test_metrics_of_one_name_are_listed_as_in_keras():
    model = functional()
    model.compile("sgd", "mse", metrics=["mae", "mse"], weighted_metrics=["mae"])
    values = model.test_on_batch(X, Y)
    named = model.test_on_batch(X, Y, return_dict=True)
    # Keras lists the second by its own name too, which is that of the first one's value.
    assert model.metrics_names == ["loss", "mae", "mse", "mae", "weighted_mae"]
    assert values == [named[name] for name in model.metrics_names]


class Twins(keras.Model):
    """A model whose outputs have no names."""

    def __init__(self):
        super().__init__()
        self.dense = L.Dense(1, kernel_initializer="ones")

    def call(self, inputs):
        return [self.dense(inputs), self.dense(inputs) * 2]


def test_outputs_without_names():
    model = Twins()
    model.compile("sgd", ["mse", "mse"], metrics=[["mae"], ["mae"]])
    result = model.evaluate(X, [Y, Y], verbose=0, return_dict=True)
    assert result == {"loss": 20.0, "mse_loss": 4.0, "mse_1_loss": 16.0, "mae": 2.0, "mae_1": 4.0}


def test_metrics_are_evaluated_without_a_loss():
    model = outputs_model(lambda d: d("a"))
    model.compile(metrics=["mae"])
    assert model.evaluate(X, Y, verbose=0) == [0.0, 2.0]


def test_several_losses_of_an_output_are_one_loss_of_it():
    model = outputs_model(lambda d: [d("a"), d("b")])
    model.compile("sgd", [["mse"], ["mse", "mae"]])
    result = model.evaluate(X, [Y, Y], verbose=0, return_dict=True)
    assert result == {"loss": 10.0, "a_loss": 4.0, "b_loss": 6.0}


def test_losses_of_what_compute_loss_makes():
    class Split(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return super().compute_loss(x, y, (y_pred, y_pred * 2), sample_weight, training)

    inputs = keras.Input((2,))
    model = Split(inputs, L.Dense(1, kernel_initializer="ones")(inputs))
    model.compile("sgd", ["mse", "mae"])
    history = model.fit(X, (Y, Y), verbose=0).history
    assert history == {"loss": [8.0], "mse_loss": [4.0], "mae_loss": [4.0]}


@pytest.mark.parametrize("options", [{"run_eagerly": True}, {"jit_compile": False}])
def test_eager_models_may_look_at_values(options):
    class Signed(Twins):
        def call(self, inputs):
            return self.dense(inputs) if keras.ops.sum(inputs) >= 0 else -self.dense(inputs)

    model = Signed()
    model.compile("sgd", "mse", **options)
    assert model.fit(X, Y, verbose=0).history["loss"] == [4.0]
    model = Signed()
    model.compile("sgd", "mse")
    with pytest.raises(TypeError, match=r"(?s)inside Signed.call.*ops\.where.*ops\.cond.*run_eagerly=True") as caught:
        model.fit(X, Y, verbose=0)
    assert "static_argnums" not in str(caught.value)


@pytest.mark.parametrize(
    ("find", "name", "meant"),
    [
        (keras.optimizers.get, "adm", "adam"),
        (keras.losses.get, "mean_square_error", "mean_squared_error"),
        (keras.metrics.get, "acuracy", "accuracy"),
        (keras.activations.get, "rellu", "relu"),
        (keras.initializers.get, "glorot_unifrm", "glorot_uniform"),
    ],
)
def test_misspelt_names_have_suggestions(find, name, meant):
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        find(name)


@pytest.mark.parametrize("how", ["constructor", "attribute", "config", "clone"])
def test_layers_that_were_frozen_before_they_were_built_stay_so(how):
    frozen = L.Dense(2, trainable=how == "attribute", kernel_initializer="ones")
    frozen.trainable = False
    model = keras.Sequential([keras.Input((2,)), frozen, L.BatchNormalization(trainable=False), L.Dense(1)])
    if how == "config":
        model = keras.Sequential.from_config(model.get_config())
    elif how == "clone":
        model = keras.models.clone_model(model)
    assert len(model.trainable_weights) == 2
    model.compile("sgd", "mse")
    model.fit(X, Y + 1, verbose=0)
    np.testing.assert_array_equal(model.layers[0].kernel, np.ones((2, 2)))
    model.layers[0].trainable = True
    assert len(model.trainable_weights) == 4


class Stepping(keras.Model):
    """A model whose step updates its weights and calls `self.more`, whose result is one of the logs."""

    def __init__(self, more, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.more = keras.layers.Dense(1), more

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        loss, _, gradients = self.gradients(lambda: self.compute_loss(x, y, self(x)), self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss, "more": self.more(self)}


def _fit_once(model):
    return model.fit(np.ones((8, 3)), np.ones((8, 1)), verbose=0).history


def test_a_step_that_creates_variables_each_time_is_an_error():
    model = Stepping(lambda model: keras.Variable(2.0) + 1.0)
    model.compile("sgd", "mse")
    with pytest.raises(weft.errors.ArgumentError, match="must use the same variables each time"):
        _fit_once(model)


def test_variables_that_the_first_step_creates_are_state():
    created = []

    def count(model):
        if not created:
            created.append(keras.Variable(0.0, trainable=False))
        created[0].assign_add(1.0)
        return created[0].value

    model = Stepping(count)
    model.compile("sgd", "mse")
    assert [_fit_once(model)["more"], _fit_once(model)["more"]] == [[1.0], [2.0]]
    assert float(created[0].value) == 2.0


def test_a_variable_that_only_a_metric_reads_is_no_constant():
    scale = keras.Variable(1.0, trainable=False)

    class Scaled(keras.metrics.Mean):
        def result(self):
            return super().result() * scale

        def update_state(self, y_true, y_pred, sample_weight=None):
            return super().update_state(y_true)

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[Scaled(name="scaled")])
    first = _fit_once(model)["scaled"]
    scale.assign(3.0)
    assert [first, _fit_once(model)["scaled"]] == [[1.0], [3.0]]
