"""Losses and schedules on grids, values and gradients, beside Optax."""

from __future__ import annotations

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

SCHEDULES = """
o.constant_schedule(0.3)
o.polynomial_schedule(1.0, 0.1, 2, 10)
o.polynomial_schedule(1.0, 0.1, 0.5, 10, transition_begin=3)
o.polynomial_schedule(1.0, 0.1, 2, 0)
o.linear_schedule(0.0, 1.0, 7, 2)
o.piecewise_constant_schedule(1.0, {3: 0.5, 8: 0.1})
o.piecewise_constant_schedule(1.0)
o.piecewise_interpolate_schedule("linear", 1.0, {3: 0.5, 8: 3.0})
o.piecewise_interpolate_schedule("cosine", 1.0, {3: 0.5, 8: 3.0})
o.exponential_decay(1.0, 4, 0.5)
o.exponential_decay(1.0, 4, 0.5, transition_begin=2, staircase=True, end_value=0.2)
o.exponential_decay(1.0, 4, 1.5, end_value=2.0)
o.exponential_decay(1.0, 0, 0.5)
o.cosine_decay_schedule(0.5, 9)
o.cosine_decay_schedule(0.5, 9, alpha=0.1, exponent=2.0)
o.linear_onecycle_schedule(12, 0.5)
o.linear_onecycle_schedule(12, 0.5, 0.2, 0.7, 10.0, 100.0)
o.cosine_onecycle_schedule(12, 0.5)
o.warmup_constant_schedule(0.0, 1.0, 4)
o.warmup_cosine_decay_schedule(0.0, 1.0, 4, 12, end_value=0.1)
o.warmup_cosine_decay_schedule(0.5, 1.0, 0, 12, exponent=2.0)
o.warmup_exponential_decay_schedule(0.0, 1.0, 4, 3, 0.5, transition_begin=1, end_value=0.1)
o.sgdr_schedule([dict(init_value=0.0, peak_value=1.0, decay_steps=5, warmup_steps=2, end_value=0.1)] * 3)
o.join_schedules([o.constant_schedule(1.0), o.linear_schedule(1.0, 0.0, 5), o.constant_schedule(0.5)], [4, 9])
"""


@pytest.mark.parametrize("text", [line for line in SCHEDULES.splitlines() if line])
def test_schedules(text: str) -> None:
    ours, theirs = eval(text, {"o": optim}), eval(text, {"o": optax})
    compiled = weft.jit(lambda count: wnp.asarray(ours(count)))
    for count in range(20):
        want = np.float32(theirs(count))
        np.testing.assert_allclose(np.float32(ours(count)), want, rtol=2e-6, atol=1e-7)
        np.testing.assert_allclose(compiled(wnp.asarray(count, wnp.int32)), want, rtol=2e-6, atol=1e-7)


def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
    soft = np.exp(normal(6, 5))
    soft /= soft.sum(-1, keepdims=True)
    logits = normal(6, 5)
    hot = np.eye(5, dtype=np.float32)[rng.integers(0, 5, 6)]
    return {
        "x": 3 * normal(6, 5),
        "y": 3 * normal(6, 5),
        "z": normal(6, 5),
        "soft": soft.astype(np.float32),
        "logp": (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32),
        "hot": hot,
        "label": rng.integers(0, 5, 6).astype(np.int32),
        "bit": rng.integers(0, 2, (6, 5)).astype(np.float32),
        "sign": (2 * rng.integers(0, 2, (6, 5)) - 1).astype(np.float32),
        "keep": np.array([[True] * 5] * 3 + [[True, True, False, True, False]] * 3),
        "pairs": np.array([0, 0, 1, 1, 2, 2], np.int32),
        "image": normal(2, 4, 4, 3),
        "target": np.eye(3, dtype=np.float32)[rng.integers(0, 3, (2, 4, 4))],
        "t": normal(3, 8, 5),
        "tpad": np.array([[0] * 8, [0] * 6 + [1] * 2, [0] * 7 + [1]], np.float32),
        "n": np.array([[1, 2, 2, 3], [4, 1, 1, 0], [2, 0, 0, 0]], np.int32),
        "npad": np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 1]], np.float32),
    }


INPUTS = inputs()

LOSSES = """
squared_error(x, y)
squared_error(x)
l2_loss(x, y)
huber_loss(x, y)
huber_loss(x, y, delta=0.5)
log_cosh(x, y)
log_cosh(20 * x)
cosine_similarity(x, y)
cosine_similarity(x, y, axis=0, epsilon=1e-3)
cosine_distance(x, y, where=keep)
triplet_margin_loss(x, y, z)
triplet_margin_loss(x, y, z, norm_degree=4, margin=0.5, axis=0)
sigmoid_binary_cross_entropy(x, bit)
sigmoid_binary_cross_entropy(x, soft)
sigmoid_focal_loss(x, bit)
sigmoid_focal_loss(x, bit, alpha=0.3, gamma=1.5)
hinge_loss(x, sign)
perceptron_loss(x, sign)
sparsemax_loss(x, bit)
multiclass_hinge_loss(x, label)
multiclass_perceptron_loss(x, label)
multiclass_sparsemax_loss(x, label)
softmax_cross_entropy(x, soft)
softmax_cross_entropy(x, soft, axis=0)
softmax_cross_entropy(x, soft, where=keep)
safe_softmax_cross_entropy(x, hot)
softmax_cross_entropy_with_integer_labels(x, label)
softmax_cross_entropy_with_integer_labels(x.T, label, axis=0)
softmax_cross_entropy_with_integer_labels(x[:, :, None] * z[:, None, :], label, axis=(1, 2))
poly_loss_cross_entropy(x, soft)
poly_loss_cross_entropy(x, soft, epsilon=-1.0)
kl_divergence(logp, soft)
kl_divergence(logp, hot)
kl_divergence(logp, soft, axis=0, where=keep)
kl_divergence_with_log_targets(logp, logp[::-1])
generalized_kl_divergence(logp, soft)
convex_kl_divergence(logp, soft)
ntxent(x, pairs)
ntxent(x, pairs, temperature=0.5)
ranking_softmax_loss(x, soft)
ranking_softmax_loss(x, soft, where=keep, reduce_fn=None)
ranking_softmax_loss(x, soft, weights=bit)
dice_loss(image, target)
dice_loss(image, target, alpha=0.3, beta=0.7, smooth=0.5, reduction="sum")
dice_loss(image, target, ignore_background=True, reduction="none")
dice_loss(image, target, axis=(0, 1, 2))
dice_loss(x[..., None], bit[..., None])
dice_loss(image, target, class_weights=soft[0, :3])
binary_dice_loss(x, bit)
binary_dice_loss(x, bit, smooth=0.1)
multiclass_generalized_dice_loss(image, target)
multiclass_generalized_dice_loss(image, target, smooth=0.1, ignore_background=True)
multiclass_generalized_dice_loss(x, hot)
multiclass_generalized_dice_loss(2.7182818284 ** logp, hot, apply_softmax=False)
ctc_loss(t, tpad, n, npad)
ctc_loss(t, tpad, n, npad, blank_id=4, log_epsilon=-1e4)
ctc_loss_with_forward_probs(t, tpad, n, npad)[0]
"""


@pytest.mark.parametrize("text", [line for line in LOSSES.splitlines() if line])
def test_losses_and_their_gradients(text: str) -> None:
    names = [name for name in INPUTS if name in compile(text, text, "eval").co_names]
    # Predictions, not labels: how a loss continues from 0 and 1 to numbers between is each library's own choice.
    where = [i for i, name in enumerate(names) if name in ("x", "y", "z", "logp", "image", "t")]

    def loss(library: Any) -> Any:
        space = vars(library.losses)
        return eval(f"lambda {', '.join(names)}: {text}", {**space})

    values = [INPUTS[name] for name in names]
    weights = lambda result: np.random.default_rng(1).normal(size=result.shape).astype(np.float32)
    ours, theirs = loss(optim), loss(optax)
    want = theirs(*map(jnp.asarray, values))
    assert_same(ours(*map(wnp.asarray, values)), want, 1e-5, weak=False)
    assert_same(weft.jit(ours)(*values), want, 1e-5, weak=False)
    expected = jax.grad(lambda *a: jnp.sum(theirs(*a) * weights(want)), where)(*values)
    gradient = weft.grad(lambda *a: wnp.sum(ours(*a) * weights(want)), where)(*values)
    assert_same(gradient, expected, 1e-4, weak=False)


def test_ctc_forward_probabilities() -> None:
    values = [INPUTS[name] for name in ("t", "tpad", "n", "npad")]
    ours = optim.ctc_loss_with_forward_probs(*values)
    theirs = optax.ctc_loss_with_forward_probs(*values)
    for mine, other in zip(ours, theirs, strict=True):
        # log_epsilon represents minus infinity, and so do sums of it.
        np.testing.assert_allclose(np.maximum(mine, -1e4), np.maximum(np.asarray(other), -1e4), rtol=1e-5, atol=1e-5)


def test_smooth_labels() -> None:
    for kwargs in ({}, {"axis": 0}, {"where": INPUTS["keep"]}):
        ours, theirs = (o.smooth_labels(INPUTS["hot"], 0.1, **kwargs) for o in (optim, optax))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
