"""Keras with the JAX backend: fit, train_on_batch, evaluate and predict of a convolutional network."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

rng = np.random.default_rng(6)
images = rng.normal(size=(64, 16, 16, 3)).astype("float32")
labels = rng.integers(0, 10, size=64)


def make_model():
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.layers.Input((16, 16, 3)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.1),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss, metrics=["accuracy"])
    return model


def make():
    model = make_model()
    return lambda: model.train_on_batch(images, labels)[0]


def numbers():
    model = make_model()
    history = model.fit(images, labels, batch_size=16, epochs=3, verbose=0, shuffle=False)
    batches = [float(model.train_on_batch(images[:32], labels[:32])[0]) for _ in range(5)]
    evaluated = model.evaluate(images, labels, verbose=0)
    predicted = model.predict(images[:2], verbose=0)
    return {
        "loss": history.history["loss"],
        "batches": batches,
        "evaluated": [float(x) for x in evaluated],
        "predicted": predicted.ravel().tolist(),
    }
