"""An iterator that a thread reads a few elements ahead of its consumer."""

from __future__ import annotations

import collections
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from weft.errors import NotSupportedError

CLOSING_SECONDS = 5.0  # that `close` waits for a thread that is reading


class _Buffer:
    """The elements that the thread has read, shared with the consumer.

    The thread refers to the buffer and not to the `Ahead`, so that an unused `Ahead` is collected, which ends the
    thread.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.elements: collections.deque[Any] = collections.deque()
        self.changed = threading.Condition()
        self.stopped = self.ended = False
        self.error: BaseException | None = None
        self.process = os.getpid()

    def stop(self) -> None:
        if (
            self.process != os.getpid()
        ):  # the lock may have been held by a thread of the parent when this process was forked
            return
        with self.changed:
            self.stopped = True
            self.elements.clear()
            self.changed.notify_all()


def _fill(buffer: _Buffer, read: Callable[[], Iterator[Any]]) -> None:
    """Run the thread: read until the source ends or the buffer is stopped."""
    error: BaseException | None = None
    try:
        source = read()
        try:
            while True:
                with buffer.changed:
                    buffer.changed.wait_for(lambda: buffer.stopped or len(buffer.elements) < buffer.size)
                    if buffer.stopped:
                        break
                # There is room before reading starts, so at most `size` elements exist.
                element = next(source)
                with buffer.changed:
                    if not buffer.stopped:
                        buffer.elements.append(element)
                        buffer.changed.notify_all()
                del element
        finally:
            if hasattr(source, "close"):
                source.close()
    except StopIteration:
        pass
    except BaseException as raised:
        error = raised
    with buffer.changed:
        buffer.ended, buffer.error = True, error
        buffer.changed.notify_all()


class Ahead:
    """Iterator over the result of `read()`, which a thread reads up to `size` elements ahead.

    An exception of the thread is raised in place of its element, with its original traceback.

    >>> list(Ahead(lambda: iter(range(3)), size=2))
    [0, 1, 2]
    """

    def __init__(self, read: Callable[[], Iterator[Any]], size: int = 2) -> None:
        self._buffer = _Buffer(size)
        self._thread = threading.Thread(target=_fill, args=(self._buffer, read), name="weft.data ahead", daemon=True)
        self._finalizer = weakref.finalize(self, self._buffer.stop)
        self._thread.start()

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> Any:
        buffer = self._buffer
        if buffer.process != os.getpid():
            raise NotSupportedError(
                "A forked process cannot continue this iterator: the thread that reads it exists in the parent only.",
                fix="iterate anew in the forked process",
            )
        with buffer.changed:
            buffer.changed.wait_for(lambda: buffer.elements or buffer.ended or buffer.stopped)
            if buffer.elements:
                element = buffer.elements.popleft()
                buffer.changed.notify_all()
                return element
            error, buffer.error = buffer.error, None
        if error is None:
            raise StopIteration
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame

    def close(self) -> None:
        """Stop reading, and wait until the thread has ended."""
        self._finalizer()
        if self._buffer.process == os.getpid() and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_SECONDS)
