"""Options of `jit` as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from weft.api.contract import Contract
from weft.api.flat import get_name, resolve
from weft.api.shardings import is_sharding, single_device
from weft.base import tree
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.sharding.device import Device


@dataclass(frozen=True)
class JitOptions:
    """Options of `jit`, as the user passed them; `resolve` completes them for one function.

    `reproducible` is in the form of the setting, 0 without it. `contract` holds the limits of `comm` and
    `max_replicated`.
    """

    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()
    has_all_static: bool = False
    """Whether both static options were passed, so that neither is completed from the other."""
    inline: bool = False
    device: Device | None = None
    contract: Contract | None = None
    in_shardings: Any = None
    out_shardings: Any = None
    reproducible: Any = 0
    searches_shardings: bool = False
    dynamic: Mapping[Any, Any] | None = None

    def resolve(self, function: Callable[..., Any], caller: str) -> JitOptions:
        """Return the options for a function: positions and names of arguments completed from its signature, and the
        device that the shardings name."""
        complete = not self.has_all_static
        static_argnums, static_argnames = resolve(function, self.static_argnums, self.static_argnames, complete)
        donate_argnums, donate_argnames = resolve(function, self.donate_argnums, self.donate_argnames)
        both = set(static_argnums) & set(donate_argnums) or set(static_argnames) & set(donate_argnames)
        if both:
            names = ", ".join(sorted(map(str, both)))
            raise ArgumentError(
                f"jit of {get_name(function)}: an argument cannot be both static and donated.",
                received=f"argument {names} in both",
                jax=f"static_argnames and donate_argnames cannot intersect: {names}.",
            )
        named = single_device((self.in_shardings, self.out_shardings), caller)
        return replace(
            self,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            device=self.device if named is None else named,
        )

    @property
    def has_static(self) -> bool:
        """Whether some arguments are static."""
        return bool(self.static_argnums or self.static_argnames)

    @property
    def cache_key(self) -> tuple[Any, ...]:
        """Key of the options that what is staged depends on."""
        shardings, structure = tree.flatten((self.in_shardings, self.out_shardings), is_leaf=is_sharding)
        arguments = self.static_argnums, self.static_argnames, self.donate_argnums, self.donate_argnames
        dynamic = None if self.dynamic is None else repr(self.dynamic)
        return (*arguments, self.contract, tuple(shardings), structure, dynamic)
