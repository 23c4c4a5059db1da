"""Fits of newton_cg.py: each loss for Weft and JAX, and in NumPy with hand-written derivatives.

A problem has a start, its data, a function that takes a library and returns the loss, a function of (x, *data), and for
NumPy the loss, its gradient and its Hessian-vector product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from libraries import Library

Function = Callable[..., Any]


class Problem(NamedTuple):
    name: str
    paper_speedup: int  # speedup of the compiled fit over Python in the paper on JAX
    start: np.ndarray
    data: tuple[np.ndarray, ...]
    loss: Callable[[Library], Function]
    value: Function
    gradient: Function
    hessian_vector_product: Function


def quadratic(size: int) -> Problem:
    """Compute x A x / 2 - b x with condition number 1000."""
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
    """Compute the mean logistic loss of labels -1 and 1, with a penalty."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(rows, columns)) * np.logspace(0, -1, columns)
    labels = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-inputs @ rng.normal(size=columns))), 1.0, -1.0)
    penalty = 1e-4

    def loss(f: Library) -> Function:
        return lambda w, x, y: f.np.mean(f.np.logaddexp(0.0, -y * (x @ w))) + 0.5 * penalty * f.np.dot(w, w)

    def sigmoid(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(y * (x @ w)))

    def hessian_vector_product(w: np.ndarray, v: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        s = sigmoid(w, x, y)
        return x.T @ (s * (1 - s) * (x @ v)) / rows + penalty * v

    return Problem(
        f"logistic regression, {rows} x {columns}",
        3,
        np.zeros(columns),
        (inputs, labels),
        loss,
        lambda w, x, y: np.mean(np.logaddexp(0.0, -y * (x @ w))) + 0.5 * penalty * np.dot(w, w),
        lambda w, x, y: x.T @ (-y * sigmoid(w, x, y)) / rows + penalty * w,
        hessian_vector_product,
    )


def hidden_markov(states: int, symbols: int, length: int) -> Problem:
    """Return the negative log likelihood of a sequence, per symbol, with a penalty on the logits."""
    rng = np.random.default_rng(2)
    penalty = 1e-2
    ends = (states, states + states * states)
    unknowns = ends[1] + states * symbols

    def split(x: Any) -> tuple[Any, Any, Any]:
        initial, transitions, emissions = x[: ends[0]], x[ends[0] : ends[1]], x[ends[1] :]
        return initial, transitions.reshape(states, states), emissions.reshape(states, symbols)

    truth = split(rng.normal(size=unknowns) * 2)
    probabilities = [np.exp(t - t.max(-1, keepdims=True)) for t in truth]
    probabilities = [c / c.sum(-1, keepdims=True) for c in probabilities]
    state, symbols_seen = rng.choice(states, p=probabilities[0]), []
    for _ in range(length):
        symbols_seen.append(rng.choice(symbols, p=probabilities[2][state]))
        state = rng.choice(states, p=probabilities[1][state])
    observed = np.array(symbols_seen, np.int32)

    def loss(f: Library) -> Function:
        def minus_likelihood(x: Any, observed: Any) -> Any:
            initial, transitions, emissions = (f.nn.log_softmax(part) for part in split(x))

            def forward(alpha: Any, symbol: Any) -> Any:
                return f.nn.logsumexp(alpha[:, None] + transitions, axis=0) + emissions[:, symbol], None

            alpha, _ = f.lax.scan(forward, initial + emissions[:, observed[0]], observed[1:])
            return -f.nn.logsumexp(alpha) / length + 0.5 * penalty * f.np.dot(x, x)

        return minus_likelihood

    def log_sum(x: np.ndarray, axis: int | None = None) -> Any:
        largest = x.max(axis, keepdims=True)
        return np.log(np.exp(x - largest).sum(axis)) + (largest.squeeze(axis) if axis is not None else largest.item())

    def log_softmax(x: np.ndarray) -> np.ndarray:
        shifted = x - x.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))

    def alphas(x: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        initial, transitions, emissions = logs = [log_softmax(part) for part in split(x)]
        result = np.empty((length, states))
        result[0] = initial + emissions[:, observed[0]]
        for t in range(1, length):
            result[t] = log_sum(result[t - 1][:, None] + transitions, 0) + emissions[:, observed[t]]
        return result, logs

    def value(x: np.ndarray, observed: np.ndarray) -> float:
        return -log_sum(alphas(x, observed)[0][-1]) / length + 0.5 * penalty * np.dot(x, x)

    def gradient(x: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Return expected counts by the backward recursion, minus the gradient of the normalization."""
        alpha, (initial, transitions, emissions) = alphas(x, observed)
        total = log_sum(alpha[-1])
        beta = np.zeros(states)
        counts = [np.zeros_like(initial), np.zeros_like(transitions), np.zeros_like(emissions)]
        for t in range(length - 1, -1, -1):
            weights = np.exp(alpha[t] + beta - total)
            counts[2][:, observed[t]] += weights
            if t == 0:
                counts[0] += weights
                break
            after = emissions[:, observed[t]] + beta
            counts[1] += np.exp(alpha[t - 1][:, None] + transitions + after - total)
            beta = log_sum(transitions + after, 1)
        logs = (initial, transitions, emissions)
        gradients = [c - np.exp(p) * c.sum(-1, keepdims=True) for c, p in zip(counts, logs, strict=True)]
        return -np.concatenate([s.ravel() for s in gradients]) / length + penalty * x

    def hessian_vector_product(x: np.ndarray, v: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Return a central difference of gradients, in place of second derivatives of the recursion."""
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
        hessian_vector_product,
    )


def problems(small: bool) -> list[Problem]:
    if small:
        return [quadratic(10), hidden_markov(2, 3, 20), logistic(50, 5)]
    return [quadratic(100), hidden_markov(8, 16, 200), logistic(10_000, 100)]
