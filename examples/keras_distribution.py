"""One model on one device, on four by `DataParallel`, and on two by two by `ModelParallel`: the losses are the same.

Under `DataParallel` each device has all weights and a quarter of each batch. Under `ModelParallel` a `LayoutMap` says
by the paths of weights over which axis of the mesh they are split; what the optimizer has beside them is split alike.
"""

from __future__ import annotations

import sys

import digits
import numpy as np

import weft
from weft import keras
from weft.keras import distribution, layers

weft.config.update("num_cpu_devices", 8)  # as if there were as many


def losses(x, y, epochs: int, how: distribution.Distribution | None) -> tuple[list[float], keras.Model]:
    """Return the loss of each epoch. Variables are created, and batches are split, by the distribution."""
    distribution.set_distribution(how)
    keras.utils.set_random_seed(0)
    parts = [
        layers.Flatten(),
        layers.Dense(64, activation="relu", name="up"),
        layers.Dropout(0.1),
        layers.Dense(10, name="down"),
    ]
    model = keras.Sequential(parts, name="mlp")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(x, y, epochs=epochs, batch_size=64, verbose=0)
    distribution.set_distribution(None)
    return history.history["loss"], model


def main(short: bool = False) -> None:
    x, y, _, _ = digits.load()
    epochs = 3 if short else 10
    devices = distribution.list_devices()[:4]

    mesh = distribution.DeviceMesh((2, 2), ("batch", "model"), devices)
    layout_map = distribution.LayoutMap(mesh)
    layout_map["up/kernel"] = (None, "model")
    layout_map["up/bias"] = ("model",)
    layout_map["down/kernel"] = ("model", None)

    one, _ = losses(x, y, epochs, None)
    data, _ = losses(x, y, epochs, distribution.DataParallel(devices=devices))
    split, model = losses(x, y, epochs, distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch"))

    print("epoch  one device  DataParallel  ModelParallel")
    for epoch, row in enumerate(zip(one, data, split, strict=True)):
        print(f"{epoch + 1:5}  {row[0]:10.6f}  {row[1]:12.6f}  {row[2]:13.6f}")
    kernel = model.get_layer("up").kernel
    parts = ", ".join(str(shard.data.shape) for shard in kernel.value.addressable_shards)
    print(f"{kernel.path} of shape {kernel.shape} is on 4 devices in parts {parts}")
    np.testing.assert_allclose(data, one, rtol=1e-5)
    np.testing.assert_allclose(split, one, rtol=1e-5)
    print(f"final loss {one[-1]:.4f}, and the same on four devices")
    assert one[-1] < one[0]


if __name__ == "__main__":
    digits.run(main, "--short" in sys.argv)
