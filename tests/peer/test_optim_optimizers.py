"""Every optimizer and transformation: ten steps on the same gradients, beside Optax, in several dtypes and shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
import weft.optim as optim
from tests.peer.compare import INPUTS  # noqa: F401  (sets up JAX's compilation cache before JAX is used)

STEPS = 10


optax = pytest.importorskip("optax")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what Optax renames keeps its old name here


def trees(dtype: Any, scalar: bool = True) -> tuple[Any, list[Any]]:
    """Parameters and ten gradients: a matrix, a vector, a scalar and a stack, nested."""
    rng = np.random.default_rng(0)
    shapes = {"dense": {"kernel": (4, 3), "bias": (3,)}, "scale": () if scalar else (2,), "conv": [(2, 3, 4)]}

    def draw() -> Any:
        return weft.tree.map(
            lambda shape: rng.normal(size=shape).astype(np.float32).astype(dtype),
            shapes,
            is_leaf=lambda node: isinstance(node, tuple),
        )

    return draw(), [draw() for _ in range(STEPS)]


def run(
    library: Any, asarray: Callable[[Any], Any], optimizer: Any, dtype: Any, scalar: bool = True, extra: bool = True
) -> Any:
    """Return the parameters after ten steps, and the updates of each."""
    params, gradients = trees(dtype, scalar)
    module = weft if library is optim else jax
    params = module.tree.map(asarray, params)
    state = optimizer.init(params)

    def step(gradient: Any, state: Any, params: Any, value: Any) -> Any:
        updates, state = library.with_extra_args_support(optimizer).update(
            gradient, state, params, **({"value": value} if extra else {})
        )
        return updates, state, library.apply_updates(params, updates)

    step = module.jit(step)
    history = []
    for i, gradient in enumerate(gradients):
        gradient = module.tree.map(asarray, gradient)
        updates, state, params = step(gradient, state, params, asarray(np.float32(i * 0.3 + 1)))
        history.append(updates)
    return module.tree.map(np.asarray, (history, params, state))


def assert_close(ours: Any, theirs: Any, rtol: float, same_dtype: bool = True, floor: float = 1e-6) -> None:
    mine, theirs_flat = weft.tree.leaves_with_path(ours), jax.tree.leaves(theirs)
    assert len(mine) == len(theirs_flat)
    for (path, left), right in zip(mine, theirs_flat, strict=True):
        where = weft.tree_util.keystr(path)
        if jax.dtypes.issubdtype(right.dtype, jax.dtypes.prng_key):
            continue
        assert left.dtype == right.dtype or not same_dtype, (where, left.dtype, right.dtype)
        assert left.shape == right.shape, (where, left.shape, right.shape)
        wide = right.astype(np.float64)
        scale = np.abs(wide[np.isfinite(wide)]).max(initial=floor)
        np.testing.assert_allclose(left.astype(np.float64), wide, rtol=rtol, atol=rtol * scale, err_msg=where)


def decreasing(library: Any) -> Any:
    return library.linear_schedule(0.1, 0.01, 8)


def kernels(tree: Any) -> Any:
    """Return a mask: matrices and stacks only."""
    return {"dense": {"kernel": True, "bias": False}, "scale": False, "conv": [True]}


# Text: the same line makes the optimizer on both sides; `o` is the library.
ROWS = """
o.sgd(0.1)
o.sgd(s, momentum=0.9)
o.sgd(0.1, momentum=0.9, nesterov=True)
o.sgd(0.1, momentum=0.9, accumulator_dtype=np.float32)
o.adam(0.1)
o.adam(s, b1=0.8, b2=0.9, eps=1e-3, eps_root=1e-3)
o.adam(0.1, mu_dtype=np.float32)
o.adam(0.1, nesterov=True)
o.nadam(0.1)
o.nadamw(0.1, weight_decay=0.1)
o.adamw(0.1)
o.adamw(s, weight_decay=0.1, mask=kernels)
o.adamw(0.1, weight_decay=s)
o.adamax(0.1)
o.adamaxw(0.1, weight_decay=0.1)
o.adamaxw(0.1, weight_decay=0.1, mask=kernels)
o.amsgrad(0.1)
o.amsgrad(0.1, bias_correction_mu=False, bias_correction_nu=False)
o.adabelief(0.1, eps=1e-3, eps_root=1e-2)
o.adabelief(0.1, eps=1e-3, nesterov=True)
o.adan(0.1)
o.adan(0.1, weight_decay=0.1)
o.yogi(0.1)
o.radam(0.1)
o.radam(0.1, b2=0.9, threshold=4.5)
o.radam(0.1, b2=0.9, nesterov=True)
o.lion(0.1)
o.lion(0.1, weight_decay=0.2, mask=kernels)
o.lamb(0.1)
o.lamb(0.1, weight_decay=0.1, mask=kernels)
o.lars(0.1)
o.lars(0.1, weight_decay=0.1, weight_decay_mask=kernels, trust_ratio_mask=kernels, momentum=0.5, nesterov=True)
o.novograd(0.1)
o.novograd(0.1, weight_decay=0.1)
o.rmsprop(0.1)
o.rmsprop(0.1, centered=True, eps=1e-3)
o.rmsprop(0.1, momentum=0.9, nesterov=True, eps_in_sqrt=False, initial_scale=1.0)
o.rmsprop(0.1, bias_correction=True)
o.rmsprop(0.1, bias_correction=True, centered=True, eps=1e-2)
o.adagrad(0.1)
o.adagrad(s, initial_accumulator_value=0.0)
o.adadelta(0.1)
o.adadelta(s, weight_decay=0.1, weight_decay_mask=kernels)
o.adafactor(0.1)
o.adafactor()
o.adafactor(s, min_dim_size_to_factor=2, momentum=0.9, weight_decay_rate=0.1, weight_decay_mask=kernels)
o.adafactor(0.1, min_dim_size_to_factor=2, clipping_threshold=None, multiply_by_parameter_scale=False)
o.sm3(0.1)
o.fromage(0.1)
o.rprop(0.1)
o.sign_sgd(0.1)
o.signum(0.1)
o.optimistic_gradient_descent(0.1)
o.optimistic_gradient_descent(0.1, alpha=0.5, beta=0.3)
o.optimistic_adam(0.1)
o.optimistic_adam(0.1, optimism=0.2, nesterov=False)
o.optimistic_adam_v2(s, alpha=0.5, beta=0.3)
o.polyak_sgd()
o.polyak_sgd(max_learning_rate=0.02, scaling=0.5, f_min=2.0, eps=0.1, variant="sps+")
o.scale_by_lion(mode="smooth", smooth_beta=0.5)
o.scale_by_lion(mode="refined")
o.scale_by_param_block_norm()
o.scale_by_param_block_rms()
o.scale_by_sm3(b2=0.9)
o.scale_by_distance_over_gradients()
o.scale_by_learning_rate(s, flip_sign=False)
o.normalize_by_update_norm(scale_factor=2.0)
o.centralize()
o.clip(0.3)
o.clip_by_global_norm(0.5)
o.clip_by_global_norm(100.0)
o.clip_by_block_rms(0.3)
o.masked(o.adaptive_grad_clip(0.1), lambda p: {"dense": True, "scale": True, "conv": [False]})
o.ema(0.9)
o.ema(0.9, debias=False, accumulator_dtype=np.float32)
o.apply_every(3)
o.trace(0.9, nesterov=True)
o.set_to_zero()
o.identity()
o.keep_params_nonnegative()
o.zero_nans()
o.flatten(o.adam(0.1))
o.masked(o.adam(0.1), kernels)
o.masked(o.adam(0.1), {"dense": False, "scale": True, "conv": True})
o.freeze(kernels)
o.selective_transform(o.adam(0.1), freeze_mask=kernels(None))
o.multi_transform({"a": o.adam(0.1), "b": o.sgd(0.2, 0.9)}, {"dense": "a", "scale": "b", "conv": "b"})
o.partition({"a": o.adam(0.1), "b": o.set_to_zero()}, lambda p: {"dense": "a", "scale": "b", "conv": ["b"]})
o.named_chain(("first", o.trace(0.9)), ("second", o.scale(0.1)))
o.chain(o.clip_by_global_norm(1.0), o.adamw(s), o.ema(0.5))
o.apply_if_finite(o.adam(0.1), 3)
o.conditionally_transform(o.adam(0.1), lambda step: step % 3 == 1)
o.conditionally_mask(o.adam(0.1), lambda step: step % 3 == 1)
o.MultiSteps(o.adam(0.1), 3).gradient_transformation()
o.MultiSteps(o.adam(0.1), 3, use_grad_mean=False).gradient_transformation()
o.MultiSteps(o.sgd(0.1), lambda step: step + 1, should_skip_update_fn=o.skip_not_finite).gradient_transformation()
o.inject_hyperparams(o.sgd)(0.1, momentum=s, nesterov=True)
o.scale_by_schedule(o.cosine_decay_schedule(1.0, 8))
o.snapshot("norm", o.tree.norm)
"""
ROWS_LIST = [line for line in ROWS.splitlines() if line]
DTYPES = {"f32": (np.float32, 2e-5), "bf16": (ml_dtypes.bfloat16, 6e-2)}
# In half precision these amplify the rounding of one step in the next, on either side.
CHAOTIC = ("adabelief", "radam", "centered", "rprop", "signum", "lion", "sign_sgd", "polyak", "optimistic_adam")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", ROWS_LIST)
def test_ten_steps_are_those_of_optax(text: str, dtype: str) -> None:
    kind, rtol = DTYPES[dtype]
    make = lambda library: eval(text, {"o": library, "s": decreasing(library), "np": np, "kernels": kernels})
    # Optax's SM3 has no accumulators for scalars, and its distance over gradients adds an axis to them.
    scalar = "sm3" not in text and "distance" not in text
    ours = run(optim, wnp.asarray, make(optim), kind, scalar)
    theirs = run(optax, jnp.asarray, make(optax), kind, scalar)
    if dtype == "bf16" and any(name in text for name in CHAOTIC):
        ours, theirs, rtol = ours[0][:2], theirs[0][:2], 0.1
    # These widen the updates in Optax, because a float32 in their state does.
    assert_close(ours, theirs, rtol, same_dtype="inject" not in text and "distance" not in text)


def test_injected_numbers_keep_their_digits() -> None:
    """Optax rounds them to the dtype of the updates, and 0.999 is 1 in bfloat16: its Adam returns NaN."""
    make = lambda library: library.inject_hyperparams(library.adamw)(decreasing(library), weight_decay=0.1)
    ours = run(optim, wnp.asarray, make(optim), np.float32)
    assert_close(ours[:2], run(optax, jnp.asarray, make(optax), np.float32)[:2], 2e-5)
    halves = run(optim, wnp.asarray, make(optim), ml_dtypes.bfloat16)
    plain = run(optim, wnp.asarray, optim.adamw(decreasing(optim), weight_decay=0.1), ml_dtypes.bfloat16)
    assert_close(halves[:2], plain[:2], 6e-2)
    theirs = run(optax, jnp.asarray, make(optax), ml_dtypes.bfloat16)[0][0]
    assert all(np.isnan(leaf.astype(np.float32)).all() for leaf in jax.tree.leaves(theirs))


def test_monitored_values() -> None:
    """A measure of each kind: a function, a running average, and a transformation that sees parameters."""

    def values(library: Any, asarray: Any) -> Any:
        norm = library.tree.norm
        optimizer = library.chain(
            library.sgd(0.1, momentum=0.9),
            library.monitor(
                {
                    "norm": norm,
                    "average": library.measure_with_ema(norm, 0.8),
                    "raw": library.measure_with_ema(norm, 0.8, debias=False),
                    "large": library.measure_with_ema(lambda u: norm(u) > 1.0, 0.5),
                    "with params": library.stateless(lambda u, p: norm(library.tree.add(u, p))),
                }
            ),
            library.clip_by_global_norm(0.3),
        )
        history, params, state = run(library, asarray, optimizer, np.float32)
        monitored = state[1].measurements
        return history, params, {name: np.asarray(monitored[name]) for name in sorted(monitored)}

    assert_close(values(optim, wnp.asarray), values(optax, jnp.asarray), 2e-5, same_dtype=False)


def test_adadelta_without_a_rate_goes_downhill() -> None:
    """Optax's goes uphill: its `None` skips the change of sign too."""
    ours = run(optim, wnp.asarray, optim.adadelta(), np.float32)[0]
    theirs = run(optax, jnp.asarray, optax.adadelta(), np.float32)[0]
    assert_close(ours, jax.tree.map(lambda u: -u, theirs), 2e-5)
