"""Source and context of an equation, in the form of JAX's classes."""

from __future__ import annotations

import contextlib
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.source import Location
from weft.sharding.current import get_abstract_mesh


@dataclass(frozen=True)
class NameStack:
    """Names of the scopes and transformations around an operation, the outermost first."""

    stack: tuple[str, ...] = ()

    def extend(self, name: str) -> NameStack:
        """Return the stack with one more scope inside."""
        return NameStack((*self.stack, name))

    def transform(self, transform_name: str) -> NameStack:
        """Return the stack with one more transformation inside."""
        return self.extend(transform_name)

    def __getitem__(self, index: Any) -> NameStack:
        return NameStack(self.stack[index])

    def __len__(self) -> int:
        return len(self.stack)

    def __add__(self, other: NameStack) -> NameStack:
        return NameStack(self.stack + other.stack)

    def __str__(self) -> str:
        return "/".join(map(str, self.stack))


@dataclass(frozen=True)
class SourceInfo:
    """User's source line of an operation and the names around it. `traceback` is that line too: no other frames are
    recorded."""

    location: Location | None
    name_stack: NameStack

    @property
    def traceback(self) -> Location | None:
        """Source line."""
        return self.location

    def replace(self, **changes: Any) -> SourceInfo:
        """Return the info with another `location` (also called `traceback`) or `name_stack`."""
        if "traceback" in changes:
            changes["location"] = changes.pop("traceback")
        return SourceInfo(**{"location": self.location, "name_stack": self.name_stack, **changes})


@dataclass(frozen=True)
class EquationContext:
    """Settings under which an equation is computed. Equations have none of their own, so `manager` is an empty
    context."""

    compute_type: str | None = None
    threefry_partitionable: bool = True
    xla_metadata: Any = None

    @property
    def manager(self) -> contextlib.AbstractContextManager[None]:
        """Context manager under which the equation may be bound."""
        return contextlib.nullcontext()

    @property
    def cur_abstract_mesh(self) -> Any:
        """Current mesh."""
        return get_abstract_mesh()


CONTEXT = EquationContext()
