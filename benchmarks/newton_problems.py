"""The three fits of newton_cg.py: each loss over Weft's or JAX's faces, and by hand in NumPy with its derivatives.

A problem is a start, its data, the loss as a function of (faces) -> (x, *data), and what a Python program that knows
its own derivatives has: value, gradient, and the product of the Hessian with a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from faces import Faces

Function = Callable[..., Any]


class Problem(NamedTuple):
    name: str
    paper: int  # how many times quicker than Python the paper found its compiled fit
    start: np.ndarray
    data: tuple[np.ndarray, ...]
    loss: Callable[[Faces], Function]
    value: Function
    gradient: Function
    product: Function


def quadratic(size: int) -> Problem:
    """x A x / 2 - b x with a condition of 1000."""
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
    matrix, vector = basis * np.logspace(-1, 2, size) @ basis.T, rng.normal(size=size)
    return Problem(
        f"convex quadratic, {size} unknowns",
        114,
        np.zeros(size),
        ((matrix + matrix.T) / 2, vector),
        lambda f: lambda x, a, b: 0.5 * f.np.dot(x, a @ x) - f.np.dot(b, x),
        lambda x, a, b: 0.5 * np.dot(x, a @ x) - np.dot(b, x),
        lambda x, a, b: a @ x - b,
        lambda x, v, a, b: a @ v,
    )


def logistic(rows: int, columns: int) -> Problem:
    """Mean logistic loss of labels -1 and 1, with a penalty."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(rows, columns)) * np.logspace(0, -1, columns)
    labels = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-inputs @ rng.normal(size=columns))), 1.0, -1.0)
    penalty = 1e-4

    def loss(f: Faces) -> Function:
        return lambda w, x, y: f.np.mean(f.np.logaddexp(0.0, -y * (x @ w))) + 0.5 * penalty * f.np.dot(w, w)

    def slope(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(y * (x @ w)))

    def product(w: np.ndarray, v: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        s = slope(w, x, y)
        return x.T @ (s * (1 - s) * (x @ v)) / rows + penalty * v

    return Problem(
        f"logistic regression, {rows} x {columns}",
        3,
        np.zeros(columns),
        (inputs, labels),
        loss,
        lambda w, x, y: np.mean(np.logaddexp(0.0, -y * (x @ w))) + 0.5 * penalty * np.dot(w, w),
        lambda w, x, y: x.T @ (-y * slope(w, x, y)) / rows + penalty * w,
        product,
    )


def hidden_markov(states: int, symbols: int, length: int) -> Problem:
    """Minus the log likelihood of a sequence for each of its symbols, with a penalty on the logits."""
    rng = np.random.default_rng(2)
    penalty = 1e-2
    ends = (states, states + states * states)
    unknowns = ends[1] + states * symbols

    def split(x: Any) -> tuple[Any, Any, Any]:
        first, moves, shown = x[: ends[0]], x[ends[0] : ends[1]], x[ends[1] :]
        return first, moves.reshape(states, states), shown.reshape(states, symbols)

    truth = split(rng.normal(size=unknowns) * 2)
    chances = [np.exp(t - t.max(-1, keepdims=True)) for t in truth]
    chances = [c / c.sum(-1, keepdims=True) for c in chances]
    state, seen = rng.choice(states, p=chances[0]), []
    for _ in range(length):
        seen.append(rng.choice(symbols, p=chances[2][state]))
        state = rng.choice(states, p=chances[1][state])
    observed = np.array(seen, np.int32)

    def loss(f: Faces) -> Function:
        def minus_likelihood(x: Any, observed: Any) -> Any:
            first, moves, shown = (f.nn.log_softmax(part) for part in split(x))

            def forward(alpha: Any, symbol: Any) -> Any:
                return f.nn.logsumexp(alpha[:, None] + moves, axis=0) + shown[:, symbol], None

            alpha, _ = f.lax.scan(forward, first + shown[:, observed[0]], observed[1:])
            return -f.nn.logsumexp(alpha) / length + 0.5 * penalty * f.np.dot(x, x)

        return minus_likelihood

    def log_sum(x: np.ndarray, axis: int | None = None) -> Any:
        most = x.max(axis, keepdims=True)
        return np.log(np.exp(x - most).sum(axis)) + (most.squeeze(axis) if axis is not None else most.item())

    def log_softmax(x: np.ndarray) -> np.ndarray:
        shifted = x - x.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))

    def alphas(x: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        first, moves, shown = logs = [log_softmax(part) for part in split(x)]
        found = np.empty((length, states))
        found[0] = first + shown[:, observed[0]]
        for t in range(1, length):
            found[t] = log_sum(found[t - 1][:, None] + moves, 0) + shown[:, observed[t]]
        return found, logs

    def value(x: np.ndarray, observed: np.ndarray) -> float:
        return -log_sum(alphas(x, observed)[0][-1]) / length + 0.5 * penalty * np.dot(x, x)

    def gradient(x: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Expected counts by the backward recursion, less what the normalisation takes away."""
        alpha, (first, moves, shown) = alphas(x, observed)
        total = log_sum(alpha[-1])
        beta = np.zeros(states)
        counts = [np.zeros_like(first), np.zeros_like(moves), np.zeros_like(shown)]
        for t in range(length - 1, -1, -1):
            weights = np.exp(alpha[t] + beta - total)
            counts[2][:, observed[t]] += weights
            if t == 0:
                counts[0] += weights
                break
            after = shown[:, observed[t]] + beta
            counts[1] += np.exp(alpha[t - 1][:, None] + moves + after - total)
            beta = log_sum(moves + after, 1)
        slopes = [c - np.exp(p) * c.sum(-1, keepdims=True) for c, p in zip(counts, (first, moves, shown), strict=True)]
        return -np.concatenate([s.ravel() for s in slopes]) / length + penalty * x

    def product(x: np.ndarray, v: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """A central difference of gradients: second derivatives of the recursion are not written by hand."""
        step = 1e-5 / max(float(np.linalg.norm(v)), 1e-300)
        return (gradient(x + step * v, observed) - gradient(x - step * v, observed)) / (2 * step)

    start = np.concatenate([part.ravel() for part in truth]) * 0.5
    return Problem(
        f"hidden Markov model, {states} states, {symbols} symbols, {length} steps",
        153,
        start,
        (observed,),
        loss,
        value,
        gradient,
        product,
    )


def problems(small: bool) -> list[Problem]:
    if small:
        return [quadratic(10), hidden_markov(2, 3, 20), logistic(50, 5)]
    return [quadratic(100), hidden_markov(8, 16, 200), logistic(10_000, 100)]
