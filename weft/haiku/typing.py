"""Types of the arguments and results of `weft.haiku`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import weft

Params: TypeAlias = Mapping[str, Mapping[str, weft.Array]]
State: TypeAlias = Mapping[str, Mapping[str, weft.Array]]
MutableParams: TypeAlias = MutableMapping[str, MutableMapping[str, weft.Array]]
MutableState: TypeAlias = MutableMapping[str, MutableMapping[str, weft.Array]]
Initializer: TypeAlias = Callable[[Sequence[int], Any], weft.Array]
PRNGKey: TypeAlias = weft.Array


@runtime_checkable
class ModuleProtocol(Protocol):
    """The interface of all modules, for annotations of protocols."""

    name: str
    module_name: str

    def params_dict(self) -> Mapping[str, weft.Array]:
        """Return the parameters of the module and its submodules."""

    def state_dict(self) -> Mapping[str, weft.Array]:
        """Return the state of the module and its submodules."""


@runtime_checkable
class SupportsCall(ModuleProtocol, Protocol):
    """A module that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module."""
