"""Convolutional network in linen on real digits, with batch normalization: a model with state and parameters.

The running statistics are a separate collection, `batch_stats`. A training step returns their new values, and
evaluation uses the last ones.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import digits
import picture

import weft
import weft.numpy as wnp
from weft import linen as nn, optim, random
from weft.linen import train_state

BATCH = 64


class Network(nn.Module):
    """Two convolutions with batch normalization and pooling, and a dense layer."""

    @nn.compact
    def __call__(self, x: weft.Array, train: bool = False) -> weft.Array:
        for features in (16, 32):
            x = nn.Conv(features, (3, 3), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
            x = nn.max_pool(x, (2, 2), strides=(2, 2))
        return nn.Dense(10)(x.reshape(len(x), -1))


class TrainState(train_state.TrainState):
    batch_stats: Any


@weft.jit
def step(state: TrainState, x: weft.Array, y: weft.Array) -> tuple[TrainState, weft.Array]:
    def loss(params: dict) -> tuple[weft.Array, dict]:
        variables = {"params": params, "batch_stats": state.batch_stats}
        logits, updated = state.apply_fn(variables, x, train=True, mutable=["batch_stats"])
        targets = optim.smooth_labels(nn.one_hot(y, 10), 0.05)
        return wnp.mean(optim.softmax_cross_entropy(logits, targets)), updated["batch_stats"]

    (value, batch_stats), gradients = weft.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=gradients, batch_stats=batch_stats), value


@weft.jit
def accuracy(state: TrainState, x: weft.Array, y: weft.Array) -> weft.Array:
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    return wnp.mean(wnp.argmax(state.apply_fn(variables, x), axis=-1) == y)


def main(short: bool = False) -> picture.Panel:
    x, y, test_x, test_y = digits.load()
    model = Network()
    variables = model.init(random.key(0), x[:1])
    epochs = 4 if short else 25
    batches = len(x) // BATCH
    schedule = optim.cosine_decay_schedule(5e-3, epochs * batches)
    state = TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        batch_stats=variables["batch_stats"],
        tx=optim.adamw(schedule, weight_decay=1e-3),
    )
    history, start = [], time.perf_counter()
    for epoch in range(epochs):
        order = random.permutation(random.fold_in(random.key(1), epoch), len(x))
        for batch in range(batches):
            rows = order[batch * BATCH : (batch + 1) * BATCH]
            state, value = step(state, x[rows], y[rows])
        unseen = float(accuracy(state, test_x, test_y))
        history.append(unseen)
        print(f"epoch {epoch + 1:2d}  loss {float(value):.4f}  accuracy on unseen digits {unseen:.1%}")
    print(f"{epochs * batches} steps in {time.perf_counter() - start:.1f} s; traced {step.cache_size()} time(s)")
    final = float(accuracy(state, test_x, test_y))
    print(f"final accuracy {final:.1%} on {len(test_y)} unseen digits")
    assert final > (0.93 if short else 0.97)
    panel = picture.Panel("Digits: accuracy of a convolutional network", across="epoch", up="on unseen digits")
    return panel.line(range(1, epochs + 1), history)


if __name__ == "__main__":
    digits.run(main, short="--short" in sys.argv, name="digits_cnn")
