"""Variational autoencoder with its own `train_step`: images of bars, a code of two numbers.

The loss is a closure over the layers; `self.gradients` returns its value, what else it computed, and the gradients.
Metrics are updated inside of the step, so `fit` shows them as it shows those of `compile`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import picture
import vae

from weft import keras, random
from weft.keras import layers, ops

LATENT = 2


class Autoencoder(keras.Model):
    """Encoder to mean and variance of a code, and decoder of codes."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        hidden = lambda units: layers.Dense(units, activation="gelu")
        self.encoder = keras.Sequential([hidden(128), hidden(64), layers.Dense(2 * LATENT)])
        self.decoder = keras.Sequential([hidden(64), hidden(128), layers.Dense(pixels)])
        self.seed = keras.random.SeedGenerator(4)
        self.pixels, self.code = keras.metrics.Mean("pixels"), keras.metrics.Mean("code")
        self.encoder.build((None, pixels))
        self.decoder.build((None, LATENT))

    def call(self, code: Any) -> Any:
        return ops.sigmoid(self.decoder(code))

    def bound(self, x: Any) -> tuple[Any, tuple[Any, Any]]:
        """Return the loss: reconstruction loss of the pixels plus divergence of the code from a normal distribution, in
        nats an image."""
        mean, log_variance = ops.split(self.encoder(x), 2, axis=-1)
        noise = keras.random.normal(ops.shape(mean), seed=self.seed)
        logits = self.decoder(mean + noise * ops.exp(0.5 * log_variance))
        pixels = ops.mean(ops.sum(ops.binary_crossentropy(x, logits, from_logits=True), axis=-1))
        code = 0.5 * ops.mean(ops.sum(ops.exp(log_variance) + mean**2 - 1 - log_variance, axis=-1))
        return pixels + code, (pixels, code)

    def train_step(self, data: Any) -> dict[str, Any]:
        _, (pixels, code), gradients = self.gradients(lambda: self.bound(data))
        self.optimizer.apply(gradients, self.trainable_variables)
        self.pixels.update_state(pixels)
        self.code.update_state(code)
        return {metric.name: metric.result() for metric in self.metrics}

    @property
    def metrics(self) -> list[Any]:
        return [self.pixels, self.code]


def main(short: bool = False) -> None:
    keras.utils.set_random_seed(4)
    x = np.asarray(vae.bars(random.key(0), 2048 if short else 8192))
    model = Autoencoder(x.shape[-1])
    model.compile(keras.optimizers.Adam(2e-3))
    history = model.fit(x, batch_size=128, epochs=8 if short else 25, verbose=2).history

    side = np.linspace(-2, 2, 8, dtype=np.float32)
    codes = np.stack(np.meshgrid(side, side), -1).reshape(-1, LATENT)
    images = model.predict(codes, verbose=0).reshape(-1, vae.SIDE, vae.SIDE)
    picture.save("keras_vae", picture.Panel("Images of a grid of codes").image(picture.grid(images, 8)))
    first, last = (history["pixels"][i] + history["code"][i] for i in (0, -1))
    print(f"final bound {last:.1f} nats an image, from {first:.1f}")
    assert last < 0.8 * first


if __name__ == "__main__":
    main("--short" in sys.argv)
