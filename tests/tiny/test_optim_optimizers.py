"""weft.optim: optimizers against their published definitions in NumPy, laws of chains, masks and wrappers, errors."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import optimize

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
def test_every_optimizer_goes_downhill_and_keeps_types(name: str) -> None:
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


def test_another_learning_rate_is_the_same_program() -> None:
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


def test_apply_if_finite_skips_and_then_gives_up() -> None:
    optimizer = optim.apply_if_finite(optim.sgd(1.0), max_consecutive_errors=2)
    state, bad = optimizer.init(wnp.ones(2)), wnp.array([1.0, np.nan])
    for number in range(3):
        updates, state = optimizer.update(bad, state)
        assert state.notfinite_count == number + 1 and not state.last_finite
        assert np.isnan(updates).any() == (number == 2)
    updates, state = optimizer.update(wnp.ones(2), state)
    assert state.notfinite_count == 0 and state.total_notfinite == 3
    np.testing.assert_array_equal(updates, [-1.0, -1.0])


def test_skipped_gradients_count_for_nothing() -> None:
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
    with pytest.raises(TypeError, match="integers or floats"):
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
    with pytest.raises(KeyError, match="places"):
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
        want = optimize.linear_sum_assignment(costs)
        np.testing.assert_array_equal(np.stack([rows, columns]), np.stack(want))


def test_nnls_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(8, 4)).astype(np.float32), rng.normal(size=8).astype(np.float32)
    np.testing.assert_allclose(optim.nnls(a, b, 500), optimize.nnls(a, b)[0], atol=1e-4)


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
    with pytest.raises(ValueError, match="2 parts, and this one has 1"):
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
