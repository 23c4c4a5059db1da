"""Ensemble by `vmap`: twenty networks are initialized, trained and evaluated by one compiled function.

The networks agree where there are data; elsewhere they differ, and the standard deviation of their predictions
estimates the uncertainty. The training function is written for one network; `vmap` adds the batch dimension.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import picture

import weft
import weft.numpy as wnp
from weft import lax, optim, random

MEMBERS, UNITS = 20, 32


def curve(x: weft.Array) -> weft.Array:
    return wnp.sin(3 * x) + 0.3 * x


def make_data(key: weft.Array) -> tuple[weft.Array, weft.Array]:
    """Draw points on the curve in two intervals, with none between -0.5 and 0.7."""
    for_x, for_noise = random.split(key)
    left, right = random.uniform(for_x, (2, 40))
    x = wnp.concatenate([-2.0 + 1.5 * left, 0.7 + 1.0 * right])
    return x, curve(x) + 0.05 * random.normal(for_noise, x.shape)


def init(key: weft.Array) -> dict:
    first, second, third = random.split(key, 3)
    return {
        "first": {"w": random.normal(first, (1, UNITS)), "b": random.normal(second, (UNITS,))},
        "second": {"w": random.normal(third, (UNITS, 1)) / UNITS**0.5, "b": wnp.zeros(1)},
    }


def predict(params: dict, x: weft.Array) -> weft.Array:
    hidden = wnp.tanh(2 * (x[:, None] @ params["first"]["w"] + params["first"]["b"]))
    return (hidden @ params["second"]["w"] + params["second"]["b"])[:, 0]


def train(key: weft.Array, x: weft.Array, y: weft.Array, steps: int) -> tuple[dict, weft.Array]:
    """Train one network from its own initialization on its own sample of the data, in one `scan`."""
    for_start, for_sample = random.split(key)
    chosen = random.choice(for_sample, len(x), (len(x),))
    x, y = x[chosen], y[chosen]
    optimizer = optim.adam(1e-2)
    params = init(for_start)

    def step(carry: tuple, _: None) -> tuple:
        params, state = carry
        value, gradients = weft.value_and_grad(lambda p: wnp.mean((predict(p, x) - y) ** 2))(params)
        updates, state = optimizer.update(gradients, state)
        return (optim.apply_updates(params, updates), state), value

    (params, _), losses = lax.scan(step, (params, optimizer.init(params)), length=steps)
    return params, losses


def main(short: bool = False) -> picture.Panel:
    x, y = make_data(random.key(0))
    steps = 400 if short else 3000
    start = time.perf_counter()
    train_all = weft.jit(weft.vmap(lambda key: train(key, x, y, steps)))
    members, losses = train_all(random.split(random.key(1), MEMBERS))
    print(f"{MEMBERS} networks, {steps} steps each, in {time.perf_counter() - start:.1f} s")
    print(f"loss of the first step {float(losses[:, 0].mean()):.3f}, of the last {float(losses[:, -1].mean()):.4f}")

    at = wnp.linspace(-2.5, 2.2, 95)
    said = weft.vmap(predict, in_axes=(0, None))(members, at)
    mean, deviation = said.mean(0), said.std(0)
    known = ((at > -1.9) & (at < -0.6)) | ((at > 0.8) & (at < 1.6))
    between = (at > -0.2) & (at < 0.4)
    error = float(wnp.abs(mean - curve(at))[known].mean())
    inside, outside = float(deviation[known].mean()), float(deviation[between].mean())
    print(f"final error where there are data {error:.3f}; deviation there {inside:.3f}, elsewhere {outside:.3f}")
    assert error < 0.15
    assert outside > 2 * inside

    panel = picture.Panel("Ensemble: predictions of twenty networks", (-2.5, 2.2), (-2.5, 2.5), across="x", up="y")
    panel.band(at, mean - 2 * deviation, mean + 2 * deviation, label="mean ± 2 deviations")
    for member in np.asarray(said[:8]):
        panel.line(at, member, width=0.7, opacity=0.5)
    panel.line(at, curve(at), picture.GREEN, label="true curve")
    return panel.dots(x, y, picture.RED, 2, label="training data")


if __name__ == "__main__":
    picture.save("ensemble", main(short="--short" in sys.argv))
