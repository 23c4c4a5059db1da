"""Settings of `weft.haiku`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from weft.errors import ArgumentError


@dataclass(frozen=True)
class Settings:
    """The settings of a thread.

    `check_jax_usage` makes it an error to use parameters, state or keys inside of a bare `weft.jit`, `weft.vmap`,
    `weft.grad`, ... in a transformed function (which also runs under `weft.checking_leaks`).
    `module_auto_repr` shows a module as the call that made it. `restore_flatmap` concerns pickles of early Haiku, which
    Weft cannot read: it is False, and True is an error. `rng_reserve_size` is the number of keys from one split.
    """

    check_jax_usage: bool = False
    module_auto_repr: bool = True
    restore_flatmap: bool = False
    rng_reserve_size: int = 1


class _Held(threading.local):
    settings = Settings()


_held = _Held()


def current() -> Settings:
    """Return the settings of this thread."""
    return _held.settings


def set(
    *,
    check_jax_usage: bool | None = None,
    module_auto_repr: bool | None = None,
    restore_flatmap: bool | None = None,
    rng_reserve_size: int | None = None,
) -> None:
    """Change the given settings."""
    if restore_flatmap:
        raise ArgumentError(
            "restore_flatmap=True is not supported: it says how pickles of early Haiku are read, and "
            "Weft reads none.\n"
            "  fix       load the checkpoint with Haiku and save it as plain dicts; "
            "hk.data_structures.to_immutable_dict(params) makes dicts that cannot be written"
        )
    if rng_reserve_size is not None and rng_reserve_size < 1:
        raise ArgumentError(f"rng_reserve_size is the number of keys of one split, at least 1; got {rng_reserve_size}.")
    changes: dict[str, Any] = {
        "check_jax_usage": check_jax_usage,
        "module_auto_repr": module_auto_repr,
        "restore_flatmap": restore_flatmap,
        "rng_reserve_size": rng_reserve_size,
    }
    _held.settings = replace(_held.settings, **{key: value for key, value in changes.items() if value is not None})


@contextmanager
def context(
    *,
    check_jax_usage: bool | None = None,
    module_auto_repr: bool | None = None,
    restore_flatmap: bool | None = None,
    rng_reserve_size: int | None = None,
) -> Iterator[None]:
    """Return a context in which the given settings are changed."""
    before = _held.settings
    try:
        set(
            check_jax_usage=check_jax_usage,
            module_auto_repr=module_auto_repr,
            restore_flatmap=restore_flatmap,
            rng_reserve_size=rng_reserve_size,
        )
        yield
    finally:
        _held.settings = before
