"""Data of an explanation: lines, equations, fusions, steps, kernels and memory of a compiled program, each with an id,
its figures, and the ids of related items."""

from __future__ import annotations

import itertools
import linecache
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from weft.api.communication import format_row
from weft.compiler.fuse.cost import FusionReason
from weft.compiler.fuse.driver import refusals
from weft.compiler.fuse.fusion import fusion
from weft.compiler.fuse.report import inner_jaxprs
from weft.compiler.kernel import printer as kernel_printer
from weft.compiler.kernel.grid import accesses
from weft.compiler.kernel.ir import GroupMatmul, Kernel
from weft.compiler.program.assign import Lifetimes
from weft.compiler.program.ir import Call, Launch, Slot, Step
from weft.compiler.program.printer import step_texts
from weft.compiler.provenance import Line, StepCost, costs, count_bytes, get_equations, get_lines, step_lines
from weft.explain.measure import Measurement
from weft.explain.origins import map_equations_to_fusions
from weft.ir.jaxpr import Equation, Jaxpr, Var, subjaxprs
from weft.ir.printer import Printer, uses
from weft.profiler.report import step_name
from weft.runtime.inside import Inside
from weft.runtime.limits import Limits

# Lines of source that are shown before and after those that the program has equations for.
AROUND = 2


class Collector:
    """Gathers the parts of one program. `related` has relations in both directions."""

    def __init__(
        self, executable: Any, measured: Measurement, limits: Limits, communication: Sequence[Any] = ()
    ) -> None:
        self.executable, self.measured, self.limits = executable, measured, limits
        self.inside: Inside = executable.inside
        self.communication = communication
        self.compilation, self.program = executable.compilation, executable.program
        self.related: dict[str, dict[str, None]] = {}
        self.lines: dict[Line, str] = {}
        self.units: list[tuple[Equation, int]] = list(_units(self.compilation.fused, 0))
        self.unit_ids: dict[int, str] = {id(e): f"f{n}" for n, (e, _) in enumerate(self.units)}
        self.makers: dict[Any, str] = {}  # the fusion that a value comes from
        for equation, _ in self.units:
            for inner in get_equations(equation):
                for v in inner.outvars:
                    self.makers.setdefault(v, self.unit_ids[id(equation)])
        self.steps = list(self.program.all_steps())
        self.step_ids: dict[Step, str] = {step: f"s{n}" for n, step in enumerate(self.steps)}
        self.cost = costs(self.steps)
        self.kernel_ids: dict[str, str] = {}
        self._step_rows: list[dict[str, Any]] = []

    def data(self) -> dict[str, Any]:
        """Return all of it as JSON-compatible values."""
        # The order matters: steps bring fusions and kernels together, and lines are known when all have been seen.
        fusions = self._fusions()
        steps = self._steps()
        kernels_found = self._kernels()
        equations = self._equations()
        memory = self._memory()
        communication = self._communication()
        parts = {
            "name": self.program.name or "program",
            "runs": self.measured.runs,
            "seconds": self.measured.seconds,
            "median": self.measured.median,
            "stages": self._stages(),
            "limits": {
                "threads": self.limits.threads,
                "flops": self.limits.flops,
                "call_flops": self.limits.call_flops,
                "source": self.limits.source,
                "bandwidths": [list(pair) for pair in self.limits.bandwidths],
            },
            "totals": self._totals(steps),
            "lines": self._lines(steps),
            "equations": equations,
            "fusions": fusions,
            "refusals": self._refusals(),
            "steps": steps,
            "kernels": kernels_found,
            "memory": memory,
            "communication": communication,
        }
        parts["related"] = {key: list(others) for key, others in self.related.items()}
        return parts

    # -- relations -------------------------------------------------------------------------------------------------

    def relate(self, *groups: Iterable[str]) -> None:
        """Relate every item of one group to every item of the others."""
        lists = [list(dict.fromkeys(group)) for group in groups]
        for position, first in enumerate(lists):
            for second in lists[position + 1 :]:
                for a in first:
                    for b in second:
                        if a != b:
                            self.related.setdefault(a, {})[b] = None
                            self.related.setdefault(b, {})[a] = None

    def line(self, line: Line) -> str:
        return self.lines.setdefault(line, f"l{len(self.lines)}")

    # -- fusions and the equations before them ---------------------------------------------------------------------

    def _fusions(self) -> list[dict[str, Any]]:
        found = []
        printer = Printer(False, [], False, 100)
        for equation, depth in self.units:
            key = self.unit_ids[id(equation)]
            inner = get_equations(equation)
            params = equation.params
            is_fusion = equation.primitive is fusion
            hero = params["hero"] if is_fusion else None
            lines = get_lines(equation)
            self.relate([key], [self.line(line) for line in lines])
            heads = inner if is_fusion or not subjaxprs(params) else ()
            found.append(
                {
                    "id": key,
                    "kind": params["kind"] if is_fusion else equation.primitive.name,
                    "fused": is_fusion,
                    "hero": inner[hero].primitive.name if hero is not None else None,
                    "depth": depth,
                    "operations": [e.primitive.name for e in inner],
                    "text": [_flat(printer, e) for e in heads],
                    "reasons": [_reason(r) for r in params["reasons"]] if is_fusion else [],
                    "lines": {self.line(line): share for line, share in lines.items()},
                }
            )
        return found

    def _refusals(self) -> list[dict[str, Any]]:
        """Return the refused fusions with their reasons, in the jaxpr and in its sub-jaxprs."""
        found: list[dict[str, Any]] = []
        before = self.compilation.stages[-2].jaxpr if len(self.compilation.stages) > 1 else self.compilation.traced
        for i, jaxpr in enumerate((before, *_all_inner_jaxprs(before))):
            for reason in refusals(jaxpr, self.compilation.target):
                about = _reason(reason)
                about["id"] = f"r{len(found)}"
                about["program"] = i
                units = [u for name in (reason.producer, reason.consumer) if (u := self._find_unit(jaxpr, name))]
                self.relate([about["id"]], units)
                found.append(about)
        return found

    def _find_unit(self, jaxpr: Jaxpr, name: str) -> str | None:
        """Return the fusion of an operation that a reason names by its position: `mul.3`."""
        position = re.fullmatch(r"\w+\.(\d+)", name)
        if position is None or int(position[1]) >= len(jaxpr.eqns):
            return None
        return next((self.makers[v] for v in jaxpr.eqns[int(position[1])].outvars if v in self.makers), None)

    def _equations(self) -> list[dict[str, Any]]:
        """Return a row for each equation of the traced jaxpr, those of sub-jaxprs under their own."""
        rows: list[dict[str, Any]] = []
        printer = Printer(False, [], False, 100)
        by_line: dict[Line, list[str]] = {}
        for equation, _ in self.units:
            for line in get_lines(equation):
                by_line.setdefault(line, []).append(self.unit_ids[id(equation)])
        steps_of: dict[str, list[str]] = {}
        for row in self._step_rows:
            if row["fusion"] is not None:
                steps_of.setdefault(row["fusion"], []).extend([row["id"], *filter(None, [row["kernel"]])])
        became = map_equations_to_fusions(self.compilation.traced, self.makers, by_line)
        ids = itertools.count()

        def visit(jaxpr: Jaxpr, depth: int) -> None:
            used = uses(jaxpr)
            rows.append({"id": None, "depth": depth, "text": printer.opening(jaxpr)})
            for equation in jaxpr.eqns:
                key = f"e{next(ids)}"
                line = None if equation.source is None else self.line(Line.of(equation.source))
                rows.append({"id": key, "depth": depth + 1, "text": _head(printer, equation, used), "line": line})
                units = became[id(equation)]
                self.relate([key], [*units, *(s for u in units for s in steps_of.get(u, ())), *filter(None, [line])])
                for inner in subjaxprs(equation.params):
                    visit(inner, depth + 2)
            rows.append({"id": None, "depth": depth, "text": f"in {printer.results(jaxpr)} }}"})

        visit(self.compilation.traced, 0)
        return rows

    # -- steps and kernels -----------------------------------------------------------------------------------------

    def _steps(self) -> list[dict[str, Any]]:
        times = {step: (count, taken) for step, count, taken in self.measured.steps}
        texts = step_texts(self.program)
        rows: list[dict[str, Any]] = []
        for step, key in self.step_ids.items():
            count, seconds = times.get(step, (0, 0.0))
            unit = self.unit_ids.get(id(step.origin))
            kernel = self._kernel(step)
            cost = self.cost[step]
            lines = [self.line(line) for line in step_lines(step)]
            self.relate([key], [unit] if unit else [], [kernel] if kernel else [], lines)
            rows.append(
                {
                    "id": key,
                    "name": step_name(step),
                    "kind": type(step).__name__.lower(),
                    "label": step.label,
                    "text": texts.get(step, step.label),
                    "fusion": unit,
                    "kernel": kernel,
                    "lines": {self.line(line): share for line, share in step_lines(step).items()},
                    "count": count,
                    "seconds": seconds,
                    **_cost_fields(cost.times(count)),
                    "limit": self._limit(step, cost, count),
                    "share": 0.0,
                }
            )
            rows[-1]["share"] = rows[-1]["limit"] / seconds if seconds else 0.0
        self._step_rows = rows
        return rows

    def _limit(self, step: Step, cost: StepCost, count: int) -> float:
        """Return the least seconds that all runs of a step could take on this machine."""
        by_units = isinstance(step, Call) or _multiplies_by_units(step)
        return count * self.limits.seconds(cost.work, cost.bytes, count_bytes(step), by_units)

    def _kernel(self, step: Step) -> str | None:
        name = self.inside.code_name(step)
        return None if name is None else self.kernel_ids.setdefault(name, f"k{len(self.kernel_ids)}")

    def _kernels(self) -> list[dict[str, Any]]:
        distinct = self.inside.distinct_kernels()
        code = self.inside.get_code(distinct)
        found = []
        for name, key in self.kernel_ids.items():
            rows = [row for row in self._step_rows if row["kernel"] == key]
            seconds, limit = sum(row["seconds"] for row in rows), sum(row["limit"] for row in rows)
            found.append(
                {
                    "id": key,
                    "name": name,
                    "steps": [row["id"] for row in rows],
                    "count": sum(row["count"] for row in rows),
                    "seconds": seconds,
                    "limit": limit,
                    "share": limit / seconds if seconds else 0.0,
                    **{word: sum(row[word] for row in rows) for word in StepCost._fields},
                    "text": kernel_printer.to_text(distinct[name]) if name in distinct else "",
                    "llvm": code[name].llvm,
                    "assembly": code[name].assembly,
                    "machine_code": code[name].machine_code,
                    "figures": code[name].figures,
                }
            )
        return found

    # -- memory ----------------------------------------------------------------------------------------------------

    def _memory(self) -> dict[str, Any]:
        """Return the lifetimes and offsets of temporaries, as `assign` planned them, against the steps."""
        timeline = _Timeline()
        timeline.visit(self.program.steps)
        slots = []
        for i, (slot, (first, last)) in enumerate(timeline.ranges.items()):
            key = f"m{i}"
            touching = {self.step_ids[s] for s in timeline.touched.get(slot, ())}
            rows = [row for row in self._step_rows if row["id"] in touching]
            belonging = [k for row in rows for k in (row["id"], row["fusion"], row["kernel"], *row["lines"]) if k]
            self.relate([key], belonging)
            slots.append({"id": key, "offset": slot.offset, "size": slot.size, "first": first, "last": last})
        end = timeline.position
        changes = [0] * (end + 2)
        for slot, (first, last) in timeline.ranges.items():
            changes[first] += slot.size
            changes[last + 1] -= slot.size
        live = list(itertools.accumulate(changes))[1 : end + 1]
        analysis = self.inside.memory_analysis()
        return {
            "arguments": analysis.argument_size_in_bytes,
            "results": analysis.output_size_in_bytes,
            "shared": analysis.alias_size_in_bytes,
            "constants": analysis.constant_size_in_bytes,
            "temporaries": analysis.temp_size_in_bytes,
            "code": analysis.generated_code_size_in_bytes,
            "peak": analysis.peak_memory_in_bytes,
            "end": end,
            "live": live,
            "steps": [[position, self.step_ids[step]] for position, step in timeline.positions],
            "slots": slots,
        }

    # -- communication ---------------------------------------------------------------------------------------------

    def _communication(self) -> list[dict[str, Any]]:
        """Return what each device of a program for many sends, and why."""
        rows = []
        for i, collective in enumerate(self.communication):
            key = f"c{i}"
            line = None if collective.source is None else self.line(Line.of(collective.source))
            self.relate([key], [] if line is None else [line])
            kind, axis, _, value, where, reason = format_row(collective)
            rows.append(
                {
                    "id": key,
                    "kind": kind,
                    "axis": axis,
                    "bytes": collective.bytes,
                    "times": collective.times,
                    "value": value,
                    "line": where,
                    "reason": reason,
                }
            )
        return rows

    # -- sums ------------------------------------------------------------------------------------------------------

    def _totals(self, steps: list[dict[str, Any]]) -> dict[str, float]:
        fields = ("seconds", "limit", *StepCost._fields)
        totals = {field: float(sum(row[field] for row in steps)) for field in fields}
        copies = [row for row in steps if row["kind"] in ("copy", "fill")]
        return {**totals, "copied": float(sum(row["read"] + row["written"] for row in copies))}

    def _stages(self) -> list[dict[str, Any]]:
        compilation = self.compilation
        rows = [{"name": s.name, "seconds": s.seconds, "changed": s.changed} for s in compilation.stages]
        for name, seconds in compilation.seconds.items():
            if name != "passes":
                rows.append({"name": name, "seconds": seconds, "changed": True})
        for stats in self.executable.compile_stats:
            rows += [{"name": f"{n} ({stats.label})", "seconds": s, "changed": True} for n, s in stats.seconds.items()]
        return rows

    def _lines(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return lines of source in the order of files, with some around; lines without an id have no equation."""
        seconds: dict[str, float] = {}
        for row in steps:
            for key, share in row["lines"].items():
                seconds[key] = seconds.get(key, 0.0) + share * row["seconds"]
        shown: dict[str, set[int]] = {}
        for line in self.lines:
            around = range(max(1, line.number - AROUND), line.number + AROUND + 1)
            shown.setdefault(line.file, set()).update(around)
        found = []
        for file, around_lines in sorted(shown.items()):
            length = len(linecache.getlines(file))
            for n in sorted(n for n in around_lines if n <= length or Line(file, n) in self.lines):
                key = self.lines.get(Line(file, n))
                found.append(
                    {
                        "id": key,
                        "file": os.path.basename(file),
                        "number": n,
                        "text": linecache.getline(file, n).rstrip("\n"),
                        "seconds": seconds.get(key, 0.0) if key else 0.0,
                    }
                )
        return found


class _Timeline(Lifetimes):
    """Lifetimes that also say at which position each step is, and which steps touch a temporary."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: list[tuple[int, Step]] = []
        self.touched: dict[Slot, list[Step]] = {}

    def _touch(self, step: Step) -> None:
        self.positions.append((self.position, step))
        for slot in dict.fromkeys((*step.reads, *step.writes)):
            self.touched.setdefault(slot, []).append(step)
        super()._touch(step)


def _units(jaxpr: Jaxpr, depth: int) -> Iterator[tuple[Equation, int]]:
    """Yield the equations of a fused jaxpr and of its sub-jaxprs, with their depth."""
    for equation in jaxpr.eqns:
        yield equation, depth
        if equation.primitive is not fusion:
            for inner in subjaxprs(equation.params):
                yield from _units(inner, depth + 1)


def _all_inner_jaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    for inner in inner_jaxprs(jaxpr):
        yield inner
        yield from _all_inner_jaxprs(inner)


def _head(printer: Printer, equation: Equation, used: frozenset[Var]) -> str:
    """Format an equation on one line, without its sub-jaxprs."""
    plain = {k: v for k, v in equation.params.items() if not subjaxprs({k: v})}
    return printer.flat_equation(equation.replace(params=plain), used, 1 << 30) or equation.primitive.name


def _flat(printer: Printer, equation: Equation) -> str:
    return _head(printer, equation, frozenset(equation.outvars))


def _reason(reason: FusionReason) -> dict[str, Any]:
    return {
        "rule": reason.rule,
        "producer": reason.producer,
        "consumer": reason.consumer,
        "verdict": reason.verdict,
        "text": reason.text,
    }


def _cost_fields(cost: StepCost) -> dict[str, float]:
    return dict(zip(StepCost._fields, cost, strict=True))


def _multiplies_by_units(step: Step) -> bool:
    """Return whether a step is a kernel that uses the matrix units of the machine."""
    kernel = step.full if isinstance(step, Launch) else None
    return isinstance(kernel, Kernel) and any(isinstance(s, GroupMatmul) for s, _ in accesses(kernel.body))
