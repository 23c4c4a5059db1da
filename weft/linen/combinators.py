"""Modules that contain other modules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.linen.methods import compact
from weft.linen.module import Module

Method = TypeVar("Method", bound=Callable[..., Any])


class Sequential(Module):
    """Layers applied one after another. A tuple or dict that a layer returns becomes the arguments of the next.

    Args:
        layers: functions and modules.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.Sequential([linen.Dense(4), linen.relu, linen.Dense(2)])
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 3)))
    >>> y.shape
    (1, 2)
    """

    layers: Sequence[Callable[..., Any]]

    @compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.layers:
            raise ArgumentError(f"Sequential {self._where()} has no layers.")
        first, *rest = self.layers
        result = first(*args, **kwargs)
        for layer in rest:
            if isinstance(result, tuple):
                result = layer(*result)
            elif isinstance(result, Mapping):
                result = layer(**result)
            else:
                result = layer(result)
        return result


class BatchApply:
    """A function of arrays with one batch axis, applied to arrays with `num_dims` batch axes.

    Numbers and arrays of lower rank are passed on unchanged.
    """

    def __init__(self, f: Callable[..., Any], num_dims: int = 2):
        self.f = f
        self.num_dims = num_dims

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        shapes: list[tuple[int, ...]] = []

        def merge_batch(x: Any) -> Any:
            if wnp.ndim(x) < self.num_dims:
                return x
            shapes.append(x.shape[: self.num_dims])
            return wnp.reshape(x, (-1, *x.shape[self.num_dims :]))

        flat = weft.tree.map(merge_batch, (args, kwargs))
        if not shapes:
            raise ArgumentError(f"BatchApply needs an argument with at least {self.num_dims} axes.")
        result = self.f(*flat[0], **flat[1])
        return weft.tree.map(lambda x: wnp.reshape(x, (*shapes[0], *x.shape[1:])), result)


class CompactNameScope(Module):
    """The scope of a method with submodules of its own; it runs the method of its owner."""

    fn: Callable[..., Any]

    @compact
    def __call__(self, owner: Module, *args: Any, **kwargs: Any) -> Any:
        return self.fn(owner, *args, **kwargs)


def compact_name_scope(fun: Method) -> Method:
    """Decorate a method to make submodules where it uses them, below the name of the method.

    A module may have several such methods and one compact method. Each call of the method uses the same submodules.
    """

    @functools.wraps(fun)
    def method(self: Module, *args: Any, **kwargs: Any) -> Any:
        name = fun.__name__
        scope = self._bound_scope(f"Method {name!r}")
        scoped = CompactNameScope(fun, parent=scope.child(name))
        return scoped(self, *args, **kwargs)

    return cast(Method, method)
