"""Haiku with state: `hk.transform_with_state` turns a function that creates modules into a pair of pure functions.

`init` and `apply` take and return parameters and state. A custom module stores running statistics with `get_state` and
`set_state`, so that inputs of any scale can be used; `hk.BatchNorm` stores its own. The state is a plain dict.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from iris import load

import weft
import weft.haiku as hk
import weft.numpy as wnp
from weft import optim, random

BATCH = 30


class Standardize(hk.Module):
    """Subtract the mean of each feature and divide by its deviation, estimated from all rows seen in training."""

    def __call__(self, x: weft.Array, training: bool) -> weft.Array:
        count = hk.get_state("count", (), init=wnp.zeros)
        mean = hk.get_state("mean", x.shape[1:], init=wnp.zeros)
        squares = hk.get_state("squares", x.shape[1:], init=wnp.zeros)
        if training:
            # Combine the means and sums of squares of two groups of rows (Chan, Golub and LeVeque, 1979).
            total, shift = count + len(x), x.mean(0) - mean
            squares = squares + x.var(0) * len(x) + shift**2 * count * len(x) / total
            mean, count = mean + shift * len(x) / total, total
            hk.set_state("count", count)
            hk.set_state("mean", mean)
            hk.set_state("squares", squares)
        return (x - mean) / wnp.sqrt(squares / wnp.maximum(count, 1) + 1e-6)


def classify(x: weft.Array, training: bool) -> weft.Array:
    x = Standardize()(x, training)
    x = hk.Linear(32)(x)
    x = hk.BatchNorm(create_scale=True, create_offset=True, decay_rate=0.9)(x, is_training=training)
    x = wnp.tanh(x)
    if training:
        x = hk.dropout(hk.next_rng_key(), 0.1, x)
    return hk.Linear(3)(x)


def main(short: bool = False) -> None:
    x, y, test_x, test_y = load(seed=0)
    scale, offset = wnp.array([1.0, 10.0, 100.0, 1000.0]), wnp.array([0.0, -50.0, 300.0, 2000.0])
    x, test_x = x * scale + offset, test_x * scale + offset  # as if every feature had a different unit
    model = hk.transform_with_state(classify)
    params, state = model.init(random.key(0), x[:BATCH], training=True)
    for name, values in params.items():
        print(f"{name:22s}", {key: value.shape for key, value in values.items()})
    optimizer = optim.adam(1e-2)

    @weft.jit
    def step(params: hk.Params, state: hk.State, memory: optim.OptState, key: weft.Array, rows: weft.Array) -> tuple:
        def loss(params: hk.Params) -> tuple[weft.Array, hk.State]:
            logits, new_state = model.apply(params, state, key, x[rows], training=True)
            return wnp.mean(optim.softmax_cross_entropy_with_integer_labels(logits, y[rows])), new_state

        (value, new_state), gradients = weft.value_and_grad(loss, has_aux=True)(params)
        updates, memory = optimizer.update(gradients, memory)
        return value, optim.apply_updates(params, updates), new_state, memory

    memory = optimizer.init(params)
    start = time.perf_counter()
    epochs = 25 if short else 200
    for epoch in range(epochs):
        key = random.fold_in(random.key(1), epoch)
        for rows in random.permutation(key, len(x)).reshape(-1, BATCH):
            key, for_dropout = random.split(key)
            value, params, state, memory = step(params, state, memory, for_dropout, rows)
        if epoch % (epochs // 5) == 0:
            print(f"epoch {epoch:3d}  loss {float(value):.4f}  rows seen {int(state['standardize']['count'])}")
    print(f"{epochs} epochs in {time.perf_counter() - start:.1f} s; traced {step.cache_size()} time(s)")

    seen = state["standardize"]
    deviation = np.sqrt(np.asarray(seen["squares"] / seen["count"]))
    print(f"estimated means {seen['mean']} and deviations {deviation}")
    np.testing.assert_allclose(seen["mean"], np.asarray(x).mean(0), rtol=1e-2, atol=0.1)
    np.testing.assert_allclose(deviation, np.asarray(x).std(0), rtol=1e-2)
    logits, after = model.apply(params, state, None, test_x, training=False)
    assert weft.tree.all(weft.tree.map(wnp.array_equal, state, after)), "evaluation must not change the state"
    accuracy = float(wnp.mean(wnp.argmax(logits, axis=-1) == test_y))
    print(f"final accuracy {accuracy:.0%} on {len(test_y)} unseen flowers")
    assert accuracy >= 0.85


if __name__ == "__main__":
    main(short="--short" in sys.argv)
