"""GaLore: projections of matrix gradients to few directions, which keep the optimizer state small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.optim.base import GradientTransformation, MaskOrFn, Params, ScalarOrSchedule, Updates
from weft.optim.contrib.muon import MuonDimensionNumbers, as_matrices, normalize_axes
from weft.optim.numerics import safe_increment
from weft.optim.transforms.adaptive import scale_by_adam, zero_count
from weft.optim.transforms.adding import add_decayed_weights
from weft.optim.transforms.combining import chain
from weft.optim.transforms.scaling import scale_by_learning_rate


class GaLoreDimensionNumbers(NamedTuple):
    """The axes of a weight that form the rows and the columns of a matrix."""

    reduction_axis: int | Sequence[int] = 0
    output_axis: int | Sequence[int] = 1


class GaLoreState(NamedTuple):
    """Number of steps taken, the state of the inner optimizer, and the directions (an empty array for other leaves)."""

    count: Array  # type: ignore[assignment]
    base_optimizer_state: Any
    projector: Any


def _is_dimension_numbers(node: Any) -> bool:
    return node is None or isinstance(node, GaLoreDimensionNumbers)


def _matrix(x: Any, dims: GaLoreDimensionNumbers) -> tuple[Array, Callable[[Array], Array]]:
    """Return a weight as a matrix, and the inverse function."""
    axes = normalize_axes(dims.reduction_axis, max(x.ndim, 1)) + normalize_axes(dims.output_axis, max(x.ndim, 1))
    if x.ndim < 2 or sorted(axes) != list(range(x.ndim)):
        raise ArgumentError(f"galore must make a matrix of each weight; got {dims} for shape {x.shape}")
    matrices, restore = as_matrices(x, MuonDimensionNumbers(*dims))
    return matrices[0], restore


def _directions(matrix: Array, rank: int) -> Array:
    """Return the first singular vectors of the longer side, as columns."""
    left, _, right = wnp.linalg.svd(matrix.astype(wnp.float32), full_matrices=False)
    found = left[:, :rank] if _is_tall(matrix) else right[:rank].T
    return found.astype(matrix.dtype)


def _is_tall(matrix: Any) -> bool:
    return matrix.shape[0] >= matrix.shape[1]


def _dimension_numbers_for(tree: Any, dims: Any) -> list[GaLoreDimensionNumbers | None]:
    """Return dimension numbers for each leaf of a tree of weights, or None for leaves without projection.

    `dims` applies to all leaves, or is a tree or a function of the tree.
    """
    if callable(dims):
        dims = dims(tree)
    leaves = weft.tree.leaves(tree)
    if dims is None:
        return [GaLoreDimensionNumbers() if leaf.ndim == 2 else None for leaf in leaves]
    if isinstance(dims, GaLoreDimensionNumbers):
        return [dims if leaf.ndim >= 2 else None for leaf in leaves]
    found = weft.tree.leaves(dims, is_leaf=_is_dimension_numbers)
    if len(found) != len(leaves) or not all(map(_is_dimension_numbers, found)):
        raise ArgumentError(
            f"galore needs GaLoreDimensionNumbers or None for each of its {len(leaves)} weights, got {found}"
        )
    return found


def scale_by_galore(
    rank: int = 128,
    update_proj_gap: int = 200,
    scale: float = 1.0,
    base_optimizer: GradientTransformation | None = None,
    weight_dimension_numbers: Any = None,
) -> GradientTransformation:
    """Rescale updates to `P u(P^T G)`, with u of `base_optimizer` (Adam) and P the `rank` first singular vectors of G.

    P is recomputed every `update_proj_gap` steps; a matrix with more columns than rows is projected from the right.
    Weights that are not matrices are passed to `base_optimizer` unchanged. `weight_dimension_numbers` overrides this:
    one for all weights of two axes or more, a tree with None for weights without projection, or a function of the
    parameters. `base_optimizer` sees no parameters, since they do not have the shape of its updates.
    """
    if not isinstance(rank, int) or rank < 1:
        raise ArgumentError(f"galore needs a rank of 1 or more, got {rank!r}")
    inner = scale_by_adam() if base_optimizer is None else base_optimizer

    def init(params: Params) -> GaLoreState:
        leaves, structure = weft.tree.flatten(params)
        projectors, small = [], []
        for leaf, dims in zip(leaves, _dimension_numbers_for(params, weight_dimension_numbers), strict=True):
            if dims is None:
                projectors.append(wnp.zeros((0, 0), leaf.dtype))
                small.append(wnp.zeros_like(leaf))
                continue
            matrix = _matrix(leaf, dims)[0]
            rows, columns = matrix.shape
            directions = min(rank, rows, columns)
            projectors.append(wnp.zeros((max(rows, columns), directions), leaf.dtype))
            small.append(wnp.zeros((directions, columns) if _is_tall(matrix) else (rows, directions), leaf.dtype))
        state = inner.init(structure.unflatten(small))
        return GaLoreState(zero_count(), state, structure.unflatten(projectors))

    def update(updates: Updates, state: GaLoreState, params: Params | None = None) -> Any:
        leaves, structure = weft.tree.flatten(updates)
        dims = _dimension_numbers_for(updates, weight_dimension_numbers)
        due = state.count % update_proj_gap == 0
        projectors, small = list(weft.tree.leaves(state.projector)), list(leaves)
        for i, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
            if dim is not None:
                matrix = _matrix(leaf, dim)[0]
                old = projectors[i]
                new = lax.cond(due, lambda m, old: _directions(m, old.shape[1]), lambda m, old: old, matrix, old)
                projectors[i] = new
                small[i] = new.T @ matrix if _is_tall(matrix) else matrix @ new
        steps, inner_state = inner.update(structure.unflatten(small), state.base_optimizer_state)
        results = weft.tree.leaves(steps)
        for i, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
            if dim is not None:
                matrix, restore = _matrix(leaf, dim)
                projector, step = projectors[i], results[i]
                whole = projector @ step if _is_tall(matrix) else step @ projector.T
                results[i] = restore(scale * whole).astype(leaf.dtype)
        state = GaLoreState(safe_increment(state.count), inner_state, structure.unflatten(projectors))
        return structure.unflatten(results), state

    return GradientTransformation(init, update)


def galore(
    learning_rate: ScalarOrSchedule,
    rank: int = 128,
    update_proj_gap: int = 200,
    scale: float = 1.0,
    base_optimizer: GradientTransformation | None = None,
    weight_decay: float = 0.0,
    mask: MaskOrFn | None = None,
    weight_dimension_numbers: Any = None,
) -> GradientTransformation:
    """Create an optimizer, by default Adam, on few directions of each matrix; weight decay acts on all of them."""
    return chain(
        scale_by_galore(rank, update_proj_gap, scale, base_optimizer, weight_dimension_numbers),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
