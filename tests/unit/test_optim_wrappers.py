"""weft.optim: dtypes, complex parameters, donation, states from shapes, and wrappers around all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import optim
from weft.errors import ArgumentTypeError

PARAMS = {"w": np.ones((2, 3), np.float32), "b": np.full(3, 0.5, np.float32)}


def params(dtype: Any = np.float32) -> Any:
    return weft.tree.map(lambda p: wnp.asarray(p, dtype), PARAMS)


def kinds(tree: Any) -> Any:
    return weft.tree.map(lambda leaf: (leaf.dtype, leaf.shape), tree)


OPTIMIZERS = {
    "adafactor": lambda: optim.adafactor(0.1, min_dim_size_to_factor=2),
    "adan": lambda: optim.adan(0.1),
    "amsgrad": lambda: optim.amsgrad(0.1),
    "novograd": lambda: optim.novograd(0.1),
    "lbfgs": lambda: optim.lbfgs(0.1, linesearch=None),
    "yogi": lambda: optim.yogi(0.1),
    "cocob": optim.contrib.cocob,
    "dadapt_adamw": optim.contrib.dadapt_adamw,
    "dog": lambda: optim.contrib.dog(init_step=("distance", 1e-3)),
    "dowg": optim.contrib.dowg,
    "madgrad": lambda: optim.contrib.madgrad(0.1),
    "mechanize": lambda: optim.contrib.mechanize(optim.sgd(1.0)),
    "prodigy": optim.contrib.prodigy,
    "schedule_free": lambda: optim.contrib.schedule_free_sgd(0.1),
    "MultiSteps": lambda: optim.MultiSteps(optim.adam(0.1), 2).gradient_transformation(),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_new_state_can_be_donated_and_comes_from_shapes_alone(name: str) -> None:
    optimizer = OPTIMIZERS[name]()
    start = params()
    state = optimizer.init(start)
    shapes = weft.tree.map(lambda p: weft.ShapeDtypeStruct(p.shape, p.dtype), start)
    assert kinds(optimizer.init(shapes)) == kinds(state)
    ids = [id(leaf) for leaf in weft.tree.leaves((start, state))]
    assert len(set(ids)) == len(ids)  # an array can be donated only once
    before = kinds(state)
    updates, state = optimizer.update(start, state, start)
    assert kinds(state) == before
    assert kinds(updates) == kinds(start)


def test_shared_arrays_of_a_state_are_donated() -> None:
    optimizer = optim.contrib.schedule_free_sgd(0.1)
    start = params()
    step = weft.jit(lambda p, s: optimizer.update(p, s, p), donate_argnums=(0, 1))
    updates, _ = step(start, optimizer.init(start))
    np.testing.assert_allclose(updates["w"], -0.1, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_line_searches_keep_half_precision(dtype: str) -> None:
    value = lambda x: wnp.sum((x - 1) ** 2)
    backtracking = optim.chain(optim.sgd(1.0), optim.scale_by_backtracking_linesearch(5, store_grad=True))
    for solver in (optim.lbfgs(), backtracking):
        x = wnp.zeros(3, dtype)
        state = solver.init(x)
        value_now, gradient = weft.value_and_grad(value)(x)
        updates, after = solver.update(gradient, state, x, value=np.float32(value_now), grad=gradient, value_fn=value)
        assert kinds(after) == kinds(state) and updates.dtype == x.dtype
        assert value(x + updates) < value_now


def test_zoom_takes_the_last_good_step_of_a_flat_objective() -> None:
    flat = lambda x: wnp.exp(-1 / x**2)
    x = wnp.asarray(-0.2)
    search = optim.scale_by_zoom_linesearch(30)
    value, gradient = weft.value_and_grad(flat)(x)
    for rate in (wnp.asarray(1.0), 1.0):
        state = search.init(x)._replace(learning_rate=rate)
        _, after = search.update(-gradient, state, x, value=value, grad=gradient, value_fn=flat)
        assert float(after.learning_rate) == 2.0


@pytest.mark.parametrize("search", [optim.scale_by_zoom_linesearch(5), optim.scale_by_backtracking_linesearch(5)])
def test_line_searches_refuse_unused_arguments(search: Any) -> None:
    x = wnp.ones(2)
    with pytest.raises(ArgumentTypeError, match="does not take: typo"):
        search.update(-x, search.init(x), x, value=2.0, grad=x, value_fn=lambda p: p.sum(), typo=1)


def test_lbfgs_of_complex_parameters_converges() -> None:
    target = np.array([1 + 2j, -1 + 0.5j], np.complex64)
    value = lambda z: wnp.sum(wnp.array([1.0, 10.0]) * wnp.abs(z - target) ** 2)
    solver = optim.lbfgs()
    z = wnp.zeros(2, np.complex64)
    state = solver.init(z)

    @weft.jit
    def step(z: Any, state: Any) -> Any:
        value_now, gradient = weft.value_and_grad(value)(z)
        gradient = gradient.conj()
        updates, state = solver.update(gradient, state, z, value=value_now, grad=gradient, value_fn=value)
        return optim.apply_updates(z, updates), state

    for _ in range(12):
        z, state = step(z, state)
    np.testing.assert_allclose(z, target, atol=1e-3)


def test_muon_of_complex_parameters_is_nearly_unitary() -> None:
    w = wnp.array([[1 + 2j, 0.5], [-1 + 1j, 1 - 3j]], np.complex64)
    transform = optim.contrib.scale_by_muon(ns_steps=8)
    updates, _ = transform.update(w, transform.init(w), w)
    assert np.isfinite(updates).all()
    np.testing.assert_allclose(np.linalg.svd(updates, compute_uv=False), [1, 1], atol=0.35)


def test_multi_steps_accumulates_complex_gradients() -> None:
    optimizer = optim.MultiSteps(optim.sgd(1.0), 2)
    z = wnp.zeros(2, np.complex64)
    state = optimizer.init(z)
    for gradient in (np.array([1 + 2j, 0], np.complex64), np.array([3 + 4j, 2j], np.complex64)):
        updates, state = optimizer.update(wnp.asarray(gradient), state, z)
    np.testing.assert_allclose(updates, [-2 - 3j, -1j])


def test_multi_steps_of_wider_gradients() -> None:
    optimizer = optim.MultiSteps(optim.adam(0.1), 2)
    start = params(wnp.bfloat16)
    state = optimizer.init(start)
    before = kinds(state)
    for _ in range(2):
        updates, state = optimizer.update(params(np.float32), state, start)
    assert kinds(state) == before
    np.testing.assert_allclose(updates["b"], -0.1, rtol=1e-2)


def test_map_params_goes_through_wrappers() -> None:
    start = params()
    chosen = {"w": "x", "b": "y"}
    wrappers = {
        "masked": optim.masked(optim.adam(0.1), {"w": True, "b": False}),
        "partition": optim.multi_transform({"x": optim.adam(0.1), "y": optim.sgd(0.1, 0.9)}, chosen),
        "muon": optim.contrib.muon(0.1),
        "lbfgs": optim.lbfgs(),
    }
    for name, optimizer in wrappers.items():
        state = optimizer.init(start)
        mapped = optim.tree_map_params(optimizer, lambda v: v + 1, state, transform_non_params=lambda v: v)
        assert weft.tree.structure(mapped) == weft.tree.structure(state), name
        found = optim.tree.get_all_with_path(mapped, "mu") + optim.tree.get_all_with_path(mapped, "updates")
        assert found and all((leaf == 1).all() for _, mu in found for leaf in weft.tree.leaves(mu)), name
    both = optim.LookaheadParams.init_synced(start)
    ahead = optim.lookahead(optim.adam(0.1), 2, 0.5)
    mapped = optim.tree_map_params(ahead, lambda v: v + 1, ahead.init(both))
    np.testing.assert_allclose(optim.tree.get(mapped, "mu")["b"], 1.0)


def test_masks_may_be_modules_that_can_be_called() -> None:
    class Scale:
        def __init__(self, w: Any):
            self.w = w

        def __call__(self, x: Any) -> Any:
            return self.w * x

    weft.tree_util.register_pytree_node(Scale, lambda m: ((m.w,), None), lambda _, children: Scale(*children))
    module = Scale(wnp.ones(3))
    optimizer = optim.masked(optim.sgd(0.1), Scale(False))
    updates, _ = optimizer.update(module, optimizer.init(module))
    np.testing.assert_array_equal(updates.w, module.w)


def test_muon_spreads_dimension_numbers_over_subtrees() -> None:
    dims = optim.contrib.MuonDimensionNumbers()
    start = {"first": params(), "second": {"u": wnp.ones((2, 2)), "v": wnp.ones((2, 2))}}
    optimizer = optim.contrib.muon(0.1, muon_weight_dimension_numbers={"first": None, "second": dims})
    updates, _ = optimizer.update(start, optimizer.init(start), start)
    assert kinds(updates) == kinds(start)


def test_injected_seeds_are_those_of_the_optimizer() -> None:
    start = params()
    plain, injected = optim.noisy_sgd(0.1, key=3), optim.inject_hyperparams(optim.noisy_sgd)(0.1, key=3)
    want, _ = plain.update(start, plain.init(start), start)
    got, _ = weft.jit(injected.update)(start, injected.init(start), start)
    np.testing.assert_allclose(got["w"], want["w"], rtol=1e-6)


def test_missing_gradients_stand_for_subtrees() -> None:
    decay = optim.add_decayed_weights(0.1)
    assert decay.update(None, decay.init(None), params())[0] is None


def test_per_example_clipping_of_integers_and_zeros() -> None:
    gradients = [wnp.array([[3.0, 4.0], [0.0, 0.0]]), wnp.array([[0], [0]])]
    sums, clipped = optim.per_example_global_norm_clip(gradients, 1.0)
    np.testing.assert_allclose(sums[0], [0.6, 0.8], rtol=1e-6)
    assert int(clipped) == 1
    whole = optim.per_example_global_norm_clip([wnp.array([[3], [5]])], 2.0)[0][0]
    np.testing.assert_allclose(whole, [4.0], rtol=1e-6)
    np.testing.assert_array_equal(optim.per_example_global_norm_clip(gradients, 0.0)[0][0], [0.0, 0.0])


def test_adaptive_clipping_of_kernels_in_three_dimensions() -> None:
    kernel = wnp.ones((2, 2, 2, 3, 4))
    clip = optim.adaptive_grad_clip(0.1)
    updates, _ = clip.update(kernel, clip.init(kernel), kernel)
    np.testing.assert_allclose(updates, 0.1, rtol=1e-5)


def test_schedules_of_more_steps_than_an_int32() -> None:
    cosine = weft.jit(optim.cosine_decay_schedule(1000.0, 10**10))
    np.testing.assert_allclose(cosine(10**9), 975.52826, rtol=1e-6)
    np.testing.assert_allclose(optim.linear_schedule(1.0, 0.0, 10**10)(5 * 10**9), 0.5, rtol=1e-6)


def test_least_squares_in_half_precision() -> None:
    x = optim.nnls(wnp.ones((3, 2), wnp.bfloat16), wnp.ones(3, wnp.bfloat16), iters=30)
    assert x.dtype == wnp.bfloat16
    np.testing.assert_allclose(x.astype(np.float32).sum(), 1.0, rtol=2e-2)
    np.testing.assert_array_equal(optim.nnls(wnp.zeros((2, 2)), wnp.ones(2), iters=3), [0.0, 0.0])


def test_micro_vmap_maps_keyword_arguments() -> None:
    mapped = optim.microbatching.micro_vmap(lambda x, *, y: wnp.sum(x + y), microbatch_size=2)
    np.testing.assert_allclose(mapped(wnp.ones((4, 2)), y=wnp.arange(4.0)), [2.0, 4.0, 6.0, 8.0])


def test_tree_helpers() -> None:
    assert optim.tree.dtype({}) == np.float32
    np.testing.assert_allclose(optim.tree.add_scale(3, 0.1, 2), 3.2)
    state = {"a": {"rate": 1.0}, "rate": 2.0}
    assert [value for _, value in optim.tree.get_all_with_path(state, "rate")] == [2.0, 1.0]


def test_factories_return_states_of_one_class() -> None:
    optimizer = optim.inject_hyperparams(optim.scale_by_optimistic_gradient)(beta=0.5)
    start = params()
    state = optimizer.init(start)
    step = lambda s: optimizer.update(start, s, start)[1]
    weft.jit(lambda s: weft.lax.cond(True, step, lambda s: s, s))(state)


def test_momo_resets_its_lower_bound_to_half_the_cap() -> None:
    x = wnp.array([1.0, 2.0])
    optimizer = optim.contrib.momo(adapt_lower_bound=True, lower_bound=0.0)
    state = optimizer.init(x)._replace(lb=wnp.asarray(5.0))
    # The cap is value - g.p + m.p = 1, so the bound is 1/2, and the step (1 - 1/2) / |m|^2.
    updates, _ = optimizer.update(x, state, x, value=1.0)
    np.testing.assert_allclose(updates, -0.1 * x, rtol=1e-5)
