"""Keras model that is trained by all processes together. Arguments: a folder, and a distribution. The first process
writes what it has seen: losses, metrics, predictions and weights."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np

import weft
from weft import keras
from weft.errors import ArgumentError
from weft.keras import distribution, layers

FOLDER, KIND = pathlib.Path(sys.argv[1]), sys.argv[2]
weft.distributed.initialize()
RANDOM = np.random.RandomState(0)
X, Y = RANDOM.normal(size=(50, 8)).astype("float32"), RANDOM.randint(0, 4, 50)
# What was drawn by one process only is not used: the order of an epoch is that of the first.
np.random.seed(weft.process_index())


def mlp(seed: int = 0) -> Any:
    """Make a model, with random numbers from the seed."""
    keras.utils.set_random_seed(seed)
    parts = [layers.Dense(16, activation="relu", name="up"), layers.Dropout(0.2), layers.Dense(4, name="down")]
    model = keras.Sequential(parts, name="mlp")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2, name="adam"), loss, metrics=["accuracy"])
    return model


def chosen() -> distribution.Distribution:
    """Return the requested distribution, over the devices of all processes."""
    if KIND == "data":
        return distribution.DataParallel()
    if KIND == "own":
        return distribution.DataParallel(auto_shard_dataset=False)
    if KIND == "fully":
        return distribution.FullyShardedDataParallel()
    mesh = distribution.DeviceMesh((2, 2), ("batch", "model"))
    if KIND == "auto":
        return distribution.ModelParallel(auto=True, device_mesh=mesh)
    layouts = distribution.LayoutMap(mesh)
    layouts["up/kernel"], layouts["down/kernel"] = (None, "model"), ("model", None)
    return distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")


def batches() -> Any:
    """Return the batches of an epoch, as a generator has them."""
    for i in range(0, 48, 12):
        yield X[i : i + 12], Y[i : i + 12]


def of_own_rows(model: Any) -> dict[str, Any]:
    """Train with rows of each process: of each batch those of its devices."""
    count, index = weft.process_count(), weft.process_index()
    rows = np.arange(48).reshape(-1, count, 12 // count)[:, index].ravel()
    history = model.fit(X[rows], Y[rows], batch_size=12 // count, epochs=2, shuffle=False, verbose=0)
    predicted = model.predict(X[rows], batch_size=12 // count, verbose=0)
    gathered = weft.experimental.multihost_utils.process_allgather(predicted)
    return {"loss": history.history["loss"], "predict": np.asarray(gathered).reshape(-1, 4).sum(axis=0)}


def of_all_rows(model: Any) -> dict[str, Any]:
    """Train with all data in all processes. 50 rows in batches of 12, and 2 rows over devices, do not divide."""
    history = model.fit(X, Y, batch_size=12, epochs=2, validation_data=(X[:20], Y[:20]))
    streamed = model.fit(batches(), epochs=1, verbose=0)
    loader = weft.data.Loader((X, Y), 12, shuffle=True, seed=3)
    return {
        **history.history,
        "streamed": streamed.history["loss"],
        "loader": model.fit(loader, epochs=2, verbose=0).history["loss"],
        "evaluate": model.evaluate(X, Y, batch_size=25, verbose=0),
        "predict": model.predict(X, batch_size=12, verbose=0),
        "train_on_batch": model.train_on_batch(X[:9], Y[:9]),
        "weights": [np.sum(np.asarray(w)) for w in model.get_weights()] if KIND == "data" else [],
    }


if weft.device_count() > 1:
    distribution.set_distribution(chosen())
found = (of_own_rows if KIND == "own" else of_all_rows)(mlp())
if KIND == "data" and weft.process_count() > 1:
    try:
        mlp(seed=weft.process_index()).fit(X, Y, verbose=0)
    except ArgumentError as error:
        assert "set_random_seed" in str(error), error
    else:
        raise AssertionError("processes had different weights")
if weft.process_index() == 0:
    (FOLDER / "found.json").write_text(json.dumps({name: np.asarray(v).tolist() for name, v in found.items()}))
