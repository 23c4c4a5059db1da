"""Muon: momentum whose matrices are orthogonalized by Newton-Schulz iterations."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    MaskOrFn,
    Params,
    ScalarOrSchedule,
    Updates,
    stateless,
)
from weft.optim.numerics import safe_increment
from weft.optim.optimizers.adam import adamw
from weft.optim.transforms.adaptive import FirstMoment, in_dtype, zero_count
from weft.optim.transforms.adding import add_decayed_weights
from weft.optim.transforms.combining import chain, partition
from weft.optim.transforms.masking import MaskedNode
from weft.optim.transforms.scaling import scale_by_learning_rate
from weft.optim.tree_mapping import map_trees
from weft.optim.tree_utils.arithmetic import tree_zeros_like
from weft.optim.tree_utils.moments import moving_average

Coefficients = tuple[float, float, float] | tuple[tuple[float, float, float], ...] | str

PRESETS: dict[str, Any] = {
    "muon": (3.4445, -4.7750, 2.0315),
    "dion": (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
}
PRECONDITIONING = ("frobenius", "spectral", "aol", "schatten")


class MuonDimensionNumbers(NamedTuple):
    """The axes of a weight that are contracted, and the output axes; other axes are a batch of matrices."""

    reduction_axis: int | Sequence[int] = 0
    output_axis: int | Sequence[int] = 1


class MuonState(NamedTuple):
    """Number of steps taken, the average of gradients, and the coefficients of the iteration."""

    count: Array  # type: ignore[assignment]
    mu: Updates
    ns_coeffs: Array


def normalize_axes(axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    return tuple(a % ndim for a in ((axis,) if isinstance(axis, int) else axis))


def as_matrices(x: Array, dims: MuonDimensionNumbers) -> tuple[Array, Callable[[Array], Array]]:
    """Return a weight as [batch, reduction, output], and the inverse function."""
    reduction, output = normalize_axes(dims.reduction_axis, x.ndim), normalize_axes(dims.output_axis, x.ndim)
    batch = tuple(a for a in range(x.ndim) if a not in reduction + output)
    order = batch + reduction + output
    transposed = wnp.transpose(x, order)
    rows, columns = (math.prod(x.shape[a] for a in axes) for axes in (reduction, output))
    back = tuple(order.index(a) for a in range(x.ndim))
    restore = lambda y: wnp.transpose(y.reshape(transposed.shape), back)
    return transposed.reshape(-1, rows, columns), restore


def _limit_spectrum(x: Array, preconditioning: str, eps: float) -> Array:
    """Scale matrices to singular values of at most about one, where the iteration converges to one."""
    match preconditioning:
        case "frobenius":
            return x / (wnp.linalg.norm(x, axis=(-2, -1), keepdims=True) + eps)
        case "spectral":
            return x / (wnp.linalg.norm(x, ord=2, axis=(-2, -1), keepdims=True) + eps)
        case "schatten":
            gram = x @ wnp.swapaxes(x, -2, -1).conj()
            return x / (wnp.sqrt(wnp.linalg.norm(gram, axis=(-2, -1), keepdims=True)) + eps)
        case _:
            sums = wnp.sum(wnp.abs(x @ wnp.swapaxes(x, -2, -1).conj()), axis=-1, keepdims=True)
            return x * lax.rsqrt(sums + eps)


def orthogonalize(x: Array, coefficients: Array, steps: int, preconditioning: str, eps: float) -> Array:
    """Approximate `U V^H` of the singular value decomposition of each matrix by Newton-Schulz iterations."""
    tall = x.shape[-2] > x.shape[-1]
    x = wnp.swapaxes(x, -2, -1).conj() if tall else x
    x = _limit_spectrum(x, preconditioning, eps)
    rows = coefficients if coefficients.ndim == 2 else wnp.broadcast_to(coefficients, (steps, 3))
    for i in range(rows.shape[0]):
        a, b, c = (rows[i, k].astype(x.dtype) for k in range(3))
        gram = x @ wnp.swapaxes(x, -2, -1).conj()
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return wnp.swapaxes(x, -2, -1).conj() if tall else x


def _coefficients(coefficients: Any) -> Array:
    if isinstance(coefficients, str):
        if coefficients not in PRESETS:
            raise ArgumentError(f"ns_coeffs must be coefficients or one of {', '.join(PRESETS)}, got {coefficients!r}")
        coefficients = PRESETS[coefficients]
    array = wnp.asarray(coefficients, wnp.float32)
    if array.ndim > 2 or array.shape[-1:] != (3,):
        raise ArgumentError(f"ns_coeffs is three numbers, or three for each step; got shape {array.shape}")
    return array


def _dimension_numbers_for(weight_dimension_numbers: Any, params: Any) -> Any:
    """Return dimension numbers for each leaf: those given, or those of a matrix."""
    if callable(weight_dimension_numbers):
        weight_dimension_numbers = weight_dimension_numbers(params)
    if weight_dimension_numbers is None:
        return weft.tree.map(lambda _: MuonDimensionNumbers(), params)
    return weight_dimension_numbers


def _is_dimension_numbers(node: Any) -> bool:
    return isinstance(node, MuonDimensionNumbers) or node is None


def _for_each(function: Callable[..., Any], updates: Updates, dims: Any) -> Updates:
    """Apply `function(update, dimension numbers)` to each leaf that has them."""
    leaves, structure = weft.tree.flatten(updates)
    each = weft.tree.leaves(dims, is_leaf=_is_dimension_numbers)
    each = [n for n in each if isinstance(n, MuonDimensionNumbers)]
    if len(each) != len(leaves):
        raise ArgumentError(f"muon needs MuonDimensionNumbers for each of its {len(leaves)} leaves, got {len(each)}")
    for leaf, dim in zip(leaves, each, strict=True):
        axes = normalize_axes(dim.reduction_axis, max(leaf.ndim, 1)) + normalize_axes(
            dim.output_axis, max(leaf.ndim, 1)
        )
        if leaf.ndim < 2 or len(set(axes)) != len(axes):
            raise ArgumentError(f"muon needs dimension numbers that fit each array; got {dim} for shape {leaf.shape}")
    return structure.unflatten([function(leaf, dim) for leaf, dim in zip(leaves, each, strict=True)])


def scale_by_muon(
    ns_coeffs: Coefficients = (3.4445, -4.7750, 2.0315),
    ns_steps: int = 5,
    beta: float = 0.95,
    eps: float = 1e-8,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
    adaptive: bool = False,
    preconditioning: str = "frobenius",
    weight_dimension_numbers: Any = None,
) -> GradientTransformation:
    """Replace the momentum by the nearest orthogonal matrix; with `adaptive`, times their inner product."""
    if preconditioning not in PRECONDITIONING:
        raise ArgumentError(f"preconditioning must be one of {', '.join(PRECONDITIONING)}, got {preconditioning!r}")

    def init(params: Params) -> MuonState:
        return MuonState(zero_count(), tree_zeros_like(params, mu_dtype), _coefficients(ns_coeffs))

    def update(updates: Updates, state: MuonState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        first = FirstMoment(beta, count, nesterov)

        def gather(g: Any, m: Any) -> tuple[Any, ...]:
            m = moving_average(g, m, beta)
            return first(g, m), in_dtype(m, mu_dtype)

        momentum, mu = map_trees("scale_by_muon", gather, results=2, updates=updates, mu=state.mu)

        def leaf(m: Any, dims: MuonDimensionNumbers) -> Any:
            matrices, restore = as_matrices(m, dims)
            result = orthogonalize(matrices, state.ns_coeffs, ns_steps, preconditioning, eps)
            if adaptive:
                result = result * wnp.sum(matrices.conj() * result, axis=(-2, -1), keepdims=True)
            return restore(result)

        new = _for_each(leaf, momentum, _dimension_numbers_for(weight_dimension_numbers, updates))
        return new, MuonState(count, mu, state.ns_coeffs)

    return GradientTransformation(init, update)


def _scale_by_shape(weight_dimension_numbers: Any, consistent_rms: float | None) -> GradientTransformation:
    """Rescale steps to one size for all shapes: by width, or with `consistent_rms` by the root mean square."""

    def leaf(u: Any, dims: MuonDimensionNumbers) -> Any:
        size = lambda axis: math.prod(u.shape[a] for a in normalize_axes(axis, u.ndim))
        fan_in, fan_out = size(dims.reduction_axis), size(dims.output_axis)
        if consistent_rms is not None:
            return u * (math.sqrt(max(fan_in, fan_out)) * consistent_rms)
        return u * math.sqrt(max(1.0, fan_out / fan_in))

    return stateless(
        lambda updates, params: _for_each(leaf, updates, _dimension_numbers_for(weight_dimension_numbers, updates))
    )


def muon(
    learning_rate: ScalarOrSchedule,
    ns_coeffs: Coefficients = (3.4445, -4.7750, 2.0315),
    ns_steps: int = 5,
    beta: float = 0.95,
    eps: float = 1e-8,
    weight_decay: ScalarOrSchedule = 0.0,
    weight_decay_mask: MaskOrFn | None = None,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
    adaptive: bool = False,
    preconditioning: str = "frobenius",
    adam_b1: float = 0.9,
    adam_b2: float = 0.999,
    adam_eps_root: float = 0.0,
    adam_weight_decay: ScalarOrSchedule = 0.0,
    adam_learning_rate: ScalarOrSchedule | None = None,
    muon_weight_dimension_numbers: Any = None,
    consistent_rms: float | None = None,
) -> GradientTransformationExtraArgs:
    """Create Muon: orthogonal steps for matrices, AdamW for other parameters (Jordan 2024).

    `muon_weight_dimension_numbers` is a tree with `MuonDimensionNumbers` for orthogonalized parameters and None for
    parameters of AdamW, or a function that makes one from the parameters; without it, arrays of two axes are matrices.
    """
    dims = muon_weight_dimension_numbers

    def get_dims(tree: Any) -> Any:
        if dims is not None:
            prefix = dims(tree) if callable(dims) else dims
            # Dimension numbers of a subtree apply to each of its leaves.
            repeat = lambda each, part: weft.tree.map(lambda _: each, part, is_leaf=_is_masked)
            return weft.tree.map(repeat, prefix, tree, is_leaf=_is_dimension_numbers)
        return weft.tree.map(lambda leaf: MuonDimensionNumbers() if leaf.ndim == 2 else None, tree)

    def labels(tree: Any) -> Any:
        return weft.tree.map(lambda n: "adam" if n is None else "muon", get_dims(tree), is_leaf=_is_dimension_numbers)

    def get_unmasked_dims(tree: Any) -> Any:
        """Return the dimension numbers of leaves that are not masked; a `MaskedNode` has no axes."""
        if dims is None or callable(dims):
            tree = weft.tree.map(lambda x: None if isinstance(x, MaskedNode) else x, tree, is_leaf=_is_masked)
        return get_dims(tree)

    matrices = chain(
        scale_by_muon(
            ns_coeffs,
            ns_steps,
            beta,
            eps,
            mu_dtype,
            nesterov=nesterov,
            adaptive=adaptive,
            preconditioning=preconditioning,
            weight_dimension_numbers=get_unmasked_dims,
        ),
        _scale_by_shape(get_unmasked_dims, consistent_rms),
        add_decayed_weights(weight_decay, weight_decay_mask),
        scale_by_learning_rate(learning_rate),
    )
    rate = learning_rate if adam_learning_rate is None else adam_learning_rate
    rest = functools.partial(adamw, rate, adam_b1, adam_b2, eps, adam_eps_root, mu_dtype)
    return partition({"muon": matrices, "adam": rest(weight_decay=adam_weight_decay, nesterov=nesterov)}, labels)


def _is_masked(node: Any) -> bool:
    return isinstance(node, MaskedNode)
