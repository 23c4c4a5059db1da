"""Objects as plain data and back. Files are read with the tables of kinds and what users registered, and nothing else:
no module is imported by a name from a file, and of what a file names only `from_config` of classes is called."""

from __future__ import annotations

import base64
import inspect
import marshal
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError, FileFormatError
from weft.keras.core.config import settings, standardize_dtype
from weft.keras.core.names import to_snake_case
from weft.keras.core.tables import (
    CustomObjectScope as CustomObjectScope,
    Table as Table,
    custom_object_scope as custom_object_scope,
    find as find,
    find_custom,
    find_custom_ending,
    functions_and_classes as functions_and_classes,
    get_custom_objects as get_custom_objects,
    get_registered_name as get_registered_name,
    get_registered_object as get_registered_object,
    public_function,
    public_name as public_name,
    public_object as public_object,
    register as register,
    register_keras_serializable as register_keras_serializable,
    table as table,
)

_PLAIN = (str, bool, int, float)
_unsafe: ContextVar[bool] = ContextVar("weft_keras_unsafe", default=False)
# Within `sharing`: objects that were read by their number, and numbers of objects that were written.
_shared_objects: ContextVar[dict[int, Any] | None] = ContextVar("weft_keras_shared", default=None)
_described_objects: ContextVar[dict[int, tuple[int, Any]] | None] = ContextVar("weft_keras_described", default=None)


def get(kind: str, identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Return the object for an argument such as `kernel_initializer=`.

    Args:
        kind: the table to look in.
        identifier: None (None is returned), a name, a config (see `serialize_keras_object`), a class (an object of it
            is constructed), or an object or function, which is returned as it is.
        custom_objects: further objects by name.

    Returns:
        An object or function. Where a name is that of a class, an object of it is constructed without arguments.
    """
    if identifier is None:
        return None
    if isinstance(identifier, dict):
        return deserialize_keras_object(identifier, custom_objects=custom_objects, kind=kind)
    found = find(kind, identifier, custom_objects) if isinstance(identifier, str) else identifier
    if inspect.isclass(found):
        return found()
    if not callable(found) and not hasattr(found, "get_config"):
        raise ArgumentError(
            f"One of {kind} must be a name, a config, an object or a function.", received=f"{identifier!r}"
        )
    return found


def serialize_keras_object(obj: Any) -> Any:
    """Convert an object to plain data (dicts, lists, strings, numbers), as in `config.json` of a `.keras` file.

    Args:
        obj: an object with `get_config`, a function with a name, an array, or lists, tuples and dicts of those.

    Returns:
        For an object, a dict with "module", "class_name", "config" and "registered_name", and where it has been built
        or compiled "build_config" and "compile_config".

    Example:
        >>> from weft import keras
        >>> keras.saving.serialize_keras_object(keras.regularizers.L2(0.5))["class_name"]
        'L2'
    """
    if obj is None or isinstance(obj, _PLAIN):
        return obj
    if isinstance(obj, (list, tuple)):
        items = [serialize_keras_object(item) for item in obj]
        return tuple(items) if type(obj) is tuple else items
    if isinstance(obj, dict):
        return {key: serialize_keras_object(value) for key, value in obj.items()}
    special = _special(obj)
    if special is not None:
        return special
    if isinstance(obj, (np.generic, np.ndarray)):
        return obj.item()
    if isinstance(obj, np.dtype) or (inspect.isclass(obj) and issubclass(obj, np.generic)):
        return standardize_dtype(obj)
    function = isinstance(obj, (types.FunctionType, types.BuiltinFunctionType)) or not hasattr(obj, "get_config")
    if function and not (callable(obj) and hasattr(obj, "__name__")):
        raise ArgumentError(
            "A serialized object must have a method `get_config` that returns its arguments.", received=repr(obj)
        )
    entry = obj if function else type(obj)
    public = public_name(entry)
    module, name = public or (getattr(entry, "__module__", None), entry.__name__)
    config: dict[str, Any] = {
        "module": None if module == "__main__" else module,
        "class_name": "function" if function else name,
        "config": name if function else serialize_keras_object(obj.get_config()),
        "registered_name": get_registered_name(entry) if public is None else None,
    }
    for key in ("build_config", "compile_config"):
        part = getattr(obj, f"get_{key}", lambda: None)()
        if part is not None:
            config[key] = serialize_keras_object(part)
    numbered = _described_objects.get()
    if numbered is not None and not function:
        # Descriptions are copied where they are in other ones, so each has its number from the beginning.
        config["shared_object_id"] = numbered.setdefault(id(obj), (len(numbered), obj))[0]
    return config


def _special(obj: Any) -> dict[str, Any] | None:
    """Serialize values of Python and arrays that have their own dicts; None for others."""
    if hasattr(obj, "serialized_keras_tensor"):
        return {"class_name": "__keras_tensor__", "config": obj.serialized_keras_tensor()}
    if isinstance(obj, bytes):
        return {"class_name": "__bytes__", "config": {"value": obj.decode("utf-8")}}
    if isinstance(obj, slice):
        return {
            "class_name": "__slice__",
            "config": {name: serialize_keras_object(getattr(obj, name)) for name in ("start", "stop", "step")},
        }
    if obj is Ellipsis:
        return {"class_name": "__ellipsis__", "config": {}}
    if isinstance(obj, weft.Array) or (isinstance(obj, np.ndarray) and obj.ndim):
        what = "__numpy__" if isinstance(obj, np.ndarray) else "__tensor__"
        return {
            "class_name": what,
            "config": {"value": np.asarray(obj).tolist(), "dtype": standardize_dtype(obj.dtype)},
        }
    if isinstance(obj, types.FunctionType) and obj.__name__ == "<lambda>":
        warnings.warn(
            "A lambda is serialized as code, which is read back only with `safe_mode=False`. Register a named function "
            "(`register_keras_serializable`) instead.",
            stacklevel=3,
        )
        return {"class_name": "__lambda__", "config": {"value": list(dump_function(obj).values())}}
    return None


def dump_function(function: types.FunctionType) -> dict[str, Any]:
    """Return the code of a function, its defaults and what it closes over, as Keras writes them."""
    closure = function.__closure__
    return {
        "code": base64.b64encode(marshal.dumps(function.__code__)).decode("ascii"),
        "defaults": function.__defaults__,
        "closure": None if closure is None else tuple(serialize_keras_object(cell.cell_contents) for cell in closure),
    }


def _load_function(value: Any) -> types.FunctionType:
    """Load the function that `dump_function` stored, as a dict or as its values in order."""
    parts = [value.get(key) for key in ("code", "defaults", "closure")] if isinstance(value, dict) else list(value)
    encoded, defaults, closure = (*parts, None, None)[:3]
    code = marshal.loads(base64.b64decode(str(encoded)))
    cells = None if closure is None else tuple(types.CellType(deserialize_keras_object(cell)) for cell in closure)
    names = {"keras": weft.keras, "np": np, "weft": weft, "__builtins__": __builtins__, "__name__": "__main__"}
    return types.FunctionType(code, names, code.co_name, None if defaults is None else tuple(defaults), cells)


@contextmanager
def unsafe() -> Iterator[None]:
    """Read back lambdas within the block. For data that this process wrote itself, or whose author is trusted."""
    token = _unsafe.set(True)
    try:
        yield
    finally:
        _unsafe.reset(token)


def trust(safe_mode: bool | None) -> AbstractContextManager[None]:
    """Return a context in which lambdas are read back if `safe_mode` is False."""
    return unsafe() if safe_mode is False else nullcontext()


def deserialize_keras_object(
    config: Any,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool | None = None,
    *,
    kind: str | None = None,
) -> Any:
    """Construct an object from the data of `serialize_keras_object`.

    Classes and functions are looked up by name in the tables of Weft, among registered objects, and in
    `custom_objects`. Nothing is imported, and no code of the data is run.

    Args:
        config: plain data.
        custom_objects: further classes and functions by name.
        safe_mode: False accepts lambdas, whose code is in the data: only for data whose author you trust.
        kind: the table in which a name without a module is looked up.

    Returns:
        The object; plain data as it is.

    Example:
        >>> from weft import keras
        >>> config = keras.saving.serialize_keras_object(keras.regularizers.L2(0.5))
        >>> type(keras.saving.deserialize_keras_object(config)).__name__
        'L2'
    """
    if safe_mode is False and not _unsafe.get():
        with unsafe():
            return deserialize_keras_object(config, custom_objects, kind=kind)
    if custom_objects:
        with custom_object_scope(custom_objects):
            return deserialize_keras_object(config, kind=kind)
    if isinstance(config, str):
        return config if kind is None else get(kind, config)
    if config is None or isinstance(config, _PLAIN):
        return config
    if isinstance(config, (list, tuple)):
        return type(config)(deserialize_keras_object(item) for item in config)
    if not isinstance(config, dict):
        return config  # an object already: a constructor that describes its parts may get them either way
    if "class_name" not in config or "config" not in config:
        return {key: deserialize_keras_object(value) for key, value in config.items()}
    name, inner = config["class_name"], config["config"]
    if not isinstance(name, str):
        raise FileFormatError("The name of a class must be a string.", received=repr(name))
    if name.startswith("__") and name.endswith("__"):
        return _from_special(name, inner, config)
    if name == "function":
        return _find_described(inner, config, kind)
    if not isinstance(inner, dict):
        if inner is not None:
            raise FileFormatError(f"The config of {name} must be a dict.", received=type(inner).__name__)
        inner = {}
    shared = _shared_objects.get()
    key = config.get("shared_object_id")
    if shared is None or not isinstance(key, int):
        return _construct(name, inner, config, kind)
    if key not in shared:
        shared[key] = _construct(name, inner, config, kind)
    return shared[key]


def _construct(name: str, inner: dict[str, Any], config: dict[str, Any], kind: str | None) -> Any:
    """Construct an object by `from_config`. Functions are never called here: arguments of a file are not trusted."""
    if str(config.get("module")).startswith("keras.src.ops."):
        # Keras has a class for each function of `ops`. Where Weft has one too, it writes it again as it was.
        known: Any = table("ops").names.get(name)
        if hasattr(known, "operands"):
            return known.from_config(inner)
        function = table("ops").find(to_snake_case(name))
        if function is not None:
            return table("ops").names["FunctionOperation"].from_keras(function, deserialize_keras_object(inner))
    cls = _find_described(name, config, kind)
    if not inspect.isclass(cls):
        raise FileFormatError(
            f"A config that has arguments must name a class; {name!r} is a function.",
            received=f"arguments {', '.join(inner) or 'none'}",
            fix='describe the function itself: {"class_name": "function", "config": its name}',
        )
    if not hasattr(cls, "from_config"):
        raise ArgumentTypeError(
            f"A class of a config needs a class method `from_config`; {name!r} has none.",
            received=repr(cls),
            fix="define `from_config(cls, config)`, which returns `cls(**config)`",
        )
    built = getattr(cls, "from_config")(inner)  # noqa: B009
    if config.get("build_config") and hasattr(built, "build_from_config"):
        built.build_from_config(config["build_config"])
    if config.get("compile_config") and hasattr(built, "compile_from_config"):
        built.compile_from_config(config["compile_config"])
    return built


def _find_described(name: Any, config: dict[str, Any], kind: str | None) -> Any:
    """Return the class or function that a description names."""
    registered, module = config.get("registered_name"), config.get("module")
    if not isinstance(name, str):
        raise FileFormatError("The name of a class or function must be a string.", received=repr(name))
    for candidate in (registered, name):
        found = find_custom(candidate, None) if isinstance(candidate, str) else None
        if found is not None:
            return found
    found = None if kind is None else table(kind).find(name)
    if found is None:
        found = public_object(module if isinstance(module, str) else None, name)
    if found is None and config.get("class_name") == "function":
        # Keras writes no module for its functions, and before 3.7 no package for those of users.
        found = public_function(name) or find_custom_ending(name)
    elif found is not None and isinstance(registered, str) and registered not in ("", "function", name):
        raise FileFormatError(
            f"A config whose class is registered as {registered!r} cannot mean the built-in {name!r}.",
            received=f"module {module!r}, name {name!r}, registered_name {registered!r}",
            fix="import the module that registers the class before the file is loaded",
        )
    if found is None:
        shown = registered if isinstance(registered, str) and registered != "function" else name
        raise ArgumentError(
            f"The class or function {shown!r} is not known.",
            received=f"module {module!r}, name {name!r}",
            fix=[
                "decorate it with `@weft.keras.saving.register_keras_serializable()` where it is defined",
                f"pass `custom_objects={{{name!r}: ...}}`",
            ],
        )
    return found


@contextmanager
def sharing() -> Iterator[None]:
    """Read back objects with the same "shared_object_id" as one object within the block."""
    if _shared_objects.get() is not None:
        yield
        return
    token = _shared_objects.set({})
    try:
        yield
    finally:
        _shared_objects.reset(token)


def serialize_sharing(obj: Any) -> Any:
    """Describe an object as `serialize_keras_object`, and number the objects that occur in it several times.

    Args:
        obj: a model.

    Returns:
        Plain data; read back within `sharing`, an object that occurs several times is one object again.
    """
    token = _described_objects.set({})
    try:
        described = serialize_keras_object(obj)
    finally:
        _described_objects.reset(token)
    found: dict[int, list[dict[str, Any]]] = {}
    waiting = [described]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if isinstance(item.get("shared_object_id"), int):
                found.setdefault(item["shared_object_id"], []).append(item)
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
    for same in found.values():
        if len(same) == 1:
            del same[0]["shared_object_id"]
    return described


def check_trust(what: str, instead: str) -> None:
    """Raise an error for data that needs a trusted author, unless `safe_mode=False` is set."""
    if not _unsafe.get() and settings.safe_mode:
        raise FileFormatError(what, fix=["pass `safe_mode=False` if you trust the author", instead])


def _from_special(name: str, inner: Any, config: dict[str, Any]) -> Any:
    if name == "__bytes__":
        return inner["value"].encode("utf-8")
    if name == "__slice__":
        return slice(*(deserialize_keras_object(inner[part]) for part in ("start", "stop", "step")))
    if name == "__ellipsis__":
        return Ellipsis
    if name == "__numpy__":
        return np.array(inner["value"], dtype=standardize_dtype(inner["dtype"]))
    if name == "__tensor__":
        return wnp.array(inner["value"], dtype=standardize_dtype(inner["dtype"]))
    if name == "__keras_tensor__":
        return config  # the functional model that it belongs to knows which one it is
    if name == "__lambda__":
        check_trust("The data contain a lambda, that is, code that would be run.", "use a registered function")
        return _load_function(inner.get("value", inner))
    raise FileFormatError("The data have an object of an unknown kind.", received=repr(name))
