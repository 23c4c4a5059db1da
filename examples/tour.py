"""A tour of Weft: programs, derivatives, batches, a loop differentiated, a model trained on real data, and then the
best of the other examples, with a picture of what each of them learnt.

Run it with `make demo`; the picture is examples/out/tour.svg. Nothing is read from the network.
"""

from __future__ import annotations

import sys
import time

import ensemble
import hmc
import maml
import neural_ode
import numpy as np
import picture
import transformer
import vae
from iris import load

import weft
import weft.numpy as wnp
from weft import grad, jit, lax, make_jaxpr, random, value_and_grad, vmap


def heading(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}")


def programs() -> None:
    heading("1. A function of arrays is a program")

    def energy(first: weft.Array, second: weft.Array) -> weft.Array:
        return wnp.sum(first + wnp.sin(second) * 3.0)

    print(make_jaxpr(energy)(wnp.zeros(8), wnp.ones(8)))

    heading("2. Programs are differentiated and vectorised, in any order")
    slope = grad(lambda x: wnp.sin(x) * x**2)
    points = wnp.linspace(0.0, 3.0, 4)
    print("slope at", points, "is", vmap(slope)(points))
    print("and of the slope:", jit(vmap(grad(slope)))(points))

    heading("3. Reverse mode through a loop whose length the data decide")

    def square_root(x: weft.Array) -> weft.Array:
        """Newton's iteration until it settles; how many steps depends on x."""

        def unsettled(state: tuple[weft.Array, weft.Array]) -> weft.Array:
            guess, before = state
            return abs(guess - before) > 1e-6 * guess

        return lax.while_loop(unsettled, lambda s: (0.5 * (s[0] + x / s[0]), s[0]), (x, x + 1.0))[0]

    values = wnp.array([0.25, 2.0, 100.0])
    print("roots      ", vmap(square_root)(values))
    print("derivatives", vmap(grad(square_root))(values), "(exactly", 0.5 / np.sqrt(np.asarray(values)), ")")


def flowers() -> picture.Panel:
    heading("4. A model, trained: three kinds of iris from four measurements")
    train_x, train_y, test_x, test_y = load(seed=0)
    first, second = random.split(random.key(0))
    params = {
        "hidden": {"weights": 0.5 * random.normal(first, (4, 16)), "bias": wnp.zeros(16)},
        "output": {"weights": 0.5 * random.normal(second, (16, 3)), "bias": wnp.zeros(3)},
    }

    def logits(params: dict, x: weft.Array) -> weft.Array:
        hidden = wnp.tanh(x @ params["hidden"]["weights"] + params["hidden"]["bias"])
        return hidden @ params["output"]["weights"] + params["output"]["bias"]

    def loss(params: dict, x: weft.Array, y: weft.Array) -> weft.Array:
        chosen = weft.nn.one_hot(y, 3) * weft.nn.log_softmax(logits(params, x))
        return -wnp.mean(wnp.sum(chosen, axis=-1))

    @jit
    def step(params: dict, x: weft.Array, y: weft.Array) -> tuple[weft.Array, dict]:
        value, slopes = value_and_grad(loss)(params, x, y)
        return value, weft.tree.map(lambda p, s: p - 0.5 * s, params, slopes)

    start = time.perf_counter()
    losses = []
    for number in range(301):
        value, params = step(params, train_x, train_y)
        losses.append(float(value))
        if number % 100 == 0:
            right = float(wnp.mean(wnp.argmax(logits(params, test_x), axis=-1) == test_y))
            print(f"step {number:3d}  loss {losses[-1]:.4f}  right on {len(test_y)} unseen flowers {right:.0%}")
    print(f"301 steps in {time.perf_counter() - start:.2f} s; staged {step.cache_size()} time(s)")
    print(f"final loss {losses[-1]:.4f}, right on {right:.0%}")
    assert losses[-1] < 0.1 and right > 0.8

    heading("5. What the model pays attention to: per-flower gradients by vmap of grad")
    per_flower = vmap(grad(lambda x, y: loss(params, x[None], y[None])))(test_x, test_y)
    names = ("sepal length", "sepal width", "petal length", "petal width")
    weights = wnp.abs(per_flower).mean(0)
    for name, share in zip(names, np.asarray(weights / weights.max()), strict=True):
        print(f"{name:13s} {'#' * round(40 * float(share))}")
    return picture.Panel("Iris: the loss, step by step", (0, 300), (0, 1)).line(range(301), losses)


def main(short: bool = False) -> None:
    programs()
    panels = [flowers()]
    heading("6. Twenty networks trained as one program: vmap of a whole training")
    panels.append(ensemble.main(short))
    if not short:
        heading("7. Learning to learn: a gradient through gradient descent")
        panels.append(maml.main(short=True))
        heading("8. A network as the velocity of a differential equation, and a solver that picks its own steps")
        panels.append(neural_ode.main(steps=800))
        heading("9. Samples instead of one best guess: Hamiltonian Monte Carlo")
        panels.append(hmc.main())
        heading("10. A linen module that draws: a variational autoencoder")
        panels.append(vae.main(short=True))
        heading("11. A transformer of linen modules reads Weft's documents")
        transformer.main(steps=500)
    heading("What was learnt")
    picture.save("tour", *panels)


if __name__ == "__main__":
    main(short="--short" in sys.argv)
