"""Dataclasses that are quick to define.

The standard library's decorator compiles the text of each method when a class is defined, up to a millisecond per
class: for Weft's classes more than a tenth of a second before the first result of a process. Here all classes share
the methods that do not depend on field names, and `__init__` is compiled when the first object is created.
`dataclasses.fields`, `replace`, `asdict` and `match` treat the classes as dataclasses.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import field
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

Class = TypeVar("Class")


@overload
def dataclass(cls: type[Class], /) -> type[Class]: ...


@overload
def dataclass(*, frozen: bool = False, eq: bool = True, repr: bool = True) -> Callable[[type[Class]], type[Class]]: ...


@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: Any = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True) -> Any:
    """Make a class a dataclass, as `dataclasses.dataclass` does. Subclasses that are dataclasses must use this
    decorator too."""
    if cls is None:
        return lambda found: _define(found, frozen, eq, repr)
    return _define(cls, frozen, eq, repr)


def _define(cls: Any, frozen: bool, eq: bool, repr: bool) -> Any:
    own = vars(cls)
    has_hash = own.get("__hash__") is not None
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(cls)
    if "__init__" not in own:
        _write_init_later(cls)
    if repr and "__repr__" not in own:
        cls.__repr__ = _written
    if eq and "__eq__" not in own:
        cls.__eq__ = _equality(_values([f.name for f in fields if f.compare]))
    if eq and not has_hash:
        hashed = _values([f.name for f in fields if (f.compare if f.hash is None else f.hash)])
        cls.__hash__ = (lambda self: hash(hashed(self))) if frozen else None
    if frozen:
        cls.__setattr__, cls.__delattr__ = _refuse_to_set, _refuse_to_delete
    return cls


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns a tuple of the values of some fields."""
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        get = attrgetter(names[0])
        return lambda self: (get(self),)
    return lambda self: ()


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


@recursive_repr()
def _written(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _is_fixed(self: Any, name: str) -> bool:
    """Return whether an attribute of a frozen object is immutable: all attributes of a class that is frozen itself, and
    the fields of one that inherits from it."""
    return "__dataclass_fields__" in vars(type(self)) or name in type(self).__dataclass_fields__


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    if _is_fixed(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_fixed(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


# ------------------------------------------------------------------------------------------------------------ __init__


class _Factory:
    """The default value that signatures show for a field with a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _write_init_later(cls: Any) -> None:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _init_of(cls)
        cls.__init__(self, *args, **kwargs)

    cls.__init__ = __init__
    cls.__signature__ = _Signature(cls)


class _Signature:
    """The `__signature__` descriptor of a class whose `__init__` may not have been compiled yet."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        # Subclasses and callable instances find the attribute too, but have their own signatures.
        if instance is not None or owner is not self._cls:
            raise AttributeError("__signature__")
        found = inspect.signature(_init_of(owner))
        return found.replace(parameters=list(found.parameters.values())[1:])


def _init_of(cls: Any) -> Any:
    """Generate the `__init__` of a dataclass."""
    fields = dataclasses.fields(cls)
    # Names that cannot be fields.
    names: dict[str, Any] = {"__set": object.__setattr__, "__factory": _FACTORY}
    by_position: list[str] = []
    by_name: list[str] = []
    lines: list[str] = []
    for f in fields:
        has_default, has_factory = f.default is not dataclasses.MISSING, f.default_factory is not dataclasses.MISSING
        if not f.init and not has_factory:
            continue  # the class attribute or __post_init__ sets the value
        value, default = f.name, ""
        if has_default:
            names[f"__default_{f.name}"], default = f.default, f"=__default_{f.name}"
        if has_factory:
            names[f"__new_{f.name}"], default = f.default_factory, "=__factory"
            value = f"__new_{f.name}()" + (f" if {f.name} is __factory else {f.name}" if f.init else "")
        if f.init:
            (by_name if f.kw_only else by_position).append(f.name + default)
        is_frozen = cls.__setattr__ is _refuse_to_set
        lines.append(f"__set(self, {f.name!r}, {value})" if is_frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    signature = ", ".join(["self", *by_position, *(["*", *by_name] if by_name else [])])
    result: dict[str, Any] = {}
    exec(f"def __init__({signature}):\n " + ("\n ".join(lines) or "pass"), names, result)
    init = result["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
    return init
