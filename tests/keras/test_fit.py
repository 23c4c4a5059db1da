"""`fit`, `evaluate`, `predict`: bits that do not depend on chunks, states that survive errors, what users override."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import keras
from weft.errors import FileFormatError, NotSupportedError
from weft.keras.core.seeds import set_random_seed
from weft.keras.training import feed, loop

ROWS = 44
X = np.random.RandomState(0).randn(ROWS, 3).astype("float32")
Y = (X @ np.array([[1.0], [-2.0], [0.5]]) + 0.3).astype("float32")


def network(optimizer="sgd", layers=None, **arguments):
    """A small model with statistics and randomness, always with the same weights."""
    set_random_seed(3)
    layers = layers or [
        keras.layers.Dense(4, activation="tanh", name="first"),
        keras.layers.Dropout(0.25, seed=5),
        keras.layers.Dense(1, name="last"),
    ]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile(optimizer, loss="mse", **arguments)
    return model


def fitted(model, **arguments):
    return model.fit(X, Y, **{"batch_size": 8, "verbose": 0, "epochs": 2, "shuffle": False, **arguments})


def state(model):
    return [np.asarray(v.value) for v in (*model.variables, *model.optimizer.variables)]


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


class Every(keras.callbacks.Callback):
    """Called after each batch."""

    def __init__(self, late=False):
        super().__init__()
        self.async_safe = late
        self.logs, self.begun = [], []

    def on_train_batch_begin(self, batch, logs=None):
        self.begun.append(batch)

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append((batch, logs["loss"]))


@pytest.fixture(scope="module")
def plain():
    """A model after two epochs, and their history."""
    model = network("adam")
    return model, fitted(model).history


def test_chunks_do_not_change_a_bit(plain, monkeypatch):
    model, history = plain
    expected = state(model)
    early, late = Every(), Every(late=True)
    every = network("adam")
    assert fitted(every, callbacks=[early]).history == history
    assert same(state(every), expected)
    delayed = network("adam")
    assert fitted(delayed, callbacks=[late]).history == history
    assert same(state(delayed), expected)
    # 44 rows by 8: five batches and one of four rows; each callback saw each of them, with the same running means.
    assert early.begun == late.begun == [0, 1, 2, 3, 4, 5] * 2
    assert early.logs == late.logs
    monkeypatch.setattr(loop, "FIRST_CHUNK", 1)
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 1e-9)
    slow = network("adam")
    assert fitted(slow).history == history
    assert same(state(slow), expected)


def test_ends_of_chunks_where_a_callback_asks(plain):
    ends = []

    class Often(keras.callbacks.Callback):
        chunk_every = 4

        def on_train_chunk_end(self, batch, logs=None):
            ends.append(batch)

    model = network("adam")
    assert fitted(model, callbacks=[Often()]).history == plain[1]
    assert 3 in ends[: ends.index(5)] and 1 in ends[ends.index(5) + 1 :]  # after 4, 8 (and 12) batches of 6 an epoch


def test_loss_over_a_partial_batch_is_exact():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile("sgd", loss="mse")
    x = np.arange(10, dtype="float32")[:, None]
    assert model.evaluate(x, np.zeros((10, 1), "float32"), batch_size=4, verbose=0) == 28.5
    weights = (np.arange(10) % 2).astype("float32")
    assert model.evaluate(x, 0 * x, sample_weight=weights, batch_size=4, verbose=0) == 16.5


def test_freezing_needs_no_compile():
    model = network("adam")
    fitted(model)
    before = {v.path: np.asarray(v.value) for v in model.weights}
    model.get_layer("first").trainable = False
    fitted(model)
    changed = {v.path for v in model.weights if not np.array_equal(before[v.path], np.asarray(v.value))}
    assert {path.split("/")[-2] for path in changed} == {"last"}
    frozen = network("adam")
    frozen.get_layer("first").trainable = False
    fitted(frozen)
    assert not any("first" in v.path for v in frozen.optimizer.variables)
    frozen.get_layer("first").trainable = True
    fitted(frozen)
    assert len(frozen.optimizer.variables) == 2 + 2 * 4


def test_layers_set_free_while_training():
    model = network("adam")
    callback = keras.callbacks.UnfreezeOnPlateau(["first"], "loss", patience=1, factor=0.5, min_delta=100.0)
    before = np.asarray(model.get_layer("first").kernel.value)
    rates = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            changed = not np.array_equal(before, np.asarray(model.get_layer("first").kernel.value))
            rates.append((changed, round(float(np.asarray(model.optimizer.learning_rate)), 6)))

    fitted(model, epochs=4, callbacks=[callback, Look()])
    assert rates == [(False, 0.001), (False, 0.0005), (True, 0.0005), (True, 0.0005)]


def test_an_error_leaves_the_model_as_it_was(plain):
    model = network("adam")
    fitted(model)
    before = state(model)
    with pytest.raises((TypeError, ValueError)) as error:
        model.fit(X, np.zeros((ROWS, 2, 5), "float32"), verbose=0)
    assert "in loss mean_squared_error of output" in "".join(error.value.__notes__)
    assert "float32[32, 2, 5]" in "".join(error.value.__notes__)
    assert same(state(model), before)

    class Stop(keras.callbacks.Callback):
        chunk_every = 2

        def on_train_chunk_end(self, batch, logs=None):
            if batch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(model, callbacks=[Stop()])
    after = state(model)
    assert not same(after, before) and all(np.isfinite(a).all() for a in after)
    assert int(np.asarray(model.optimizer.iterations)) == 14
    fitted(model)


def test_predict_in_another_thread():
    model = network("adam")
    fitted(model)
    model.predict(X, verbose=0)
    errors, results = [], []

    def ask():
        try:
            while not done.is_set():
                results.append(model.predict(X, verbose=0))
        except Exception as error:  # to be shown by the assertion
            errors.append(error)

    done = threading.Event()
    thread = threading.Thread(target=ask)
    thread.start()
    fitted(model, epochs=200)
    while not errors and len(results) < 2:  # a quick machine trains before the other thread has asked twice
        fitted(model, epochs=20)
    done.set()
    thread.join()
    assert not errors


def test_history_and_validation():
    model = network(metrics=["mae"])
    history = fitted(model, validation_split=0.25, epochs=3, validation_freq=2, shuffle=True)
    assert list(history.history) == ["loss", "mae", "val_loss", "val_mae"]
    assert [len(values) for values in history.history.values()] == [3, 3, 1, 1]
    assert history.epoch == [0, 1, 2] and history.params == {"verbose": 0, "epochs": 3, "steps": 5}
    assert all(type(value) is float for values in history.history.values() for value in values)
    model.compile("sgd", loss="mse")
    last = fitted(model, validation_data=(X[33:], Y[33:]), epochs=1).history["val_loss"]
    assert last == [model.evaluate(X[33:], Y[33:], batch_size=8, verbose=0)]
    assert fitted(model, initial_epoch=2, epochs=4).epoch == [2, 3]


def test_shuffling_is_a_function_of_the_seed():
    histories = []
    for seed in (1, 1, 2):
        model = network()
        set_random_seed(seed)
        histories.append(fitted(model, shuffle=True).history["loss"])
    assert histories[0] == histories[1] != histories[2]


@pytest.mark.parametrize("name", ["eager", "generator", "ring", "odd"])
def test_streams_and_steps_without_programs(plain, name, monkeypatch):
    # Batches of a stream are collected where steps are short: here always, or never.
    monkeypatch.setattr(feed, "SHORT_STEP", 0.0 if name == "generator" else 10.0)
    monkeypatch.setattr(feed, "RING", 3)
    model = network("adam", run_eagerly=name == "eager")
    if name == "eager":
        history = fitted(model).history
    else:
        sizes = [(i, i + 8) for i in range(0, ROWS, 8)] if name != "odd" else [(0, 3), (3, 30), (30, 44)]

        def batches():
            for start, stop in sizes:
                yield X[start:stop], Y[start:stop]

        history = model.fit(batches, epochs=2, verbose=0).history
    if name in ("generator", "ring"):
        assert history == plain[1] and same(state(model), state(plain[0]))
    elif name == "eager":
        np.testing.assert_allclose(history["loss"], plain[1]["loss"], rtol=1e-5)
        for a, b in zip(state(model), state(plain[0]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert int(np.asarray(model.optimizer.iterations)) == 2 * (6 if name != "odd" else 3)


def test_classes_have_weights_in_streams_too():
    classes = (Y > 0).astype("int32")[:, 0]
    models = [network(), network()]
    a = models[0].fit(X, classes, batch_size=8, shuffle=False, verbose=0, class_weight={0: 3.0}).history

    def batches():
        for i in range(0, ROWS, 8):
            yield X[i : i + 8], classes[i : i + 8]

    b = models[1].fit(batches, verbose=0, class_weight={0: 3.0}).history
    np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-6)


def test_a_generator_that_ends():
    model = network()
    batches = ((X[:8], Y[:8]) for _ in range(3))
    with pytest.warns(UserWarning, match="ran out after 1 of 2 steps of epoch 2"):
        model.fit(batches, steps_per_epoch=2, epochs=2, verbose=0)
    with pytest.raises(ValueError, match="at least one batch"):
        model.fit(batches, steps_per_epoch=2, verbose=0)


def test_steps_of_users():
    seen = weft.keras.Variable(0.0, trainable=False, name="seen")  # not an attribute of any model

    class Stateful(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.tracker = keras.metrics.Mean(name="tracked")

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            loss, _, gradients = self.gradients(lambda: wnp.mean((self(x) - y) ** 2))
            self.optimizer.apply(gradients, self.trainable_variables)
            self.tracker.update_state(loss)
            seen.assign_add(x.shape[0])
            return {"tracked": self.tracker.result(), "last": loss}

    class Stateless(Stateful):
        def train_step(self, state, data):
            trainable, others, optimizer, metrics = state
            x, y = data

            def loss_fn(trainable):
                return wnp.mean((self.stateless_call(trainable, others, x)[0] - y) ** 2)

            loss, gradients = weft.value_and_grad(loss_fn)(trainable)
            trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
            return {"last": loss}, (trainable, others, optimizer, metrics)

    histories = []
    for cls in (Stateful, Stateless):
        set_random_seed(4)
        model = cls()
        model.compile("sgd")
        histories.append(fitted(model).history)
    assert list(histories[0]) == ["last", "tracked"] and list(histories[1]) == ["last"]
    np.testing.assert_allclose(histories[0]["last"], histories[1]["last"], rtol=1e-6)
    assert float(seen) == 2 * ROWS


def test_loss_and_metrics_of_users():
    class Doubled(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return 2.0 * super().compute_loss(x, y, y_pred, sample_weight)

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            found = super().compute_metrics(x, y, y_pred, sample_weight)
            return {**found, "largest": wnp.max(y_pred)}

    set_random_seed(3)
    model = Doubled([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    loss = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert set(loss) == {"loss", "largest"}
    prediction = model.predict(X, verbose=0)
    np.testing.assert_allclose(loss["loss"], 2 * np.mean((prediction - Y) ** 2), rtol=1e-5)
    assert loss["largest"] == prediction[32:].max()


def test_two_optimizers():
    class Adversaries(keras.Model):
        def __init__(self):
            super().__init__()
            self.generator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            self.critic = keras.Sequential([keras.Input((1,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
            self.seed = keras.random.SeedGenerator(1)

        def compile(self, first, second):
            super().compile()
            self.first, self.second = first, second

        def train_step(self, real):
            fake = lambda: self.generator(weft.random.normal(weft.random.wrap_key_data(self.seed.next()), (8, 2)))
            softplus = weft.nn.softplus
            critic, generator = self.critic.trainable_variables, self.generator.trainable_variables
            a, _, gradients = self.gradients(
                lambda: wnp.mean(softplus(-self.critic(real)) + softplus(self.critic(fake()))), critic
            )
            self.first.apply(gradients, critic)
            b, _, gradients = self.gradients(lambda: wnp.mean(softplus(-self.critic(fake()))), generator)
            self.second.apply(gradients, generator)
            return {"critic": a, "generator": b}

    set_random_seed(3)
    model = Adversaries()
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01))
    history = model.fit(3.0 + X[:40, :1], batch_size=8, epochs=2, verbose=0).history
    assert list(history) == ["critic", "generator"]
    assert np.asarray(model.seed.state.value).tolist() == [1, 20]
    assert int(np.asarray(model.first.iterations)) == int(np.asarray(model.second.iterations)) == 10


def test_predict():
    model = network()
    expected = np.asarray(model(X))
    whole = model.predict(X, batch_size=8, verbose=0)
    np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-6)
    whole[0] = 0.0  # it may be written to
    assert model.predict(X[:1], verbose=0).shape == (1, 1)
    np.testing.assert_allclose(model.predict(X, batch_size=8, steps=2, verbose=0), expected[:16], rtol=1e-5, atol=1e-6)
    seen = []
    callback = keras.callbacks.LambdaCallback(on_predict_batch_end=lambda i, logs: seen.append(logs["outputs"].shape))
    model.predict(X, batch_size=32, verbose=0, callbacks=[callback])
    assert seen == [(32, 1), (12, 1)]
    with pytest.raises(ValueError, match="no row to predict from"):
        model.predict(X[:0], verbose=0)
    uncompiled = keras.Sequential([keras.layers.Dense(2)])
    assert uncompiled.predict({"a": X}["a"][:4].astype("float64"), verbose=0).dtype == np.float32


def test_errors_of_arguments():
    with pytest.raises(ValueError, match=r"must be compiled: call `compile\(\)` before `fit\(\)`"):
        keras.Sequential([keras.layers.Dense(1)]).fit(X, Y)
    model = network()
    with pytest.raises(ValueError, match="same number of rows"):
        model.fit(X, Y[:5], verbose=0)
    with pytest.raises(ValueError, match="must have targets"):
        model.fit(X, verbose=0)
    with pytest.raises(ValueError, match=r"must be in \(0, 1\)"):
        model.fit(X, Y, validation_split=1.5, verbose=0)
    with pytest.raises(ValueError, match="At most one of class_weight and sample_weight"):
        model.fit(X, Y, class_weight={0: 1.0}, sample_weight=Y[:, 0], verbose=0)
    with pytest.raises(ValueError, match='verbose must be 0, 1, 2 or "auto"'):
        model.fit(X, Y, verbose=3)
    empty = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    empty.compile("sgd")
    with pytest.raises(ValueError, match="no loss to compute"):
        empty.fit(X, Y, verbose=0)
    inputs = keras.Input((3,))
    two = keras.Model(inputs, {"a": keras.layers.Dense(1)(inputs), "b": keras.layers.Dense(1)(inputs)})
    two.compile("sgd", loss={"a": "mse", "c": "mse"})
    with pytest.raises(ValueError, match="the outputs are 'a', 'b'"):
        two.fit(X, {"a": Y, "b": Y}, verbose=0)
    two.compile("sgd", loss="mse", metrics=["mae"])
    with pytest.raises(ValueError, match="as many entries as the model has outputs, 2"):
        two.fit(X, {"a": Y, "b": Y}, verbose=0)


def test_average_and_mixed_precision():
    model = network(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))
    swapped = fitted(model, validation_data=(X, Y), callbacks=[keras.callbacks.SwapEMAWeights()]).history
    assert np.isfinite(swapped["val_loss"]).all()
    layers = [keras.layers.Dense(4, dtype="mixed_float16"), keras.layers.Dense(1, dtype="float32")]
    half = network("sgd", layers)
    half.dtype_policy = "mixed_float16"
    half.compile("sgd", loss="mse")
    assert type(half.optimizer).__name__ == "LossScaleOptimizer"
    losses = fitted(half, epochs=3).history["loss"]
    assert losses[-1] < losses[0]


def test_checkpoints_of_variables(tmp_path):
    model = network("adam")
    callback = keras.callbacks.OrbaxCheckpoint(tmp_path, max_to_keep=2)
    fitted(model, epochs=3, callbacks=[callback])
    assert callback.manager.all_steps() == [1, 2]
    expected = state(model)
    fitted(model)
    callback.restore()
    assert same(state(model), expected)
    again = keras.models.load_model(tmp_path)
    assert same(state(model), state(again))
    more = keras.callbacks.OrbaxCheckpoint(tmp_path / "batches", save_freq=2, max_to_keep=None)
    fitted(again, epochs=1, callbacks=[more])
    assert min(more.manager.all_steps()) > int(model.optimizer.iterations)
    fitted(model, epochs=3, callbacks=[keras.callbacks.OrbaxCheckpoint(tmp_path / "again")])
    fitted(model, epochs=1, callbacks=[keras.callbacks.OrbaxCheckpoint(tmp_path / "again", max_to_keep=3)])
    callback.restore()
    chunk = next(path for path in (tmp_path / "2" / "pytree").glob("trainable*/c/**/*") if path.is_file())
    data = bytearray(chunk.read_bytes())
    data[1] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(FileFormatError, match="checksum"):
        model.load_weights(tmp_path / "2")
    model.load_weights(tmp_path / "1")


def test_logs_of_training_by_batches():
    model = network("sgd", metrics=["mae"])
    first = model.train_on_batch(X[:8], Y[:8], return_dict=True)
    assert list(first) == ["loss", "mae"]
    assert model.test_on_batch(X[:8], Y[:8])[0] == model.evaluate(X[:8], Y[:8], verbose=0)[0]
    np.testing.assert_allclose(model.predict_on_batch(X[:8]), np.asarray(model(X[:8])), rtol=1e-5)
    run = model.make_train_function()
    assert set(run((X[:8], Y[:8]))) == {"loss", "mae"}


def test_functions_of_batches_are_not_overridden_in_vain() -> None:
    class Own(keras.Sequential):
        def make_train_function(self, force: bool = False) -> None:
            """Nobody calls it."""

        def make_predict_function(self, force: bool = False) -> None:
            """Nor this."""

    model = Own([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)
    with pytest.raises(NotSupportedError, match="override `train_step`"):
        model.fit(x, y, verbose=0)
    with pytest.raises(NotSupportedError, match="override `predict_step`"):
        model.predict(x, verbose=0)
    model.evaluate(x, y, verbose=0)  # is as it was


def test_a_model_in_a_model_has_its_own_losses():
    inner = network()
    fitted(inner, epochs=1)
    outer = keras.Sequential([keras.Input((3,)), inner])
    outer.compile("sgd", "mse", metrics=["mae"])
    assert sorted(fitted(outer, epochs=1).history) == ["loss", "mae"]
    assert len(outer.metrics) == 2
    assert sorted(fitted(inner, epochs=1).history) == ["loss"]


def test_states_of_layers_for_batches_of_one_size():
    set_random_seed(0)
    x = np.random.RandomState(0).randn(12, 2, 3).astype("float32")
    layers = [keras.layers.GRU(4, stateful=True), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input(batch_shape=(4, 2, 3)), *layers])
    model.compile("sgd", "mse")
    state = layers[0].states[0]
    model.fit(x, x[:, 0, :1], batch_size=4, shuffle=False, verbose=0)
    assert np.any(np.asarray(state.value))
    once, again = (model.predict(x, batch_size=4, verbose=0) for _ in range(2))
    assert not np.array_equal(once, again)
    layers[0].reset_state()
    assert not np.any(np.asarray(state.value))


def test_steps_of_arrays_without_a_size_of_batches_divide_them():
    expected = fitted(network(), batch_size=11).history["loss"]
    model = network()
    assert fitted(model, batch_size=None, steps_per_epoch=4).history["loss"] == expected
    whole = model.evaluate(X, Y, batch_size=ROWS, verbose=0)
    assert model.evaluate(X, Y, steps=1, verbose=0) == pytest.approx(whole, rel=1e-6)
    assert model.evaluate(X[:8], Y[:8], verbose=0) == model.evaluate(X, Y, batch_size=8, steps=1, verbose=0)
    assert len(model.predict(X, steps=3, verbose=0)) == ROWS
    validated = fitted(network(), epochs=1, batch_size=None, validation_data=(X, Y), validation_steps=1)
    assert validated.history["val_loss"] != validated.history["loss"]


def test_losses_of_half_precision_are_scaled_unless_they_shall_not_be():
    def trained(policy, **arguments):
        layers = [keras.layers.Dense(4, dtype=policy), keras.layers.Dense(1, dtype=policy)]
        model = keras.Sequential([keras.Input((3,)), *layers])
        model.dtype_policy = keras.dtype_policies.get(policy)
        model.compile("sgd", "mse", **arguments)
        fitted(model, epochs=1)
        return model

    scaled = trained("mixed_float16")
    assert type(scaled.optimizer).__name__ == "LossScaleOptimizer" and float(scaled.optimizer.dynamic_scale) > 1
    assert type(trained("mixed_float16", auto_scale_loss=False).optimizer).__name__ == "SGD"
    assert type(trained("mixed_bfloat16").optimizer).__name__ == "SGD"
    assert all(weight.dtype == "float32" for weight in scaled.weights)


@pytest.mark.parametrize("shuffle", [True, "batch"])
def test_order_of_rows_is_that_of_numpys_generator(shuffle: bool | str) -> None:
    """As in Keras: one permutation at the begin of each epoch, and one before a model that was just compiled."""
    rows = np.arange(8, dtype=np.float32)[:, None]
    seen: list[int] = []

    class Rows(keras.Model):
        def train_step(self, data: Any) -> dict[str, Any]:
            return {f"row{i}": data[0][i, 0] for i in range(4)}

    class Seen(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.extend(int(value) for value in logs.values())

    inputs = keras.Input((1,))
    model = Rows(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    keras.utils.set_random_seed(5)
    model.fit(rows, rows, epochs=2, batch_size=4, verbose=0, shuffle=shuffle, callbacks=[Seen()])
    after = np.random.rand()
    np.random.seed(5)
    np.random.permutation(4 if shuffle == "batch" else 8)
    parts = [np.random.permutation(4) + i for i in (0, 4, 0, 4)] if shuffle == "batch" else []
    expected = np.concatenate(parts or [np.random.permutation(8) for _ in range(2)])
    assert seen == expected.tolist() and np.random.rand() == after
