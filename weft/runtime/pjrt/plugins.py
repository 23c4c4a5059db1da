"""Plugins that are installed: by the setting `pjrt_plugins`, by entry points of packages, and libtpu.

Packages announce a plugin by an entry point in the group `jax_plugins` or `xla_plugins`. It names a module with a
function for JAX; Weft does not import it, but looks for the shared library in its folder.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.base.settings import config, num_cpu_devices

GROUPS = ("jax_plugins", "xla_plugins")
# Plugins without an entry point: the module that has the library, and the variable that JAX reads its path from.
MODULES = {"tpu": ("libtpu", "TPU_LIBRARY_PATH")}
# What to install for a platform, for messages.
WHEELS = {
    "tpu": "libtpu",
    "rocm": "jax-rocm7-plugin and jax-rocm7-pjrt",
    "pjrt:cpu": "xla-cpu-pjrt",
    "pjrt:cuda": "jax-cuda13-pjrt",
}
# Names that are platforms of Weft itself, so that a plugin has them only with the prefix.
TAKEN = ("cpu", "gpu", "cuda")
PREFIX = "pjrt:"
# Options that plugins need: one library serves both kinds of GPU.
OPTIONS: dict[str, dict[str, Any]] = {"cuda": {"platform_name": "CUDA"}, "rocm": {"platform_name": "ROCM"}}


@dataclass(frozen=True)
class Installed:
    """Installed plugin: its short name, such as "tpu" or "cpu", its library, and the place that announced it."""

    name: str
    path: str
    source: str

    @property
    def platform(self) -> str:
        """Name of the platform of its devices."""
        return PREFIX + self.name if self.name in TAKEN else self.name


def shorten(name: str) -> str:
    """Return the short name of a plugin: `xla_cpu_pjrt` and `xla_cuda13` are "cpu" and "cuda"."""
    short = re.sub(r"^(xla|jax|pjrt|lib)_?|_?(pjrt|plugin|c_api)(?=_|$)", "", name.lower().replace("-", "_"))
    short = re.sub(r"_?(pjrt|plugin|xla)(?=_|$)", "", short)
    return re.sub(r"\d+$", "", short).strip("_") or name


def list_plugins() -> dict[str, Installed]:
    """Return the installed plugins by platform; those of settings come before those of packages."""
    found: dict[str, Installed] = {}
    for plugin in (*from_settings(), *from_packages()):
        found.setdefault(plugin.platform, plugin)
    return found


def find_plugin(name: str) -> Installed | None:
    """Return the plugin for a name of a platform, such as "tpu" or "pjrt:cpu", or for the path of a library after
    "pjrt:"; None if none is installed."""
    short = name.removeprefix(PREFIX)
    if name != short and (os.sep in short or short.endswith((".so", ".dylib"))):
        return Installed(shorten(pathlib.Path(short).stem), short, "its path")
    for plugin in list_plugins().values():
        if name in (plugin.platform, PREFIX + plugin.name):
            return plugin
    return None


def from_settings() -> Iterator[Installed]:
    """Yield the plugins that the setting `pjrt_plugins` lists: `name=path` or a path, separated by commas."""
    for entry in filter(None, (part.strip() for part in config.pjrt_plugins.split(","))):
        name, equals, path = entry.partition("=")
        if not equals:
            name, path = shorten(pathlib.Path(entry).stem), entry
        if not pathlib.Path(path).exists():
            raise ArgumentError(
                "The setting pjrt_plugins must list shared libraries that exist.",
                received=entry,
                fix="WEFT_PJRT_PLUGINS=name=/path/to/plugin.so",
            )
        yield Installed(name.strip(), path.strip(), "the setting pjrt_plugins")


@functools.cache
def from_packages() -> tuple[Installed, ...]:
    """Return the plugins of installed packages. Metadata are read once per process."""
    found: list[Installed] = []
    for group in GROUPS:
        modules = {entry.name: entry.module for entry in importlib.metadata.entry_points(group=group)}
        for name in namespace_members(group):
            modules.setdefault(name, f"{group}.{name}")
        for name, module in modules.items():
            path = find_library(module)
            if path is not None:
                found.append(Installed(shorten(name), path, f"the entry point {name!r} of {group}"))
    for name, (module, variable) in MODULES.items():
        path = os.environ.get(variable) or find_library(module)
        if path is not None:
            found.append(Installed(name, path, f"the package {module}"))
    return tuple(found)


def namespace_members(package: str) -> list[str]:
    """Return the modules in a namespace package, without importing them."""
    spec = importlib.util.find_spec(package)
    locations = spec.submodule_search_locations if spec is not None else None
    return [module.name for module in pkgutil.iter_modules(locations)] if locations else []


def find_library(module: str) -> str | None:
    """Return the library of a plugin in the folder of a module, which is not executed; None without one."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ()) or [str(pathlib.Path(spec.origin or "").parent)]
    libraries = [
        path for folder in folders for path in pathlib.Path(folder).glob("*") if path.suffix in (".so", ".dylib")
    ]
    for word in ("pjrt", "plugin", "lib"):
        named = sorted(path for path in libraries if word in path.name)
        if named:
            return str(named[0])
    return None


def client_options(name: str) -> dict[str, Any]:
    """Return the options that create the client of a plugin: defaults, and those of the setting `pjrt_options`."""
    options = dict(OPTIONS.get(name, {}))
    if name == "cpu":
        options["cpu_device_count"] = num_cpu_devices.fixed()
    for entry in filter(None, (part.strip() for part in config.pjrt_options.split(","))):
        key, equals, value = entry.partition("=")
        plugin, dot, option = key.strip().partition(".")
        if not equals or not dot:
            raise ArgumentError(
                "The setting pjrt_options must list options as plugin.name=value, separated by commas.",
                received=entry,
                fix="WEFT_PJRT_OPTIONS=cpu.cpu_device_count=4",
            )
        if plugin == name:
            options[option] = parse_value(value.strip())
    return options


def parse_value(text: str) -> Any:
    """Return the value of an option: an integer, a float, a boolean or a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
