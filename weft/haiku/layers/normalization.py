"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft import numpy as wnp
from weft.errors import ArgumentError
from weft.haiku.frames import running_init
from weft.haiku.layers.averages import ExponentialMovingAverage
from weft.haiku.layers.format import get_channel_index
from weft.haiku.module import Module, transparent
from weft.haiku.parameters import get_parameter
from weft.haiku.typing import Initializer

Axes = int | Sequence[int] | slice


def _axes(axis: Axes, rank: int, module: Module) -> tuple[int, ...]:
    """Return axes counted from the front."""
    if isinstance(axis, slice):
        return tuple(range(rank)[axis])
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if any(not -rank <= one < rank for one in axes):
        raise ArgumentError(
            f"{type(module).__name__} {module.module_name!r} has axis {axis}, which an input of {rank} dimensions does "
            f"not have."
        )
    return tuple(one % rank for one in axes)


def _check_axis(axis: Any, module: Module) -> Axes:
    """Return an axis that is an int, a slice or a sequence of ints; raise for anything else."""
    is_sequence = isinstance(axis, Sequence) and not isinstance(axis, str) and all(isinstance(one, int) for one in axis)
    if not (isinstance(axis, (int, slice)) or is_sequence):
        raise ArgumentError(
            f"{type(module).__name__} {module.module_name!r} needs axis as an int, a slice or a sequence of ints; got "
            f"{axis!r}."
        )
    return axis


class _Normalization(Module):
    """Scale and offset: parameters, arguments of the call, or neither."""

    def __init__(
        self,
        create_scale: bool,
        create_offset: bool,
        scale_init: Initializer | None,
        offset_init: Initializer | None,
        name: str | None,
    ):
        super().__init__(name=name)
        for what, create, init in (("scale", create_scale, scale_init), ("offset", create_offset, offset_init)):
            if not create and init is not None:
                raise ArgumentError(
                    f"{type(self).__name__} {self.module_name!r} got {what}_init with create_{what}=False."
                )
        self.create_scale = create_scale
        self.create_offset = create_offset
        self.scale_init = scale_init or wnp.ones
        self.offset_init = offset_init or wnp.zeros

    @transparent
    def _scale_and_offset(self, shape: Sequence[int], dtype: Any, scale: Any, offset: Any) -> tuple[Any, Any]:
        for what, create, value in (("scale", self.create_scale, scale), ("offset", self.create_offset, offset)):
            if create and value is not None:
                raise ArgumentError(
                    f"{type(self).__name__} {self.module_name!r} has a {what} of its own (create_{what}=True), and got "
                    f"another with the call."
                )
        if self.create_scale:
            scale = get_parameter("scale", shape, dtype, init=self.scale_init)
        if self.create_offset:
            offset = get_parameter("offset", shape, dtype, init=self.offset_init)
        return scale, offset


def _finish(x: Any, mean: Any, variance: Any, scale: Any, offset: Any, eps: float) -> Any:
    """Normalize in the dtype of x."""
    return weft.nn.normalize_by(x, mean, variance, _expand_rank(scale, x.ndim), _expand_rank(offset, x.ndim), eps)


def _expand_rank(value: Any, rank: int) -> Any:
    """Reshape a parameter to have leading axes of size 1, so that it broadcasts without rank promotion."""
    value = None if value is None else wnp.asarray(value)
    if value is None or value.ndim in (0, rank):
        return value
    return wnp.reshape(value, (1,) * (rank - value.ndim) + value.shape)


class LayerNorm(_Normalization):
    """(x - mean) · scale / √(variance + eps) + offset, with moments over `axis`; parameters vary along `param_axis`.

    Args:
        axis: the axes of the moments.
        create_scale: whether there is a scale.
        create_offset: whether there is an offset.
        eps: a small number added to the variance.
        scale_init: the initializer of the scale.
        offset_init: the initializer of the offset.
        use_fast_variance: whether the variance is the mean square less the squared mean, in one pass.
        name: the name of the module within its parent; by default derived from its class.
        param_axis: the axes along which parameters vary; the last by default.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.LayerNorm(-1, True, True)(x))
    >>> x = wnp.ones((2, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (2, 3)
    """

    def __init__(
        self,
        axis: Axes,
        create_scale: bool,
        create_offset: bool,
        eps: float = 1e-5,
        scale_init: Initializer | None = None,
        offset_init: Initializer | None = None,
        use_fast_variance: bool = False,
        name: str | None = None,
        *,
        param_axis: Axes | None = None,
    ):
        super().__init__(create_scale, create_offset, scale_init, offset_init, name)
        self.axis = _check_axis(axis, self)
        self.eps = eps
        self.use_fast_variance = use_fast_variance
        self.param_axis: Axes = -1 if param_axis is None else param_axis

    def __call__(self, inputs: Any, scale: Any = None, offset: Any = None) -> Any:
        axes = _axes(self.axis, inputs.ndim, self)
        mean, variance = weft.nn.moments(inputs, axes, keepdims=True, fast=self.use_fast_variance, wide=False)
        shape = _parameter_shape(self, self.param_axis, inputs.shape)
        scale, offset = self._scale_and_offset(shape, inputs.dtype, scale, offset)
        return _finish(inputs, mean, variance, scale, offset, self.eps)


def _parameter_shape(module: Module, axis: Axes, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes along the axes of parameters; one size for the last axis."""
    axes = _axes(axis, len(shape), module)
    if axes == (len(shape) - 1,):
        return shape[-1:]
    return tuple(size if i in axes else 1 for i, size in enumerate(shape))


class InstanceNorm(LayerNorm):
    """Layer normalization over the spatial dimensions, with parameters for each channel."""

    def __init__(
        self,
        create_scale: bool,
        create_offset: bool,
        eps: float = 1e-5,
        scale_init: Initializer | None = None,
        offset_init: Initializer | None = None,
        data_format: str = "channels_last",
        name: str | None = None,
    ):
        index = get_channel_index(data_format)
        axis = slice(1, -1) if index == -1 else slice(2, None)
        super().__init__(axis, create_scale, create_offset, eps, scale_init, offset_init, name=name, param_axis=index)


class RMSNorm(Module):
    """x · scale / √(mean of x² + eps), over `axis`."""

    def __init__(
        self,
        axis: Axes,
        eps: float = 1e-5,
        scale_init: Initializer | None = None,
        name: str | None = None,
        create_scale: bool = True,
        *,
        param_axis: Axes | None = None,
    ):
        super().__init__(name=name)
        if not create_scale and scale_init is not None:
            raise ArgumentError(f"RMSNorm {self.module_name!r} got scale_init with create_scale=False.")
        self.axis = _check_axis(axis, self)
        self.eps = eps
        self.create_scale = create_scale
        self.scale_init = scale_init or wnp.ones
        self.param_axis: Axes = -1 if param_axis is None else param_axis

    def __call__(self, inputs: Any) -> Any:
        axes = _axes(self.axis, inputs.ndim, self)
        _, square = weft.nn.moments(inputs, axes, keepdims=True, centered=False, wide=False)
        scale = None
        if self.create_scale:
            shape = _parameter_shape(self, self.param_axis, inputs.shape)
            scale = get_parameter("scale", shape, inputs.dtype, init=self.scale_init)
        factor = weft.lax.rsqrt(square + wnp.asarray(self.eps, square.dtype))
        return inputs * (factor if scale is None else factor * _expand_rank(scale, inputs.ndim))


class GroupNorm(_Normalization):
    """Layer normalization of groups of channels, over `axis` and the channels of the group."""

    def __init__(
        self,
        groups: int,
        axis: Axes = slice(1, None),
        create_scale: bool = True,
        create_offset: bool = True,
        eps: float = 1e-5,
        scale_init: Initializer | None = None,
        offset_init: Initializer | None = None,
        data_format: str = "channels_last",
        name: str | None = None,
    ):
        super().__init__(create_scale, create_offset, scale_init, offset_init, name)
        self.groups = groups
        self.axis = _check_axis(axis, self)
        self.eps = eps
        self.data_format = data_format
        self.channel_index = get_channel_index(data_format)
        self.rank: int | None = None

    def __call__(self, x: Any, scale: Any = None, offset: Any = None) -> Any:
        if self.rank is not None and x.ndim != self.rank:
            raise ArgumentError(
                f"GroupNorm {self.module_name!r} needs inputs of {self.rank} dimensions as in its first call, got "
                f"{x.shape}."
            )
        self.rank = x.ndim
        channel = self.channel_index % x.ndim
        channels = x.shape[channel]
        if channels % self.groups:
            raise ArgumentError(
                f"GroupNorm {self.module_name!r} has {self.groups} groups, which do not divide the {channels} channels "
                f"of its input."
            )
        axes = _axes(self.axis, x.ndim, self)
        # Split the channel axis into groups and channels of a group; moments are over the latter.
        split = (*x.shape[:channel], self.groups, channels // self.groups, *x.shape[channel + 1 :])
        within = [axis + (axis >= channel) for axis in axes if axis != channel] + [channel + 1]
        grouped = wnp.reshape(x, split)
        mean, variance = weft.nn.moments(grouped, tuple(within), keepdims=True, fast=False, wide=False)
        out = wnp.reshape(_finish(grouped, mean, variance, None, None, self.eps), x.shape)
        shape = (channels,) + (1,) * (x.ndim - 2 if self.channel_index == 1 else 0)
        scale, offset = self._scale_and_offset(shape, x.dtype, scale, offset)
        out = out if scale is None else out * _expand_rank(scale, out.ndim)
        return out if offset is None else out + _expand_rank(offset, out.ndim)


class BatchNorm(_Normalization):
    """(x - mean) · scale / √(variance + eps) + offset for each channel, with moments over the batch.

    In training it uses the moments of the batch and stores their moving averages as state; otherwise it uses the
    averages, or with `test_local_stats` the moments of the batch.

    Args:
        create_scale: whether there is a scale.
        create_offset: whether there is an offset.
        decay_rate: the decay of the stored moments.
        eps: a small number added to the variance.
        scale_init: the initializer of the scale.
        offset_init: the initializer of the offset.
        axis: the axes of the moments; all but the channels by default.
        cross_replica_axis: a mapped axis over which moments are averaged too.
        cross_replica_axis_index_groups: groups of positions along that axis.
        data_format: where the channels are: "channels_last" or "channels_first", or such as "NHWC".
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform_with_state(lambda x: haiku.BatchNorm(True, True, 0.9)(x, is_training=True))
    >>> params, state = model.init(random.key(0), wnp.ones((4, 2)))
    >>> model.apply(params, state, None, wnp.ones((4, 2)))[0].shape
    (4, 2)
    """

    def __init__(
        self,
        create_scale: bool,
        create_offset: bool,
        decay_rate: float,
        eps: float = 1e-5,
        scale_init: Initializer | None = None,
        offset_init: Initializer | None = None,
        axis: Sequence[int] | None = None,
        cross_replica_axis: str | Sequence[str] | None = None,
        cross_replica_axis_index_groups: Sequence[Sequence[int]] | None = None,
        data_format: str = "channels_last",
        name: str | None = None,
    ):
        super().__init__(create_scale, create_offset, scale_init, offset_init, name)
        if cross_replica_axis is None and cross_replica_axis_index_groups is not None:
            raise ArgumentError(
                f"BatchNorm {self.module_name!r} got cross_replica_axis_index_groups without cross_replica_axis."
            )
        self.eps = eps
        self.axis = axis
        self.cross_replica_axis = cross_replica_axis
        self.cross_replica_axis_index_groups = cross_replica_axis_index_groups
        self.channel_index = get_channel_index(data_format)
        self.mean_ema = ExponentialMovingAverage(decay_rate, name="mean_ema")
        self.var_ema = ExponentialMovingAverage(decay_rate, name="var_ema")

    def __call__(
        self, inputs: Any, is_training: bool, test_local_stats: bool = False, scale: Any = None, offset: Any = None
    ) -> Any:
        channel = self.channel_index % inputs.ndim if inputs.ndim else None
        if self.axis is None:
            axes = tuple(axis for axis in range(inputs.ndim) if axis != channel)
        else:
            axes = _axes(self.axis, inputs.ndim, self)
        # Initialization has no averages yet, so it uses the moments of the batch.
        is_training = is_training or (running_init() and not test_local_stats)
        if is_training or test_local_stats:
            mean, variance = weft.nn.moments(
                inputs,
                axes,
                keepdims=True,
                wide=False,
                axis_name=self.cross_replica_axis,
                axis_index_groups=self.cross_replica_axis_index_groups,
            )
        else:
            mean = self.mean_ema.average.astype(inputs.dtype)
            variance = self.var_ema.average.astype(inputs.dtype)
        if is_training:
            self.mean_ema(mean)
            self.var_ema(variance)
        shape = [1 if axis in axes else size for axis, size in enumerate(inputs.shape)]
        scale, offset = self._scale_and_offset(shape, inputs.dtype, scale, offset)
        return _finish(inputs, mean, variance, scale, offset, self.eps)
