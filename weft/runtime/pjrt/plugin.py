"""A PJRT plugin: a shared library with a table of functions. Calls check its errors.

**Versions.** A plugin says how large its table is, so a function beyond its end is one that the plugin lacks. Every
argument struct has its size as the first field. A plugin that is newer than `structs.py` may expect further fields at
the end of a struct: it gets zeros there, which PJRT defines as "not given". An older one ignores what it does not know.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import os
from collections.abc import Sequence
from typing import Any

from weft.base.errors import JaxRuntimeError, NotSupportedError, OutOfMemoryError
from weft.base.memo import cached_property
from weft.runtime.pjrt import structs

# The minor version that `structs.py` describes, and the bytes after each struct for fields of later ones.
MINOR_VERSION = 81
RESERVE = 128


class Code(enum.IntEnum):
    """Codes of errors that Weft distinguishes."""

    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12


class PluginError(Exception):
    """Error that a plugin returned: its code and its message. Callers raise an error of users from it."""

    def __init__(self, function: str, code: int, message: str) -> None:
        super().__init__(message)
        self.function, self.code, self.message = function, code, message


class Plugin:
    """Loaded plugin. A call by the name of a function takes the fields of its arguments, and returns the struct."""

    def __init__(self, name: str, path: str, library: Any = None) -> None:
        self.name, self.path = name, path
        self._library = load_library(name, path) if library is None else library
        get: Any = self._library.GetPjrtApi
        get.restype = ctypes.c_void_p
        self._api = structs.Api.from_address(get())
        self.version = self._api.version.major_version, self._api.version.minor_version
        if self.version[0] != structs.MAJOR_VERSION:
            raise NotSupportedError(
                f"The PJRT plugin {name!r} must have version {structs.MAJOR_VERSION} of the API.",
                received=f"version {self.version[0]}.{self.version[1]} in {path}",
                fix="a plugin of the same age as this Weft",
            )
        self._reserve = RESERVE if self.version[1] > MINOR_VERSION else 0
        self._functions: dict[str, tuple[Any, Any, int]] = {}
        self("Plugin_Initialize")

    def has(self, function: str) -> bool:
        """Return whether the plugin has a function."""
        field = getattr(structs.Api, function)
        return bool(field.offset < self._api.struct_size and getattr(self._api, function))

    def _find(self, function: str) -> tuple[Any, Any, int]:
        """Return a function, the class of its arguments with room for later fields, and the size to tell the plugin."""
        found = self._functions.get(function)
        if found is None:
            if not self.has(function):
                raise NotSupportedError(
                    f"The PJRT plugin {self.name!r} must have the function {function}.",
                    received=f"version {self.version[0]}.{self.version[1]} in {self.path}",
                    fix="a newer version of the plugin",
                )
            prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
            kind = structs.arguments(function)
            size = structs.written_size(kind) + self._reserve
            found = prototype(getattr(self._api, function)), extend(kind), size
            self._functions[function] = found
        return found

    def __call__(self, function: str, **fields: Any) -> Any:
        """Call a function of the API; raise `PluginError` if it returns an error."""
        call, kind, size = self._find(function)
        arguments = kind(struct_size=size, **fields)
        error = call(ctypes.addressof(arguments))
        if error:
            self._raise(function, error)
        return arguments

    def struct(self, kind: Any, **fields: Any) -> Any:
        """Return a struct that a function takes besides its arguments."""
        return extend(kind)(struct_size=structs.written_size(kind) + self._reserve, **fields)

    def _raise(self, function: str, error: int) -> None:
        """Raise an error of the plugin, and free it."""
        message = self.error_text(error)
        code = self("Error_GetCode", error=error).code
        self._discard("Error_Destroy", "error", error)
        raise PluginError(function, code, message)

    def error_text(self, error: int) -> str:
        """Return the message of an error of the plugin."""
        # This function returns nothing, so what is in the register of results is no error.
        call, kind, size = self._find("Error_Message")
        arguments = kind(struct_size=size, error=error)
        call(ctypes.addressof(arguments))
        return read_text(arguments.message, arguments.message_size)

    def _discard(self, function: str, field: str, handle: int) -> None:
        call, kind, size = self._find(function)
        arguments = kind(struct_size=size, **{field: handle})  # it must live until the call has returned
        call(ctypes.addressof(arguments))

    def destroy(self, kind: str, field: str, handle: int) -> None:
        """Free an object of the plugin; errors are ignored, since nothing could be done about them."""
        self._discard(f"{kind}_Destroy", field, handle)

    def await_event(self, event: int | None) -> None:
        """Block until an event has happened, and free it; raise the error that it carries."""
        if not event:
            return
        try:
            self("Event_Await", event=event)
        finally:
            self.destroy("Event", "event", event)

    def is_event_ready(self, event: int) -> bool:
        """Return whether an event has happened."""
        return bool(self("Event_IsReady", event=event).is_ready)

    @cached_property
    def fingerprint(self) -> str:
        """Text that differs between builds of the plugin: the size and the time of its library, and its versions."""
        found = os.stat(self.path)
        return f"{self.version} {found.st_size} {found.st_mtime_ns}"

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the plugin, such as the versions of XLA and StableHLO."""
        found = self("Plugin_Attributes")
        return read_named_values(found.attributes, found.num_attributes)


@functools.cache
def extend(kind: Any) -> Any:
    """Return the class of a struct with zeros after it, for fields that a later version has."""
    return type(kind.__name__, (kind,), {"_fields_": [("_later", ctypes.c_byte * RESERVE)]})


def load_library(name: str, path: str) -> ctypes.CDLL:
    """Load the shared library of a plugin; raise if it is not one."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        what = f"The library of the PJRT plugin {name!r} must be one that this machine can load."
        raise NotSupportedError(what, received=f"{path}: {error}", fix="a plugin for this system") from None
    if not hasattr(library, "GetPjrtApi"):
        what = f"The library of the PJRT plugin {name!r} must have the function GetPjrtApi."
        raise NotSupportedError(what, received=path, fix="the path of the plugin itself, such as libtpu.so")
    return library


def read_text(address: int | None, size: int) -> str:
    """Return a text in memory of the plugin."""
    return ctypes.string_at(address, size).decode("utf-8", "replace") if address and size else ""


def read_pointers(address: int | None, count: int) -> list[int]:
    """Return an array of pointers in memory of the plugin."""
    return [p or 0 for p in (ctypes.c_void_p * count).from_address(address)] if address and count else []


def read_named_values(address: int | None, count: int) -> dict[str, Any]:
    """Return named values in memory of the plugin as a dict."""
    found: dict[str, Any] = {}
    if not address:
        return found
    for entry in (structs.NamedValue * count).from_address(address):
        value = entry.value
        match entry.type:
            case structs.STRING:
                read: Any = read_text(value.text, entry.value_size)
            case structs.INT64:
                read = value.int64
            case structs.INT64_LIST:
                read = list((ctypes.c_int64 * entry.value_size).from_address(value.text)) if value.text else []
            case structs.FLOAT:
                read = value.real
            case _:
                read = value.boolean
        found[read_text(entry.name, entry.name_size)] = read
    return found


def write_named_values(options: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Return an array of named values, and the objects that must live as long as it is used."""
    array = (structs.NamedValue * max(len(options), 1))()
    alive: list[Any] = []
    for entry, (name, value) in zip(array, options.items(), strict=False):
        entry.struct_size = structs.written_size(structs.NamedValue)
        entry.name, entry.name_size = keep_bytes(name.encode(), alive), len(name.encode())
        entry.value_size = 1
        if isinstance(value, bool):
            entry.type, entry.value.boolean = structs.BOOL, value
        elif isinstance(value, int):
            entry.type, entry.value.int64 = structs.INT64, value
        elif isinstance(value, float):
            entry.type, entry.value.real = structs.FLOAT, value
        elif isinstance(value, str):
            entry.type, entry.value_size = structs.STRING, len(value.encode())
            entry.value.text = keep_bytes(value.encode(), alive)
        else:
            numbers = (ctypes.c_int64 * len(value))(*value)
            alive.append(numbers)
            entry.type, entry.value_size = structs.INT64_LIST, len(value)
            entry.value.text = ctypes.addressof(numbers)
    return array, alive


def keep_bytes(content: bytes, alive: list[Any]) -> int:
    """Return the address of bytes, which stay there as long as `alive` does."""
    buffer = ctypes.create_string_buffer(content, max(len(content), 1))
    alive.append(buffer)
    return ctypes.addressof(buffer)


def raise_for_user(error: PluginError, plugin: str, doing: str, fix: Sequence[str] = ()) -> None:
    """Raise the error class of users that fits an error of a plugin, with its message.

    `doing` names what failed, as the beginning of a sentence.
    """
    text = error.message.strip()
    if error.code == Code.RESOURCE_EXHAUSTED:
        raise OutOfMemoryError(
            f"There is not enough memory: {doing} on {plugin!r} failed.",
            received=text,
            fix=("work on parts of it (lax.map, smaller batches)", "donate arguments that are not used again"),
        ) from None
    if error.code == Code.UNIMPLEMENTED:
        raise NotSupportedError(f"{doing} must be possible on the plugin {plugin!r}.", received=text, fix=fix) from None
    raise JaxRuntimeError(f"{doing} failed on the plugin {plugin!r}.", received=text, fix=fix) from None
