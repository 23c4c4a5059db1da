"""Report of the cache misses of a jitted function: why it was staged, at which line, and what that took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.source import Location
from weft.runtime.execute import CompileCost


@dataclass(frozen=True)
class CacheMiss:
    """Cache miss: the function was staged for a new signature. `costs` grows as its program is compiled."""

    cause: str
    line: Location | None
    trace_seconds: float
    costs: list[CompileCost]
    retained: bool

    @property
    def compiles(self) -> list[CompileCost]:
        """Costs of its compilations so far: none if its jaxpr became part of another."""
        return list(self.costs)

    @property
    def compile_seconds(self) -> float:
        return sum(cost.total for cost in self.costs)

    def __str__(self) -> str:
        where = "at an unknown line" if self.line is None else self.line.describe()
        head = f"{where}\n   tracing {self.trace_seconds * 1e3:.1f} ms, "
        head += "; ".join(f"compiling {cost}" for cost in self.costs) or "not compiled on its own"
        cause = self.cause.replace("\n", "\n   ")
        if self.retained:
            return f"{head}\n   {cause}"
        return f"{head}\n   {cause}\n   It closes over values of the trace around it, so it is staged at every call."


class CacheReport(Sequence[CacheMiss]):
    """Cache misses of a function in their order; `total` also counts those that are not listed any more."""

    def __init__(self, name: str, signatures: int, total: int, misses: Sequence[CacheMiss]) -> None:
        self.name, self.signatures, self.total, self.misses = name, signatures, total, tuple(misses)

    def __len__(self) -> int:
        return len(self.misses)

    def __getitem__(self, position: Any) -> Any:
        return self.misses[position]

    def __iter__(self) -> Iterator[CacheMiss]:
        return iter(self.misses)

    @property
    def trace_seconds(self) -> float:
        return sum(miss.trace_seconds for miss in self.misses)

    @property
    def compile_seconds(self) -> float:
        return sum(miss.compile_seconds for miss in self.misses)

    def __str__(self) -> str:
        head = (
            f"{self.name}: {self.signatures} signatures, staged {self.total} times, "
            f"tracing {self.trace_seconds:.3f} s, compiling {self.compile_seconds:.3f} s"
        )
        first = self.total - len(self.misses) + 1
        return "\n".join([head, *(f"{i}. {miss}" for i, miss in enumerate(self.misses, first))])

    __repr__ = __str__
