"""Objects by name: one table for each kind, and what users registered."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
import threading
import types
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from weft.errors import ArgumentError
from weft.keras.core.names import to_snake_case

Registered = TypeVar("Registered")


@dataclass
class Table:
    """The objects of one kind. `module` has all of them once it is imported; `public` is what files call it."""

    module: str
    public: str
    names: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, Any] = field(default_factory=dict)
    derived: dict[str, Any] = field(default_factory=dict)  # snake case and lower case of the names

    def find(self, name: str) -> Any:
        """Return the object of a name or alias, or None."""
        for names in (self.names, self.aliases, self.derived):
            if name in names:
                return names[name]
        return None


_tables = {
    kind: Table(f"weft.keras.{kind}", f"keras.{kind}")
    for kind in (
        "activations",
        "callbacks",
        "constraints",
        "distillation",
        "dtype_policies",
        "initializers",
        "layers",
        "losses",
        "metrics",
        "models",
        "ops",
        "optimizers",
        "optimizers.schedules",
        "quantizers",
        "random",
        "regularizers",
    )
}
# Parts of a `FeatureSpace`, which files store under another name.
_tables["utils"] = Table("weft.keras.utils.feature_space", "keras.utils")
_tables["layers.preprocessing.feature_space"] = Table(
    "weft.keras.utils.feature_space", "keras.src.layers.preprocessing.feature_space"
)
for _kind in ("applications.convnext", "applications.inception_resnet_v2"):
    _tables[_kind] = Table(f"weft.keras.{_kind}", f"keras.src.{_kind}")
_public: dict[Any, tuple[str, str]] = {}  # class or function -> the module and name that files have
_registered: dict[str, Any] = {}
_registered_names: dict[Any, str] = {}
_scoped: ContextVar[tuple[Mapping[str, Any], ...]] = ContextVar("weft_keras_custom_objects", default=())
_lock = threading.Lock()


def register(kind: str, *objects: Any, aliases: Mapping[str, Any] | None = None, module: str | None = None) -> None:
    """Enter classes and functions of Weft in the table of a kind, by their `__name__`.

    Args:
        kind: "layers", "losses", "optimizers.schedules", ...
        *objects: classes and functions. Their names in snake case and in lower case find them too.
        aliases: further names, such as {"mse": mean_squared_error}.
        module: what files have as their module, where it is not `keras.<kind>`.
    """
    entries = _tables[kind]
    with _lock:
        for entry in objects:
            name = entry.__name__
            entries.names[name] = entry
            entries.derived.setdefault(to_snake_case(name), entry)
            entries.derived.setdefault(name.lower(), entry)
            _public.setdefault(entry, (module or entries.public, name))
        entries.aliases.update(aliases or {})


def functions_and_classes(module: str) -> list[Any]:
    """Return the functions and classes that a published module exports, without those that get and convert objects."""
    published = sys.modules[module]
    names = [name for name in published.__all__ if name not in ("deserialize", "get", "serialize")]
    values = [getattr(published, name) for name in names]
    return list(dict.fromkeys(value for value in values if isinstance(value, (type, types.FunctionType))))


def table(kind: str) -> Table:
    """Return the table of a kind, with all of Weft's objects in it."""
    entries = _tables.get(kind)
    if entries is None:
        raise ArgumentError(f"`kind` must be one of {', '.join(_tables)}.", received=f"kind={kind!r}")
    importlib.import_module(entries.module)  # the fixed name of a package of Weft, never one from a file
    return entries


def find(kind: str, name: str, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Return the class or function of a name: custom objects first, then the table of the kind.

    Raises an error if there is none.
    """
    found = find_custom(name, custom_objects)
    if found is None:
        found = table(kind).find(name)
    if found is None:
        singular = (
            "loss" if kind == "losses" else "dtype policy" if kind == "dtype_policies" else kind.removesuffix("s")
        )
        own = "`weft.keras.saving.register_keras_serializable` and `custom_objects=` make a name of your own known"
        near = nearest(kind, name)
        raise ArgumentError(
            f"There is no {singular} with the name {name!r}.",
            received=repr(name),
            fix=[*([f"did you mean {' or '.join(map(repr, near))}?"] if near else []), own],
        )
    return found


def nearest(kind: str, name: str) -> list[str]:
    """Return up to two known names that a misspelt one may mean, those in snake case first."""
    known = table(kind)
    # `setdefault` keeps the spelling that comes first.
    spelling: dict[str, str] = {}
    for one in (*known.aliases, *(to_snake_case(one) for one in known.names), *known.names):
        spelling.setdefault(one.lower(), one)
    found = [spelling[one] for one in difflib.get_close_matches(name.lower(), list(spelling), n=4, cutoff=0.6)]
    by_object: dict[int, str] = {}
    for one in found:
        by_object.setdefault(id(known.find(one)), one)
    return list(by_object.values())[:2]


# ------------------------------------------------------------------------------------------------ what users registered


def register_keras_serializable(package: str = "Custom", name: str | None = None) -> Callable[[Registered], Registered]:
    """Return a decorator that registers a class or function, so that files can name it.

    Args:
        package: a name that keeps your classes apart from others'.
        name: the name in files; that of the class where None.

    Returns:
        A decorator; a class needs a method `get_config`.

    Example:
        >>> from weft import keras
        >>> @keras.saving.register_keras_serializable(package="demo")
        ... class Twice(keras.layers.Layer):
        ...     def call(self, x):
        ...         return 2 * x
        >>> keras.saving.get_registered_name(Twice)
        'demo>Twice'
    """

    def decorate(entry: Registered) -> Registered:
        if inspect.isclass(entry) and not hasattr(entry, "get_config"):
            raise ArgumentError(
                "A registered class must have a method `get_config` that returns its arguments.",
                received=repr(entry),
            )
        own = name if name is not None else getattr(entry, "__name__", "")
        full = f"{package}>{own}"
        with _lock:
            _registered[full] = entry
            _registered_names[entry] = full
        return entry

    return decorate


def get_registered_name(obj: Any) -> str:
    """Return the name of a class or function in files: `package>name` if it is registered, else its own name.

    Args:
        obj: a class or function.
    """
    try:
        return _registered_names.get(obj) or obj.__name__
    except TypeError:  # not hashable
        return obj.__name__


def get_registered_object(
    name: str, custom_objects: Mapping[str, Any] | None = None, module_objects: Mapping[str, Any] | None = None
) -> Any:
    """Return the class or function of a registered name, or None.

    Args:
        name: a name, `package>name` for what was registered.
        custom_objects: further objects, looked at first after the enclosing `custom_object_scope`s.
        module_objects: further objects, looked at last.
    """
    found = find_custom(name, custom_objects)
    return (module_objects or {}).get(name) if found is None else found


def get_custom_objects() -> dict[str, Any]:
    """Return the registered objects by name; entries may be added.

    Example:
        >>> from weft import keras
        >>> keras.saving.get_custom_objects()["square"] = lambda x: x * x
        >>> del keras.saving.get_custom_objects()["square"]
    """
    return _registered


class custom_object_scope:
    """A block in which further objects are known by name.

    Args:
        custom_objects: classes and functions by name.

    Example:
        >>> from weft import keras
        >>> def doubled(x):
        ...     return 2 * x
        >>> with keras.saving.custom_object_scope({"doubled": doubled}):
        ...     layer = keras.layers.Activation("doubled")
    """

    def __init__(self, custom_objects: Mapping[str, Any]) -> None:
        self.custom_objects = custom_objects or {}
        self._tokens: list[Any] = []

    def __enter__(self) -> custom_object_scope:
        self._tokens.append(_scoped.set((*_scoped.get(), self.custom_objects)))
        return self

    def __exit__(self, *_: object) -> None:
        _scoped.reset(self._tokens.pop())


CustomObjectScope = custom_object_scope


def find_custom(name: str, custom_objects: Mapping[str, Any] | None) -> Any:
    """Return the user's object of this name, or None."""
    for objects in (*reversed(_scoped.get()), custom_objects or {}, _registered):
        if name in objects:
            return objects[name]
    return None


def find_custom_ending(name: str) -> Any:
    """Return the registered object of this name in any package if there is exactly one; else None."""
    found = {id(entry): entry for full, entry in _registered.items() if full.endswith(f">{name}")}
    return next(iter(found.values())) if len(found) == 1 else None


def public_function(name: str) -> Any:
    """Return the function of Weft that configs call by this name without a module, or None."""
    for kind in ("activations", "losses", "metrics", "initializers", "ops"):
        found = table(kind).find(name)
        if isinstance(found, types.FunctionType):
            return found
    return None


def public_name(entry: Any) -> tuple[str, str] | None:
    """Return the module and name that files use for a class or function of Weft; None for others."""
    try:
        found = _public.get(entry)
    except TypeError:
        return None
    module = getattr(entry, "__module__", None) or ""  # a function from a file may be without
    if found is None and isinstance(entry, types.FunctionType) and module.startswith("weft.keras."):
        # Public modules wrap their functions, so the one that a user passes may not be the one in the table.
        entries = _tables.get(module.removeprefix("weft.keras."))
        if entries is not None and entry.__name__ in entries.names:
            return entries.public, entry.__name__
    return found


def public_object(module: str | None, name: str) -> Any:
    """Return the class or function of Weft that files call `name` in `module`, or None. The module only decides the
    order in which the tables are searched.
    """
    inner = (module or "").removeprefix("weft.").removeprefix("keras.").removeprefix("src.")
    fitting = sorted((kind for kind in _tables if inner.startswith(kind)), key=len, reverse=True)
    kinds = [*fitting, *(kind for kind in ("layers", "models", "dtype_policies") if kind not in fitting)]
    for kind in kinds:
        found = table(kind).find(name)
        if found is not None:
            return found
    return None
