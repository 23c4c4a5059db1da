"""Modules that share variables."""

from __future__ import annotations

from typing import Any

from weft.errors import (
    ArgumentError,
    UnboundModuleError,
    user_line,
)
from weft.linen.module import Module
from weft.modules.scope import Scope


def share_scope(module: Module, other: Module, /) -> None:
    """Give a submodule the scope of its owner, so that the variables of `other` are stored beside those of `module`.

    Call it in `setup`: a module that wraps another then has the same parameter tree as the wrapped module.

    Args:
        module: the module whose scope is shared.
        other: its submodule.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> class Wrapper(linen.Module):
    ...     def setup(self):
    ...         self.inner = linen.Dense(2)
    ...         linen.share_scope(self, self.inner)
    ...     def __call__(self, x):
    ...         return self.inner(x)
    >>> sorted(Wrapper().init(random.key(0), wnp.ones((1, 2)))["params"])
    ['bias', 'kernel']
    """
    if module.scope is None or other.scope is None:
        raise UnboundModuleError(
            "share_scope needs two bound modules.",
            at=user_line(),
            fix="call it in setup, after the assignment of the submodule to an attribute",
        )
    if other.scope.path[: len(module.scope.path)] == module.scope.path:
        _move(other, other.scope.path, module.scope.path)
    else:
        _move(module, module.scope.path, other.scope.path)


def _move(module: Module, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    assert module.scope is not None
    path = new + module.scope.path[len(old) :]
    scope = Scope(module.scope.call, path)
    scope.names = module.scope.names
    object.__setattr__(module, "scope", scope)
    for child in module._state.children.values():
        if isinstance(child, Module) and child.scope is not None:
            _move(child, old, new)


def merge_param(name: str, a: Any, b: Any) -> Any:
    """Return the option that is given, as a field of the module or in the call; raise if both or neither are."""
    if (a is None) == (b is None):
        where = "in both" if a is not None else "in neither"
        raise ArgumentError(
            f"Parameter {name!r} must be given to the constructor or to the call; it was given {where}."
        )
    return b if a is None else a
