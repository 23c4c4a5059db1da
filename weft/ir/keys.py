"""What cards are asked when random keys are followed through a jaxpr: the check that no key is used twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class KeysOf(Protocol):
    """The keys of one array."""

    @property
    def any_used(self) -> bool:
        """Whether some of them are used up."""
        ...

    def use(self, at: Any, by: str) -> None:
        """Use them up at a line, or raise the user's error when some have been used before."""
        ...

    def copied(self, card: Any, params: dict[str, Any]) -> KeysOf:
        """The same keys at the indices to which an operation of one operand copies them."""
        ...


class KeysThrough(Protocol):
    """Follows keys through sub-jaxprs."""

    # The line to which uses are charged.
    at: Any

    def __call__(self, jaxpr: Any, operands: Sequence[Any]) -> Sequence[Any]:
        """The keys among the results of a sub-jaxpr that runs on keys."""
        ...

    def either(self, jaxprs: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
        """The same where one of several runs: each starts from what was used before, and all of their uses count."""
        ...

    def fresh(self, aval: Any) -> Any:
        """New keys of a type, None where it is no type of keys."""
        ...
