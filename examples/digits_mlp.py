"""Multilayer perceptron in linen on real digits: a module, a `TrainState`, and one compiled step.

The learning rate can change between steps without recompilation: `inject_hyperparams` stores it in the optimizer state.
"""

from __future__ import annotations

import sys
import time

import digits

import weft
import weft.numpy as wnp
from weft import linen as nn, optim, random
from weft.linen.train_state import TrainState

BATCH = 64


class Perceptron(nn.Module):
    """Dense layers of `sizes` units, with dropout between them."""

    sizes: tuple[int, ...] = (128, 64)
    dropout: float = 0.1

    @nn.compact
    def __call__(self, x: weft.Array, train: bool = False) -> weft.Array:
        x = x.reshape(len(x), -1)
        for size in self.sizes:
            x = nn.relu(nn.Dense(size)(x))
            x = nn.Dropout(self.dropout, deterministic=not train)(x)
        return nn.Dense(10)(x)


@weft.jit
def step(state: TrainState, x: weft.Array, y: weft.Array, key: weft.Array) -> tuple[TrainState, weft.Array]:
    def loss(params: dict) -> weft.Array:
        logits = state.apply_fn({"params": params}, x, train=True, rngs={"dropout": key})
        return wnp.mean(optim.softmax_cross_entropy_with_integer_labels(logits, y))

    value, gradients = weft.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=gradients), value


@weft.jit
def accuracy(state: TrainState, x: weft.Array, y: weft.Array) -> weft.Array:
    return wnp.mean(wnp.argmax(state.apply_fn({"params": state.params}, x), axis=-1) == y)


def main(short: bool = False) -> None:
    x, y, test_x, test_y = digits.load()
    model = Perceptron()
    params = model.init(random.key(0), x[:1])["params"]
    print(model.tabulate(random.key(0), x[:1]))
    optimizer = optim.inject_hyperparams(optim.adamw)(learning_rate=2e-3, weight_decay=1e-3)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)

    start, i = time.perf_counter(), 0
    for epoch in range(8 if short else 40):
        order = random.permutation(random.fold_in(random.key(1), epoch), len(x))
        for first in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[first : first + BATCH]
            state, value = step(state, x[rows], y[rows], random.fold_in(random.key(2), i))
            i += 1
        if epoch % 4 == 3:
            unseen = float(accuracy(state, test_x, test_y))
            print(f"epoch {epoch + 1:2d}  loss {float(value):.4f}  accuracy on unseen digits {unseen:.1%}")
            state.opt_state.hyperparams["learning_rate"] *= 0.8
    print(f"{i} steps in {time.perf_counter() - start:.1f} s; traced {step.cache_size()} time(s)")
    final = float(accuracy(state, test_x, test_y))
    print(f"final accuracy {final:.1%} on {len(test_y)} unseen digits")
    assert final > (0.92 if short else 0.96)


if __name__ == "__main__":
    digits.run(main, short="--short" in sys.argv)
