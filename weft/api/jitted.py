"""Types of `jit` for type checkers: what it takes, and the function that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar

from weft.api.stages import Lowered, Traced

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result", covariant=True)


class JitArguments(TypedDict, total=False):
    """The options of `weft.jit`."""

    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Iterable[str] | None
    keep_unused: bool
    inline: bool
    in_shardings: Any
    out_shardings: Any
    device: Any
    backend: str | None
    compiler_options: Mapping[str, Any] | None
    comm: Any
    max_replicated: Any
    reproducible: Any
    sharding: str | None
    dynamic: Mapping[Any, Any] | None


class Jitted(Protocol[Parameters, Result]):
    """A jitted function: it is called like the function, and returns the stages of compilation."""

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result: ...
    def __get__(self, instance: object, owner: Any = None) -> Callable[..., Result]: ...
    def lower(self, *args: Any, **kwargs: Any) -> Lowered: ...
    def trace(self, *args: Any, **kwargs: Any) -> Traced: ...
    def eval_shape(self, *args: Any, **kwargs: Any) -> Any: ...
    def clear_cache(self) -> None: ...
