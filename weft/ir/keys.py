"""Interfaces for following random keys through a jaxpr, for the check that no key is used twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class KeysOf(Protocol):
    """Keys of one array."""

    @property
    def any_used(self) -> bool:
        """Whether some of the keys have been consumed."""
        ...

    def use(self, at: Any, by: str) -> None:
        """Consume the keys at source line `at` by operation `by`; raise the user's error if some were used before."""
        ...

    def copy_keys(self, primitive: Any, params: dict[str, Any]) -> KeysOf:
        """Return the keys at the indices to which an operation with one operand copies them."""
        ...


class KeysThrough(Protocol):
    """Follows keys through sub-jaxprs."""

    # The source line that is reported as the use.
    at: Any

    def __call__(self, jaxpr: Any, operands: Sequence[Any]) -> Sequence[Any]:
        """Return the keys in the results of a sub-jaxpr that runs on keys."""
        ...

    def either(self, jaxprs: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
        """Return the keys in the results where one of several sub-jaxprs runs. Each starts from the same used keys, and
        the uses of all are recorded."""
        ...

    def fresh(self, aval: Any) -> Any:
        """Return new keys of a type, or None if it is not a key type."""
        ...
