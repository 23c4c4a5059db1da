"""Signature caches: what was staged for each signature of a function, shared by all `jit`s of it with equal options."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

from weft.api.automatic import AutomaticSizes, DeclaredSizes
from weft.api.cache_report import CacheMiss, CacheReport
from weft.api.call import Signature
from weft.api.explain import explain_difference
from weft.api.staged import StagedFunction
from weft.base import memo
from weft.base.forks import held
from weft.base.memo import Memo
from weft.base.source import Location
from weft.indexing.guards import Answers, answering, current
from weft.ir.jaxpr import Jaxpr
from weft.runtime.execute import compile_costs

# Staged functions kept per function, and instances at concrete sizes of those that were staged for symbols: others take
# milliseconds to instantiate again.
MOST_SIGNATURES, MOST_SIZES = 4096, 1024
# Misses that are listed; older ones are only counted.
MOST_MISSES = 1000
# Earlier signatures that a miss is compared with, the latest ones.
COMPARED = 8
# Hashes of signatures that are known to have been staged.
MOST_SEEN = 100_000

# Held while a cache, or the table of caches, is listed or changed; lookups need no lock. Reentrant, since the garbage
# collector and signal handlers may run meanwhile.
_lock = held(threading.RLock())


class SignatureCache:
    """Staged functions by signature, least recently used first, with the history of cache misses.

    `automatic` and `declared` hold the functions that were staged for symbolic sizes.
    """

    def __init__(self) -> None:
        self._staged: OrderedDict[Signature, StagedFunction] = OrderedDict()
        self.get = self._staged.get
        self.misses: deque[CacheMiss] = deque(maxlen=MOST_MISSES)
        self.total = 0
        self._seen: Memo[int, bool] = Memo(MOST_SEEN, lasting=True)
        self.automatic, self.declared = AutomaticSizes(), DeclaredSizes()

    def __len__(self) -> int:
        return len(self._staged)

    def keep(self, signature: Signature, staged: StagedFunction) -> None:
        """Store a staged function."""
        self._keep(signature, staged, MOST_SIGNATURES)

    def keep_instance(self, signature: Signature, staged: StagedFunction) -> None:
        """Store an instance of a symbolically staged function."""
        self._keep(signature, staged, MOST_SIZES)

    def _keep(self, signature: Signature, staged: StagedFunction, most: int) -> None:
        with _lock:
            self._staged[signature] = staged
            if len(self._staged) > most:  # discard the least recently used one
                self._staged.popitem(last=False)

    def touch(self, signature: Signature) -> None:
        """Mark a signature as used; a cache that is less than half full need not know."""
        if len(self._staged) <= MOST_SIGNATURES // 2:
            return
        with _lock:
            if signature in self._staged:  # another thread may have discarded it
                self._staged.move_to_end(signature)

    def clear(self) -> None:
        """Discard all staged functions; the history stays."""
        with _lock:
            self._staged.clear()
        self.automatic, self.declared = AutomaticSizes(), DeclaredSizes()

    def explain_miss(self, name: str, signature: Signature, paths: Sequence[str]) -> str:
        """Return the reason why a signature must be staged."""
        if hash(signature) in self._seen:
            return (
                f"{name} was staged for this signature before, and that was forgotten: by clear_cache, or for others."
            )
        with _lock:
            latest = list(itertools.islice(reversed(self._staged), COMPARED))
        # Comparing sizes must not add guards to a family that is being traced: an explanation decides nothing.
        answers = current.answers
        with answering(Answers(answers.sizes, False) if type(answers) is Answers else answers):
            return explain_difference(name, signature, latest, paths)

    def record_miss(
        self, signature: Signature, cause: str, line: Location | None, seconds: float, jaxpr: Jaxpr, retained: bool
    ) -> None:
        """Add a miss to the history."""
        self.total += 1
        if retained:
            self._seen.keep(hash(signature), True)
        self.misses.append(CacheMiss(cause, line, seconds, compile_costs(jaxpr), retained))

    def report(self, name: str) -> CacheReport:
        """Return the history."""
        return CacheReport(name, len(self), self.total, self.misses)


_caches: weakref.WeakKeyDictionary[Any, dict[Any, SignatureCache]] = weakref.WeakKeyDictionary()


def get_cache(function: Callable[..., Any], options: Any) -> SignatureCache:
    """Return the cache of a function under some options; a new one if the function cannot be a weak key."""
    try:
        with _lock:
            return _caches.setdefault(function, {}).setdefault(options, SignatureCache())
    except TypeError:  # not hashable or not weakly referable
        return SignatureCache()


def clear_caches() -> None:
    """Discard every staged function and all other memoized values.

    The next call of each jitted function traces and compiles again (or reads code from the cache on disk).

    >>> import weft
    >>> weft.clear_caches()  # doctest: +SKIP
    """
    with _lock:
        caches = [cache for options in _caches.values() for cache in options.values()]
    for cache in caches:
        cache.clear()
    memo.clear_all()
