"""Projections, trees, norms, line searches, lookahead, injected numbers and microbatches beside Optax."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
import weft.numpy as wnp
import weft.optim as optim
from tests.peer.compare import assert_same

optax = pytest.importorskip("optax")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

RNG = np.random.default_rng(3)
NAMES = {
    "x": {"a": RNG.normal(size=(3, 4)).astype(np.float32), "b": [RNG.normal(size=4).astype(np.float32)]},
    "y": {"a": RNG.normal(size=(3, 4)).astype(np.float32), "b": [RNG.normal(size=4).astype(np.float32)]},
    "v": (2 * RNG.normal(size=7)).astype(np.float32),
    "c": {"z": (RNG.normal(size=3) + 1j * RNG.normal(size=3)).astype(np.complex64)},
    "m": RNG.normal(size=(4, 3)).astype(np.float32),
    "spd": (lambda a: a @ a.T + np.eye(5))(RNG.normal(size=(5, 5))).astype(np.float32),
    "k": RNG.normal(size=(3, 3, 2, 4)).astype(np.float32),
    "e": [RNG.normal(size=(5, 3)).astype(np.float32), 3 * RNG.normal(size=(5, 2, 2)).astype(np.float32)],
    "f": RNG.normal(size=4).astype(np.float32),
}

ROWS = """
o.projections.projection_simplex(v)
o.projections.projection_simplex(x, 2.5)
o.projections.projection_l1_ball(x, 1.5)
o.projections.projection_l1_ball(x, 100.0)
o.projections.projection_l1_sphere(x, 2.0)
o.projections.projection_l2_ball(x, 0.5)
o.projections.projection_l2_ball(x, 100.0)
o.projections.projection_l2_sphere(x, 2.0)
o.projections.projection_linf_ball(x, 0.5)
o.projections.projection_box(v, -0.2, 0.4)
o.projections.projection_hypercube(v, 0.7)
o.projections.projection_non_negative(x)
o.projections.projection_vector(x, y)
o.projections.projection_hyperplane(x, y, 0.3)
o.projections.projection_halfspace(x, y, -5.0)
o.projections.projection_halfspace(x, y, 50.0)
o.tree.add(x, y, x)
o.tree.sub(x, y)
o.tree.mul(x, y)
o.tree.div(x, y)
o.tree.scale(0.5, x)
o.tree.add_scale(x, 0.5, y)
o.tree.vdot(x, y)
o.tree.vdot(c, c)
o.tree.sum(x)
o.tree.max(x)
o.tree.min(x)
o.tree.norm(x)
o.tree.norm(x, ord=1)
o.tree.norm(x, ord="inf", squared=True)
o.tree.norm(c, squared=True)
o.tree.clip(x, -0.1, 0.2)
o.tree.cast(x, "bfloat16")
o.tree.full_like(x, 3.0)
o.tree.where(True, x, y)
o.tree.batch_shape(x, (2,))
o.tree.update_moment(x, y, 0.9, 2)
o.tree.update_moment_per_elem_norm(x, y, 0.9, 2)
o.tree.update_infinity_moment(x, y, 0.9, 1e-3)
o.tree.bias_correction(x, 0.9, 3)
o.safe_norm(v, 1e-3)
o.safe_norm(v * 0, 1e-3)
o.safe_norm(m, 1e-3, axis=0)
o.safe_root_mean_squares(v, 1e-3)
o.global_norm(x)
o.incremental_update(x, y, 0.1)
o.transforms.unitwise_norm(m)
o.transforms.unitwise_norm(k)
o.per_example_global_norm_clip(e, 1.0)
o.per_example_layer_norm_clip(e, 1.0)
o.per_example_layer_norm_clip(e, 1.0, uniform=False)
o.power_iteration(spd, error_tolerance=1e-9, num_iters=300)[0]
o.matrix_inverse_pth_root(spd, 4)[0]
o.nnls(m, f, 500)
o.scale_gradient(v, 0.5)
"""


@pytest.mark.parametrize("text", [line for line in ROWS.splitlines() if line])
def test_functions(text: str) -> None:
    names = [name for name in NAMES if name in compile(text, text, "eval").co_names]
    function = lambda library: eval(f"lambda {', '.join(names)}: {text}", {"o": library})
    ours = weft.tree.map(wnp.asarray, [NAMES[name] for name in names])
    theirs = jax.tree.map(jnp.asarray, [NAMES[name] for name in names])
    rtol = 1e-3 if "root" in text or "power" in text or "nnls" in text else 1e-5
    assert_same(function(optim)(*ours), function(optax)(*theirs), rtol, weak=False)
    assert_same(weft.jit(function(optim))(*ours), function(optax)(*theirs), rtol, weak=False)


def rosenbrock(xnp: Any) -> Any:
    return lambda x: xnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def minimize(lib: Any, library: Any, xnp: Any, make: Any, steps: int) -> tuple[Any, Any]:
    """Return the values along the way and the last state."""
    loss = rosenbrock(xnp)
    optimizer = make(library)
    params = xnp.zeros(4)
    value_and_grad = library.value_and_grad_from_state(loss)

    @lib.jit
    def step(params: Any, state: Any) -> Any:
        value, grad = value_and_grad(params, state=state)
        updates, state = optimizer.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        return library.apply_updates(params, updates), state, value

    state, values = optimizer.init(params), []
    for _ in range(steps):
        params, state, value = step(params, state)
        values.append(float(value))
    return values, params


@pytest.mark.parametrize("scale", [True, False])
def test_lbfgs_reaches_the_minimum_in_as_few_steps(scale: bool) -> None:
    make = lambda library: library.lbfgs(scale_init_precond=scale)
    ours, params = minimize(weft, optim, wnp, make, 40)
    theirs, _ = minimize(jax, optax, jnp, make, 40)
    assert ours[0] == theirs[0] and all(b <= a * (1 + 1e-5) + 1e-9 for a, b in itertools.pairwise(ours))
    np.testing.assert_allclose(params, np.ones(4), atol=1e-2)
    first = lambda values: next(i for i, value in enumerate(values) if value < 1e-5)
    assert first(ours) <= first(theirs) * 1.3 + 2, (ours, theirs)


def test_lbfgs_directions_without_a_line_search() -> None:
    rng = np.random.default_rng(0)
    params = [rng.normal(size=5).astype(np.float32) for _ in range(8)]
    grads = [p * np.arange(1, 6, dtype=np.float32) for p in params]
    for kwargs in ({}, {"memory_size": 3}, {"scale_init_precond": False}):
        ours, theirs = optim.scale_by_lbfgs(**kwargs), optax.scale_by_lbfgs(**kwargs)
        our_state, their_state = ours.init(wnp.zeros(5)), theirs.init(jnp.zeros(5))
        for p, g in zip(params, grads, strict=True):
            mine, our_state = weft.jit(ours.update)(wnp.asarray(g), our_state, wnp.asarray(p))
            other, their_state = theirs.update(jnp.asarray(g), their_state, jnp.asarray(p))
            np.testing.assert_allclose(mine, other, rtol=2e-3, atol=1e-4)


def test_backtracking_takes_the_same_steps() -> None:
    make = lambda library: library.chain(
        library.sgd(1.0), library.scale_by_backtracking_linesearch(max_backtracking_steps=30, store_grad=True)
    )
    ours, _ = minimize(weft, optim, wnp, make, 15)
    theirs, _ = minimize(jax, optax, jnp, make, 15)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)


@pytest.mark.parametrize("reset", [True, False])
def test_lookahead(reset: bool) -> None:
    results = []
    for library, xnp in ((optim, wnp), (optax, jnp)):
        optimizer = library.lookahead(library.adam(0.1), 3, 0.5, reset_state=reset)
        params = library.LookaheadParams.init_synced(xnp.arange(4.0))
        state = optimizer.init(params)
        for i in range(7):
            updates, state = optimizer.update(xnp.cos(params.fast + i), state, params)
            params = library.apply_updates(params, updates)
        results.append((np.asarray(params.fast), np.asarray(params.slow), int(state.steps_since_sync)))
    for mine, other in zip(*results, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_injected_numbers_can_be_set() -> None:
    seen = []
    for library, xnp in ((optim, wnp), (optax, jnp)):
        optimizer = library.inject_hyperparams(library.sgd)(learning_rate=0.1)
        state = optimizer.init(xnp.ones(2))
        first, state = optimizer.update(xnp.ones(2), state)
        state.hyperparams["learning_rate"] = 0.5
        second, state = optimizer.update(xnp.ones(2), state)
        seen.append(np.stack([np.asarray(first), np.asarray(second)]))
    np.testing.assert_allclose(*seen, rtol=1e-6)


@pytest.mark.parametrize("kind", ["SUM", "MEAN", "RUNNING_MEAN", "CONCAT"])
def test_microbatches(kind: str) -> None:
    data = np.arange(24.0, dtype=np.float32).reshape(8, 3)
    results = []
    for library, xnp in ((optim, wnp), (optax, jnp)):
        accumulator = library.microbatching.AccumulationType[kind]
        whole = library.microbatch(lambda x, a: a * x**2, 0, 2, accumulator)(xnp.asarray(data), 2.0)
        mapped = library.microbatching.micro_vmap(
            lambda x, a: x.sum() * a, (0, None), microbatch_size=4, accumulator=accumulator
        )(xnp.asarray(data), 3.0)
        grads, aux = library.microbatching.micro_grad(
            lambda w, x: ((x @ w) ** 2).mean(), accumulator=accumulator, microbatch_size=2, metrics_fn=xnp.linalg.norm
        )(xnp.ones(3), xnp.asarray(data))
        results.append([np.asarray(r) for r in (whole, mapped, grads, aux.values, aux.metrics)])
    for mine, other in zip(*results, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_second_derivatives_and_assignment() -> None:
    inputs, targets = np.arange(6.0, dtype=np.float32).reshape(3, 2), np.ones(3, np.float32)
    for name in ("hvp", "hessian_diag", "fisher_diag"):
        results = []
        for library, xnp in ((optim, wnp), (optax, jnp)):
            loss = lambda p, i, t, xnp=xnp: xnp.sum(xnp.tanh(0.1 * i @ p["w"] - t) ** 2)
            extra = (xnp.ones(2),) if name == "hvp" else ()
            function = getattr(library.second_order, name)
            result = function(loss, *extra, {"w": xnp.ones(2)}, xnp.asarray(inputs), xnp.asarray(targets))
            results.append(np.asarray(result["w"] if name == "hvp" else result))
        np.testing.assert_allclose(*results, rtol=1e-4)
