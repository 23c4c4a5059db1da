"""Dataclasses that are pytrees: fields are children, or static with `pytree_node=False`."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import weft

Class = TypeVar("Class")


def field(pytree_node: bool = True, *, metadata: Any = None, **kwargs: Any) -> Any:
    """Return a field of such a dataclass, which is static if `pytree_node` is false."""
    return dataclasses.field(metadata={**(metadata or {}), "pytree_node": pytree_node}, **kwargs)


@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: type[Class] | None = None, **options: Any) -> Any:
    """Class decorator: make a frozen dataclass that is a pytree and has a method `replace`."""
    if cls is None:
        return lambda found: dataclass(found, **options)
    if "_flax_dataclass" in vars(cls):
        return cls
    result: Any = dataclasses.dataclass(**{"frozen": True, **options})(cls)
    fields = [one for one in dataclasses.fields(result) if one.init]
    data = [one.name for one in fields if one.metadata.get("pytree_node", True)]
    meta = [one.name for one in fields if not one.metadata.get("pytree_node", True)]
    if "replace" not in vars(result):
        result.replace = lambda self, **changes: dataclasses.replace(self, **changes)
    result._flax_dataclass = True  # other libraries recognise such classes by it
    weft.tree_util.register_dataclass(result, data_fields=data, meta_fields=meta)
    return result


@dataclass_transform(field_specifiers=(field,), frozen_default=True)
class PyTreeNode:
    """Base class whose subclasses are such dataclasses."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()
        dataclass(cls, **options)

    def replace(self, **changes: Any) -> Any:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]
