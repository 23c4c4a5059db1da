"""`Loss`: values for each sample, weighted, masked and reduced to one; and the wrapper that makes one of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import weft.numpy as wnp
from weft import Array, tree
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core import config, context, names, policy, registry
from weft.keras.losses.arguments import same_rank
from weft.keras.ops.numpy import divide_no_nan

REDUCTIONS = ("sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none", None)


def check_reduction(reduction: str | None) -> str | None:
    """Return a reduction if it exists; else raise an error that lists the reductions."""
    if reduction not in REDUCTIONS:
        raise ArgumentError(
            f"`reduction` must be one of {', '.join(repr(name) for name in REDUCTIONS)}.",
            received=f"reduction={reduction!r}",
        )
    return reduction


def apply_weights(name: str, values: Array, weights: Any) -> tuple[Array, Array]:
    """Multiply values by weights of the same rank; return the products and the weights."""
    values, weights = same_rank(values, wnp.asarray(weights).astype(values.dtype))
    fits = weights.ndim in (0, values.ndim)
    if fits and weights.ndim:
        fits = all(size in (1, other) for size, other in zip(weights.shape, values.shape, strict=True))
    if not fits:
        raise ArgumentError(
            f"{name}: the sample weights do not fit the values that they weight.",
            received=f"weights of shape {weights.shape} for values of shape {values.shape}",
            fix=[
                f"give a weight for each value: an array of shape {values.shape}",
                f"or one for each row of the batch: weights.reshape({(-1, *(1 for _ in values.shape[1:]))})",
            ],
        )
    return values * weights, weights


def mask_weights(mask: Array, reduction: str | None, dtype: Any) -> Array:
    """Return weights that exclude masked entries; for means, valid entries weigh total / valid, so that the mean is
    over them.
    """
    valid = mask.astype(dtype)
    if reduction not in ("mean", "sum_over_batch_size"):
        return valid
    total = wnp.asarray(mask.size, dtype)
    return wnp.where(mask.astype(bool), divide_no_nan(total, wnp.sum(valid)), wnp.zeros((), dtype))


def with_mask(sample_weight: Any, mask: Any, reduction: str | None, dtype: Any) -> Array:
    """Sample weights (None: ones) that are 0 where the mask is."""
    of_mask = mask_weights(wnp.asarray(mask), reduction, dtype)
    if sample_weight is None:
        return of_mask
    of_mask, weights = same_rank(of_mask, wnp.asarray(sample_weight).astype(dtype))
    try:
        shape = wnp.broadcast_shapes(of_mask.shape, weights.shape)
    except ValueError:
        raise ArgumentError(
            "The sample weights do not fit the mask of the predictions.",
            received=f"weights of shape {weights.shape} and a mask of shape {of_mask.shape}",
            fix=f"give one for each step: an array of shape {of_mask.shape}",
        ) from None
    return wnp.broadcast_to(weights, shape) * of_mask


def reduce_weighted_values(
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: Any = None,
    name: str = "loss",
) -> Array:
    """Reduce the values of a batch to one; weights enter the divisor only with `mean_with_sample_weight`.

    Args:
        values: a value for each sample (or for each time step of it, and so on).
        sample_weight: weights of the same rank as the values, whose sizes are equal or 1; or one for all.
        mask: which values count; the mean is then over those.
        reduction: one of "sum_over_batch_size" and "mean" (the same), "sum", "mean_with_sample_weight", "none", None.
        dtype: what everything is cast to.
        name: whose values these are, for errors.

    Returns:
        a scalar, or the weighted values where there is no reduction.

    >>> from weft.keras.losses.base import reduce_weighted_values
    >>> print(reduce_weighted_values([1.0, 4.0, 9.0, 16.0], sample_weight=[1.0, 1.0, 0.0, 0.0]))
    1.25
    """
    check_reduction(reduction)
    values = wnp.asarray(values, dtype)
    if mask is not None:
        sample_weight = with_mask(sample_weight, mask, reduction, values.dtype)
    if sample_weight is not None:
        values, sample_weight = apply_weights(name, values, sample_weight)
    if reduction in (None, "none") or values.shape == () or values.shape == (0,):
        return values
    total = wnp.sum(values)
    if reduction == "sum":
        return total
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        return divide_no_nan(total, wnp.sum(sample_weight).astype(total.dtype))
    return divide_no_nan(total, wnp.asarray(values.size, total.dtype))


def as_arrays(values: Any, dtype: Any) -> Any:
    """Convert a tree to arrays of a dtype. Lists of numbers are arrays, not trees."""
    if isinstance(values, (list, tuple)) and any(isinstance(leaf, (int, float)) for leaf in tree.leaves(values)):
        return wnp.asarray(values).astype(dtype)
    return tree.map(lambda leaf: wnp.asarray(leaf).astype(dtype), values)


class Loss:
    """A function of targets and predictions with a name, a reduction, and a dtype to compute in.

    Subclasses define `call(y_true, y_pred)`, which returns a value for each sample. Calling the loss also takes
    weights, applies the mask of the predictions (or of the values, where `call` sets one) and reduces.

    Args:
        name: what histories and errors call it; else the class' name in snake case.
        reduction: "sum_over_batch_size" (or "mean": the same), "sum", "mean_with_sample_weight", or "none".
        dtype: what targets and predictions are cast to; the global float type if None. A policy or its name also does.

    >>> import weft.numpy as wnp
    >>> from weft import keras
    >>> class Quartic(keras.losses.Loss):
    ...     def call(self, y_true, y_pred):
    ...         return wnp.mean((y_true - y_pred) ** 4, axis=-1)
    >>> print(Quartic()([[0.0, 1.0]], [[2.0, 1.0]]))
    8.0
    """

    def __init__(
        self, name: str | None = None, reduction: str | None = "sum_over_batch_size", dtype: Any = None
    ) -> None:
        self.name = name or names.auto_name(type(self).__name__)
        self.reduction = check_reduction(reduction)
        self._dtype_argument = dtype
        self._dtype_policy = policy.get_policy(dtype or config.floatx())
        self._dtype = self._dtype_policy.compute_dtype

    @property
    def dtype(self) -> str:
        """The dtype that the loss computes in."""
        return self._dtype

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Compute a value for each sample. Subclasses define it."""
        raise NotSupportedError(
            f"{type(self).__name__} does not define `call(y_true, y_pred)`, which returns a value for each sample."
        )

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Array:
        of_predictions = context.get_keras_mask(y_pred)
        y_true, y_pred = (as_arrays(values, self._dtype) for values in (y_true, y_pred))
        values = self.call(y_true, y_pred)
        of_values = context.get_keras_mask(values)
        masks = [mask for mask in (of_predictions, of_values) if mask is not None]
        mask = masks[0] if len(masks) == 1 else None
        if len(masks) == 2:
            mask = wnp.logical_and(*same_rank(*masks))
        return reduce_weighted_values(values, sample_weight, mask, self.reduction, self._dtype, self.name)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        settings: dict[str, Any] = {"name": self.name, "reduction": self.reduction}
        if self._dtype_argument is not None:
            settings["dtype"] = self._dtype_policy.name
        return settings

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Construct a loss from a config of `get_config`."""
        return cls(**config)


class LossFunctionWrapper(Loss):
    """A loss of a function of targets and predictions.

    Args:
        fn: takes (y_true, y_pred, **kwargs) and returns a value for each sample.
        reduction, name, dtype: as of `Loss`.
        **kwargs: handed on to `fn`.

    >>> from weft import keras
    >>> loss = keras.losses.LossFunctionWrapper(keras.losses.mean_squared_error, reduction="sum")
    >>> print(loss([[0.0], [0.0]], [[1.0], [2.0]]))
    5.0
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.fn = fn
        self._fn_kwargs = kwargs

    def call(self, y_true: Any, y_pred: Any) -> Any:
        if not isinstance(y_pred, (list, tuple, dict)):
            y_true, y_pred = same_rank(y_true, y_pred)
        return self.fn(y_true, y_pred, **self._fn_kwargs)

    def get_config(self) -> dict[str, Any]:
        settings = {**super().get_config(), **self._fn_kwargs}
        if type(self) is LossFunctionWrapper:
            settings["fn"] = registry.serialize_keras_object(self.fn)
        return settings

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        settings = dict(config)
        if isinstance(settings.get("fn"), (Mapping, str)):
            settings["fn"] = registry.get("losses", settings["fn"])
        return cls(**settings)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self.fn, '__name__', self.fn)}({self._fn_kwargs})>"
