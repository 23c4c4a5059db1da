"""Variational autoencoder in linen: images of bars with a two-dimensional latent code.

Encoder and decoder are submodules; the noise of the latent code comes from a separate rng stream, `self.make_rng`. The
plot shows the output of the decoder over a grid of codes, which represent angle and length.
"""

from __future__ import annotations

import sys
import time

import picture

import weft
import weft.numpy as wnp
from weft import linen as nn, optim, random
from weft.linen.train_state import TrainState

SIDE, LATENT, BATCH = 12, 2, 128


def bars(key: weft.Array, count: int) -> weft.Array:
    """Draw images (count, SIDE * SIDE) of a bar through the centre, of random angle and length."""
    for_angle, for_length = random.split(key)
    angle = random.uniform(for_angle, (count, 1, 1), maxval=wnp.pi)
    length = random.uniform(for_length, (count, 1, 1), minval=0.35, maxval=0.95)
    y, x = wnp.meshgrid(*[wnp.linspace(-1.0, 1.0, SIDE)] * 2, indexing="ij")
    along, across = wnp.cos(angle) * x + wnp.sin(angle) * y, wnp.cos(angle) * y - wnp.sin(angle) * x
    beyond = wnp.maximum(abs(along) - length, 0.0)
    return wnp.exp(-((across / 0.2) ** 2) - (beyond / 0.15) ** 2).reshape(count, -1)


class Autoencoder(nn.Module):
    def setup(self) -> None:
        self.encoder = nn.Sequential([nn.Dense(128), nn.gelu, nn.Dense(64), nn.gelu, nn.Dense(2 * LATENT)])
        self.decoder = nn.Sequential([nn.Dense(64), nn.gelu, nn.Dense(128), nn.gelu, nn.Dense(SIDE * SIDE)])

    def __call__(self, x: weft.Array) -> tuple[weft.Array, weft.Array, weft.Array]:
        """Return the logits of the pixels, and mean and logarithm of the variance of the code."""
        mean, log_variance = wnp.split(self.encoder(x), 2, axis=-1)
        noise = random.normal(self.make_rng("noise"), mean.shape)
        return self.decoder(mean + noise * wnp.exp(0.5 * log_variance)), mean, log_variance

    def decode(self, code: weft.Array) -> weft.Array:
        return nn.sigmoid(self.decoder(code))


def negative_bound(model: Autoencoder, params: dict, x: weft.Array, key: weft.Array) -> tuple[weft.Array, weft.Array]:
    """Return the reconstruction loss and the KL divergence of the code from a normal prior, in nats per image."""
    logits, mean, log_variance = model.apply({"params": params}, x, rngs={"noise": key})
    pixels = wnp.sum(optim.sigmoid_binary_cross_entropy(logits, x), axis=-1)
    code = 0.5 * wnp.sum(wnp.exp(log_variance) + mean**2 - 1 - log_variance, axis=-1)
    return wnp.mean(pixels), wnp.mean(code)


def main(short: bool = False) -> picture.Panel:
    model = Autoencoder()
    variables = model.init({"params": random.key(0), "noise": random.key(1)}, wnp.zeros((1, SIDE * SIDE)))
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optim.adam(2e-3))

    @weft.jit
    def step(state: TrainState, key: weft.Array) -> tuple[TrainState, weft.Array]:
        for_bars, for_noise = random.split(key)

        def loss(params: dict) -> weft.Array:
            return sum(negative_bound(model, params, bars(for_bars, BATCH), for_noise))

        value, gradients = weft.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradients), value

    steps = 300 if short else 3000
    start = time.perf_counter()
    for i in range(steps):
        state, value = step(state, random.fold_in(random.key(2), i))
        if i % (steps // 8) == 0:
            print(f"step {i:4d}  loss {float(value):.2f}")
    print(f"{steps} steps in {time.perf_counter() - start:.1f} s; traced {step.cache_size()} time(s)")

    fresh = bars(random.key(3), 512)
    pixels, code = negative_bound(model, state.params, fresh, random.key(4))
    # Without a code the best prediction is the mean image; the entropy of the pixels is a lower bound.
    blind, floor = (
        float(wnp.mean(wnp.sum(-fresh * wnp.log(p) - (1 - fresh) * wnp.log1p(-p), axis=-1)))
        for p in (fresh.mean(0), wnp.clip(fresh, 1e-6, 1 - 1e-6))
    )
    print(f"final loss {float(pixels):.2f} nats + KL {float(code):.2f}; mean image {blind:.2f}, least {floor:.2f}")
    assert float(pixels + code) < blind
    assert float(pixels) - floor < (0.7 if short else 0.4) * (blind - floor)

    steps_across = wnp.linspace(-1.8, 1.8, 9)
    codes = wnp.stack(wnp.meshgrid(steps_across, steps_across), axis=-1).reshape(-1, 2)
    drawn = model.apply({"params": state.params}, codes, method="decode").reshape(-1, SIDE, SIDE)
    return picture.Panel("VAE: decoder output over the latent code").image(picture.grid(drawn, 9))


if __name__ == "__main__":
    picture.save("vae", main(short="--short" in sys.argv))
