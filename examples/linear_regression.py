"""Linear regression from scratch: `grad` computes the gradient of the loss, `tree.map` applies the update.

Parameters can be any pytree of arrays, here a dict; no model class or optimizer is needed.
"""

from __future__ import annotations

import sys

import weft
import weft.numpy as wnp
from weft import random

TRUE_WEIGHTS, TRUE_BIAS, NOISE = (2.0, -3.0, 0.5), 1.5, 0.1


def make_data(key: weft.Array, count: int = 256) -> tuple[weft.Array, weft.Array]:
    """Draw random inputs, and a linear function of them with noise."""
    for_x, for_noise = random.split(key)
    x = random.normal(for_x, (count, 3))
    y = x @ wnp.array(TRUE_WEIGHTS) + TRUE_BIAS + NOISE * random.normal(for_noise, (count,))
    return x, y


def loss(params: dict, x: weft.Array, y: weft.Array) -> weft.Array:
    """Return the mean squared error of the predictions."""
    return wnp.mean((x @ params["weights"] + params["bias"] - y) ** 2)


@weft.jit
def step(params: dict, x: weft.Array, y: weft.Array, rate: float) -> tuple[weft.Array, dict]:
    """Return the loss, and the parameters after one step of gradient descent."""
    value, gradients = weft.value_and_grad(loss)(params, x, y)
    return value, weft.tree.map(lambda p, s: p - rate * s, params, gradients)


def main(short: bool = False) -> None:
    x, y = make_data(random.key(0))
    params = {"weights": wnp.zeros(3), "bias": wnp.zeros(())}
    steps = 60 if short else 300
    for i in range(steps):
        value, params = step(params, x, y, 0.1)
        if i % 20 == 0:
            print(f"step {i:3d}  loss {float(value):.4f}")
    print(f"estimated {params['weights']} and {float(params['bias']):.3f}; true values {TRUE_WEIGHTS} and {TRUE_BIAS}")
    final = float(loss(params, x, y))
    print(f"final loss {final:.4f}; variance of the noise {NOISE**2:.4f}")
    assert final < 1.5 * NOISE**2
    assert wnp.allclose(params["weights"], wnp.array(TRUE_WEIGHTS), atol=0.05)


if __name__ == "__main__":
    main(short="--short" in sys.argv)
