"""What every rule may use of its primitive: the name, and calls that bind the operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from weft.ir.context import context
from weft.ir.varying import cast_operands

Params = dict[str, Any]
# Indices of operands, or "all".
Operands = tuple[int, ...] | str


class Bindable:
    """Operation with a name that can be bound: performed or recorded by the active trace."""

    name: ClassVar[str]
    multiple_results: ClassVar[bool] = False
    # It has sub-jaxprs and the rules of `HigherOrder`.
    higher_order: ClassVar[bool] = False

    if TYPE_CHECKING:  # `@primitive` replaces a class by its instance, which type checkers do not see

        def __new__(cls, *args: Any, **params: Any) -> Any: ...

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Bind the operation under the active trace; return the result, or the list of results if `multiple_results`.

        Inside of `shard_map` the operands are first cast to a common state along manual axes.
        """
        if context.manual:
            args = tuple(cast_operands(self, args, params))
        results = context.trace.process(self, args, params)  # type: ignore[arg-type]
        return results if self.multiple_results else results[0]


def positions(operands: Operands, count: int) -> Sequence[int]:
    """Return the indices of the operands that a class attribute names, given how many there are."""
    return range(count) if operands == "all" else operands  # type: ignore[return-value]
