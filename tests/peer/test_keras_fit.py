"""`fit`, `evaluate` and `predict` beside Keras 3 on JAX: the same weights, the same data in the same order."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras as peer
import numpy as np
import pytest

from weft import keras

# NumPy tells Keras how `__array__` should be written.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

ROWS = 100


def data(seed=0, rows=ROWS):
    generator = np.random.RandomState(seed)
    x = generator.randn(rows, 8).astype("float32")
    return {
        "x": x,
        "second": generator.randn(rows, 5).astype("float32"),
        "classes": generator.randint(0, 4, rows),
        "binary": (x[:, :1] + generator.randn(rows, 1) > 0).astype("float32"),
        "floats": (x @ generator.randn(8, 2) + 0.1 * generator.randn(rows, 2)).astype("float32"),
        "weights": generator.rand(rows).astype("float32"),
        "tokens": generator.randint(0, 7, (rows, 6)) * (np.arange(6) < generator.randint(1, 7, (rows, 1))),
    }


# Each model is built from a library's own names: `k` is Keras or weft.keras.


def mlp(k):
    layers = [k.Input((8,)), k.layers.Dense(16, activation="relu"), k.layers.Dense(4)]
    model = k.Sequential(layers)
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(k.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
    d = data()
    return model, {"x": d["x"], "y": d["classes"]}


def normalized(k):
    layers = [
        k.Input((8,)),
        k.layers.Dense(16, use_bias=False),
        k.layers.BatchNormalization(),
        k.layers.Activation("relu"),
        k.layers.Dropout(0.5, seed=7),
        k.layers.Dense(4, activation="softmax"),
    ]
    model = k.Sequential(layers)
    model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    d = data()
    return model, {"x": d["x"], "y": d["classes"]}


def many(k):
    a, b = k.Input((8,), name="first"), k.Input((5,), name="second")
    both = k.layers.Concatenate()([k.layers.Dense(6, activation="tanh")(a), b])
    outputs = [k.layers.Dense(2, name="p")(both), k.layers.Dense(1, activation="sigmoid", name="q")(both)]
    model = k.Model([a, b], outputs)
    model.compile(
        k.optimizers.SGD(0.05, momentum=0.9),
        loss=["mse", "binary_crossentropy"],
        loss_weights=[0.5, 2.0],
        metrics=[["mae"], ["accuracy"]],
    )
    d = data()
    return model, {"x": [d["x"], d["second"]], "y": [d["floats"], d["binary"]]}


def named(k):
    a, b = k.Input((8,), name="first"), k.Input((5,), name="second")
    both = k.layers.Concatenate()([a, b])
    model = k.Model({"first": a, "second": b}, {"p": k.layers.Dense(2)(both), "q": k.layers.Dense(1)(both)})
    model.compile("rmsprop", loss={"p": "mse", "q": "mae"}, metrics={"q": ["mse"]})
    d = data()
    return model, {"x": {"first": d["x"], "second": d["second"]}, "y": {"p": d["floats"], "q": d["binary"]}}


def regularized(k):
    layers = [
        k.Input((8,)),
        k.layers.Dense(6, activation="tanh", kernel_regularizer="l2", activity_regularizer=k.regularizers.L1(0.01)),
        k.layers.Dense(2, bias_regularizer=k.regularizers.L1L2(0.01, 0.02), kernel_constraint="max_norm"),
    ]
    model = k.Sequential(layers)
    model.compile(k.optimizers.Adam(0.01, clipnorm=0.1), loss="huber")
    d = data()
    return model, {"x": d["x"], "y": d["floats"]}


def weighted(k):
    model = k.Sequential([k.Input((8,)), k.layers.Dense(2)])
    model.compile("sgd", loss="mse", metrics=["mse"], weighted_metrics=["mse", "mae"])
    d = data()
    return model, {"x": d["x"], "y": d["floats"], "sample_weight": d["weights"]}


def class_weighted(k):
    model = k.Sequential([k.Input((8,)), k.layers.Dense(4)])
    model.compile("sgd", loss=k.losses.SparseCategoricalCrossentropy(from_logits=True))
    d = data()
    return model, {"x": d["x"], "y": d["classes"], "class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}


def averaged(k):
    model = k.Sequential([k.Input((8,)), k.layers.Dense(2)])
    optimizer = k.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, gradient_accumulation_steps=2)
    model.compile(optimizer, loss="mse")
    d = data()
    return model, {"x": d["x"], "y": d["floats"]}


def scheduled(k):
    model = k.Sequential([k.Input((8,)), k.layers.Dense(2)])
    schedule = k.optimizers.schedules.CosineDecay(0.1, 20)
    model.compile(k.optimizers.AdamW(schedule, weight_decay=0.01), loss="mse")
    d = data()
    return model, {"x": d["x"], "y": d["floats"]}


def recurrent(k):
    layers = [
        k.Input((6,), dtype="int32"),
        k.layers.Embedding(7, 5, mask_zero=True),
        k.layers.LSTM(4),
        k.layers.Dense(1, activation="sigmoid"),
    ]
    model = k.Sequential(layers)
    model.compile("adam", loss="binary_crossentropy", metrics=["accuracy"])
    d = data()
    return model, {"x": d["tokens"], "y": d["binary"]}


def masked(k):
    layers = [k.Input((6,), dtype="int32"), k.layers.Embedding(7, 5, mask_zero=True), k.layers.Dense(7)]
    model = k.Sequential(layers)
    model.compile("adam", loss=k.losses.SparseCategoricalCrossentropy(from_logits=True))
    d = data()
    return model, {"x": d["tokens"], "y": d["tokens"]}


def custom_loss(k):
    inputs = k.Input((8,))
    hidden = k.layers.Dense(4, activation="relu")(inputs)
    model = k.Model(inputs, k.layers.Dense(2)(hidden))
    model.compile("adam", loss=lambda y_true, y_pred: k.ops.mean(k.ops.abs(y_true - y_pred), axis=-1))
    d = data()
    return model, {"x": d["x"], "y": d["floats"]}


def convolutional(k):
    layers = [
        k.Input((8, 8, 1)),
        k.layers.Conv2D(4, 3, activation="relu"),
        k.layers.MaxPooling2D(),
        k.layers.Flatten(),
        k.layers.Dense(4),
    ]
    model = k.Sequential(layers)
    model.compile("adam", loss=k.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    generator = np.random.RandomState(0)
    return model, {"x": generator.randn(ROWS, 8, 8, 1).astype("float32"), "y": generator.randint(0, 4, ROWS)}


MODELS = [
    mlp,
    normalized,
    many,
    named,
    regularized,
    weighted,
    class_weighted,
    averaged,
    scheduled,
    recurrent,
    masked,
    custom_loss,
    convolutional,
]


def both(build):
    """Return the model of each library, with the weights of Keras."""
    peer.utils.clear_session()
    theirs, arguments = build(peer)
    ours, _ = build(keras)
    ours.set_weights(theirs.get_weights())
    return theirs, ours, arguments


def close(a, b, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_three_epochs(build):
    theirs, ours, arguments = both(build)
    common = {"batch_size": 16, "epochs": 3, "shuffle": False, "verbose": 0, "validation_split": 0.2}
    a, b = theirs.fit(**arguments, **common), ours.fit(**arguments, **common)
    assert list(a.history) == list(b.history)
    assert (a.epoch, a.params) == (b.epoch, b.params)
    for name in a.history:
        # Weighted metrics see a mask in `evaluate` only, in Keras.
        close(a.history[name], b.history[name], 5e-6)
    for first, second in zip(theirs.get_weights(), ours.get_weights(), strict=True):
        close(first, second, 2e-5)
    arguments.pop("class_weight", None)
    if "sample_weight" not in arguments:
        for first, second in zip(
            peer.tree.flatten(theirs.predict(arguments["x"], verbose=0, batch_size=32)),
            peer.tree.flatten(ours.predict(arguments["x"], verbose=0, batch_size=32)),
            strict=True,
        ):
            close(first, second, 2e-5)
    a, b = (model.evaluate(**arguments, batch_size=32, verbose=0, return_dict=True) for model in (theirs, ours))
    assert a.keys() == b.keys()
    for name in a:
        close(a[name], b[name], 2e-5)


def test_order_of_results():
    theirs, ours, arguments = both(many)
    close(theirs.evaluate(**arguments, verbose=0), ours.evaluate(**arguments, verbose=0))
    names = list(theirs.evaluate(**arguments, verbose=0, return_dict=True))
    assert names == list(ours.evaluate(**arguments, verbose=0, return_dict=True))


def test_batches_by_hand():
    theirs, ours, arguments = both(mlp)
    x, y = arguments["x"], arguments["y"]
    for part in (slice(0, 16), slice(16, 20)):
        close(theirs.train_on_batch(x[part], y[part]), ours.train_on_batch(x[part], y[part]))
        close(theirs.test_on_batch(x[part], y[part]), ours.test_on_batch(x[part], y[part]))
        close(theirs.predict_on_batch(x[part]), ours.predict_on_batch(x[part]))


@pytest.mark.parametrize("steps", [3, 4, 7])
def test_steps_per_epoch(steps):
    histories = []
    theirs, ours, arguments = both(mlp)
    for model in (theirs, ours):
        with pytest.warns(UserWarning) if steps == 4 else np.errstate():
            # 100 rows by 16 are 7 batches; with 4 steps the second epoch has 3.
            found = model.fit(**arguments, batch_size=16, epochs=2, steps_per_epoch=steps, shuffle=False, verbose=0)
        histories.append(found.history)
    for name in histories[0]:
        close(histories[0][name], histories[1][name])


def test_validation_frequency():
    theirs, ours, arguments = both(mlp)
    common = {"validation_split": 0.3, "validation_freq": 2, "epochs": 4, "shuffle": False, "verbose": 0}
    a, b = theirs.fit(**arguments, **common).history, ours.fit(**arguments, **common).history
    assert {name: len(values) for name, values in a.items()} == {name: len(values) for name, values in b.items()}
    for name in a:
        close(a[name], b[name])


def test_step_of_a_user():
    """The same step, in the form that Keras has on JAX and in the stateful one."""
    import jax

    class Theirs(peer.Model):
        def __init__(self):
            super().__init__()
            self.dense = peer.layers.Dense(2)

        def call(self, x):
            return self.dense(x)

        def compute_loss_and_updates(self, trainable, others, x, y):
            y_pred, others = self.stateless_call(trainable, others, x)
            return peer.ops.mean((y - y_pred) ** 2), (y_pred, others)

        def train_step(self, state, data):
            trainable, others, optimizer, metrics = state
            x, y = data
            function = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
            (loss, (_, others)), gradients = function(trainable, others, x, y)
            trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
            return {"my_loss": loss}, (trainable, others, optimizer, metrics)

    class Ours(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            loss, _, gradients = self.gradients(lambda: keras.ops.mean((y - self(x, training=True)) ** 2))
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"my_loss": loss}

    d = data()
    models = Theirs(), Ours()
    for model in models:
        model(d["x"][:2])
    models[1].set_weights(models[0].get_weights())
    histories = []
    for model in models:
        model.compile("adam")
        histories.append(model.fit(d["x"], d["floats"], epochs=3, shuffle=False, verbose=0).history["my_loss"])
    close(*histories)
    close(models[0].get_weights()[0], models[1].get_weights()[0])


def test_callbacks_that_change_the_rate():
    histories = []
    theirs, ours, arguments = both(mlp)
    for k, model in ((peer, theirs), (keras, ours)):
        chosen = [
            k.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
            k.callbacks.EarlyStopping("loss", patience=1, min_delta=1.0),
        ]
        histories.append(model.fit(**arguments, epochs=5, shuffle=False, verbose=0, callbacks=chosen).history)
    assert list(histories[0]) == list(histories[1])
    for name in histories[0]:
        close(histories[0][name], histories[1][name])


def test_known_difference_masks_of_metrics():
    """Keras on JAX loses masks in `fit` (an attribute of a tracer), and applies them in `evaluate`; ours in both."""
    results = {}
    for name, k in (("theirs", peer), ("ours", keras)):
        layers = [k.Input((6,), dtype="int32"), k.layers.Embedding(7, 2, mask_zero=True), k.layers.Dense(1)]
        model = k.Sequential(layers)
        model.set_weights([np.linspace(-1, 1, w.size).reshape(w.shape).astype("float32") for w in model.get_weights()])
        model.compile(k.optimizers.SGD(0.0), loss="mse", weighted_metrics=["mae"])
        tokens = data()["tokens"]
        target = tokens[..., None].astype("float32")
        fitted = model.fit(tokens, target, batch_size=100, shuffle=False, verbose=0).history
        results[name] = fitted["mae"][0], model.evaluate(tokens, target, batch_size=100, verbose=0)[1]
    assert abs(results["theirs"][0] - results["theirs"][1]) > 1e-3
    close(results["ours"][0], results["ours"][1])
    close(results["ours"][1], results["theirs"][1])
