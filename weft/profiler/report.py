"""Report on the time of a block: by line of the user's code, by kernel, and by phase."""

from __future__ import annotations

import linecache
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.base.source import Location
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program.ir import Call, Launch, Step
from weft.compiler.provenance import Line, StepCost, costs, get_scopes, step_lines
from weft.profiler.recorder import Key, Recorder, Steps

# Names of phases. Spans of other categories are the user's own.
PHASES = {
    "kernels": "compiled code",
    "run": "entering and leaving compiled code",
    "operation": "single operations",
    "call": "calls of compiled functions",
    "trace": "tracing",
    "compile": "compiling",
    "python": "Python",
}
NOWHERE = Line("", 0)


class LineTime(NamedTuple):
    """Time of a line, in total and by phase."""

    line: Line
    seconds: float
    phases: dict[str, float]

    @property
    def position(self) -> str:
        return f"{os.path.basename(self.line.file)}:{self.line.number}" if self.line.file else "(no line)"

    @property
    def text(self) -> str:
        return linecache.getline(self.line.file, self.line.number).strip() if self.line.file else ""


class KernelTime(NamedTuple):
    """Time of a kernel or of a call of a library, summed over its runs for one line."""

    name: str
    kind: str
    line: Line
    runs: int
    seconds: float
    cost: StepCost  # of all runs

    @property
    def position(self) -> str:
        return f"{os.path.basename(self.line.file)}:{self.line.number}" if self.line.file else "(no line)"


class Profile:
    """Profile of the time of a block, filled when the block ends."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.lines: list[LineTime] = []
        self.kernels: list[KernelTime] = []
        self.phases: dict[str, float] = {}
        self.scopes: dict[str, float] = {}  # seconds of compiled code by named scope; "" is outside of all
        self.other_threads = 0.0

    @property
    def attributed(self) -> float:
        """Share of the time that has a line."""
        with_line = sum(entry.seconds for entry in self.lines if entry.line.file)
        return with_line / self.seconds if self.seconds else 1.0

    def fill(self, recorder: Recorder) -> None:
        """Take over what a recorder has added up."""
        self.seconds = recorder.nanoseconds * 1e-9
        lines: dict[Line, dict[str, float]] = {}
        for key, (taken, _) in recorder.totals.items():
            _add(lines, _line(key), key.category, taken)
        kernels: dict[tuple[str, str, Line], list[Any]] = {}
        for steps in recorder.programs.values():
            _add_steps(lines, kernels, steps)
        others: dict[Line, dict[str, float]] = {}
        for steps in recorder.other_programs.values():
            _add_steps(others, kernels, steps)
        for key, (taken, _) in recorder.others.items():
            _add(others, _line(key), key.category, taken)
        self.scopes = _scopes(recorder)
        self.other_threads = sum(sum(phases.values()) for phases in others.values()) * 1e-9
        self.lines = [
            LineTime(line, sum(phases.values()) * 1e-9, {name: taken * 1e-9 for name, taken in phases.items()})
            for line, phases in lines.items()
        ]
        self.lines.sort(key=lambda entry: -entry.seconds)
        self.kernels = [
            KernelTime(*key, count, taken * 1e-9, cost) for key, (count, taken, cost) in kernels.items() if count
        ]
        self.kernels.sort(key=lambda entry: -entry.seconds)
        self.phases = {}
        for entry in self.lines:
            for name, seconds in entry.phases.items():
                self.phases[name] = self.phases.get(name, 0.0) + seconds

    # -- as text ---------------------------------------------------------------------------------------------------

    def table(self, limit: int = 20) -> str:
        """Format the tables that `weft.profile` prints."""
        parts = [f"{_seconds(self.seconds)}, {100 * self.attributed:.1f}% of it by line", "", *self._phase_rows()]
        parts += ["", *_rows(self._line_rows(limit), (6, 6, -1), "time share line"), *_more(self.lines, limit)]
        if self.kernels:
            head = "time share runs each Gflop/s GB/s kernel line"
            parts += ["", *_rows(self._kernel_rows(limit), (6, 6, 6, 6, 6, 6, -1, -1), head)]
            parts += _more(self.kernels, limit)
        if set(self.scopes) - {""}:
            ordered = sorted(self.scopes.items(), key=lambda item: -item[1])[:limit]
            rows = [[_seconds(s), self._share(s), name or "(no scope)"] for name, s in ordered]
            parts += ["", *_rows(rows, (6, 6, -1), "time share scope"), *_more(list(self.scopes), limit)]
        if self.other_threads:
            parts += ["", f"Other threads: {_seconds(self.other_threads)} more."]
        return "\n".join(parts)

    def _share(self, seconds: float) -> str:
        return f"{100 * seconds / self.seconds:.1f}%" if self.seconds else "0.0%"

    def _phase_rows(self) -> list[str]:
        ordered = sorted(self.phases.items(), key=lambda item: -item[1])
        rows = [[_seconds(s), self._share(s), PHASES.get(name, name)] for name, s in ordered if s > 0]
        return _rows(rows, (6, 6, -1), "time share what")

    def _line_rows(self, limit: int) -> list[list[str]]:
        rows = []
        for entry in self.lines[:limit]:
            text = entry.text if len(entry.text) <= 70 else entry.text[:67] + "..."
            rows.append([_seconds(entry.seconds), self._share(entry.seconds), f"{entry.position}  {text}".rstrip()])
        return rows

    def _kernel_rows(self, limit: int) -> list[list[str]]:
        rows = []
        for entry in self.kernels[:limit]:
            rate = max(entry.seconds, 1e-12)
            rows.append(
                [
                    _seconds(entry.seconds),
                    self._share(entry.seconds),
                    str(entry.runs),
                    _seconds(entry.seconds / entry.runs),
                    f"{entry.cost.flops / rate * 1e-9:.1f}",
                    f"{entry.cost.bytes / rate * 1e-9:.1f}",
                    entry.name,
                    entry.position,
                ]
            )
        return rows

    def __repr__(self) -> str:
        return f"<profile of {_seconds(self.seconds)}, {100 * self.attributed:.1f}% by line>"


def step_name(step: Step) -> str:
    """Return the name of the kernel or routine that a step runs."""
    match step:
        case Launch():
            return kernel_symbol(step.kernel)
        case Call():
            return step.label if step.routine == "host" else step.routine
        case _:
            return step.label


def _line(key: Key) -> Line:
    return NOWHERE if key.code is None else Line.of(Location(key.code, key.offset))


def _add(lines: dict[Line, dict[str, float]], line: Line, phase: str, taken: float) -> None:
    phases = lines.setdefault(line, {})
    phases[phase] = phases.get(phase, 0.0) + taken


def _add_steps(lines: dict[Line, dict[str, float]], kernels: dict[Any, list[Any]], steps: Steps) -> None:
    """Add the steps of a program to the lines that they are for; those for no line to that of the call."""
    called = NOWHERE if steps.line is None else Line.of(steps.line)
    cost = costs(steps.steps)
    for step, count, taken in zip(steps.steps, steps.counts, steps.nanoseconds, strict=True):
        shares = step_lines(step) or {called: 1.0}
        for line, share in shares.items():
            _add(lines, line, "kernels", taken * share)
        key = (step_name(step), step.label, max(shares, key=lambda line: shares[line]))
        entry = kernels.setdefault(key, [0, 0, StepCost()])
        entry[0] += count
        entry[1] += taken
        entry[2] = entry[2].plus(cost[step].times(count))


def _scopes(recorder: Recorder) -> dict[str, float]:
    """Return seconds of compiled code by named scope."""
    found: dict[str, float] = {}
    for steps in recorder.programs.values():
        for step, taken in zip(steps.steps, steps.nanoseconds, strict=True):
            for name, share in (get_scopes(step.origin) if step.origin is not None else {"": 1.0}).items():
                found[name] = found.get(name, 0.0) + share * taken * 1e-9
    return found


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds / factor < 100 else f"{seconds / factor:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _rows(rows: Sequence[Sequence[str]], widths: Sequence[int], head: str) -> list[str]:
    """Format columns side by side, numbers to the right; a width of -1 is a text, to the left."""
    table = [head.split(" "), *rows]
    sizes = [max(len(row[n]) for row in table) for n in range(len(widths))]
    lines = []
    for row in table:
        cells = [c.ljust(s) if w < 0 else c.rjust(max(s, w)) for c, s, w in zip(row, sizes, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _more(rows: Sequence[Any], limit: int) -> list[str]:
    return [f"... and {len(rows) - limit} more"] if len(rows) > limit else []
