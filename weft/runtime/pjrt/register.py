"""Registration of the platform of a plugin, when a user first asks for it."""

from __future__ import annotations

from weft.base.lazy import lazy
from weft.runtime.execution_backend import execution_backends
from weft.runtime.memory_backend import memory_backends
from weft.runtime.pjrt import tpu
from weft.runtime.pjrt.plugins import PREFIX, WHEELS, Installed, find_plugin, list_plugins
from weft.runtime.platforms import register_platform

devices = lazy("weft.runtime.pjrt.devices")
memory_backend = lazy("weft.runtime.pjrt.memory_backend")
execution_backend = lazy("weft.runtime.pjrt.execution_backend")


def find(name: str) -> str | None:
    """Register the platform of the plugin with a name, such as "tpu" or "pjrt:cpu".

    Return a sentence that says which plugins there are, if none has the name.
    """
    plugin = find_plugin(name)
    if plugin is None:
        there = ", ".join(map(repr, list_plugins())) or "none"
        advice = f"`pip install {WHEELS[name]}` brings it." if name in WHEELS else ""
        return f"Platforms of installed PJRT plugins: {there}. {advice}".strip()
    register(plugin, name)
    return None


def may_have_tpu() -> bool:
    """Return whether this machine has a TPU and libtpu."""
    return tpu.has_hardware() and find_plugin("tpu") is not None


def register(plugin: Installed, name: str) -> None:
    """Register the three objects of a plugin, under its platform, the name with the prefix, and `name`."""
    platform = plugin.platform
    if platform not in memory_backends.names():
        memory_backends.register(platform, lambda: memory_backend.PjrtMemoryBackend(platform))
        execution_backends.register(platform, lambda: execution_backend.PjrtExecutionBackend(platform))
    names = (PREFIX + plugin.name, name)
    register_platform(platform, lambda: devices.get_platform(plugin), aliases=names, target=plugin.name)
