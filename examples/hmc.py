"""Bayesian logistic regression with Hamiltonian Monte Carlo: samples from the posterior of the weights.

The model classifies two species of iris from two measurements. The sampler needs only the gradient of the log density.
Leapfrog steps are a `fori_loop`, the chain is a `scan`, and `vmap` runs several chains; R-hat measures whether they
have converged.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import picture
from iris import load

import weft
import weft.numpy as wnp
from weft import lax, nn, random

CHAINS, LEAPS, SIZE = 4, 10, 0.25


def log_density(weights: weft.Array, x: weft.Array, y: weft.Array) -> weft.Array:
    """Return the log of a normal prior with deviation 3 plus the log likelihood of the labels, up to a constant."""
    logits = x @ weights[:-1] + weights[-1]
    return -0.5 * wnp.sum((weights / 3) ** 2) + wnp.sum(nn.log_sigmoid((2 * y - 1) * logits))


def leapfrog(density, weights: weft.Array, momentum: weft.Array) -> tuple[weft.Array, weft.Array]:
    """Integrate by leapfrog: half a momentum step, alternating position and momentum steps, half a momentum step."""
    gradient = weft.grad(density)

    def leap(_: int, carry: tuple[weft.Array, weft.Array]) -> tuple[weft.Array, weft.Array]:
        weights, momentum = carry
        momentum = momentum + 0.5 * SIZE * gradient(weights)
        weights = weights + SIZE * momentum
        return weights, momentum + 0.5 * SIZE * gradient(weights)

    return lax.fori_loop(0, LEAPS, leap, (weights, momentum))


def sample(density, start: weft.Array, key: weft.Array, count: int) -> tuple[weft.Array, weft.Array]:
    """Draw a chain of `count` samples; also return the acceptance rate."""

    def step(weights: weft.Array, key: weft.Array) -> tuple:
        for_momentum, for_choice = random.split(key)
        momentum = random.normal(for_momentum, weights.shape)
        proposal, final = leapfrog(density, weights, momentum)
        gain = density(proposal) - density(weights) + 0.5 * wnp.sum(momentum**2 - final**2)
        accepted = wnp.log(random.uniform(for_choice)) < gain
        weights = wnp.where(accepted, proposal, weights)
        return weights, (weights, accepted)

    _, (samples, accepted) = lax.scan(step, start, random.split(key, count))
    return samples, accepted.mean()


def r_hat(samples: weft.Array) -> weft.Array:
    """Compute R-hat of the chains (first axis): near 1 if they have converged (Gelman and Rubin, 1992)."""
    count = samples.shape[1]
    within = samples.var(axis=1, ddof=1).mean(0)
    between = samples.mean(axis=1).var(axis=0, ddof=1)
    return wnp.sqrt((count - 1) / count + between / within)


def main(short: bool = False) -> picture.Panel:
    x, kind, _, _ = load(seed=0, unseen=0)
    two = np.asarray(kind) > 0
    x, y = x[two][:, 2:], (kind[two] == 2).astype(wnp.float32)  # petals of versicolor and virginica

    count, warmup = (600, 200) if short else (10000, 1000)
    starts = 2 * random.normal(random.key(1), (CHAINS, 3))
    chain = weft.jit(weft.vmap(lambda start, key: sample(lambda w: log_density(w, x, y), start, key, count)))
    start = time.perf_counter()
    samples, accepted = chain(starts, random.split(random.key(2), CHAINS))
    samples = samples[:, warmup:]
    print(f"{CHAINS} chains of {count} samples in {time.perf_counter() - start:.1f} s; accepted {accepted}")

    agreement = r_hat(samples)
    weights = samples.reshape(-1, 3)
    print(f"weights {weights.mean(0)} +- {weights.std(0)}; R-hat {agreement}")

    def probability(points: weft.Array) -> weft.Array:
        """Average the prediction over all samples."""
        return nn.sigmoid(points @ weights[:, :2].T + weights[:, 2]).mean(-1)

    accuracy = float(wnp.mean((probability(x) > 0.5) == (y > 0.5)))
    print(f"final accuracy of the averaged prediction {accuracy:.0%}, largest R-hat {float(agreement.max()):.3f}")
    assert float(accepted.min()) > 0.6 and float(agreement.max()) < (1.2 if short else 1.05)
    assert accuracy > 0.9
    # The expected gradient of the log posterior under the posterior is zero.
    gradients = weft.vmap(weft.grad(log_density), (0, None, None))(weights, x, y)
    assert float(wnp.abs(gradients.mean(0) / gradients.std(0)).max()) < (0.3 if short else 0.1)

    across, up = wnp.linspace(-0.6, 2.0, 60), wnp.linspace(-0.8, 2.0, 60)
    points = wnp.stack(wnp.meshgrid(across, up[::-1]), axis=-1)
    panel = picture.Panel("HMC: probability of virginica (light: 1)", (-0.6, 2.0), (-0.8, 2.0))
    panel.across, panel.up = "petal length, standardized", "petal width, standardized"
    panel.image(0.25 + 0.75 * probability(points))
    for label, colour, name in ((0, picture.RED, "versicolor"), (1, picture.BLUE, "virginica")):
        panel.dots(*np.asarray(x)[np.asarray(y) == label].T, colour, label=name)
    return panel


if __name__ == "__main__":
    picture.save("hmc", main(short="--short" in sys.argv))
