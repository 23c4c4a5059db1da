"""Tour of Weft: jaxprs, derivatives, batching, the derivative of a loop, a model trained on real data, and then some of
the other examples, with a plot of their results.

Run it with `make demo`; the plot is examples/out/tour.svg. It runs offline.
"""

from __future__ import annotations

import sys
import time

import ensemble
import hmc
import keras_digits
import maml
import neural_ode
import numpy as np
import picture
import transformer
import vae
from digits import DigitsMissingError
from iris import load

import weft
import weft.numpy as wnp
from weft import grad, jit, lax, make_jaxpr, random, value_and_grad, vmap


def heading(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}")


def jaxprs() -> None:
    heading("1. A function of arrays is traced to a jaxpr")

    def energy(first: weft.Array, second: weft.Array) -> weft.Array:
        return wnp.sum(first + wnp.sin(second) * 3.0)

    print(make_jaxpr(energy)(wnp.zeros(8), wnp.ones(8)))

    heading("2. Transformations compose: grad and vmap")
    gradient = grad(lambda x: wnp.sin(x) * x**2)
    points = wnp.linspace(0.0, 3.0, 4)
    print("derivative at", points, "is", vmap(gradient)(points))
    print("second derivative:", jit(vmap(grad(gradient)))(points))

    heading("3. Reverse mode through a loop with a data-dependent number of iterations")

    def square_root(x: weft.Array) -> weft.Array:
        """Compute a square root by Newton's method. The number of iterations depends on x."""

        def unsettled(state: tuple[weft.Array, weft.Array]) -> weft.Array:
            guess, before = state
            return abs(guess - before) > 1e-6 * guess

        return lax.while_loop(unsettled, lambda s: (0.5 * (s[0] + x / s[0]), s[0]), (x, x + 1.0))[0]

    values = wnp.array([0.25, 2.0, 100.0])
    print("roots      ", vmap(square_root)(values))
    print("derivatives", vmap(grad(square_root))(values), "(exactly", 0.5 / np.sqrt(np.asarray(values)), ")")


def flowers() -> picture.Panel:
    heading("4. Training a model: three species of iris from four measurements")
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
        value, gradients = value_and_grad(loss)(params, x, y)
        return value, weft.tree.map(lambda p, s: p - 0.5 * s, params, gradients)

    start = time.perf_counter()
    losses = []
    for i in range(301):
        value, params = step(params, train_x, train_y)
        losses.append(float(value))
        if i % 100 == 0:
            right = float(wnp.mean(wnp.argmax(logits(params, test_x), axis=-1) == test_y))
            print(f"step {i:3d}  loss {losses[-1]:.4f}  accuracy on {len(test_y)} unseen flowers {right:.0%}")
    print(f"301 steps in {time.perf_counter() - start:.2f} s; traced {step.cache_size()} time(s)")
    print(f"final loss {losses[-1]:.4f}, accuracy {right:.0%}")
    assert losses[-1] < 0.1 and right > 0.8

    heading("5. Which measurements matter: per-example gradients by vmap of grad")
    per_flower = vmap(grad(lambda x, y: loss(params, x[None], y[None])))(test_x, test_y)
    names = ("sepal length", "sepal width", "petal length", "petal width")
    weights = wnp.abs(per_flower).mean(0)
    for name, share in zip(names, np.asarray(weights / weights.max()), strict=True):
        print(f"{name:13s} {'#' * round(40 * float(share))}")
    return picture.Panel("Iris: loss", across="step", up="cross-entropy", log=True).line(range(301), losses)


def main(short: bool = False) -> None:
    jaxprs()
    panels = [flowers()]
    heading("6. An ensemble: vmap of the training of twenty networks")
    panels.append(ensemble.main(short))
    if not short:
        heading("7. Meta-learning: a gradient through gradient descent")
        panels.append(maml.main(short=True))
        heading("8. A neural ODE with an adaptive solver")
        panels.append(neural_ode.main(steps=800))
        heading("9. Bayesian inference: Hamiltonian Monte Carlo")
        panels.append(hmc.main())
        heading("10. A variational autoencoder in linen")
        panels.append(vae.main(short=True))
        heading("11. A transformer in linen, trained on Weft's documentation")
        panels.append(transformer.main(steps=500))
        heading("12. Keras: fit with a progress bar, and curves that a callback draws")
        try:
            panels.append(keras_digits.main(short=True))
        except DigitsMissingError as error:
            print(error)
    heading("What was learnt")
    picture.save("tour", *panels)


if __name__ == "__main__":
    main(short="--short" in sys.argv)
