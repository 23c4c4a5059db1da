"""weft.optim: optimizers against their published definitions in NumPy, laws of chains, masks and wrappers, errors."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy

import weft
import weft.numpy as wnp
from weft import optim
from weft.errors import ShapeMismatchError, TreeMismatchError

PARAMS = {"w": np.array([[1.0, -2.0], [0.5, 3.0]], np.float32), "b": np.array([0.1, -0.2], np.float32)}


def gradients(steps: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [{name: rng.normal(size=p.shape).astype(np.float32) for name, p in PARAMS.items()} for _ in range(steps)]


def train(optimizer: Any, steps: int = 5) -> Any:
    params = weft.tree.map(wnp.asarray, PARAMS)
    state = optimizer.init(params)
    for gradient in gradients(steps):
        updates, state = optimizer.update(weft.tree.map(wnp.asarray, gradient), state, params)
        params = optim.apply_updates(params, updates)
    return params


def expected(step: Any, steps: int = 5) -> Any:
    """Parameters after steps of `step(p, g, memory, t)`, in float64, leaf by leaf."""
    result = {}
    for name, p in PARAMS.items():
        p, memory = p.astype(np.float64), {}
        for t, gradient in enumerate(gradients(steps), 1):
            p = step(p, gradient[name].astype(np.float64), memory, t)
        result[name] = p
    return result


def adam_step(decay: float = 0.0, nesterov: bool = False) -> Any:
    def step(p, g, memory, t):
        m = memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
        v = memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * g * g
        mean = m / (1 - 0.9**t)
        if nesterov:
            mean = 0.9 * m / (1 - 0.9 ** (t + 1)) + 0.1 * g / (1 - 0.9**t)
        return p - 0.1 * (mean / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + decay * p)

    return step


def momentum_step(p, g, memory, t):
    trace = memory["t"] = g + 0.9 * memory.get("t", 0)
    return p - 0.1 * trace


def adagrad_step(p, g, memory, t):
    total = memory["s"] = memory.get("s", 0.1) + g * g
    return p - 0.1 * g / np.sqrt(total + 1e-7)


def rmsprop_step(p, g, memory, t):
    v = memory["v"] = 0.9 * memory.get("v", 0) + 0.1 * g * g
    return p - 0.1 * g / np.sqrt(v + 1e-8)


def lion_step(p, g, memory, t):
    m = memory.get("m", np.zeros_like(g))
    memory["m"] = 0.99 * m + 0.01 * g
    return p - 0.1 * (np.sign(0.9 * m + 0.1 * g) + 0.01 * p)


DEFINITIONS = {
    "sgd": (lambda: optim.sgd(0.1), lambda p, g, memory, t: p - 0.1 * g),
    "momentum": (lambda: optim.sgd(0.1, momentum=0.9), momentum_step),
    "adam": (lambda: optim.adam(0.1), adam_step()),
    "nadam": (lambda: optim.nadam(0.1), adam_step(nesterov=True)),
    "adamw": (lambda: optim.adamw(0.1, weight_decay=0.01), adam_step(decay=0.01)),
    "adagrad": (lambda: optim.adagrad(0.1), adagrad_step),
    "rmsprop": (lambda: optim.rmsprop(0.1), rmsprop_step),
    "lion": (lambda: optim.lion(0.1, weight_decay=0.01), lion_step),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_published_definitions(name: str) -> None:
    make, step = DEFINITIONS[name]
    got, want = train(make()), expected(step)
    for key in PARAMS:
        np.testing.assert_allclose(got[key], want[key], rtol=1e-4, atol=1e-5)


OPTIMIZERS = """
adabelief adadelta adafactor adagrad adam adamax adamaxw adamw adan amsgrad fromage lamb lars lion nadam nadamw
noisy_sgd novograd optimistic_adam optimistic_adam_v2 optimistic_gradient_descent radam rmsprop rprop sgd
sign_sgd signum sm3 yogi
"""


@pytest.mark.parametrize("name", OPTIMIZERS.split())
def test_every_optimizer_decreases_the_loss_and_preserves_types(name: str) -> None:
    """A quadratic gets smaller; states and parameters keep structure, shape and dtype, so that steps can be scanned."""
    factory = getattr(optim, name)
    rate = 0.5 if name in ("adadelta", "lars") else 0.05
    optimizer = factory(rate)
    loss = lambda p: sum(wnp.sum(leaf.astype(wnp.float32) ** 2) for leaf in weft.tree.leaves(p))
    for dtype in (np.float32, ml_dtypes.bfloat16):
        params = {"w": wnp.asarray(np.array([[1.0, -2.0], [0.5, 3.0]], dtype)), "b": wnp.asarray(np.ones(2, dtype))}

        @weft.jit
        def run(params: Any) -> Any:
            def step(carry: Any, _: Any) -> Any:
                params, state = carry
                updates, state = optimizer.update(weft.grad(loss)(params), state, params)
                return (optim.apply_updates(params, updates), state), None

            (params, _), _ = weft.lax.scan(step, (params, optimizer.init(params)), None, length=20)
            return params

        final = run(params)
        assert loss(final) < loss(params)
        assert all(leaf.dtype == dtype for leaf in weft.tree.leaves(final))


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS.split() if name != "noisy_sgd"])
def test_half_precision_is_that_of_single_rounded(name: str) -> None:
    """The first steps from values that both have: bfloat16 keeps 8 bits, and a step rounds a few times."""
    if name in ("sign_sgd", "signum", "lion", "rprop"):
        bits = 7  # signs are exact: only the rate is rounded
    else:
        bits = 5
    rounded = lambda values: np.asarray(np.asarray(values, np.float32).astype(ml_dtypes.bfloat16))
    start, derivative = rounded([[1.0, -2.0], [0.5, 3.0]]), rounded([[0.25, 1.5], [-0.75, 0.125]])
    updates = []
    for dtype in (np.float32, ml_dtypes.bfloat16):
        optimizer = getattr(optim, name)(0.0625)
        params, gradient = ({"w": wnp.asarray(value.astype(dtype))} for value in (start, derivative))
        state, result = optimizer.init(params), []
        for _ in range(2):
            step, state = optimizer.update(gradient, state, params)
            assert step["w"].dtype == dtype
            result.append(np.asarray(step["w"]).astype(np.float32))
        updates.append(result)
    np.testing.assert_allclose(updates[1], updates[0], rtol=2.0**-bits, atol=2.0**-9 * np.abs(updates[0]).max())


def test_monitor_keeps_what_it_measures() -> None:
    """m_t = d m_{t-1} + (1 - d) x_t, divided by 1 - d^t; and the same numbers where steps are scanned."""
    norm = lambda updates: wnp.sqrt(wnp.sum(updates["w"] ** 2))
    large = lambda updates: norm(updates) > 2.0
    watch = optim.monitor(
        {
            "norm": norm,
            "mean": optim.measure_with_ema(norm, 0.75),
            "large": optim.measure_with_ema(large, 0.5, debias=False),
        }
    )
    rows = np.random.default_rng(2).normal(size=(6, 5)).astype(np.float32)
    norms = np.sqrt((rows**2).sum(1))
    mean = share = 0.0
    state = watch.init({"w": wnp.zeros(5)})
    first = state
    assert weft.tree.leaves(state.measurements) == [0, 0, 0]
    for i, row in enumerate(rows, 1):
        updates, state = watch.update({"w": wnp.asarray(row)}, state)
        np.testing.assert_array_equal(updates["w"], row)
        mean, share = 0.75 * mean + 0.25 * norms[i - 1], 0.5 * share + 0.5 * (norms[i - 1] > 2)
        want = {"norm": norms[i - 1], "mean": mean / (1 - 0.75**i), "large": share}
        for name, value in want.items():
            np.testing.assert_allclose(optim.tree.get(state, name), value, rtol=1e-5)
    scanned = weft.lax.scan(lambda s, row: (watch.update({"w": row}, s)[1], None), first, wnp.asarray(rows))[0]
    weft.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), scanned, state)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_hutchinson_estimates_have_the_diagonal_as_mean(dtype: Any) -> None:
    """u * (H u) is h_ii + sum over j of u_i u_j h_ij: exact for a diagonal H, else right in the mean."""
    hessian = np.array([[2.0, 0.5, 0.0], [0.5, 3.0, -0.25], [0.0, -0.25, 4.0]], np.float32)
    params = {"x": wnp.asarray(np.ones(3, dtype))}
    for matrix in (np.diag(np.diag(hessian)), hessian):
        exact = wnp.asarray(matrix.astype(dtype))
        loss = lambda p, exact=exact: 0.5 * p["x"] @ exact @ p["x"]
        estimator = optim.contrib.hutchinson_estimator_diag_hessian(5)

        def step(state: Any, _: Any, estimator: Any = estimator, loss: Any = loss) -> Any:
            estimate, state = estimator.update(params, state, params, obj_fn=loss)
            return state, estimate["x"]

        found = np.asarray(weft.lax.scan(step, estimator.init(params), None, 400)[1]).astype(np.float32)
        off = np.abs(matrix - np.diag(np.diag(matrix))).sum(1)
        assert (np.abs(found - np.diag(hessian)) <= off + 0.02).all()
        assert (np.abs(found.mean(0) - np.diag(hessian)) <= 4 * off / 20 + 0.02).all()
        assert (found.std(0) > 0).tolist() == (off > 0).tolist()


def test_mechanize_finds_the_scale() -> None:
    """From a millionth to the size of the problem, whatever that is; in bfloat16 types stay."""
    for size in (0.01, 1.0, 100.0):
        target = size * np.array([1.0, -2.0, 3.0], np.float32)
        loss = lambda p, target=target: wnp.sum(wnp.abs(p["w"] - target))
        optimizer = optim.contrib.mechanize(optim.adam(1.0))

        def step(carry: Any, _: Any, optimizer: Any = optimizer, loss: Any = loss) -> Any:
            params, state = carry
            updates, state = optimizer.update(weft.grad(loss)(params), state, params)
            return (optim.apply_updates(params, updates), state), None

        params = {"w": wnp.zeros(3)}
        (params, _), _ = weft.lax.scan(step, (params, optimizer.init(params)), None, 600)
        assert loss(params) < 0.1 * loss({"w": wnp.zeros(3)})
    half = {"w": wnp.ones(3, wnp.bfloat16)}
    updates, state = optimizer.update(half, optimizer.init(half), half)
    assert updates["w"].dtype == wnp.bfloat16 and state.s.dtype == wnp.float32
    with pytest.raises(ValueError, match="num_betas=0"):
        optim.contrib.mechanize(optim.sgd(1.0), num_betas=0)


def test_galore_steps_stay_in_the_first_directions_of_the_gradient() -> None:
    rng = np.random.default_rng(4)
    params = {"w": wnp.zeros((6, 4)), "wide": wnp.zeros((3, 5)), "b": wnp.zeros(4), "k": wnp.zeros((2, 3, 4))}
    derivatives = {name: rng.normal(size=leaf.shape).astype(np.float32) for name, leaf in params.items()}
    plain = optim.contrib.scale_by_galore(rank=2, base_optimizer=optim.identity())
    state = plain.init(params)
    assert weft.tree.map(lambda leaf: leaf.shape, state.projector) == {
        "w": (6, 2),
        "wide": (5, 2),
        "b": (0, 0),
        "k": (0, 0),
    }
    updates, state = plain.update(derivatives, state)
    for name in ("w", "wide"):
        u, s, vt = np.linalg.svd(derivatives[name], full_matrices=False)
        np.testing.assert_allclose(updates[name], (u[:, :2] * s[:2]) @ vt[:2], atol=1e-5)
    for name in ("b", "k"):
        np.testing.assert_array_equal(updates[name], derivatives[name])
    # The directions are those of the first gradient, until they are due again.
    later = {name: rng.normal(size=leaf.shape).astype(np.float32) for name, leaf in params.items()}
    u = np.linalg.svd(derivatives["w"], full_matrices=False)[0][:, :2]
    np.testing.assert_allclose(plain.update(later, state)[0]["w"], u @ u.T @ later["w"], atol=1e-5)
    # A weight of three axes as a matrix, and the state that Adam has for it.
    numbers = {"w": None, "wide": None, "b": None, "k": optim.contrib.GaLoreDimensionNumbers((0, 2), 1)}
    shaped = optim.contrib.galore(0.1, rank=2, weight_dimension_numbers=numbers)
    state = shaped.init(params)
    assert optim.tree.get(state, "mu")["k"].shape == (2, 3)
    updates, _ = shaped.update(derivatives, state, params)
    flat = np.asarray(updates["k"]).transpose(0, 2, 1).reshape(8, 3)
    assert np.linalg.matrix_rank(flat, tol=1e-4) == 2
    for mistake in (optim.contrib.GaLoreDimensionNumbers(0, 0), optim.contrib.GaLoreDimensionNumbers(0, (1, 2))):
        with pytest.raises(ValueError, match="must make a matrix of each weight"):
            optim.contrib.scale_by_galore(weight_dimension_numbers=mistake).init({"w": wnp.zeros((2, 3, 4, 5))})
    with pytest.raises(ValueError, match="rank"):
        optim.contrib.scale_by_galore(rank=0)


def test_another_learning_rate_does_not_recompile() -> None:
    text = lambda rate: str(weft.make_jaxpr(optim.inject_hyperparams(optim.adam)(rate).update)(
        wnp.ones(3), optim.inject_hyperparams(optim.adam)(rate).init(wnp.ones(3))
    ))  # fmt: skip
    assert text(0.1) == text(0.2)
    assert "0.1" not in text(0.1).replace("0.1:", "")


def test_chain_is_associative() -> None:
    parts = [optim.clip_by_global_norm(0.5), optim.scale_by_adam(), optim.scale(-0.1)]
    left = train(optim.chain(optim.chain(*parts[:2]), parts[2]))
    right = train(optim.chain(parts[0], optim.chain(*parts[1:])))
    np.testing.assert_array_equal(left["w"], right["w"])


def test_partition_is_each_optimizer_on_its_own() -> None:
    together = train(optim.partition({"x": optim.adam(0.1), "y": optim.sgd(0.2)}, {"w": "x", "b": "y"}))
    np.testing.assert_array_equal(together["w"], train(optim.adam(0.1))["w"])
    np.testing.assert_array_equal(together["b"], train(optim.sgd(0.2))["b"])


def test_mask_leaves_the_rest_alone() -> None:
    frozen = train(optim.chain(optim.adam(0.1), optim.freeze({"w": True, "b": False})))
    np.testing.assert_array_equal(frozen["w"], PARAMS["w"])
    np.testing.assert_array_equal(frozen["b"], train(optim.adam(0.1))["b"])


def test_multi_steps_is_one_step_of_the_mean() -> None:
    steps = optim.MultiSteps(optim.sgd(0.1), 4)
    got = train(steps, 4)
    mean = {name: np.mean([g[name] for g in gradients(4)], axis=0) for name in PARAMS}
    np.testing.assert_allclose(got["w"], PARAMS["w"] - 0.1 * mean["w"], rtol=1e-5)
    state = steps.init(PARAMS)
    assert not steps.has_updated(state)


def test_apply_if_finite_skips_a_limited_number_of_times() -> None:
    optimizer = optim.apply_if_finite(optim.sgd(1.0), max_consecutive_errors=2)
    state, bad = optimizer.init(wnp.ones(2)), wnp.array([1.0, np.nan])
    for i in range(3):
        updates, state = optimizer.update(bad, state)
        assert state.notfinite_count == i + 1 and not state.last_finite
        assert np.isnan(updates).any() == (i == 2)
    updates, state = optimizer.update(wnp.ones(2), state)
    assert state.notfinite_count == 0 and state.total_notfinite == 3
    np.testing.assert_array_equal(updates, [-1.0, -1.0])


def test_skipped_gradients_have_no_effect() -> None:
    optimizer = optim.MultiSteps(optim.sgd(1.0), 2, should_skip_update_fn=optim.skip_not_finite)
    state = optimizer.init(wnp.zeros(1))
    for gradient in ([2.0], [np.nan], [4.0]):
        updates, state = optimizer.update(wnp.array(gradient), state)
    np.testing.assert_array_equal(updates, [-3.0])
    assert state.gradient_step == 1 and state.mini_step == 0


def test_missing_gradients_pass_through() -> None:
    params = {"w": wnp.ones(2), "b": wnp.ones(2)}
    grads = {"w": wnp.ones(2), "b": None}
    optimizer = optim.sgd(0.5, momentum=0.9)
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    new = optim.apply_updates(params, updates)
    np.testing.assert_array_equal(new["w"], [0.5, 0.5])
    np.testing.assert_array_equal(new["b"], [1.0, 1.0])


def test_counters_do_not_wrap() -> None:
    largest = np.iinfo(np.int32).max
    assert optim.safe_increment(wnp.asarray(largest, wnp.int32)) == largest
    assert optim.safe_increment(wnp.asarray(3, wnp.int32)) == 4
    with pytest.raises(ValueError, match="integers or floats"):
        optim.safe_increment(wnp.array(True))


def test_norm_has_a_derivative_at_zero() -> None:
    np.testing.assert_array_equal(weft.grad(lambda x: optim.safe_norm(x, 1e-6))(wnp.zeros(3)), np.zeros(3))
    np.testing.assert_array_equal(weft.grad(lambda x: optim.safe_root_mean_squares(x, 1e-6))(wnp.zeros(3)), np.zeros(3))


def test_state_can_be_read_and_set() -> None:
    optimizer = optim.chain(optim.clip(1.0), optim.inject_hyperparams(optim.adam)(learning_rate=0.1))
    state = optimizer.init(wnp.ones(3))
    assert optim.tree.get(state, "learning_rate") == np.float32(0.1)
    assert isinstance(optim.tree.get(state, "ScaleByAdamState"), optim.ScaleByAdamState)
    state = optim.tree.set(state, learning_rate=0.5)
    assert optim.tree.get(state, "learning_rate") == 0.5
    with pytest.raises(KeyError, match="times"):
        optim.tree.get(state, "count")
    with pytest.raises(KeyError, match="nowhere"):
        optim.tree.set(state, momentum=0.5)
    doubled = optim.tree_map_params(optim.adam(0.1), lambda x: x + 1, optim.adam(0.1).init(wnp.ones(3)))
    np.testing.assert_array_equal(doubled[0].mu, np.ones(3))
    assert doubled[0].count == 0


def test_lbfgs_agrees_with_scipy() -> None:
    loss = lambda x: wnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    optimizer = optim.lbfgs()
    params = wnp.zeros(3)
    state = optimizer.init(params)

    @weft.jit
    def step(params: Any, state: Any) -> Any:
        value, grad = optim.value_and_grad_from_state(loss)(params, state=state)
        updates, state = optimizer.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        return optim.apply_updates(params, updates), state

    for _ in range(40):
        params, state = step(params, state)
    np.testing.assert_allclose(params, np.ones(3), atol=2e-3)
    info = optim.tree.get(state, "info")
    assert info.num_linesearch_steps <= 20


def test_assignment_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    for shape in ((4, 4), (3, 6), (6, 3), (1, 5), (7, 7)):
        costs = rng.normal(size=shape).astype(np.float32)
        rows, columns = weft.jit(optim.assignment.hungarian_algorithm)(costs)
        want = scipy.optimize.linear_sum_assignment(costs)
        np.testing.assert_array_equal(np.stack([rows, columns]), np.stack(want))


def test_nnls_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(8, 4)).astype(np.float32), rng.normal(size=8).astype(np.float32)
    np.testing.assert_allclose(optim.nnls(a, b, 500), scipy.optimize.nnls(a, b)[0], atol=1e-4)


def test_perturbed_function_has_the_gradient_of_its_expectation() -> None:
    from_noise = optim.perturbations.make_perturbed_fun(
        lambda x: wnp.sum(wnp.sign(x)), num_samples=20000, sigma=1.0, noise=optim.perturbations.Normal()
    )
    x = wnp.array([0.3, -0.5])
    got = weft.grad(from_noise, argnums=1)(weft.random.key(0), x)
    # d/dx E sign(x + z) is twice the density of the normal distribution at x.
    want = 2 * np.exp(-(np.asarray(x) ** 2) / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(got, want, atol=0.05)


# -- errors


def test_missing_params_name_the_transformation() -> None:
    for optimizer, name in (
        (optim.adamw(0.1), "weight decay"),
        (optim.lamb(0.1), "add_decayed_weights|scale_by_trust_ratio"),
        (optim.chain(optim.scale_by_trust_ratio()), "scale_by_trust_ratio"),
        (optim.adafactor(0.1), "scale_by_factored_rms"),
        (optim.adaptive_grad_clip(0.1), "adaptive_grad_clip"),
        (optim.keep_params_nonnegative(), "keep_params_nonnegative"),
        (optim.scale_by_param_block_norm(), "scale_by_param_block_norm"),
        (optim.scale_by_lbfgs(), "scale_by_lbfgs"),
    ):
        with pytest.raises(ValueError, match=name) as caught:
            optimizer.update(wnp.ones(3), optimizer.init(wnp.ones(3)))
        assert "params" in str(caught.value) and "update(grads, state, params)" in str(caught.value)


def test_wrong_structure_names_the_path() -> None:
    optimizer = optim.adam(0.1)
    state = optimizer.init({"layer": {"w": wnp.ones(2), "b": wnp.ones(2)}})
    with pytest.raises(TreeMismatchError, match=r"scale_by_adam: state.mu") as caught:
        optimizer.update({"layer": {"w": wnp.ones(2)}}, state)
    assert "['layer']" in str(caught.value) and "'b'" in str(caught.value)
    with pytest.raises(TreeMismatchError, match="apply_updates"):
        optim.apply_updates({"w": wnp.ones(2)}, {"v": wnp.ones(2)})


def test_wrong_shape_names_the_path() -> None:
    optimizer = optim.adam(0.1)
    state = optimizer.init({"layer": {"w": wnp.ones((2, 3))}})
    with pytest.raises(ShapeMismatchError, match="scale_by_adam") as caught:
        optimizer.update({"layer": {"w": wnp.ones(3)}}, state)
    assert "updates['layer']['w'] of shape (3,)" in str(caught.value)
    with pytest.raises(ShapeMismatchError, match="apply_updates"):
        optim.apply_updates(wnp.ones(3), wnp.ones(1))


def test_other_mistakes() -> None:
    with pytest.raises(TypeError, match="argument 1 is"):
        optim.chain(optim.scale(1.0), 0.1)
    with pytest.raises(ValueError, match="must have 2 parts, got 1"):
        optim.chain(optim.scale(1.0), optim.clip(1.0)).update(wnp.ones(2), ((),))
    with pytest.raises(TypeError, match="the order is update"):
        optim.adam(0.1).update(PARAMS, PARAMS, optim.adam(0.1).init(PARAMS))
    with pytest.raises(ValueError, match=r"\['w'\] has the label 'c'"):
        optim.partition({"a": optim.sgd(1.0)}, {"w": "c", "b": "a"}).init(PARAMS)
    with pytest.raises(TypeError, match=r"tree of booleans.*\['w'\]"):
        optim.masked(optim.sgd(1.0), {"w": "yes", "b": True}).init(PARAMS)
    with pytest.raises(TreeMismatchError, match="no prefix"):
        optim.masked(optim.sgd(1.0), {"v": True}).init(PARAMS)
    with pytest.raises(TypeError, match="value_fn"):
        optim.lbfgs().update(wnp.ones(2), optim.lbfgs().init(wnp.ones(2)), wnp.ones(2))
    with pytest.raises(TypeError, match="needs value"):
        optim.polyak_sgd().update(wnp.ones(2), optim.polyak_sgd().init(wnp.ones(2)))
    with pytest.raises(TypeError, match="init_synced"):
        optim.lookahead(optim.sgd(0.1), 2, 0.5).init({"w": wnp.ones(2)})
    with pytest.raises(ValueError, match="does not take"):
        optim.inject_hyperparams(optim.adam, static_args="momentum")
    with pytest.raises(ValueError, match="different names"):
        optim.named_chain(("a", optim.scale(1.0)), ("a", optim.scale(2.0)))
    with pytest.raises(ValueError, match="at least 1"):
        optim.MultiSteps(optim.sgd(0.1), 0)
    with pytest.raises(ValueError, match="must divide"):
        optim.microbatching.reshape_batch_axis(wnp.ones(7), 2)
    with pytest.raises(ValueError, match="key or a seed"):
        optim.add_noise(0.1, 0.5)


def test_public_names_have_a_docstring() -> None:
    for name in optim.__all__:
        thing = getattr(optim, name)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            assert inspect.getdoc(thing), name


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
@pytest.mark.parametrize("search", [optim.scale_by_backtracking_linesearch, optim.scale_by_zoom_linesearch])
def test_the_state_of_a_line_search_keeps_its_types(search: Any, dtype: str) -> None:
    target = wnp.array([1.0, -2.0], dtype)
    loss = lambda z: wnp.sum(wnp.abs(z - target) ** 2)
    transform, params = search(8), wnp.array([0.5, 0.25], dtype)
    state = transform.init(params)
    grad = wnp.conj(weft.grad(loss)(params))
    updates, after = transform.update(-grad, state, params, value=loss(params), grad=grad, value_fn=loss)
    assert weft.tree.map(weft.typeof, after) == weft.tree.map(weft.typeof, state)
    assert after.learning_rate.dtype == np.dtype(dtype.replace("complex64", "float32"))
    assert loss(params + updates) < loss(params)
