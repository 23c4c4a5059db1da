"""Names of modules in the jaxprs they are traced to."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import weft
from weft.linen import module as _module
from weft.linen.module import Module


def named_call(class_fn: Callable[..., Any], force: bool = True) -> Callable[..., Any]:
    """A method whose operations carry the name of the module, or of the function, in the jaxpr."""

    @functools.wraps(class_fn)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (force or _module.NAMED_CALLS[0]):
            return class_fn(self, *args, **kwargs)
        name = self.name if isinstance(self, Module) and self.name else type(self).__name__
        with weft.named_scope(name if class_fn.__name__ == "__call__" else f"{name}.{class_fn.__name__}"):
            return class_fn(self, *args, **kwargs)

    return named


def enable_named_call() -> None:
    """From now on operations of modules carry the names of the modules."""
    _module.NAMED_CALLS[0] = True


def disable_named_call() -> None:
    """From now on they do not."""
    _module.NAMED_CALLS[0] = False


@contextlib.contextmanager
def override_named_call(enable: bool = True) -> Iterator[None]:
    """Within the `with`, names are on or off."""
    before, _module.NAMED_CALLS[0] = _module.NAMED_CALLS[0], enable
    try:
        yield
    finally:
        _module.NAMED_CALLS[0] = before
