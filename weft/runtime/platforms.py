"""Platforms: kinds of devices, under the names that users give them.

The name of a platform is that of `Device.platform`; the first alias is the name of its compilation target, which is the
one that JAX uses in `lax.platform_dependent` and in exports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from weft.runtime.registry import Registry
from weft.sharding.device import Device


class Platform(Protocol):
    """The devices of one kind in all processes."""

    def devices(self) -> tuple[Device, ...]:
        """Return the devices of all processes; the first call enumerates them.

        With several processes the first call may be collective.
        """
        ...

    def are_enumerated(self) -> bool:
        """Return whether the devices are known and cannot be chosen any more."""
        ...

    def join(self, counts: Sequence[int], rank: int, chosen: tuple[int, ...] | None) -> None:
        """Make this process number `rank` of several; devices are enumerated again, under ids that none had before.

        `counts` has the number of CPU devices of each process, and `chosen` the hardware indices of the accelerators
        that this process uses, if they were specified.
        """
        ...

    def absence(self) -> str:
        """Return a sentence for users that says why there are no devices."""
        ...


platforms: Registry[Platform] = Registry("list of devices")
# Accelerators by platform, in order of preference, with functions that return whether one may be present. They load no
# driver: `import weft` calls them.
accelerators: dict[str, Callable[[], bool]] = {}
_names: dict[str, str] = {}
_target_names: dict[str, str] = {}
_found: set[str] = set()
_finders: list[Callable[[str], str | None]] = []


def register_platform(
    name: str,
    load: Callable[[], Platform],
    *,
    aliases: Sequence[str] = (),
    may_be_present: Callable[[], bool] | None = None,
    target: str | None = None,
) -> None:
    """Register the devices of a platform.

    Args:
        name: the name of `Device.platform`.
        load: a function that returns the devices, called when they are first used.
        aliases: other names under which users may ask for them.
        may_be_present: for accelerators that are used by default: whether to look for one, without loading a driver.
        target: the name that exports and `platform_dependent` have for it, if it is not the first alias. Such a
            platform is not among those that programs are exported for by default.
    """
    platforms.register(name, load)
    if may_be_present is not None:
        accelerators[name] = may_be_present
    _names.update(dict.fromkeys((name, *aliases), name))
    _target_names[name] = target or next(iter(aliases), name)
    if target is not None:
        _found.add(name)


def is_platform_name(name: str) -> bool:
    """Return whether a platform has this name or alias."""
    return name in _names


def canonical_name(name: str) -> str:
    """Return the name of `Device.platform` for a name or alias of a platform; other names unchanged."""
    return _names.get(name, name)


def target_name(name: str) -> str:
    """Return the name that exports and `platform_dependent` have for a platform, given any name of it."""
    return _target_names.get(canonical_name(name), name)


def target_names() -> tuple[str, ...]:
    """Return the names that programs are exported for by default: those of the platforms that are always registered."""
    return tuple(target for name, target in _target_names.items() if name not in _found)


def register_finder(find: Callable[[str], str | None]) -> None:
    """Register a function that finds platforms by names which are not registered.

    It registers the platform and returns None, or returns the reason of its absence as a sentence for users.
    """
    _finders.append(find)


def find_platform(name: str) -> Platform:
    """Return the platform with this name or alias; raise RuntimeError if there is none."""
    reasons: list[str] = []
    for find in () if name in _names else _finders:
        reasons += filter(None, (find(name),))
    if name not in _names:
        known = f"Unknown backend {name!r}: devices are on {', '.join(platforms.names())}."
        raise RuntimeError(" ".join([known, *reasons]))
    return platforms.get(_names[name])
