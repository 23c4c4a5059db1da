"""Primitives under JAX's names: the objects that equations have as their `primitive`."""

from typing import Any as _Any

from weft.base.publish import MissingNameError as _MissingNameError, publish as _publish
from weft.lax.primitive_objects import EXTENDED as _PRIMITIVES, primitive_object as _primitive_object


def __getattr__(name: str) -> _Any:
    if name not in _PRIMITIVES:
        raise _MissingNameError(__name__, name)
    return _primitive_object(name, _PRIMITIVES)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PRIMITIVES])


_publish(__name__, later=_PRIMITIVES)
