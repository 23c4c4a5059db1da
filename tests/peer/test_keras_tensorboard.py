"""Files of the callback TensorBoard, read by TensorBoard."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
from tensorboard.util import tensor_util  # noqa: E402

from weft import keras  # noqa: E402

pytestmark = pytest.mark.peer


def opened(folder: pathlib.Path) -> Any:
    """Return all events of a run."""
    found = reader.EventAccumulator(str(folder), size_guidance=dict.fromkeys(reader.DEFAULT_SIZE_GUIDANCE, 0))
    return found.Reload()


def numbers(run: Any, tag: str) -> list[Any]:
    """Return the values of a tag, whether they are plain or tensors."""
    if tag in run.Tags()["scalars"]:
        return [event.value for event in run.Scalars(tag)]
    return [tensor_util.make_ndarray(event.tensor_proto) for event in run.Tensors(tag)]


def test_tensorboard_reads_what_is_written(tmp_path: pathlib.Path) -> None:
    keras.utils.set_random_seed(0)
    x = np.random.RandomState(0).randn(20, 3).astype("float32")
    parts = [keras.layers.Dense(2, name="first"), keras.layers.Dense(1, name="last")]
    model = keras.Sequential([keras.Input((3,)), *parts], name="net")
    model.compile("sgd", loss="mse")
    board = keras.callbacks.TensorBoard(tmp_path, histogram_freq=1, write_images=True, update_freq=2)
    history = model.fit(
        x, x[:, :1], batch_size=5, epochs=3, validation_data=(x, x[:, :1]), callbacks=[board], verbose=0
    )
    train, validation = opened(tmp_path / "train"), opened(tmp_path / "validation")
    np.testing.assert_allclose(numbers(train, "epoch_loss"), history.history["loss"], rtol=1e-6)
    np.testing.assert_allclose(numbers(validation, "epoch_loss"), history.history["val_loss"], rtol=1e-6)
    tags = train.Tags()
    assert tags["graph"] and {node.name for node in train.Graph().node} >= {"net/first", "net/last"}
    histograms = [tag for tag in (*tags["histograms"], *tags["tensors"]) if "kernel" in tag and "image" not in tag]
    images = [tag for tag in (*tags["images"], *tags["tensors"]) if "image" in tag]
    assert histograms and images, tags
    if histograms[0] in tags["histograms"]:
        assert train.Histograms(histograms[0])[-1].histogram_value.num == 6
    else:
        buckets = numbers(train, histograms[0])[-1]
        assert buckets.shape[1] == 3 and buckets[:, 2].sum() == 6  # left edge, right edge, count
