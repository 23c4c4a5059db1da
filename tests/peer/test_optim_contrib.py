"""Contributed methods: ten steps on the same gradients, beside Optax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
import weft.numpy as wnp
import weft.optim as optim
from tests.peer.test_optim_optimizers import assert_close, decreasing, kernels, run

optax = pytest.importorskip("optax")
pytest.importorskip("optax.contrib")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROWS = """
c.adopt(0.1)
c.adopt(s, b2=0.9, use_clipping=False)
c.ademamix(0.1)
c.ademamix(s, b3=0.9, alpha=s, weight_decay=0.1, mask=kernels)
c.simplified_ademamix(0.1, alpha=0.5, weight_decay=0.1)
c.acprop(0.1, eps=1e-3, eps_root=1e-3)
c.madgrad(0.1)
c.madgrad(s, momentum=0.5, weight_decay=0.1)
c.dog()
c.dog(0.5, init_step=("distance", 0.1), weight_decay=0.1)
c.dog(init_step=("learning_rate", 0.01))
c.dowg()
c.dowg(init_estim_sq_dist=0.5, weight_decay=0.1, mask=kernels)
c.cocob()
c.prodigy()
c.prodigy(s, weight_decay=0.1, estim_lr0=1e-2, safeguard_warmup=True)
c.dadapt_adamw()
c.dadapt_adamw(s, estim_lr0=1e-2, weight_decay=0.1)
c.momo()
c.momo(0.1, weight_decay=0.1)
c.momo(s, adapt_lower_bound=True, lower_bound=3.0)
c.momo_adam()
c.momo_adam(0.5, weight_decay=0.1)
c.momo_adam(0.5, adapt_lower_bound=True, lower_bound=3.0)
c.schedule_free_sgd(0.1)
c.schedule_free_sgd(0.1, warmup_steps=4, weight_decay=0.1)
c.schedule_free_adamw(0.1)
c.schedule_free_adamw(0.1, warmup_steps=4, weight_decay=0.1, b1=0.8)
c.reduce_on_plateau(patience=2)
c.reduce_on_plateau(patience=1, cooldown=2, factor=0.5, accumulation_size=2, min_scale=0.3)
c.normalize()
c.muon(0.1)
c.muon(s, weight_decay=0.1, nesterov=False, ns_steps=3)
c.muon(0.1, adaptive=True, adam_learning_rate=0.01)
c.muon(0.1, preconditioning="schatten", consistent_rms=0.2)
c.muon(0.1, preconditioning="spectral", ns_coeffs="dion")
c.muon(0.1, preconditioning="aol")
c.sophia(0.1, hessian_diagonal_fn=o.stateless(lambda u, p: u), gamma=0.5, update_interval=3)
c.mechanize(o.sgd(1.0))
c.mechanize(o.adam(1.0), weight_decay=0.1, s_init=1e-3, num_betas=3)
c.mechanize(o.sgd(s, momentum=0.9), s_init=0.1)
c.galore(0.1, rank=2)
c.galore(s, rank=1, update_proj_gap=3, scale=0.5, weight_decay=0.1, mask=kernels)
c.galore(0.1, rank=64, base_optimizer=o.scale_by_lion())
c.sam(o.sgd(0.1, momentum=0.9), o.chain(c.normalize(), o.sgd(0.05)))
c.sam(o.adam(0.1), o.sgd(0.05, momentum=0.9), sync_period=3, reset_state=False)
"""


@pytest.mark.parametrize("text", [line for line in ROWS.splitlines() if line])
def test_ten_steps_are_those_of_optax(text: str) -> None:
    names = lambda library: {"o": library, "c": library.contrib, "s": decreasing(library), "kernels": kernels}
    ours = run(optim, wnp.asarray, eval(text, names(optim)), np.float32, extra="sam" not in text)
    theirs = run(optax, jnp.asarray, eval(text, names(optax)), np.float32, extra="sam" not in text)
    # Differences of parameters have the rounding of parameters, not of what is left of them.
    assert_close(ours, theirs, 1e-4, floor=1e-2)


def test_hutchinson_estimates() -> None:
    """The same key, the same signs: the estimates and the steps that sophia makes of them."""
    start = {"a": np.array([[0.5, -1.0], [2.0, 0.3]], np.float32), "b": np.array([1.0, -0.5, 0.25], np.float32)}
    results = []
    for lib, library, xnp in ((weft, optim, wnp), (jax, optax, jnp)):
        loss = lambda p, xnp=xnp: xnp.sum(p["a"] ** 4) * xnp.sum(p["b"] ** 2) + xnp.sum(xnp.sin(p["a"][0]) * p["b"][:2])
        estimator = library.contrib.hutchinson_estimator_diag_hessian(lib.random.PRNGKey(3))
        params = lib.tree.map(xnp.asarray, start)
        state, found = estimator.init(params), []
        for _ in range(3):
            estimate, state = estimator.update(params, state, params, obj_fn=loss)
            found.append(lib.tree.map(np.asarray, estimate))
        optimizer = library.contrib.sophia(0.1, hessian_diagonal_fn=estimator, update_interval=2)
        state = optimizer.init(params)
        for _ in range(4):
            updates, state = optimizer.update(lib.grad(loss)(params), state, params, obj_fn=loss)
            params = library.apply_updates(params, updates)
        results.append((found, lib.tree.map(np.asarray, params)))
    assert_close(*results, 1e-4)


def test_schedule_free_average() -> None:
    results = []
    for library, xnp in ((optim, wnp), (optax, jnp)):
        optimizer = library.contrib.schedule_free_sgd(0.1)
        params = xnp.arange(4.0)
        state = optimizer.init(params)
        for _ in range(5):
            updates, state = optimizer.update(params, state, params)
            params = library.apply_updates(params, updates)
        results.append(np.asarray(library.contrib.schedule_free_eval_params(state, params)))
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_private_gradients() -> None:
    rng = np.random.default_rng(0)
    grads = {"w": rng.normal(size=(6, 3)).astype(np.float32), "b": 4 * rng.normal(size=(6, 2, 2)).astype(np.float32)}
    results = []
    for lib, library, xnp in ((weft, optim, wnp), (jax, optax, jnp)):
        optimizer = library.contrib.dpsgd(0.1, l2_norm_clip=1.0, noise_multiplier=0.0, seed=0, momentum=0.9)
        state = optimizer.init({"w": xnp.ones(3), "b": xnp.ones((2, 2))})
        for _ in range(2):
            updates, state = optimizer.update(lib.tree.map(xnp.asarray, grads), state)
        results.append(lib.tree.map(np.asarray, updates))
    assert_close(*results, 1e-5)
    quiet = optim.contrib.differentially_private_aggregate(1.0, 0.0, seed=0)
    loud = optim.contrib.differentially_private_aggregate(1.0, 100.0, seed=0)
    both = [t.update(weft.tree.map(wnp.asarray, grads), t.init(None))[0] for t in (quiet, loud)]
    deviation: Any = np.std(np.asarray(both[1]["b"] - both[0]["b"]))
    assert 2 < deviation < 60


def test_complex_numbers_as_pairs() -> None:
    values = np.array([1 + 2j, -3 + 0.5j], np.complex64)
    results = []
    for library, xnp in ((optim, wnp), (optax, jnp)):
        optimizer = library.contrib.split_real_and_imaginary(library.adam(0.1))
        params = {"z": xnp.asarray(values), "x": xnp.ones(2)}
        state = optimizer.init(params)
        for _ in range(3):
            updates, state = optimizer.update(params, state, params)
        results.append(np.asarray(updates["z"]))
    np.testing.assert_allclose(*results, rtol=1e-5)
