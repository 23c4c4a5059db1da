"""Every time a jitted function was staged: why, at which line, and what tracing and compiling took."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.api.automatic import AutomaticSizes, DeclaredSizes
from weft.api.explain import reason
from weft.base import memo
from weft.base.dataclass import dataclass
from weft.base.forks import held
from weft.base.memo import Memo
from weft.base.source import Location
from weft.ir.jaxpr import Jaxpr
from weft.runtime.execute import CompileCost, compile_costs

# Misses that are remembered one by one; older ones are only counted.
MOST_MISSES = 1000
# Earlier signatures that a miss is compared with, the latest ones.
COMPARED = 8
# Signatures that are known to have been staged.
MOST_SEEN = 100_000


@dataclass(frozen=True)
class CacheMiss:
    """One time that a function was staged."""

    cause: str
    line: Location | None
    trace_seconds: float
    costs: list[CompileCost]
    retained: bool

    @property
    def compiles(self) -> list[CompileCost]:
        """What was compiled for it so far: nothing, if its jaxpr became part of another."""
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
    """The misses of a function in their order, and how many there were in all."""

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


# Held while caches and what is in them are listed or changed; looking one up needs no lock. Garbage may be collected
# meanwhile, and a signal's handler may run.
_lock = held(threading.RLock())


class Signatures(OrderedDict[Any, Any]):
    """What was staged for a function, by signature, with the history of what was staged."""

    def __init__(self) -> None:
        super().__init__()
        self.misses: deque[CacheMiss] = deque(maxlen=MOST_MISSES)
        self.total = 0
        self._seen: Memo[int, bool] = Memo(MOST_SEEN, lasting=True)
        self.automatic, self.declared = AutomaticSizes(), DeclaredSizes()

    def keep(self, key: Any, value: Any, most: int) -> None:
        """Remember what was staged; of more than so many signatures the one that was used least recently is
        forgotten."""
        with _lock:
            self[key] = value
            if len(self) > most:
                self.popitem(last=False)

    def touch(self, key: Any) -> None:
        """Note that a signature was used, if another thread has not forgotten it meanwhile."""
        with _lock:
            if key in self:
                self.move_to_end(key)

    def clear(self) -> None:
        with _lock:
            super().clear()
        self.automatic, self.declared = AutomaticSizes(), DeclaredSizes()

    def cause(self, name: str, key: Any, paths: Sequence[str]) -> str:
        """Why this signature is staged now."""
        if hash(key) in self._seen:
            return (
                f"{name} was staged for this signature before, and that was forgotten: by clear_cache, or for others."
            )
        with _lock:
            latest = list(itertools.islice(reversed(self), COMPARED))
        return reason(name, key, latest, paths)

    def missed(self, key: Any, cause: str, line: Location | None, seconds: float, jaxpr: Jaxpr, retained: bool) -> None:
        """Note what was staged."""
        self.total += 1
        if retained:
            self._seen.keep(hash(key), True)
        self.misses.append(CacheMiss(cause, line, seconds, compile_costs(jaxpr), retained))

    def report(self, name: str) -> CacheReport:
        return CacheReport(name, len(self), self.total, self.misses)


_caches: weakref.WeakKeyDictionary[Any, dict[Any, Signatures]] = weakref.WeakKeyDictionary()


def cache_for(function: Callable[..., Any], options: Any) -> Signatures:
    """The signatures of `function` under these options: shared by all `jit`s of the same function."""
    try:
        with _lock:
            return _caches.setdefault(function, {}).setdefault(options, Signatures())
    except TypeError:  # not hashable or not weakly referable: the wrapper alone remembers
        return Signatures()


def clear_caches() -> None:
    """Forget every staged function and whatever else was remembered to be quick.

    The next call of each jitted function traces and compiles again (or reads code from the cache on disk).

    >>> import weft
    >>> weft.clear_caches()  # doctest: +SKIP
    """
    with _lock:
        caches = [cache for options in _caches.values() for cache in options.values()]
    for cache in caches:
        cache.clear()
    memo.clear_all()
