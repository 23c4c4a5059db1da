"""Regression of linear_regression.py with `weft.optim`: Adam on a warm-up and cosine schedule, gradients clipped.

An optimizer is a pair of pure functions, `init` and `update`; `chain` combines several. The data have outliers, so the
loss is Huber's.
"""

from __future__ import annotations

import sys

from linear_regression import NOISE, TRUE_BIAS, TRUE_WEIGHTS, make_data

import weft
import weft.numpy as wnp
from weft import optim, random


def loss(params: dict, x: weft.Array, y: weft.Array) -> weft.Array:
    """Compute Huber's loss: quadratic for small errors and linear for large ones, so that outliers have bounded
    influence."""
    return wnp.mean(optim.huber_loss(x @ params["weights"] + params["bias"], y, delta=3 * NOISE))


def main(short: bool = False) -> None:
    x, y = make_data(random.key(0))
    y = y.at[::16].add(50.0)  # one point in sixteen is an outlier

    steps = 150 if short else 600
    schedule = optim.warmup_cosine_decay_schedule(0.0, 0.3, warmup_steps=steps // 10, decay_steps=steps)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(schedule))

    @weft.jit
    def step(params: dict, state: optim.OptState) -> tuple[weft.Array, dict, optim.OptState]:
        value, gradients = weft.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return value, optim.apply_updates(params, updates), state

    params = {"weights": wnp.zeros(3), "bias": wnp.zeros(())}
    state = optimizer.init(params)
    for i in range(steps):
        value, params, state = step(params, state)
        if i % 50 == 0:
            print(f"step {i:3d}  rate {float(schedule(i)):.3f}  loss {float(value):.4f}")
    print(f"estimated {params['weights']} and {float(params['bias']):.3f}; true values {TRUE_WEIGHTS} and {TRUE_BIAS}")

    design = wnp.column_stack([x, wnp.ones(len(x))])
    squares = wnp.linalg.lstsq(design, y)[0]
    error = float(wnp.abs(params["weights"] - wnp.array(TRUE_WEIGHTS)).max() + abs(params["bias"] - TRUE_BIAS))
    naive = float(wnp.abs(squares[:3] - wnp.array(TRUE_WEIGHTS)).max() + abs(squares[3] - TRUE_BIAS))
    print(f"final error {error:.3f}; error of least squares {naive:.3f}")
    assert error < 0.1 < naive


if __name__ == "__main__":
    main(short="--short" in sys.argv)
