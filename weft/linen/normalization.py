"""Normalization layers, based on `weft.nn.moments` and `weft.nn.normalize_by`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax, nn
from weft.errors import ArgumentError
from weft.linen import initializers
from weft.linen.dtypes import canonicalize_dtype
from weft.linen.linear import as_tuple
from weft.linen.methods import compact
from weft.linen.module import Module
from weft.linen.sharing import merge_param
from weft.linen.transforms import map_variables


def _axes(axes: int | Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(axis % rank for axis in as_tuple(axes))


def _expand_axes(values: Any, axes: Sequence[int], rank: int) -> Any:
    """Insert reduced axes of size 1 into statistics that lack them."""
    return wnp.expand_dims(values, tuple(sorted(axes))) if values.ndim < rank else values


def _finish(module: Any, x: Any, mean: Any, variance: Any, axes: tuple[int, ...], feature_axes: tuple[int, ...]) -> Any:
    """Normalize, scale and shift, with the parameters `scale` and `bias` over the feature axes."""
    sizes = [x.shape[axis] if axis in feature_axes else 1 for axis in range(x.ndim)]
    shape = tuple(x.shape[axis] for axis in feature_axes)
    values: list[Any] = [x]
    scale = bias = None
    if module.use_scale:
        found = module.param("scale", module.scale_init, shape, module.param_dtype)
        values.append(found)
        scale = wnp.reshape(found, sizes)
    if getattr(module, "use_bias", False):
        found = module.param("bias", module.bias_init, shape, module.param_dtype)
        values.append(found)
        bias = wnp.reshape(found, sizes)
    mean, variance = _expand_axes(mean, axes, x.ndim), _expand_axes(variance, axes, x.ndim)
    out = nn.normalize_by(x, mean, variance, scale, bias, module.epsilon)
    return out.astype(canonicalize_dtype(*values, dtype=module.dtype))


class BatchNorm(Module):
    """Normalization over all axes except for the features, with running averages in the collection 'batch_stats'.

    Args:
        use_running_average: whether the stored moments are used instead of those of the batch; may be passed in the
            call instead.
        axis: the axis of the features.
        momentum: the decay of the stored moments.
        epsilon: a small number that is added to the variance.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        use_bias: whether a bias is added.
        use_scale: whether the result is multiplied by a scale.
        bias_init: the initializer of the bias.
        scale_init: the initializer of the scale.
        axis_name: the name of a mapped axis over which moments are averaged too.
        axis_index_groups: groups of positions along that axis.
        use_fast_variance: whether the variance is the mean square less the squared mean, in one pass.
        force_float32_reductions: whether moments of short floats are computed in float32.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.BatchNorm(use_running_average=False)
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((4, 2)))
    >>> y.shape
    (4, 2)
    >>> sorted(variables)
    ['batch_stats', 'params']
    """

    use_running_average: bool | None = None
    axis: int = -1
    momentum: float = 0.99
    epsilon: float = 1e-5
    dtype: Any = None
    param_dtype: Any = wnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Callable[..., Any] = initializers.zeros
    scale_init: Callable[..., Any] = initializers.ones
    axis_name: str | None = None
    axis_index_groups: Any = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(self, x: Any, use_running_average: bool | None = None, *, mask: Any = None) -> Any:
        running = merge_param("use_running_average", self.use_running_average, use_running_average)
        feature_axes = _axes(self.axis, x.ndim)
        axes = tuple(axis for axis in range(x.ndim) if axis not in feature_axes)
        shape = tuple(x.shape[axis] for axis in feature_axes)
        kind = wnp.float32 if self.force_float32_reductions else self.param_dtype
        running_mean = self.variable("batch_stats", "mean", lambda: wnp.zeros(shape, kind))
        running_var = self.variable("batch_stats", "var", lambda: wnp.ones(shape, kind))
        if running:
            mean, variance = (
                wnp.reshape(value, [x.shape[axis] if axis in feature_axes else 1 for axis in range(x.ndim)])
                for value in (running_mean.value, running_var.value)
            )
        else:
            mean, variance = nn.moments(
                x,
                axes,
                where=mask,
                fast=self.use_fast_variance,
                wide=self.force_float32_reductions,
                axis_name=None if self.is_initializing() else self.axis_name,
                axis_index_groups=self.axis_index_groups,
            )
            if not self.is_initializing():
                keep = self.momentum
                running_mean.value = keep * running_mean.value + (1 - keep) * mean
                running_var.value = keep * running_var.value + (1 - keep) * variance
        return _finish(self, x, mean, variance, axes, feature_axes)


class LayerNorm(Module):
    """Normalization over the features of each element.

    Args:
        epsilon: a small number that is added to the variance.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        use_bias: whether a bias is added.
        use_scale: whether the result is multiplied by a scale.
        bias_init: the initializer of the bias.
        scale_init: the initializer of the scale.
        reduction_axes: the axes over which moments are computed.
        feature_axes: the axes of the scale and the bias.
        axis_name: the name of a mapped axis over which moments are averaged too.
        axis_index_groups: groups of positions along that axis.
        use_fast_variance: whether the variance is the mean square less the squared mean, in one pass.
        force_float32_reductions: whether moments of short floats are computed in float32.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> linen.LayerNorm().init_with_output(random.key(0), wnp.array([1.0, 3.0]))[0].round(3)
    Array([-1.,  1.], dtype=float32)
    """

    epsilon: float = 1e-6
    dtype: Any = None
    param_dtype: Any = wnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Callable[..., Any] = initializers.zeros
    scale_init: Callable[..., Any] = initializers.ones
    reduction_axes: int | Sequence[int] = -1
    feature_axes: int | Sequence[int] = -1
    axis_name: str | None = None
    axis_index_groups: Any = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        axes = _axes(self.reduction_axes, x.ndim)
        mean, variance = nn.moments(
            x,
            axes,
            where=mask,
            fast=self.use_fast_variance,
            wide=self.force_float32_reductions,
            axis_name=self.axis_name,
            axis_index_groups=self.axis_index_groups,
        )
        return _finish(self, x, mean, variance, axes, _axes(self.feature_axes, x.ndim))


class RMSNorm(Module):
    """Division by the root mean square of the features, and a scale.

    Args:
        epsilon: a small number that is added to the variance.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        use_scale: whether the result is multiplied by a scale.
        scale_init: the initializer of the scale.
        reduction_axes: the axes over which moments are computed.
        feature_axes: the axes of the scale and the bias.
        axis_name: the name of a mapped axis over which moments are averaged too.
        axis_index_groups: groups of positions along that axis.
        use_fast_variance: whether the variance is the mean square less the squared mean, in one pass.
        force_float32_reductions: whether moments of short floats are computed in float32.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> linen.RMSNorm().init_with_output(random.key(0), wnp.array([1.0, -1.0]))[0].round(3)
    Array([ 1., -1.], dtype=float32)
    """

    epsilon: float = 1e-6
    dtype: Any = None
    param_dtype: Any = wnp.float32
    use_scale: bool = True
    scale_init: Callable[..., Any] = initializers.ones
    reduction_axes: int | Sequence[int] = -1
    feature_axes: int | Sequence[int] = -1
    axis_name: str | None = None
    axis_index_groups: Any = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        axes = _axes(self.reduction_axes, x.ndim)
        mean, variance = nn.moments(
            x,
            axes,
            where=mask,
            centered=False,
            fast=self.use_fast_variance,
            wide=self.force_float32_reductions,
            axis_name=self.axis_name,
            axis_index_groups=self.axis_index_groups,
        )
        return _finish(self, x, mean, variance, axes, _axes(self.feature_axes, x.ndim))


class GroupNorm(Module):
    """Normalization over groups of features, and over all axes between them and the batch.

    Args:
        num_groups: the number of groups, or None with `group_size`.
        group_size: the number of features of a group.
        epsilon: a small number that is added to the variance.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        use_bias: whether a bias is added.
        use_scale: whether the result is multiplied by a scale.
        bias_init: the initializer of the bias.
        scale_init: the initializer of the scale.
        reduction_axes: the axes over which moments are computed.
        axis_name: the name of a mapped axis over which moments are averaged too.
        axis_index_groups: groups of positions along that axis.
        use_fast_variance: whether the variance is the mean square less the squared mean, in one pass.
        force_float32_reductions: whether moments of short floats are computed in float32.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.GroupNorm(num_groups=2)
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 5, 4)))
    >>> y.shape
    (1, 5, 4)
    """

    num_groups: int | None = 32
    group_size: int | None = None
    epsilon: float = 1e-6
    dtype: Any = None
    param_dtype: Any = wnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Callable[..., Any] = initializers.zeros
    scale_init: Callable[..., Any] = initializers.ones
    reduction_axes: Sequence[int] | None = None
    axis_name: str | None = None
    axis_index_groups: Any = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        axes = tuple(range(1, x.ndim)) if self.reduction_axes is None else _axes(self.reduction_axes, x.ndim)
        if x.ndim - 1 not in axes:
            raise ArgumentError(
                f"reduction_axes of {self._where()} must contain the last axis, got {self.reduction_axes}."
            )
        channels = x.shape[-1]
        groups = self._groups(channels)
        size = channels // groups
        split = wnp.reshape(x, (*x.shape[:-1], groups, size))
        where = None if mask is None else wnp.reshape(wnp.broadcast_to(mask, x.shape), split.shape)
        mean, variance = nn.moments(
            split,
            (*(axis for axis in axes if axis != x.ndim - 1), x.ndim),
            where=where,
            fast=self.use_fast_variance,
            wide=self.force_float32_reductions,
            axis_name=self.axis_name,
            axis_index_groups=self.axis_index_groups,
        )
        mean, variance = (wnp.repeat(value, size, axis=-1) for value in (mean, variance))
        return _finish(self, x, mean, variance, axes[:-1], (x.ndim - 1,))

    def _groups(self, channels: int) -> int:
        if (self.num_groups is None) == (self.group_size is None):
            raise ArgumentError(
                f"GroupNorm {self._where()} needs num_groups or group_size, and the other None; got num_groups="
                f"{self.num_groups} and group_size={self.group_size}."
            )
        divisor = self.num_groups if self.num_groups is not None else self.group_size
        assert divisor is not None
        if divisor <= 0 or channels % divisor:
            raise ArgumentError(f"GroupNorm {self._where()} cannot divide {channels} channels by {divisor}.")
        return divisor if self.num_groups is not None else channels // divisor


class InstanceNorm(Module):
    """Normalization of each feature of each example over the axes in between."""

    epsilon: float = 1e-6
    dtype: Any = None
    param_dtype: Any = wnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Callable[..., Any] = initializers.zeros
    scale_init: Callable[..., Any] = initializers.ones
    feature_axes: int | Sequence[int] = -1
    axis_name: str | None = None
    axis_index_groups: Any = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        feature_axes = _axes(self.feature_axes, x.ndim)
        if 0 in feature_axes:
            raise ArgumentError(f"feature_axes of {self._where()} must not contain the first axis, that of the batch.")
        axes = tuple(axis for axis in range(1, x.ndim) if axis not in feature_axes)
        mean, variance = nn.moments(
            x,
            axes,
            where=mask,
            fast=self.use_fast_variance,
            wide=self.force_float32_reductions,
            axis_name=self.axis_name,
            axis_index_groups=self.axis_index_groups,
        )
        return _finish(self, x, mean, variance, axes, feature_axes)


def _unit(x: Any, axes: Any, epsilon: float) -> Any:
    """Return x divided by its Euclidean norm."""
    return x * lax.rsqrt(wnp.sum(wnp.square(x), axis=axes, keepdims=True) + wnp.asarray(epsilon, x.dtype))


def _variable_name(path: Any, layer: Module) -> str:
    """Return the name of the variables for a parameter of the wrapped layer, such as `layer/kernel`."""
    return f"{layer.name}/{weft.tree_util.keystr(path[1:], simple=True, separator='/')}"


class SpectralNorm(Module):
    """A layer whose kernels are divided by their largest singular value, estimated by power iteration."""

    layer_instance: Module
    n_steps: int = 1
    epsilon: float = 1e-12
    dtype: Any = None
    param_dtype: Any = wnp.float32
    error_on_non_matrix: bool = False
    collection_name: str = "batch_stats"

    @compact
    def __call__(self, *args: Any, update_stats: bool, **kwargs: Any) -> Any:
        def normalize_all(variables: Any) -> Any:
            change = lambda path, value: self._normalize(path, value, update_stats)
            return weft.tree_util.tree_map_with_path(change, variables)

        forward = map_variables(
            lambda layer: layer(*args, **kwargs), trans_in_fn=normalize_all, init=self.is_initializing(), mutable=True
        )
        return forward(self.layer_instance)

    def _normalize(self, path: Any, value: Any, update: bool) -> Any:
        value, name = wnp.asarray(value), _variable_name(path, self.layer_instance)
        shape = value.shape
        if value.ndim <= 1 or self.n_steps < 1:
            return value
        if value.ndim > 2:
            if self.error_on_non_matrix:
                raise ArgumentError(
                    f"{self._where()} needs matrices, got {_variable_name(path, self.layer_instance)} of shape {shape}."
                )
            value = wnp.reshape(value, (-1, shape[-1]))
        name = _variable_name(path, self.layer_instance)
        start = lambda size: initializers.normal(stddev=1.0)(self.make_rng("params"), size, self.param_dtype)
        stored_u = self.variable(self.collection_name, f"{name}/u", start, (1, value.shape[-1]))
        stored_sigma = self.variable(self.collection_name, f"{name}/sigma", wnp.ones, (), self.param_dtype)
        u = stored_u.value
        for _ in range(self.n_steps):
            v = _unit(wnp.matmul(u, value.T), None, self.epsilon)
            u = _unit(wnp.matmul(v, value), None, self.epsilon)
        u, v = lax.stop_gradient(u), lax.stop_gradient(v)
        sigma = wnp.matmul(wnp.matmul(v, value), u.T)[0, 0]
        if update:
            stored_u.value, stored_sigma.value = u, sigma
        out = wnp.reshape(value / wnp.where(sigma != 0, sigma, wnp.ones_like(sigma)), shape)
        return out.astype(canonicalize_dtype(out, u, v, sigma, dtype=self.dtype))


class WeightNorm(Module):
    """A layer whose kernels have norm 1 over all axes except for the features, times a learned scale."""

    layer_instance: Module
    epsilon: float = 1e-12
    dtype: Any = None
    param_dtype: Any = wnp.float32
    use_scale: bool = True
    scale_init: Callable[..., Any] = initializers.ones
    feature_axes: Any = -1
    variable_filter: Any = frozenset({"kernel"})

    @compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward = map_variables(
            lambda layer: layer(*args, **kwargs),
            trans_in_fn=lambda variables: weft.tree_util.tree_map_with_path(self._normalize, variables),
            init=self.is_initializing(),
        )
        return forward(self.layer_instance)

    def _normalize(self, path: Any, value: Any) -> Any:
        name = _variable_name(path, self.layer_instance)
        if self.variable_filter and not any(word in name for word in self.variable_filter):
            return value
        value = wnp.asarray(value)
        features = () if self.feature_axes is None else _axes(self.feature_axes, value.ndim)
        out = _unit(value, tuple(axis for axis in range(value.ndim) if axis not in features), self.epsilon)
        if not self.use_scale:
            return out.astype(canonicalize_dtype(out, dtype=self.dtype))
        shape = tuple(value.shape[axis] for axis in features)
        scale = self.param(f"{name}/scale", self.scale_init, shape, self.param_dtype)
        sizes = tuple(size if axis in features else 1 for axis, size in enumerate(value.shape))
        return (out * wnp.reshape(scale, sizes)).astype(canonicalize_dtype(out, scale, dtype=self.dtype))
