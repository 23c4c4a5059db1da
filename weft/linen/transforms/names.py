"""Names of modules in jaxprs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import weft
from weft.linen import module as _module
from weft.linen.module import Module


def named_call(class_fn: Callable[..., Any], force: bool = True) -> Callable[..., Any]:
    """Wrap a method, so that its operations carry the name of the module or function in jaxprs."""

    @functools.wraps(class_fn)
    def call_in_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (force or _module.NAMED_CALLS[0]):
            return class_fn(self, *args, **kwargs)
        name = self.name if isinstance(self, Module) and self.name else type(self).__name__
        with weft.named_scope(name if class_fn.__name__ == "__call__" else f"{name}.{class_fn.__name__}"):
            return class_fn(self, *args, **kwargs)

    return call_in_scope


def enable_named_call() -> None:
    """Let operations of modules carry the names of the modules from now on."""
    _module.NAMED_CALLS[0] = True


def disable_named_call() -> None:
    """Let operations of modules carry no names from now on."""
    _module.NAMED_CALLS[0] = False


@contextlib.contextmanager
def override_named_call(enable: bool = True) -> Iterator[None]:
    """Return a context in which names are on or off."""
    before, _module.NAMED_CALLS[0] = _module.NAMED_CALLS[0], enable
    try:
        yield
    finally:
        _module.NAMED_CALLS[0] = before
