"""Calls of libraries on one GPU: prepared once, and started in a stream."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, Protocol

from weft.base.errors import InternalError
from weft.base.forks import held
from weft.runtime.cuda.libraries.find import load


class PreparedCall(Protocol):
    """Prepared call of a library, which only lacks addresses."""

    @property
    def workspace(self) -> int:
        """Bytes of temporary memory, aligned to 256."""
        ...

    def __call__(self, stream: Any, addresses: Sequence[int], workspace: int) -> None:
        """Start the call in a stream, on operands and results at these addresses."""
        ...


# Function of the calls of a GPU, integers and the alignment of each address. An attribute `most_alignment` bounds the
# alignments that matter; if `measures` is false, it runs nothing, so that several calls are prepared at a time.
Preparation = Callable[["LibraryCalls", Sequence[int], Sequence[int]], PreparedCall]


class Measure(Protocol):
    """Measurement of work on the GPU: the seconds of repetitions of a function that starts it in a stream."""

    def __call__(self, work: Callable[[Any], None], repetitions: int) -> float: ...


class LibraryCalls:
    """Libraries of one GPU. `driver` allocates memory and measures, `loader` loads a library by its name, and
    `routines` has the functions that prepare calls."""

    def __init__(
        self, driver: Any, routines: Mapping[str, Preparation], loader: Callable[[str], Any] = load, gpu: str = ""
    ) -> None:
        self.driver, self.gpu = driver, gpu
        self._routines, self._loader = routines, loader
        self._libraries: dict[tuple[str, str], Any] = {}
        self._prepared: dict[Any, Future[PreparedCall]] = {}
        self._lock = held(threading.RLock())
        self._measuring = {routine: held(threading.RLock()) for routine in routines}

    def library(self, name: str, opened: Callable[[Any], Any], purpose: str = "") -> Any:
        """Return a library opened by a function, once for this GPU and for each purpose."""
        with self._lock:
            if (name, purpose) not in self._libraries:
                self._libraries[name, purpose] = opened(self._loader(name))
            return self._libraries[name, purpose]

    def knows(self, routine: str) -> bool:
        """Return whether a routine exists."""
        return routine in self._routines

    def prepare(self, routine: str, integers: Sequence[int], alignments: Sequence[int]) -> PreparedCall:
        """Prepare a call, or return an equal one that was prepared before."""
        if not self.knows(routine):
            raise InternalError(f"The routine {routine} must be in ROUTINES.", stage="library")
        prepare = self._routines[routine]
        most = getattr(prepare, "most_alignment", None)
        if most is not None:
            alignments = [math.gcd(most, n) for n in alignments]
        key = (routine, tuple(integers), tuple(alignments))
        with self._lock:
            found = self._prepared.get(key)
            new: Future[PreparedCall] | None = None
            if found is None:
                found = self._prepared[key] = new = Future()
        if new is not None:
            try:
                # Measured calls of a routine are prepared one after the other; others concurrently.
                with self._measuring[routine] if getattr(prepare, "measures", True) else nullcontext():
                    new.set_result(prepare(self, integers, alignments))
            except BaseException as error:
                with self._lock:
                    del self._prepared[key]
                new.set_exception(error)
        return found.result()
