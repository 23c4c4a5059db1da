"""Neural ODE: the right-hand side is a network, and `grad` differentiates through an adaptive solver.

The solver chooses its step size in a `while_loop`, so the number of steps depends on the network. Reverse mode
works through it without an adjoint equation and without a bound on the number of steps.
"""

from __future__ import annotations

import sys
import time

import picture

import weft
import weft.numpy as wnp
from weft import lax, optim, random

UNITS, TOLERANCE = 32, 1e-3


def solve(velocity, state: weft.Array, duration: float) -> tuple[weft.Array, weft.Array]:
    """Integrate by the Bogacki-Shampine method of order 3(2); return the state after `duration`, and the number of
    steps."""

    def unfinished(carry: tuple) -> weft.Array:
        return carry[1] < duration

    def step(carry: tuple) -> tuple:
        state, now, size, count = carry
        size = wnp.minimum(size, duration - now)
        first = velocity(state)
        second = velocity(state + 0.5 * size * first)
        third = velocity(state + 0.75 * size * second)
        proposal = state + size * (2 * first + 3 * second + 4 * third) / 9
        fourth = velocity(proposal)
        # The difference from the formula of order 2 estimates the error; the step size is not differentiated.
        difference = size * (-5 * first + 6 * second + 8 * third - 9 * fourth) / 72
        error = lax.stop_gradient(wnp.max(wnp.abs(difference)) / TOLERANCE)
        good = error <= 1
        factor = wnp.clip(0.9 * wnp.maximum(error, 1e-6) ** (-1 / 3), 0.2, 4.0)
        return wnp.where(good, proposal, state), wnp.where(good, now + size, now), size * factor, count + 1

    state, _, _, count = lax.while_loop(unfinished, step, (state, wnp.zeros(()), wnp.array(duration / 4), 0))
    return state, count


def true_velocity(state: weft.Array) -> weft.Array:
    """Evaluate the Van der Pol oscillator, which has a limit cycle."""
    x, v = state[..., 0], state[..., 1]
    return wnp.stack([v, (1 - x**2) * v - x], axis=-1)


def init(key: weft.Array) -> list[dict]:
    sizes, keys = (2, UNITS, UNITS, 2), random.split(key, 3)
    scale = weft.nn.initializers.glorot_normal()
    return [{"w": scale(k, (i, o)), "b": wnp.zeros(o)} for k, i, o in zip(keys, sizes, sizes[1:], strict=False)]


def network(params: list[dict], state: weft.Array) -> weft.Array:
    for layer in params[:-1]:
        state = wnp.tanh(state @ layer["w"] + layer["b"])
    return state @ params[-1]["w"] + params[-1]["b"]


def path(velocity, start: weft.Array, points: int, every: float) -> weft.Array:
    """Return states at equally spaced times along a trajectory."""

    def forward(state: weft.Array, _: None) -> tuple[weft.Array, weft.Array]:
        state = solve(velocity, state, every)[0]
        return state, state

    return lax.scan(forward, start, length=points)[1]


def main(short: bool = False, steps: int | None = None) -> picture.Panel:
    optimizer = optim.adam(3e-3)
    starts = random.uniform(random.key(0), (128, 2), minval=-3.0, maxval=3.0)
    ends = solve(true_velocity, starts, 0.5)[0]  # the training data: the state half a second after each start

    @weft.jit
    def step(params: list[dict], state: optim.OptState) -> tuple:
        def loss(params: list[dict]) -> tuple[weft.Array, weft.Array]:
            reached, count = solve(lambda s: network(params, s), starts, 0.5)
            return wnp.mean((reached - ends) ** 2), count

        (value, count), gradients = weft.value_and_grad(loss, has_aux=True)(params)
        updates, state = optimizer.update(gradients, state)
        return value, count, optim.apply_updates(params, updates), state

    params = init(random.key(1))
    state = optimizer.init(params)
    steps = steps or (200 if short else 3000)
    start = time.perf_counter()
    for i in range(steps):
        value, count, params, state = step(params, state)
        if i % (steps // 8) == 0:
            print(f"step {i:4d}  loss {float(value):.5f}  the solver took {int(count)} steps")
    print(f"{steps} steps in {time.perf_counter() - start:.1f} s; traced {step.cache_size()} time(s)")

    fresh = random.uniform(random.key(2), (64, 2), minval=-2.5, maxval=2.5)
    miss = solve(lambda s: network(params, s), fresh, 0.5)[0] - solve(true_velocity, fresh, 0.5)[0]
    still = fresh - solve(true_velocity, fresh, 0.5)[0]
    error, unmoved = float(wnp.mean(miss**2)), float(wnp.mean(still**2))
    print(f"final error on new starts {error:.4f}; of predicting no change {unmoved:.3f}")
    assert error < (0.02 if steps >= 3000 else 0.2) * unmoved

    panel = picture.Panel("Neural ODE: learned and true flow", (-3.2, 3.2), (-4, 4), across="position", up="velocity")
    origins = wnp.array([[0.2, 0.0], [-2.8, 2.8], [2.8, -2.8], [0.0, 2.8]])
    flows = [(picture.GREEN, true_velocity, "true"), (picture.BLUE, lambda s: network(params, s), "learned")]
    for colour, velocity, name in flows:
        lines = weft.jit(lambda o, v=velocity: path(v, o, 120, 0.1))(origins)
        for i in range(len(origins)):
            panel.line(lines[:, i, 0], lines[:, i, 1], colour, 1.5, 0.8, label="" if i else name)
    return panel


if __name__ == "__main__":
    picture.save("neural_ode", main(short="--short" in sys.argv))
