"""Modules of `weft.scipy`, `jet` and `odeint`, beside JAX's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import weft
from tests.peer.compare import jax  # first of all: it says how JAX compiles

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5)).astype(np.float32)
WHERE = RNG.uniform(-3, 8, size=(2, 7)).astype(np.float32)
SIGNAL = RNG.normal(size=40).astype(np.float32)
SPD = (X @ X.T + np.eye(4)).astype(np.float32)
TIMES = np.array([0.0, 0.4, 1.0], np.float32)

CASES: dict[str, Any] = {
    "ndimage": lambda m: [m("scipy.ndimage").map_coordinates(X, WHERE, 1, mode) for mode in ("wrap", "constant")],
    "fft": lambda m: m("scipy.fft").dctn(X, norm="ortho"),
    "signal": lambda m: (m("scipy.signal").stft(SIGNAL, nperseg=8), m("scipy.signal").detrend(SIGNAL)),
    "convolution": lambda m: m("scipy.signal").correlate2d(X, X[:2, :3], "same"),
    "cg": lambda m: m("scipy.sparse.linalg").cg(SPD, SPD[0], tol=1e-7)[0],
    "gmres": lambda m: m("scipy.sparse.linalg").gmres(SPD, SPD[0], tol=1e-7)[0],
    "minimize": lambda m: m("scipy.optimize").minimize(lambda x: ((x - 3) ** 2).sum(), SPD[0], method="BFGS").x,
    "rotation": lambda m: m("scipy.spatial.transform").Rotation.from_quat(m("numpy").asarray(X[:, :4])).as_euler("xyz"),
    "odeint": lambda m: m("experimental.ode").odeint(
        lambda y, t: -y * t, m("numpy").asarray(X[0]), m("numpy").asarray(TIMES)
    ),
    "jet": lambda m: m("experimental.jet").jet(m("numpy").tanh, (X[0],), ([X[1], X[2], X[3]],)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    got, want = (CASES[name](lambda part, lib=lib: importlib.import_module(f"{lib}.{part}")) for lib in ("weft", "jax"))
    for a, b in zip(weft.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
