"""weft.optim: losses and schedules against their definitions in NumPy and SciPy, at the edges, and their errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

import weft
import weft.numpy as wnp
from weft import optim
from weft.errors import DtypeMismatchError, ShapeMismatchError

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(4, 5)).astype(np.float32)
LABELS = np.array([0, 3, 4, 1], np.int32)
SOFT = special.softmax(RNG.normal(size=(4, 5)), axis=-1).astype(np.float32)


def test_cross_entropies_agree() -> None:
    want = -special.log_softmax(LOGITS.astype(np.float64), axis=-1)[np.arange(4), LABELS]
    hot = np.eye(5, dtype=np.float32)[LABELS]
    np.testing.assert_allclose(optim.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS), want, rtol=1e-5)
    np.testing.assert_allclose(optim.softmax_cross_entropy(LOGITS, hot), want, rtol=1e-5)
    np.testing.assert_allclose(optim.safe_softmax_cross_entropy(LOGITS, hot), want, rtol=1e-5)
    two = optim.sigmoid_binary_cross_entropy(LOGITS[:, 0], wnp.ones(4))
    pair = np.stack([LOGITS[:, 0], np.zeros(4, np.float32)], -1)
    np.testing.assert_allclose(
        two, optim.softmax_cross_entropy_with_integer_labels(pair, np.zeros(4, np.int32)), rtol=1e-5
    )


def test_cross_entropy_of_an_impossible_class() -> None:
    logits, labels = wnp.array([0.0, 1.0, -np.inf]), wnp.array([0.0, 1.0, 0.0])
    assert np.isfinite(optim.safe_softmax_cross_entropy(logits, labels))
    assert np.isfinite(weft.grad(optim.safe_softmax_cross_entropy)(logits, labels)).all()


def test_masked_cross_entropy_ignores_masked_elements() -> None:
    keep = np.array([True, True, False, True, True])
    got = optim.softmax_cross_entropy(LOGITS, SOFT, where=keep[None])
    np.testing.assert_allclose(got, optim.softmax_cross_entropy(LOGITS[:, keep], SOFT[:, keep]), rtol=1e-5)


def test_masks_of_examples_do_not_mask_classes() -> None:
    logits, labels = LOGITS[:, :4], SOFT[:, :4]  # as many classes as examples
    keep = np.array([True, False, True, True])
    want = np.where(keep, optim.softmax_cross_entropy(logits, labels), 0.0)
    np.testing.assert_allclose(optim.softmax_cross_entropy(logits, labels, where=keep), want, rtol=1e-6)
    poly = np.where(keep, optim.poly_loss_cross_entropy(logits, labels), 2.0)
    got = optim.losses.poly_loss_cross_entropy(logits, labels, where=keep)
    np.testing.assert_allclose(got[keep], poly[keep], rtol=1e-6)


def test_safe_cross_entropy_differentiates_labels_of_zero() -> None:
    logits, labels = wnp.array([1.0, 2.0, -1.0]), wnp.array([0.0, 1.0, 0.0])
    got = weft.grad(optim.safe_softmax_cross_entropy, argnums=1)(logits, labels)
    np.testing.assert_allclose(got, -special.log_softmax(np.asarray(logits)), rtol=1e-6)


def test_fenchel_young_losses_are_of_vectors() -> None:
    loss = optim.losses.make_fenchel_young_loss(weft.nn.logsumexp)
    np.testing.assert_allclose(loss(LOGITS, SOFT), [loss(x, y) for x, y in zip(LOGITS, SOFT, strict=True)], rtol=1e-5)
    assert loss(LOGITS, SOFT).shape == LOGITS.shape[:1]


def test_a_list_without_items_has_no_ranking_loss() -> None:
    nothing = np.zeros(3, bool)
    assert float(optim.losses.ranking_softmax_loss(wnp.ones(3), wnp.ones(3), where=nothing)) == 0.0
    gradient = weft.grad(lambda x: optim.losses.ranking_softmax_loss(x, wnp.ones(3), where=nothing))(wnp.ones(3))
    np.testing.assert_array_equal(gradient, np.zeros(3))


def test_vectors_of_which_nothing_counts_are_at_distance_one() -> None:
    x, keep = wnp.ones((2, 3)), np.array([[True, True, False], [False, False, False]])
    np.testing.assert_allclose(optim.losses.cosine_distance(x, x, where=keep), [0.0, 1.0], atol=1e-6)
    gradient = weft.grad(lambda y: optim.losses.cosine_distance(y, x, where=keep).sum())(x)
    assert np.isfinite(gradient).all()


def test_losses_of_empty_batches() -> None:
    assert float(optim.losses.ranking_softmax_loss(wnp.zeros((0, 3)), wnp.zeros((0, 3)))) == 0.0
    logits, labels = wnp.zeros((2, 0, 3)), wnp.zeros((2, 0), np.int32)
    assert optim.softmax_cross_entropy_with_integer_labels(logits, labels).shape == (2, 0)


def test_dice_loss_adds_the_axis_of_one_class() -> None:
    x, y = wnp.ones((2, 4, 4)), wnp.ones((2, 4, 4, 1))
    np.testing.assert_allclose(optim.losses.dice_loss(x, y), optim.losses.dice_loss(x[..., None], y))


def test_log_densities_sum_over_all_parameters() -> None:
    normal = optim.multi_normal(wnp.zeros((2, 3)), wnp.zeros((2, 3)))
    x = wnp.ones((5, 2, 3))
    assert normal.log_prob(x).shape == (5,)
    np.testing.assert_allclose(normal.log_prob(x), stats.norm.logpdf(1.0) * 6 * np.ones(5), rtol=1e-5)


def test_divergences() -> None:
    logp = special.log_softmax(LOGITS, axis=-1)
    want = special.rel_entr(SOFT.astype(np.float64), np.exp(logp.astype(np.float64))).sum(-1)
    np.testing.assert_allclose(optim.kl_divergence(logp, SOFT), want, rtol=1e-4)
    np.testing.assert_allclose(optim.generalized_kl_divergence(logp, SOFT), want, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(optim.kl_divergence_with_log_targets(logp, np.log(SOFT)), want, rtol=1e-4)


def test_huber_joins_smoothly() -> None:
    x = wnp.array([0.999999, 1.000001, -3.0])
    np.testing.assert_allclose(optim.huber_loss(x), special.huber(1.0, np.asarray(x)), rtol=1e-5)
    np.testing.assert_allclose(weft.vmap(weft.grad(optim.huber_loss))(x), [1.0, 1.0, -1.0], rtol=1e-5)


def brute_force_ctc(logits: np.ndarray, labels: list[int]) -> float:
    """-log of the sum over all alignments that collapse to the labels; blank is 0."""
    logs, total = special.log_softmax(logits.astype(np.float64), axis=-1), 0.0
    for path in itertools.product(range(logits.shape[1]), repeat=logits.shape[0]):
        collapsed = [k for k, _ in itertools.groupby(path) if k != 0]
        if collapsed == labels:
            total += math.exp(sum(logs[t, k] for t, k in enumerate(path)))
    return -math.log(total)


@pytest.mark.parametrize("labels", [[1], [1, 2], [1, 1], [2, 1, 2], []])
def test_ctc_is_the_sum_over_alignments(labels: list[int]) -> None:
    logits = RNG.normal(size=(5, 3)).astype(np.float32)
    padded = np.array([labels + [0] * (3 - len(labels))], np.int32)
    padding = np.array([[0.0] * len(labels) + [1.0] * (3 - len(labels))], np.float32)
    got = optim.ctc_loss(logits[None], np.zeros((1, 5), np.float32), padded, padding)
    np.testing.assert_allclose(got, [brute_force_ctc(logits, labels)], rtol=1e-4)
    longer = np.concatenate([logits, RNG.normal(size=(2, 3)).astype(np.float32)])[None]
    pad = np.array([[0.0] * 5 + [1.0] * 2], np.float32)
    np.testing.assert_allclose(optim.ctc_loss(longer, pad, padded, padding), got, rtol=1e-5)


def test_sparsemax_gradient_is_a_difference_of_distributions() -> None:
    gradient = weft.grad(lambda s: optim.losses.multiclass_sparsemax_loss(s, LABELS).sum())(wnp.asarray(LOGITS))
    shares = np.stack([optim.projections.projection_simplex(wnp.asarray(row)) for row in LOGITS])
    np.testing.assert_allclose(gradient, shares - np.eye(5)[LABELS], atol=1e-6)
    np.testing.assert_allclose(shares.sum(-1), 1.0, rtol=1e-5)


def test_projections_are_nearest_points() -> None:
    x = wnp.asarray(3 * RNG.normal(size=6).astype(np.float32))
    for name, inside in (("l1_ball", lambda y: np.abs(y).sum()), ("l2_ball", lambda y: np.sqrt((y**2).sum()))):
        project = getattr(optim.projections, f"projection_{name}")
        y = np.asarray(project(x, 2.0))
        assert inside(y) <= 2.0 + 1e-5
        np.testing.assert_allclose(project(wnp.asarray(y), 2.0), y, atol=1e-6)
        for _ in range(20):
            other = RNG.normal(size=6)
            other *= 2.0 / inside(other)
            assert np.sum((np.asarray(x) - y) ** 2) <= np.sum((np.asarray(x) - other) ** 2) + 1e-4


def test_schedules_at_their_ends() -> None:
    schedule = optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100, end_value=0.1)
    np.testing.assert_allclose([schedule(t) for t in (0, 5, 10, 100, 1000)], [0.0, 0.5, 1.0, 0.1, 0.1], atol=1e-6)
    rates = [float(schedule(t)) for t in range(10, 101)]
    assert all(b <= a for a, b in itertools.pairwise(rates))
    schedule = optim.join_schedules([optim.constant_schedule(1.0), optim.linear_schedule(1.0, 0.0, 4)], [3])
    np.testing.assert_allclose([schedule(t) for t in range(8)], [1, 1, 1, 1, 0.75, 0.5, 0.25, 0])


def test_schedule_in_a_compiled_step_counts() -> None:
    optimizer = optim.sgd(optim.piecewise_constant_schedule(1.0, {2: 0.1}))
    state, step = optimizer.init(wnp.ones(())), weft.jit(optimizer.update)
    seen = []
    for _ in range(4):
        updates, state = step(wnp.ones(()), state)
        seen.append(float(updates))
    np.testing.assert_allclose(seen, [-1, -1, -0.1, -0.1], rtol=1e-6)


# -- errors


def test_generalized_dice_weighs_rare_classes_more() -> None:
    """The definition of Sudre et al., class by class, in NumPy."""
    rng = np.random.default_rng(5)
    labels = rng.choice(3, size=(2, 4, 4), p=[0.7, 0.2, 0.1])
    hot = np.eye(4)[labels]  # the last class is nowhere
    logits = rng.normal(size=hot.shape)
    share = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    weights = 1 / (hot.sum((0, 1, 2)) ** 2 + 1e-7)
    weights = weights / weights.mean()
    for first in (0, 1):
        losses = []
        for image in range(2):
            for kind in range(first, 4):
                p, t = share[image, ..., kind], hot[image, ..., kind]
                both = (p * t).sum()
                dice = (both + 0.5) / (both + 0.5 * (p.sum() - both) + 0.5 * (t.sum() - both) + 0.5)
                losses.append(weights[kind] * (1 - dice))
        got = optim.losses.multiclass_generalized_dice_loss(
            logits.astype(np.float32), hot.astype(np.float32), smooth=0.5, ignore_background=bool(first)
        )
        np.testing.assert_allclose(got, np.mean(losses), rtol=1e-4)


def test_losses_do_not_broadcast() -> None:
    for loss in (optim.squared_error, optim.l2_loss, optim.huber_loss, optim.log_cosh):
        with pytest.raises(ShapeMismatchError, match="does not broadcast") as caught:
            loss(wnp.ones(3), wnp.ones((3, 1)))
        assert "(3, 1)" in str(caught.value)


def test_wrong_kinds_of_labels() -> None:
    with pytest.raises(DtypeMismatchError, match="softmax_cross_entropy"):
        optim.softmax_cross_entropy_with_integer_labels(LOGITS, SOFT)
    with pytest.raises(ValueError, match="squeeze"):
        optim.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS[:, None])
    with pytest.raises(DtypeMismatchError, match="floating"):
        optim.softmax_cross_entropy(LABELS, LABELS)
    with pytest.raises(ValueError, match="one label for each"):
        optim.ntxent(LOGITS, LABELS[:2])
    with pytest.raises(ValueError, match="time"):
        optim.ctc_loss(LOGITS, LOGITS, LABELS[None], LABELS[None])


def test_wrong_schedules() -> None:
    with pytest.raises(ValueError, match="counts the warmup"):
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 100, 50)
    with pytest.raises(ValueError, match="2 schedules and 2 boundaries"):
        optim.join_schedules([optim.constant_schedule(1.0)] * 2, [1, 2])
    with pytest.raises(ValueError, match="above 0"):
        optim.cosine_decay_schedule(1.0, 0)
    with pytest.raises(ValueError, match="at least 0"):
        optim.piecewise_constant_schedule(1.0, {3: -1.0})
    with pytest.raises(ValueError, match="linear"):
        optim.piecewise_interpolate_schedule("cubic", 1.0, {3: 2.0})
