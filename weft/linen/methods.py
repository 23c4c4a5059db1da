"""Decorators of methods, and the wrapper through which calls enter their module."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from weft.errors import conceal

Method = TypeVar("Method", bound=Callable[..., Any])


_LEFT_ALONE = {"__init__", "__post_init__", "__hash__", "__eq__", "__repr__", "__getattr__", "__setattr__", "__dir__"}


def compact(fun: Method) -> Method:
    """Mark a method that makes submodules and parameters where it uses them.

    A compact method called by another one continues its automatic names; called by itself it restarts them.

    Args:
        fun: a method, usually `__call__`.

    Returns:
        The method.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> class Net(linen.Module):
    ...     @linen.compact
    ...     def __call__(self, x):
    ...         return linen.Dense(1)(linen.relu(linen.Dense(4)(x)))
    >>> sorted(Net().init(random.key(0), wnp.ones((1, 2)))["params"])
    ['Dense_0', 'Dense_1']
    """
    fun.compact = True  # type: ignore[attr-defined]
    return fun


def nowrap(fun: Method) -> Method:
    """Mark a plain method: it does not run `setup`, and modules made in it are not submodules.

    Args:
        fun: a method.

    Returns:
        The method.

    >>> from weft import linen
    >>> class Net(linen.Module):
    ...     @linen.nowrap
    ...     def size(self):
    ...         return 4
    ...     @linen.compact
    ...     def __call__(self, x):
    ...         return linen.Dense(self.size())(x)
    >>> Net().size()
    4
    """
    fun.nowrap = True  # type: ignore[attr-defined]
    return fun


def _enter_module(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method, so that its module is entered when it is called."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            enter = getattr(type(args[0]), "_call_method", None) if args else None
            if enter is not None:
                return enter(args[0], method, args[1:], kwargs)
            return method(*args, **kwargs)
        except Exception as error:
            conceal(error)
            raise

    call.wrapped_by_module = True  # type: ignore[attr-defined]
    return call


def wrap_methods(cls: type) -> None:
    """Wrap the methods that a class defines, so that their module is entered when they are called."""
    fields = set(getattr(cls, "__dataclass_fields__", ()))
    for name, value in list(vars(cls).items()):
        if isinstance(value, property):
            if value.fget is not None and not hasattr(value.fget, "wrapped_by_module"):
                setattr(cls, name, property(_enter_module(value.fget), value.fset, value.fdel, value.__doc__))
            continue
        if not inspect.isfunction(value) or name in _LEFT_ALONE or name in fields:
            continue
        if name.startswith("__") and name != "__call__":
            continue
        if not getattr(value, "nowrap", False) and not hasattr(value, "wrapped_by_module"):
            setattr(cls, name, _enter_module(value))
