"""Events for monitoring: occurrences, durations, time spans and values.

Weft records the durations of tracing and compilation (`/jax/core/compile/jaxpr_trace_duration`,
`backend_compile_duration`) and whether compiled programs were found on disk (`/jax/compilation_cache/cache_hits`,
`cache_misses`). Libraries record events of their own.

>>> import weft
>>> seen = []
>>> listener = lambda event, **details: seen.append((event, details))
>>> weft.monitoring.register_event_listener(listener)
>>> weft.monitoring.record_event("/my_library/loaded", files=3)
>>> weft.monitoring.unregister_event_listener(listener)
>>> seen
[('/my_library/loaded', {'files': 3})]
"""

from __future__ import annotations

from collections.abc import Callable

from weft.base import events as _events
from weft.base.publish import publish as _publish


def record_event(event: str, **kwargs: str | int) -> None:
    """Send an event to listeners; keyword arguments are its details.

    Args:
        event: a name with slashes.
        **kwargs: details.

    >>> import weft
    >>> weft.monitoring.record_event("/my/app/started", kind="example")
    """
    _events.happened.tell(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Send an event of `duration` seconds to listeners.

    Args:
        event: a name with slashes.
        duration: seconds.
        **kwargs: details.

    >>> import weft
    >>> weft.monitoring.record_event_duration_secs("/my/app/step", 0.25)
    """
    _events.durations.tell(event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: str | int) -> None:
    """Send an event with its beginning and end, in seconds since 1970, to listeners."""
    _events.spans.tell(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Send a value to listeners."""
    _events.values.tell(event, value, **kwargs)


def register_event_listener(callback: Callable[..., None]) -> None:
    """Register `callback(event, **details)` for each `record_event`."""
    _events.happened.register(callback)


def register_event_duration_secs_listener(callback: Callable[..., None]) -> None:
    """Register `callback(event, seconds, **details)` for each duration."""
    _events.durations.register(callback)


def register_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Register `callback(event, start, end, **details)` for each time span."""
    _events.spans.register(callback)


def register_scalar_listener(callback: Callable[..., None]) -> None:
    """Register `callback(event, value, **details)` for each value."""
    _events.values.register(callback)


def unregister_event_listener(callback: Callable[..., None]) -> None:
    """Remove a callback of `register_event_listener`; raise ValueError if it is not registered."""
    _events.happened.unregister(callback)


def unregister_event_duration_listener(callback: Callable[..., None]) -> None:
    """Remove a callback of `register_event_duration_secs_listener`."""
    _events.durations.unregister(callback)


def unregister_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Remove a callback of `register_event_time_span_listener`."""
    _events.spans.unregister(callback)


def unregister_scalar_listener(callback: Callable[..., None]) -> None:
    """Remove a callback of `register_scalar_listener`."""
    _events.values.unregister(callback)


def clear_event_listeners() -> None:
    """Remove all listeners of all kinds."""
    for listeners in (_events.happened, _events.durations, _events.spans, _events.values):
        listeners.clear()


_publish(__name__)
