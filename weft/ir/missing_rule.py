"""Rules that cannot exist, and the error for calling one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.base.errors import MissingRuleError
from weft.ir.context import current_line

if TYPE_CHECKING:
    from weft.ir.primitive import Primitive


def missing(what: str) -> MissingRuleError:
    """Create the error for a missing rule, with the user's line of the operation that needs it."""
    return MissingRuleError(what, at=current_line())


class No:
    """Rule that cannot exist, with the reason that the error shows."""

    def __init__(self, reason: str):
        self.reason = reason

    def __set_name__(self, owner: type, name: str) -> None:
        self.rule = name

    def __get__(self, instance: Primitive | None, owner: type) -> Any:
        if instance is None:
            return self
        return MissingRule(instance, self.rule, self.reason)


class MissingRule:
    """Value of a `No` rule: calling it raises `MissingRuleError` with the reason."""

    def __init__(self, primitive: Primitive, rule: str, reason: str):
        self.primitive, self.rule, self.reason = primitive, rule, reason

    def __call__(self, *args: Any, **params: Any) -> Any:
        raise missing(f"`{self.primitive.name}` has no {self.rule} rule: {self.reason}.")
