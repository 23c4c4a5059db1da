"""Functions of packages above `ir` that its rules call. `weft/__init__.py` sets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hooks:
    """Implementations that `weft/__init__.py` assigns.

    Attributes:
        zeros: array (or tape) of zeros of a type.
        add: sum of two tangents of one type.
        batch_jaxpr: implementation of `weft.ir.batching.batch_jaxpr`.
        import_primitive: import of the module that defines the primitive of a name.
    """

    zeros: Callable[[Any], Any]
    add: Callable[[Any, Any], Any]
    batch_jaxpr: Callable[..., Any]
    import_primitive: Callable[[str], None]


hooks = Hooks()
