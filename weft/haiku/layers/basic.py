"""Layers without parameters of their own: sequences, shapes, dropout, and functions applied over leading axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import weft
from weft import numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError
from weft.haiku.module import Module


class Sequential(Module):
    """Layers applied one after another; the first may take several arguments.

    Args:
        layers: functions and modules.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Sequential([haiku.Linear(4), nn.relu, haiku.Linear(2)])(x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 2)
    """

    def __init__(self, layers: Iterable[Callable[..., Any]], name: str | None = None):
        super().__init__(name=name)
        if callable(layers) or not isinstance(layers, Iterable):
            raise ArgumentTypeError(f"Sequential {self.module_name!r} needs a list of layers, got {layers!r}.")
        self.layers = tuple(layers)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        out = inputs
        for i, layer in enumerate(self.layers):
            out = layer(out, *args, **kwargs) if i == 0 else layer(out)
        return out


class Reshape(Module):
    """Reshape the dimensions after the first `preserve_dims` to `output_shape`, which may contain one -1.

    A negative `preserve_dims` is the number of trailing dimensions to replace.

    Args:
        output_shape: the new sizes.
        preserve_dims: the number of leading dimensions to preserve.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Reshape((3, 2))(x))
    >>> x = wnp.ones((1, 6))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 3, 2)
    """

    def __init__(self, output_shape: Sequence[int], preserve_dims: int = 1, name: str | None = None):
        super().__init__(name=name)
        if preserve_dims == 0:
            raise ArgumentError(f"Reshape {self.module_name!r} cannot have preserve_dims=0.")
        if sum(size == -1 for size in output_shape) > 1:
            raise ArgumentError(
                f"Reshape {self.module_name!r} can have one -1 in output_shape, got {tuple(output_shape)}."
            )
        self.output_shape = tuple(output_shape)
        self.preserve_dims = preserve_dims

    def __call__(self, inputs: Any) -> Any:
        if inputs.ndim <= self.preserve_dims:
            return inputs
        leading, rest = inputs.shape[: self.preserve_dims], inputs.shape[self.preserve_dims :]
        if inputs.ndim < -self.preserve_dims:
            raise ArgumentError(
                f"Reshape {self.module_name!r} needs an input of {-self.preserve_dims} dimensions or more, got shape "
                f"{inputs.shape}."
            )
        sizes = self.output_shape
        known = math.prod(size for size in sizes if size != -1)
        total = math.prod(rest)
        if -1 in sizes:
            if known == 0 or total % known:
                raise ArgumentError(
                    f"Reshape {self.module_name!r} cannot make {sizes} of {rest}: {total} elements "
                    f"do not divide by {known}."
                )
            sizes = tuple(total // known if size == -1 else size for size in sizes)
        elif known != total:
            raise ArgumentError(
                f"Reshape {self.module_name!r} cannot make {sizes} of {rest}: {known} elements of {total}."
            )
        return wnp.reshape(inputs, (*leading, *sizes))


class Flatten(Reshape):
    """Merge all dimensions after the first `preserve_dims`.

    Args:
        preserve_dims: the number of leading dimensions to preserve.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Flatten()(x))
    >>> x = wnp.ones((2, 3, 4))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (2, 12)
    """

    def __init__(self, preserve_dims: int = 1, name: str | None = None):
        super().__init__(output_shape=(-1,), preserve_dims=preserve_dims, name=name)


class BatchApply:
    """Apply `f` to arrays whose first `num_dims` dimensions are merged into one, and split them in the results.

    Args:
        f: a function or module.
        num_dims: the number of dimensions to merge.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.BatchApply(haiku.Linear(2))(x))
    >>> x = wnp.ones((4, 5, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (4, 5, 2)
    """

    def __init__(self, f: Callable[..., Any], num_dims: int = 2):
        self._f = f
        self.num_dims = num_dims

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leading = self._leading(args, kwargs)

        def merge_batch(x: Any) -> Any:
            shape = np.shape(x)
            return x if len(shape) < self.num_dims else wnp.reshape(x, (-1, *shape[self.num_dims :]))

        args, kwargs = weft.tree.map(merge_batch, (args, kwargs))
        out = self._f(*args, **kwargs)
        return weft.tree.map(lambda x: wnp.reshape(x, (*leading, *x.shape[1:])), out)

    def _leading(self, args: Any, kwargs: Any) -> tuple[int, ...]:
        """Return the dimensions to merge, in which all arrays that have them must agree."""
        found: tuple[int, ...] | None = None
        for leaf in weft.tree.leaves((args, kwargs)):
            shape = tuple(np.shape(leaf))
            if len(shape) < self.num_dims:
                continue
            if found is not None and shape[: self.num_dims] != found:
                raise ArgumentError(
                    f"BatchApply needs arrays with the same first {self.num_dims} sizes, got {found} and "
                    f"{shape[: self.num_dims]}."
                )
            found = shape[: self.num_dims]
        if found is None:
            raise ArgumentError(f"BatchApply needs at least one array of {self.num_dims} dimensions or more.")
        return found


def expand_apply(f: Callable[..., Any], axis: int = 0) -> Callable[..., Any]:
    """Apply `f` to arrays with a new axis of size 1, and remove the axis from the results."""
    if axis not in (0, -1):
        raise ArgumentError(f"expand_apply needs axis 0 or -1, got {axis}.")

    def run(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = weft.tree.map(lambda x: wnp.expand_dims(x, axis), (args, kwargs))
        return weft.tree.map(lambda x: wnp.squeeze(x, axis), f(*args, **kwargs))

    return run


def dropout(rng: Any, rate: Any, x: Any, broadcast_dims: Sequence[int] = ()) -> Any:
    """Set each element to 0 with probability `rate`, else divide it by 1 - rate; broadcast along `broadcast_dims`.

    Args:
        rng: a random key.
        rate: the probability of 0.
        x: an array.
        broadcast_dims: axes along which elements are set to 0 together.

    Returns:
        An array like `x`.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> haiku.dropout(random.key(0), 0.0, wnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    if isinstance(rate, (int, float)) and not 0 <= rate < 1:
        fix = "a rate such as 0.1, the probability that an element becomes 0"
        raise ArgumentError("dropout needs a rate in [0, 1).", received=str(rate), fix=fix)
    return weft.nn.dropout(rng, rate, x, broadcast_dims)


def one_hot(x: Any, num_classes: int, dtype: Any = wnp.float32) -> Any:
    """Return 1 at the index x, else 0, along a new last axis.

    Args:
        x: integers.
        num_classes: the size of the new axis.
        dtype: the dtype.

    Returns:
        An array with one axis more.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> haiku.one_hot(wnp.array([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    return weft.nn.one_hot(x, num_classes, dtype=dtype)


def multinomial(rng: Any, logits: Any, num_samples: int) -> Any:
    """Draw samples of categorical distributions over the last axis of logits, along a new last axis."""
    drawn = weft.random.categorical(rng, logits, axis=-1, shape=(num_samples, *logits.shape[:-1]))
    return wnp.moveaxis(drawn, 0, -1)
