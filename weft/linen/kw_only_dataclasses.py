"""Dataclasses whose keyword-only fields stay keyword-only in subclasses that redefine them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, field
from typing import Any, TypeVar, dataclass_transform

from weft.errors import suggest as _suggest

Class = TypeVar("Class")


@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: type[Class] | None = None, **options: Any) -> Any:
    """Make a class a dataclass. A field that is keyword-only in a base class stays so.

    Args:
        cls: a class; without it, a decorator is returned.
        **options: options of `dataclasses.dataclass`.

    Returns:
        The class.

    >>> from weft.linen import kw_only_dataclasses
    >>> @kw_only_dataclasses.dataclass
    ... class Base:
    ...     rate: float = kw_only_dataclasses.field(default=0.1, kw_only=True)
    >>> @kw_only_dataclasses.dataclass
    ... class Layer(Base):
    ...     size: int
    ...     rate: float = 0.5
    >>> Layer(3)
    Layer(rate=0.5, size=3)
    """
    if cls is None:
        decorate: Callable[[Any], Any] = lambda found: dataclass(found, **options)
        return decorate
    inherited = {
        one.name
        for base in cls.__mro__[1:]
        if dataclasses.is_dataclass(base)
        for one in dataclasses.fields(base)
        if one.kw_only
    }
    for name in inherited & set(vars(cls).get("__annotations__", {})):
        default = vars(cls).get(name, dataclasses.MISSING)
        if isinstance(default, dataclasses.Field):
            default.kw_only = True
        else:
            setattr(cls, name, field(default=default, kw_only=True))
    return dataclasses.dataclass(**options)(cls)


__all__ = ["KW_ONLY", "dataclass", "field"]

_suggest(__name__)
