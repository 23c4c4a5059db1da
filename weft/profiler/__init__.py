"""Profiles of running programs: tables in the terminal, and traces for Chrome and Perfetto."""

from __future__ import annotations

import contextlib
import datetime
import functools
import gzip
import json
import pathlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from weft.base.forks import held
from weft.base.publish import suggest as _suggest
from weft.base.settings import find
from weft.base.source import user_location
from weft.base.spans import mark, span
from weft.ir.context import EVALUATION
from weft.ir.primitive import Primitive
from weft.primitives.control.call import jit as jit_primitive
from weft.profiler.chrome import to_chrome
from weft.profiler.data import ProfileData as ProfileData, ProfileEvent as ProfileEvent, ProfilePlane as ProfilePlane
from weft.profiler.memory import (
    device_memory_profile as device_memory_profile,
    save_device_memory_profile as save_device_memory_profile,
)
from weft.profiler.recorder import Recorder
from weft.profiler.report import Profile as Profile
from weft.profiler.server import Server
from weft.profiler.subprocesses import Registration, begin_traces, end_traces, merge

_lock = held(threading.Lock())
_recording = 0
_plain: Callable[..., list[Any]] | None = None


def _evaluate(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Run one operation outside of programs, or one call of a program, as a span."""
    assert _plain is not None
    called = primitive is jit_primitive
    with span("call" if called else "operation", params["name"] if called else primitive.name, user_location()):
        return _plain(primitive, args, params)


def _start(recorder: Recorder) -> None:
    """Start recording. While any recorder runs, operations are spans and programs time their steps."""
    global _recording, _plain
    with _lock:
        if not _recording:
            _plain = EVALUATION.evaluate
            EVALUATION.evaluate = _evaluate
            find("profiling").set_global(True)
        _recording += 1
    recorder.start()


def _stop(recorder: Recorder) -> None:
    global _recording
    recorder.stop()
    with _lock:
        _recording -= 1
        if not _recording:
            assert _plain is not None
            find("profiling").set_global(False)
            EVALUATION.evaluate = _plain


@contextlib.contextmanager
def profile(*, limit: int = 20, file: TextIO | None = None, quiet: bool = False) -> Iterator[Profile]:
    """Say where the time of a block went: `with weft.profile():` prints tables by line and by kernel when it ends.

    The block gets a `Profile`, which has the numbers afterwards. `limit` is how many rows a table has; with `quiet`
    nothing is printed. Times of kernels are those of the thread that waits for them.
    """
    result, recorder = Profile(), Recorder()
    _start(recorder)
    try:
        yield result
    finally:
        _stop(recorder)
        result.fill(recorder)
        if not quiet:
            print(result.table(limit), file=file or sys.stdout)


# -------------------------------------------------------------------------------------------------------------- traces


class ProfileOptions:
    """Contents of a trace. The levels exist for JAX's programs: 0 records nothing, more records everything.

    >>> import weft
    >>> options = weft.profiler.ProfileOptions()
    >>> options.python_tracer_level = 0
    """

    def __init__(self) -> None:
        self.host_tracer_level = 2
        self.device_tracer_level = 1
        self.python_tracer_level = 0
        self.session_id = ""


_trace: tuple[Recorder, pathlib.Path, bool, ProfileOptions, dict[int, int]] | None = None


def start_trace(
    log_dir: str | pathlib.Path,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> None:
    """Begin a trace, which `stop_trace` writes below `log_dir`, in `plugins/profile/<time>/`.

    It is a file in Chrome's format, which ui.perfetto.dev opens. `create_perfetto_trace` writes it under the name that
    Perfetto's users look for, too; `create_perfetto_link` prints where to open it.

    Args:
        log_dir: the folder.
        create_perfetto_link: whether to print where to open the file.
        create_perfetto_trace: whether to write it under Perfetto's usual name, too.
        profiler_options: what to record.

    >>> import weft
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     weft.profiler.start_trace(folder)
    ...     _ = weft.profiler.stop_trace()
    """
    global _trace
    with _lock:
        if _trace is not None:
            raise RuntimeError("A trace is under way already; stop_trace ends it. There is one at a time.")
        recorder = Recorder(events=True)
        wanted = create_perfetto_trace or create_perfetto_link
        _trace = recorder, pathlib.Path(log_dir), wanted, profiler_options or ProfileOptions(), begin_traces()
    if create_perfetto_link:
        print(f"When the trace has ended, open https://ui.perfetto.dev and give it the file below {log_dir}.")
    _start(recorder)


def stop_trace() -> pathlib.Path:
    """End the trace and write it; returns the path of the file.

    Returns:
        The path of the file.

    >>> import weft
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     weft.profiler.start_trace(folder)
    ...     weft.profiler.stop_trace().is_file()
    True
    """
    global _trace
    with _lock:
        if _trace is None:
            raise RuntimeError("No trace is under way; start_trace begins one.")
        (recorder, root, perfetto, options, asked), _trace = _trace, None
    _stop(recorder)
    name = options.session_id or datetime.datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
    folder = root / "plugins" / "profile" / name
    folder.mkdir(parents=True, exist_ok=True)
    content = gzip.compress(json.dumps(merge(to_chrome(recorder), end_traces(asked))).encode())
    path = folder / f"{socket.gethostname() or 'host'}.trace.json.gz"
    path.write_bytes(content)
    if perfetto:
        (folder / "perfetto_trace.json.gz").write_bytes(content)
    return path


@contextlib.contextmanager
def trace(
    log_dir: str | pathlib.Path,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> Iterator[None]:
    """Trace a block: `start_trace` and `stop_trace` around it.

    Args:
        log_dir: the folder.
        create_perfetto_link: whether to print where to open the file.
        create_perfetto_trace: whether to write it under Perfetto's usual name, too.
        profiler_options: what to record.

    Returns:
        A context manager.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, weft.profiler.trace(folder):
    ...     _ = wnp.ones(3) + 1
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


_server: Server | None = None


def start_server(port: int, requires_backend: bool = True) -> Server:
    """Listen on a port of this machine for `GET /trace?seconds=2`, which answers with a trace of that length. Port 0
    takes any free one; the server reports which.

    Args:
        port: the port; 0 for any.
        requires_backend: accepted for compatibility.

    Returns:
        A server with `port` and `stop()`.

    >>> import weft
    >>> server = weft.profiler.start_server(0)
    >>> server.stop()
    """
    global _server
    if _server is not None and _server.is_running:
        raise RuntimeError(f"A profiler server listens on port {_server.port} already; stop_server ends it.")
    _server = Server(port, _record)
    return _server


def stop_server() -> None:
    """End the server."""
    global _server
    if _server is None or not _server.is_running:
        raise RuntimeError("There is no profiler server; start_server starts one.")
    server, _server = _server, None
    server.stop()


def _record(wait: Callable[[], None]) -> dict[str, Any]:
    """Record a trace of all threads until `wait` returns."""
    recorder, asked = Recorder(events=True), begin_traces()
    _start(recorder)
    try:
        wait()
    finally:
        _stop(recorder)
    return merge(to_chrome(recorder), end_traces(asked))


def register_subprocess(pid: int, port: int) -> Callable[[], None]:
    """Trace another process of this machine together with this one, such as one that loads data.

    The other process runs a profiler server (`start_server(port)`). Every trace that this process collects from now
    on, by `trace` or by its own server, has the events of both.

    Args:
        pid: the other process's number.
        port: the port that its profiler server listens on.

    Returns:
        A function that ends the registration, which also ends when the function is garbage collected.

    Raises:
        RuntimeError: if the process is registered already, or its server does not answer.
    """
    return Registration(pid, port)


class TraceAnnotation(contextlib.ContextDecorator):
    """Named block in a trace, with values to show beside it: `with TraceAnnotation("batch", size=32):`.

    Args:
        name: what is shown.
        **kwargs: values that are shown beside it.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> with weft.profiler.TraceAnnotation("batch", size=32):
    ...     _ = wnp.ones(3) + 1
    """

    category = "annotation"

    def __init__(self, name: str, /, **kwargs: Any) -> None:
        self._name, self._details = name, kwargs
        self._open: list[Any] = []

    def _recreate_cm(self) -> TraceAnnotation:
        return type(self)(self._name, **self._details)

    def __enter__(self) -> TraceAnnotation:
        scope = mark(self.category, self._name, user_location(), **self._details)
        scope.__enter__()
        self._open.append(scope)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.pop().__exit__(*error)


class StepTraceAnnotation(TraceAnnotation):
    """`TraceAnnotation` for one step of a training loop: `with StepTraceAnnotation("train", step_num=n):`.

    Args:
        name: what is shown.
        **kwargs: values that are shown beside it, such as `step_num`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> with weft.profiler.StepTraceAnnotation("train", step_num=3):
    ...     _ = wnp.ones(3) + 1
    """

    category = "step"


def annotate_function(func: Callable[..., Any], name: str | None = None, **decorator_kwargs: Any) -> Callable[..., Any]:
    """Wrap a function so that its calls have a name in traces."""
    name = name or getattr(func, "__qualname__", None) or repr(func)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(name, **decorator_kwargs):
            return func(*args, **kwargs)

    return wrapper


_suggest(__name__)
