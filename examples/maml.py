"""Meta-learning (MAML, Finn et al. 2017): a gradient through gradient descent.

A task is to fit a sine of unknown amplitude and phase from ten points. `adapt` takes a few steps of gradient descent on
them. The outer loss is the loss after these steps, and its gradient with respect to the initial parameters
differentiates through them. `vmap` runs many tasks at once.
"""

from __future__ import annotations

import sys
import time

import picture

import weft
import weft.numpy as wnp
from weft import lax, optim, random

UNITS, SHOTS, TASKS, RATE = 40, 10, 25, 0.02


def init(key: weft.Array) -> list[dict]:
    sizes = (1, UNITS, UNITS, 1)
    keys = random.split(key, 3)
    scale = weft.nn.initializers.glorot_normal()
    return [{"w": scale(k, (i, o)), "b": wnp.zeros(o)} for k, i, o in zip(keys, sizes, sizes[1:], strict=False)]


def predict(params: list[dict], x: weft.Array) -> weft.Array:
    hidden = x[:, None]
    for layer in params[:-1]:
        hidden = wnp.tanh(hidden @ layer["w"] + layer["b"])
    return (hidden @ params[-1]["w"] + params[-1]["b"])[:, 0]


def loss(params: list[dict], x: weft.Array, y: weft.Array) -> weft.Array:
    return wnp.mean((predict(params, x) - y) ** 2)


def adapt(params: list[dict], x: weft.Array, y: weft.Array, steps: int) -> list[dict]:
    """Take `steps` steps of gradient descent on one task."""

    def step(params: list[dict], _: None) -> tuple[list[dict], None]:
        gradients = weft.grad(loss)(params, x, y)
        return weft.tree.map(lambda p, s: p - RATE * s, params, gradients), None

    return lax.scan(step, params, length=steps)[0]


def make_task(key: weft.Array) -> tuple[weft.Array, weft.Array, weft.Array, weft.Array]:
    """Draw training points, and test points of the same sine."""
    for_height, for_phase, for_x = random.split(key, 3)
    height = random.uniform(for_height, minval=0.5, maxval=3.0)
    phase = random.uniform(for_phase, maxval=wnp.pi)
    x, new_x = random.uniform(for_x, (2, SHOTS), minval=-4.0, maxval=4.0)
    return x, height * wnp.sin(x + phase), new_x, height * wnp.sin(new_x + phase)


def after_learning(params: list[dict], key: weft.Array, steps: int) -> weft.Array:
    """Return the test loss on a task after adaptation to its training points."""
    x, y, new_x, new_y = make_task(key)
    return loss(adapt(params, x, y, steps), new_x, new_y)


def main(short: bool = False) -> picture.Panel:
    optimizer = optim.adam(2e-3)

    @weft.jit
    def step(params: list[dict], state: optim.OptState, key: weft.Array) -> tuple:
        def outer(params: list[dict]) -> weft.Array:
            return wnp.mean(weft.vmap(lambda k: after_learning(params, k, 5))(random.split(key, TASKS)))

        value, gradients = weft.value_and_grad(outer)(params)
        updates, state = optimizer.update(gradients, state)
        return value, optim.apply_updates(params, updates), state

    params = untrained = init(random.key(0))
    state = optimizer.init(params)
    steps = 150 if short else 3000
    start = time.perf_counter()
    for i in range(steps):
        value, params, state = step(params, state, random.fold_in(random.key(1), i))
        if i % (steps // 5) == 0:
            print(f"step {i:4d}  loss after five steps on a new task {float(value):.3f}")
    print(f"{steps} steps in {time.perf_counter() - start:.1f} s")

    tasks = random.split(random.key(2), 200)
    judge = weft.jit(lambda params: wnp.mean(weft.vmap(lambda k: after_learning(params, k, 10))(tasks)))
    before, after = float(judge(untrained)), float(judge(params))
    print(f"final loss after ten steps on 200 new tasks: {after:.3f}, from a random initialization {before:.3f}")
    assert after < 0.3 * before

    x, y, _, _ = make_task(random.key(17))
    at = wnp.linspace(-4.0, 4.0, 101)
    panel = picture.Panel("MAML: a curve from ten points", (-4, 4), (-4, 4), across="x", up="y")
    panel.line(at, predict(params, at), picture.GREY, label="before")
    panel.line(at, predict(adapt(params, x, y, 10), at), label="after ten steps")
    return panel.dots(x, y, picture.RED, label="the points")


if __name__ == "__main__":
    picture.save("maml", main(short="--short" in sys.argv))
