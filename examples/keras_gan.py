"""Generative adversarial network with its own `train_step` and two optimizers: points on a ring.

`self.gradients(loss, variables)` differentiates a closure with respect to the given weights; both updates and the
noise, whose seed is a variable of the model, are one compiled program.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from weft import keras
from weft.keras import layers, ops

NOISE = 4


def dense(units: int, outputs: int) -> keras.Sequential:
    activation = lambda: layers.LeakyReLU(0.1)
    return keras.Sequential(
        [layers.Dense(units), activation(), layers.Dense(units), activation(), layers.Dense(outputs)]
    )


class Adversaries(keras.Model):
    """Generator of points and discriminator that tells them from real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = dense(48, 2), dense(48, 1)
        self.seed = keras.random.SeedGenerator(3)
        self.generator_optimizer = keras.optimizers.Adam(1e-3, beta_1=0.5)
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)
        self.generator.build((None, NOISE))
        self.discriminator.build((None, 2))

    def call(self, noise: Any) -> Any:
        return self.generator(noise)

    def train_step(self, data: Any) -> dict[str, Any]:
        real = data
        noise = lambda: keras.random.normal((ops.shape(real)[0], NOISE), seed=self.seed)
        ones = ops.ones((ops.shape(real)[0], 1))

        def tells() -> Any:
            points = ops.stop_gradient(self.generator(noise()))
            return self.loss_of(ones, self.discriminator(real)) + self.loss_of(0 * ones, self.discriminator(points))

        weights = self.discriminator.trainable_variables
        discriminated, _, gradients = self.gradients(tells, weights)
        self.optimizer.apply(gradients, weights)

        weights = self.generator.trainable_variables
        generated, _, gradients = self.gradients(
            lambda: self.loss_of(ones, self.discriminator(self.generator(noise()))), weights
        )
        self.generator_optimizer.apply(gradients, weights)
        return {"discriminator": discriminated, "generator": generated}


def ring(count: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    angle, radius = generator.uniform(0, 2 * np.pi, count), 1 + 0.05 * generator.normal(size=count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).astype(np.float32)


def main(short: bool = False) -> None:
    keras.utils.set_random_seed(3)
    model = Adversaries()
    model.compile(keras.optimizers.Adam(1e-3, beta_1=0.5))
    model.fit(ring(4096), batch_size=128, epochs=40 if short else 120, verbose=0)

    points = model.predict(np.random.default_rng(1).normal(size=(1000, NOISE)).astype(np.float32), verbose=0)
    radius = np.hypot(*points.T)
    covered = len(np.unique((np.arctan2(points[:, 1], points[:, 0]) * 8 / np.pi).round()))
    print(f"final radius {radius.mean():.2f} (1), deviation {radius.std():.2f} (0.05), {covered} of 17 directions")
    assert abs(radius.mean() - 1) < 0.3 and covered > 8


if __name__ == "__main__":
    main("--short" in sys.argv)
