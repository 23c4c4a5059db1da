"""What an equation says of where it is from, in the form in which programs written for JAX ask."""

from __future__ import annotations

import contextlib
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.source import Location
from weft.sharding.current import get_abstract_mesh


@dataclass(frozen=True)
class NameStack:
    """The names of the scopes and transformations around an operation, the outermost first."""

    stack: tuple[str, ...] = ()

    def extend(self, name: str) -> NameStack:
        """With one more scope inside."""
        return NameStack((*self.stack, name))

    def transform(self, transform_name: str) -> NameStack:
        """With one more transformation inside."""
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
    """The line of the user that an operation is from, and the names around it. `traceback` is the same line: of the
    frames around it nothing is recorded."""

    location: Location | None
    name_stack: NameStack

    @property
    def traceback(self) -> Location | None:
        """The line."""
        return self.location

    def replace(self, **changes: Any) -> SourceInfo:
        """The same with another `location` or `name_stack`; a `traceback` is a location."""
        if "traceback" in changes:
            changes["location"] = changes.pop("traceback")
        return SourceInfo(**{"location": self.location, "name_stack": self.name_stack, **changes})


@dataclass(frozen=True)
class EquationContext:
    """Settings under which an equation is computed. There are none that it has for itself, so that `manager`, a
    block in which it is bound, changes nothing."""

    compute_type: str | None = None
    threefry_partitionable: bool = True
    xla_metadata: Any = None

    @property
    def manager(self) -> contextlib.AbstractContextManager[None]:
        """A block in which the equation may be bound."""
        return contextlib.nullcontext()

    @property
    def cur_abstract_mesh(self) -> Any:
        """The mesh that is set now."""
        return get_abstract_mesh()


CONTEXT = EquationContext()
