"""Filter tracebacks: remove Weft's own frames, depending on the setting `traceback_filtering`.

Frames are removed where an error leaves Weft. Public functions are boundaries with a `try` around them, which costs
nothing in CPython until an error is raised. Functions with short calls (operators, universal functions, jitted
functions) contain the `try` themselves; other public functions get it from `publish`, at the cost of one more Python
call. Uncaught errors that leave in other ways are filtered by `sys.excepthook`, or in a notebook by the handler of
IPython's shell.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from weft.base.settings import config
from weft.base.source import ipython_shell, is_generated, is_internal, is_own

NOTE = "Weft's own frames are hidden; WEFT_TRACEBACK_FILTERING=off shows them."
_MARK = "__tracebackhide__"

Function = TypeVar("Function", bound=Callable[..., Any])


class UnfilteredStackTrace(Exception):
    """The cause of an error in the mode 'remove_frames': the same error with all frames."""

    shown: TracebackType | None = None  # the first frame that the error itself still shows


UnfilteredStackTrace.__module__ = "weft.errors"


def mode() -> str:
    """Return the current filtering mode, with 'auto' resolved."""
    chosen = config.traceback_filtering
    if chosen != "auto":
        return chosen
    return "tracebackhide" if ipython_shell() is not None else "quiet_remove_frames"


# ----------------------------------------------------------------------------------------------------------- filtering


def visible(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of Weft and of libraries that it called; the same object if it has
    none."""
    shown, removed = [], False
    entries = list(_entries(traceback))
    started = next((i for i, (entry, _) in enumerate(entries) if not _is_runpy(entry)), 0)
    if started and entries[started][1]:  # `python -m weft.as_jax`: Python's frames above those of Weft
        entries, removed = entries[started:], True
    for entry, hidden in entries:
        if hidden:
            removed = True
        else:
            shown.append(entry)
    return _chained(shown, None) if removed else traceback


def _entries(traceback: TracebackType | None) -> Iterator[tuple[TracebackType, bool]]:
    """Yield the entries of a traceback from the outermost, and whether each is hidden."""
    hidden = False
    while traceback is not None:
        code = traceback.tb_frame.f_code
        # Frames of Python's machinery are hidden if their caller is.
        hidden = is_own(code.co_filename) or (hidden and (is_internal(code.co_filename) or is_generated(code)))
        yield traceback, hidden
        traceback = traceback.tb_next


def _is_runpy(entry: TracebackType) -> bool:
    """Return whether a frame is of Python's `-m` option."""
    return entry.tb_frame.f_code.co_filename == "<frozen runpy>"


def conceal(error: BaseException) -> None:
    """Filter an error that leaves Weft, and the errors that caused it."""
    chosen = mode()
    if chosen == "off" or getattr(error, "is_our_fault", False):  # bug reports need all frames
        return
    for each in _chain(error):
        whole = each.__traceback__
        if chosen == "tracebackhide":
            _mark(each)
            continue
        shown = visible(whole)
        if shown is whole:
            continue
        each.__traceback__ = shown
        if each is error:
            if chosen == "remove_frames":
                _keep_unfiltered(error, whole, shown)
            elif NOTE not in getattr(error, "__notes__", ()):
                error.add_note(NOTE)


def _mark(error: BaseException) -> None:
    """Mark hidden frames for IPython, and end the traceback with the user's last, since IPython shows any last one."""
    last: TracebackType | None = None
    for entry, hidden in _entries(error.__traceback__):
        if hidden:
            entry.tb_frame.f_locals[_MARK] = True
        else:
            last = entry
    if last is None:
        error.__traceback__ = None
    else:
        last.tb_next = None


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and the errors that a traceback prints before it."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or any(each is other for other in found) or isinstance(each, UnfilteredStackTrace):
            continue
        found.append(each)
        waiting += [each.__cause__, None if each.__suppress_context__ else each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
    return found


def _keep_unfiltered(error: BaseException, whole: TracebackType | None, shown: TracebackType | None) -> None:
    """Attach an error's unfiltered traceback to it, as the error that caused it."""
    cause = error.__cause__
    if isinstance(cause, UnfilteredStackTrace):  # set by an inner boundary, to which this one adds the outer frames
        around: list[TracebackType] = []
        while whole is not None and whole is not cause.shown:
            around.append(whole)
            whole = whole.tb_next
        cause.__traceback__ = _chained(around, cause.__traceback__)
    else:
        unfiltered = UnfilteredStackTrace(f"{type(error).__name__} with all frames; below, without those of Weft.")
        unfiltered.__cause__, unfiltered.__context__ = cause, error.__context__
        unfiltered.__suppress_context__ = error.__suppress_context__
        unfiltered.__traceback__ = whole
        error.__cause__ = cause = unfiltered
    cause.shown = shown


def _chained(entries: list[TracebackType], rest: TracebackType | None) -> TracebackType | None:
    """Concatenate the frames of the entries, from the outermost, and those of another traceback."""
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


# ---------------------------------------------------------------------------------------------------------- boundaries


def boundary(function: Function) -> Function:
    """Filter the errors that leave `function`, for functions that call user code. Applying it again has no effect."""
    if is_boundary(function):
        return function

    @functools.wraps(function)
    def filtering(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            conceal(error)
            if error.__traceback__ is None and not hasattr(error, "received"):
                _name_call(error, function, args, kwargs)
            raise

    return filtering  # type: ignore[return-value]


def is_boundary(function: Any) -> bool:
    """Return whether this function was returned by `boundary`."""
    code = getattr(function, "__code__", None)
    return code is not None and code in boundary.__code__.co_consts


def _name_call(error: Exception, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add a note with the failed call to an error that was raised inside of Weft and is not Weft's own."""
    shown = [_in_short(value) for value in args] + [f"{name}={_in_short(value)}" for name, value in kwargs.items()]
    note = f"in the call {function.__module__}.{function.__qualname__}({', '.join(shown)})"
    notes = [other for other in getattr(error, "__notes__", ()) if not other.startswith("in the call ")]
    error.__notes__ = [note, *notes]  # the outermost call is the user's


def _in_short(value: Any) -> str:
    aval: Any = getattr(value, "aval", None)
    text = repr(value) if aval is None else aval.short()
    return text if len(text) <= 60 else text[:57] + "..."


def install() -> None:
    """Filter uncaught errors, in the main thread and in others, before they are printed as usual."""
    shown, shown_in_thread = sys.excepthook, threading.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> Any:
        if visible(traceback) is not None:  # otherwise all frames are Weft's
            conceal(error)
        return shown(kind, error, error.__traceback__)

    def thread_excepthook(args: threading.ExceptHookArgs, /) -> Any:
        if args.exc_value is not None and visible(args.exc_traceback) is not None:
            conceal(args.exc_value)
        return shown_in_thread(args)

    sys.excepthook, threading.excepthook = excepthook, thread_excepthook
    shell = ipython_shell()
    # IPython catches errors of cells, so `sys.excepthook` is not called. A handler set by the user has priority.
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), _show_in_notebook)


def _show_in_notebook(
    shell: Any, kind: type[BaseException], error: BaseException, traceback: TracebackType | None, tb_offset: Any = None
) -> None:
    """Filter an error that left a cell, then print it as IPython does."""
    if visible(traceback) is not None:
        conceal(error)
    shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)
