"""The progress of `fit`, `evaluate` and `predict`: a bar in a terminal, lines elsewhere, HTML in a notebook.

Nothing here waits for a computation: what is drawn are the newest values that the host has.
"""

from __future__ import annotations

import html
import logging
import shutil
import sys
import time
from collections.abc import Iterable
from typing import Any, Protocol

from weft.errors import ArgumentError
from weft.keras.callbacks.base import Callback, Logs
from weft.keras.core.config import settings

# In a file or a pipe a long epoch says that it is alive this often; a short one is one line.
PLAIN_SECONDS = 30.0
GREEN, GREY, RESET, CLEAR_LINE = "\x1b[32m", "\x1b[37m", "\x1b[0m", "\x1b[K"
FULL, EMPTY = "━", "─"


class Display(Protocol):
    """Where progress is drawn."""

    between: str  # what is between the times

    def update(self, head: str, fraction: float | None, tail: str, width: int) -> None:
        """Draw the present state: `head` (12/40), the bar, `tail` (times and values)."""

    def finish(self, head: str, tail: str, width: int) -> None:
        """Draw the last state; later output goes below it."""


class TerminalDisplay:
    """One line that is drawn again and again."""

    between = " "

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def update(self, head: str, fraction: float | None, tail: str, width: int) -> None:
        columns = shutil.get_terminal_size().columns
        bar = "" if fraction is None else _bar(fraction, width)
        room = columns - len(head) - (0 if fraction is None else width + 1) - 2
        shown = tail if len(tail) <= room else tail[: max(room - 1, 0)] + "…"
        self.stream.write(f"\r{head} {bar}{shown}{CLEAR_LINE}")
        self.stream.flush()

    def finish(self, head: str, tail: str, width: int) -> None:
        # The last state is written in full, over several lines if it must be: nothing overwrites it.
        self.stream.write(f"\r{head} {_bar(1.0, width)}{tail}{CLEAR_LINE}\n")
        self.stream.flush()


class PlainDisplay:
    """One line at the end, and one now and then if that takes long."""

    between = " - "

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.last = time.monotonic()

    def update(self, head: str, fraction: float | None, tail: str, width: int) -> None:
        if time.monotonic() - self.last >= PLAIN_SECONDS:
            self.last = time.monotonic()
            self.finish(head, tail, width)

    def finish(self, head: str, tail: str, width: int) -> None:
        self.stream.write(f"{head} - {tail}\n")
        self.stream.flush()


class LogStream:
    """A stream whose lines go to `logging`: where `keras.config.disable_interactive_logging()` was called."""

    def write(self, text: str) -> None:
        """Log a line."""
        logging.getLogger("weft.keras").info(text.rstrip("\n"))

    def flush(self) -> None:
        """Do nothing: lines are not buffered."""


class NotebookDisplay:
    """An element of the page that is replaced."""

    between = " "

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.handle: str | None = None

    def update(self, head: str, fraction: float | None, tail: str, width: int) -> None:
        value = "" if fraction is None else f' value="{fraction:.4f}"'
        text = f"{html.escape(head)} <progress{value}></progress> {html.escape(tail)}"
        self._show({"text/html": f"<div>{text}</div>", "text/plain": f"{head} - {tail}"})

    def finish(self, head: str, tail: str, width: int) -> None:
        self.update(head, 1.0, tail, width)

    def _show(self, data: dict[str, str]) -> None:
        again = self.handle is not None
        self.handle = self.handle or f"weft-progress-{id(self)}-{time.monotonic_ns()}"
        self.shell.display_pub.publish(data=data, metadata={}, transient={"display_id": self.handle}, update=again)


def _bar(fraction: float, width: int) -> str:
    done = round(width * min(max(fraction, 0.0), 1.0))
    return f"{GREEN}{FULL * done}{RESET}{GREY}{EMPTY * (width - done)}{RESET} "


def notebook_shell() -> Any:
    """Return the shell of the notebook that this process computes for, or None."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if get_ipython is None else get_ipython()
    return shell if type(shell).__name__ == "ZMQInteractiveShell" else None


def choose_display() -> Display:
    """Choose the display for the present output: log, notebook, terminal or plain text."""
    if not settings.interactive_logging:
        return PlainDisplay(LogStream())
    if (shell := notebook_shell()) is not None:
        return NotebookDisplay(shell)
    if hasattr(sys.stdout, "isatty") and sys.stdout.isatty():
        return TerminalDisplay(sys.stdout)
    return PlainDisplay(sys.stdout)


def format_value(value: Any) -> str:
    """Format a metric for progress: four digits."""
    if isinstance(value, float | int):
        return f"{value:.4f}" if abs(value) > 1e-3 else f"{value:.4e}"
    return str(value)


def format_seconds(seconds: float, least: float = 0.0) -> str:
    """Format a duration in a suitable unit: 1:02:03, 2:03, 4s, 5ms, 6us; no unit smaller than `least`."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02d}:{int(seconds % 60):02d}"
    if seconds >= 60:
        return f"{int(seconds // 60)}:{int(seconds % 60):02d}"
    if seconds >= 1 or least == 1:
        return f"{seconds:.0f}s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.0f}ms"
    return f"{seconds * 1e6:.0f}us"


class Progbar:
    """Progress of `target` steps, with values.

    Args:
        target: how many steps there are; None if that is unknown.
        width: of the bar, in characters.
        verbose: 0 silent, 1 a bar, 2 one line at the end.
        interval: seconds between two drawings, at least.
        stateful_metrics: names whose values are shown as they are; others are averaged over steps.
        unit_name: what a step is called.
        stateless_metrics: in place of `stateful_metrics`, names whose values are averaged over steps; others are shown
            as they are.

    >>> from weft.keras.callbacks.progress import Progbar
    >>> bar = Progbar(2, verbose=0)
    >>> bar.update(1, [("loss", 2.0)])
    >>> bar.update(2, [("loss", 4.0)])
    >>> bar.values()
    {'loss': 3.0}
    """

    def __init__(
        self,
        target: int | None,
        width: int = 20,
        verbose: int = 1,
        interval: float = 0.05,
        stateful_metrics: Iterable[str] | None = None,
        unit_name: str = "step",
        stateless_metrics: Iterable[str] | None = None,
    ) -> None:
        if stateful_metrics is not None and stateless_metrics is not None:
            raise ArgumentError(
                "A Progbar takes either stateful_metrics or stateless_metrics; both were passed and must not be."
            )
        self.target = target
        self.width = width
        self.verbose = verbose
        self.interval = interval
        self.stateful_metrics = set(stateful_metrics or ())
        self.stateless_metrics = None if stateless_metrics is None else set(stateless_metrics)
        self.unit_name = unit_name
        self.current = 0
        self.start = time.monotonic()
        self._values: dict[str, tuple[Any, float]] = {}
        self._drawn = 0.0
        self._finished = False
        lines = verbose != 1 and settings.interactive_logging
        self._display: Display = PlainDisplay(sys.stdout) if lines else choose_display()

    def add(self, n: int, values: Iterable[tuple[str, Any]] | None = None) -> None:
        """Advance by `n` steps."""
        self.update(self.current + n, values)

    def values(self) -> dict[str, Any]:
        """Return the displayed values: averages over steps, and the last values of `stateful_metrics`."""
        return {name: total if not weight else total / weight for name, (total, weight) in self._values.items()}

    def update(
        self, current: int, values: Iterable[tuple[str, Any]] | None = None, finalize: bool | None = None
    ) -> None:
        """Set the number of finished steps; `values` are those of the steps since the last call."""
        if finalize is None:
            finalize = self.target is not None and current >= self.target
        for name, value in values or ():
            averaged = name not in self.stateful_metrics
            if self.stateless_metrics is not None:
                averaged = name in self.stateless_metrics
            if not averaged or not isinstance(value, float | int):
                self._values[name] = (value, 0.0)
            else:
                weight = float(max(current - self.current, 1))
                total, weights = self._values.get(name, (0.0, 0.0))
                self._values[name] = (total + value * weight, weights + weight)
        self.current = current
        now = time.monotonic()
        if not self.verbose or self._finished or (not finalize and now - self._drawn < self.interval):
            return
        self._drawn = now
        self._finished = bool(finalize)
        total = str(self.target) if self.target is not None else ("?" if not finalize else str(current))
        head = f"{current:>{len(total)}}/{total}"
        tail = self._tail(now - self.start, bool(finalize))
        if finalize:
            self._display.finish(head, tail, self.width)
        elif self.verbose == 1:
            self._display.update(head, current / self.target if self.target else None, tail, self.width)

    def _tail(self, elapsed: float, finalize: bool) -> str:
        each = elapsed / max(self.current, 1)
        if finalize or self.target is None:
            shown = elapsed
        else:
            shown = each * (self.target - self.current)
        parts = [f"{format_seconds(shown, 1.0)}{self._display.between}{format_seconds(each)}/{self.unit_name}"]
        parts += [f"{name}: {format_value(value)}" for name, value in self.values().items()]
        return " - ".join(parts)


class ProgbarLogger(Callback):
    """Draws the progress of `fit`, `evaluate` and `predict`; added for `verbose` other than 0.

    It looks at the end of chunks, so it never makes training go batch by batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bar: Progbar | None = None
        self.verbose = 1
        self.epochs = 1
        self.target: int | None = None
        self._in_fit = False

    def set_params(self, params: dict[str, Any]) -> None:
        super().set_params(params)
        self.verbose = 1 if params.get("verbose") == "auto" else int(params.get("verbose", 1))
        self.epochs = params.get("epochs", 1)
        self.target = params.get("steps")

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._in_fit = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._in_fit = False

    def on_test_begin(self, logs: Logs | None = None) -> None:
        self._start_unless_in_fit()

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        self._start_unless_in_fit()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        if self.verbose and self.epochs > 1:
            line = f"Epoch {epoch + 1}/{self.epochs}"
            if settings.interactive_logging:
                print(line, flush=True)
            else:
                LogStream().write(line)
        self._start()

    def on_train_chunk_end(self, batch: int, logs: Logs | None = None) -> None:
        self._update(batch, logs)

    def on_test_chunk_end(self, batch: int, logs: Logs | None = None) -> None:
        if not self._in_fit:
            self._update(batch, logs)

    def on_predict_chunk_end(self, batch: int, logs: Logs | None = None) -> None:
        # The results of a prediction are in its logs, and nothing to show.
        if not self._in_fit:
            self._update(batch, None)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._finish(logs)

    def on_test_end(self, logs: Logs | None = None) -> None:
        if not self._in_fit:
            self._finish(logs)

    def on_predict_end(self, logs: Logs | None = None) -> None:
        if not self._in_fit:
            self._finish(None)

    def _start_unless_in_fit(self) -> None:
        if not self._in_fit:
            self._start()

    def _start(self) -> None:
        self.bar = Progbar(self.target, verbose=self.verbose) if self.verbose else None

    def _update(self, batch: int, logs: Logs | None) -> None:
        if self.bar is not None:
            # What the trainer reports are running means: nothing is averaged again.
            self.bar.stateful_metrics.update(logs or ())
            self.bar.update(batch + 1, (logs or {}).items(), finalize=False)

    def _finish(self, logs: Logs | None) -> None:
        if self.bar is not None:
            self.target = self.target if self.target is not None else self.bar.current
            self.bar.target = self.target
            self.bar.stateful_metrics.update(logs or ())
            self.bar.update(self.target, (logs or {}).items(), finalize=True)
            self.bar = None
