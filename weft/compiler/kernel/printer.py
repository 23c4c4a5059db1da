"""Print kernels. The text is also their cache key: names follow the order of definitions, constants are inline.

    kernel(x0: f32[1000], y1: f32[1000] written)
      for i0 in 0..1000 lanes 16:
        a: f32 = x0[i0]
        b: f32 = mul a 2.0:f32
        y1[i0] = b

Equal kernels have equal text, whatever the names of the kernel and its buffers.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable
from typing import Any, assert_never

import numpy as np

from weft.base import dtypes
from weft.compiler.kernel.ir import (
    Accumulate,
    Buffer,
    Compute,
    Constant,
    GroupMatmul,
    If,
    Index,
    Kernel,
    Last,
    Load,
    Loop,
    LoopKind,
    NamedKernel,
    Position,
    Prefetch,
    Rank,
    ReduceLanes,
    Shift,
    Shuffle,
    Statement,
    Store,
    TileMatmul,
    Value,
    Variable,
    is_zero,
)
from weft.indexing.expression import Integer
from weft.ir.printer import variable_names

# Cached symbols: a kernel is built once, and its symbol is needed often.
_symbols: weakref.WeakKeyDictionary[Kernel, str] = weakref.WeakKeyDictionary()


def kernel_symbol(kernel: Kernel | NamedKernel) -> str:
    """Return the symbol of a kernel's function in machine code: its kind and a digest of its text."""
    if isinstance(kernel, NamedKernel):
        return kernel.symbol
    found = _symbols.get(kernel)
    if found is None:
        digest = hashlib.blake2b(to_text(kernel).encode(), digest_size=10).hexdigest()
        found = _symbols[kernel] = f"{kernel.name}_{digest}"
    return found


def to_text(kernel: Kernel) -> str:
    """Return the text of a kernel, without its name."""
    return _Printer(kernel).text()


def statement_text(kernel: Kernel, statement: Statement) -> str:
    """Return the first line of a statement, with names as in the text of the kernel."""
    printer = _Printer(kernel)
    printer.text()
    printer.lines.clear()
    printer.statement(statement, 0)
    return printer.lines[0] if printer.lines else "a constant"


class _Printer:
    """Prints one kernel. Values and variables are named in the order of their definitions."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.buffers = {b: f"{'y' if b.written else 'x'}{n}" for n, b in enumerate(kernel.buffers)}
        self.buffers |= {b: f"local{n}" for n, b in enumerate(kernel.local)}
        self.variables: dict[Variable, str] = {}
        self.values: dict[Value, str] = {}
        self.fresh = variable_names()
        self.sizes = {size: f"s{n}" for n, size in enumerate(kernel.sizes)}

    def size(self, size: Integer) -> str:
        """Return an integer as text, or a symbolic size by its index in `sizes`.

        Sizes of buffers that are not in `sizes` are printed as "?", because they do not change what the kernel does.
        """
        return str(size) if isinstance(size, int) else self.sizes.get(size, "?")

    def text(self) -> str:
        buffers = ", ".join(
            f"{name}: {dtypes.short_name(b.dtype)}[{self.size(b.size)}]{' written' * b.written}{' padded' * b.padded}"
            for b, name in self.buffers.items()
            if b not in self.kernel.local
        )
        aligned = f" aligned {list(self.kernel.alignments)}" if self.kernel.alignments else ""
        self.lines.append(f"kernel({buffers}){aligned}")
        self.lines += [f"  {self.buffers[b]}: {dtypes.short_name(b.dtype)}[{b.size}]" for b in self.kernel.local]
        self.block(self.kernel.body, 1)
        return "\n".join(self.lines) + "\n"

    def block(self, body: Iterable[Statement], depth: int) -> None:
        for statement in body:
            self.statement(statement, depth)

    def statement(self, statement: Any, depth: int) -> None:
        match statement:
            case Constant(result, value):
                self.values[result] = (
                    f"{constant_text(np.asarray(value).astype(result.dtype))}:{dtypes.short_name(result.dtype)}"
                )
                return
            case Position(result, index):
                line = f"{self.define(result)} = position {self.index(index)}"
            case Load(result, buffer, index, condition, otherwise):
                line = f"{self.define(result)} = {self.element(buffer, index)}"
                if condition is not None:
                    line += f" if {self.use(condition)} else {self.use(otherwise)}"
            case Store(buffer, index, value, condition):
                line = f"{self.element(buffer, index)} = {self.use(value)}"
                if condition is not None:
                    line += f" if {self.use(condition)}"
            case TileMatmul():
                s = statement
                corners = (
                    f"{self.element(s.out, s.index)}:{s.stride}",
                    f"{self.element(s.left, s.left_index)}:{s.left_stride}:{s.left_row}:{s.left_step}",
                    f"{self.element(s.right, s.right_index)}:{s.right_stride}",
                )
                kinds = " ".join(dtypes.short_name(d) for d in s.dtypes)
                tiles = f"{s.rows} x {s.columns} steps {s.steps}"
                line = f"tile_matmul {' '.join(corners)} {kinds} tiles {tiles}{' accumulate' * s.accumulate}"
            case GroupMatmul():
                line = self.group_matmul(statement)
            case Prefetch(buffer, index):
                line = f"expect {self.element(buffer, index)}"
            case Compute(result, op, operands, params):
                parameters = " ".join(f"{name}={_parameter_text(value)}" for name, value in sorted(params.items()))
                fields = [f"{op}[{parameters}]" if parameters else op, *map(self.use, operands)]
                line = f"{self.define(result)} = {' '.join(fields)}"
            case ReduceLanes(result, op, vector, width):
                line = f"{self.define(result)} = fold {op} {self.use(vector)} lanes {width}"
            case Shuffle(result, vectors, lanes):
                chosen = " ".join(map(str, lanes))
                line = f"{self.define(result)} = shuffle {' '.join(map(self.use, vectors))} lanes {chosen}"
            case Shift(result, vector, by, fill):
                line = f"{self.define(result)} = shift {self.use(vector)} by {by} fill {self.use(fill)}"
            case Last(result, vector):
                line = f"{self.define(result)} = last {self.use(vector)}"
            case Accumulate(buffer, index, value):
                line = f"{self.element(buffer, index)} += {self.use(value)}"
            case Rank(result, buffer, index, digit, bits):
                line = f"{self.define(result)} = rank {self.element(buffer, index)} {self.use(digit)} bits {bits}"
            case If(condition, body):
                self.lines.append("  " * depth + f"if {self.use(condition)}:")
                self.block(body, depth + 1)
                return
            case Loop():
                self.loop(statement, depth)
                return
            case _:
                assert_never(statement)
        self.lines.append("  " * depth + line)

    def group_matmul(self, s: GroupMatmul) -> str:
        operands = [
            f"{self.element(o.buffer, o.index)}:{o.stride}:{o.k_stride}"
            + (f" below {self.index(o.limit)}" if o.limit is not None else "")
            for o in (s.left, s.right)
        ]
        shape = f"{s.rows} x {s.columns} x {s.k_size} by {s.chunk} copies {s.copies} threads {s.threads}"
        return f"group_matmul {self.element(s.out, Index())}:{s.stride} {' '.join(operands)} {shape}"

    def loop(self, loop: Loop, depth: int) -> None:
        initial = [self.use(carry.initial) for carry in loop.carries]
        limit = "" if loop.limit is None else f" below {self.index(loop.limit)}"
        self.variables.setdefault(loop.variable, f"i{len(self.variables)}")
        line = f"for {self.variables[loop.variable]} in {self.size(loop.start)}..{self.size(loop.stop)}"
        line += f" step {loop.step}" if loop.step != 1 else ""
        line += limit
        line += {LoopKind.SERIAL: "", LoopKind.LANES: f" lanes {loop.width}", LoopKind.THREADS: " threads"}[loop.kind]
        if loop.carries:
            inside = [self.define(carry.inside) for carry in loop.carries]
            line += " with " + ", ".join(f"{a} = {b}" for a, b in zip(inside, initial, strict=True))
        self.lines.append("  " * depth + line + ":")
        self.block(loop.body, depth + 1)
        if loop.carries:
            finals = ", ".join(self.use(carry.final) for carry in loop.carries)
            self.lines.append("  " * (depth + 1) + f"next {finals}")
            results = ", ".join(self.define(carry.result) for carry in loop.carries)
            self.lines.append("  " * depth + f"end {results}")

    def define(self, value: Value) -> str:
        if value not in self.values:
            self.values[value] = next(self.fresh)
        return f"{self.values[value]}: {dtypes.short_name(value.dtype)}"

    def use(self, value: Value | None) -> str:
        return "?" if value is None else self.values.get(value, "?")

    def element(self, buffer: Buffer, index: Index) -> str:
        return f"{self.buffers.get(buffer, '?')}[{self.index(index)}]"

    def index(self, index: Index) -> str:
        """Return an index as text: terms sorted by name, so that the order of addition does not matter, and the
        constant last.
        """
        named = [
            (self.variables.get(t, "?") if isinstance(t, Variable) else self.use(t), coefficient)
            for t, coefficient in index.terms
        ]
        text = ""
        for name, coefficient in sorted(named, key=lambda term: (len(term[0]), term[0])):
            text = self._add_term(text, coefficient, name)
        if not is_zero(index.constant) or not text:
            text = self._add_term(text, index.constant)
        return text

    def _add_term(self, text: str, coefficient: Integer, name: str = "") -> str:
        """Append one more term to the text of a sum."""
        negative = isinstance(coefficient, int) and coefficient < 0
        scale = str(abs(coefficient)) if isinstance(coefficient, int) else self.size(coefficient)
        size = scale if not name else name if scale == "1" else f"{scale}*{name}"
        return f"{text} {'-' if negative else '+'} {size}" if text else f"{'-' if negative else ''}{size}"


def constant_text(value: Any) -> str:
    """Return a constant exactly: the shortest decimal that rounds to it, or the bits of a nan."""
    exact = np.asarray(value)
    if dtypes.kind(exact.dtype) in "fc" and exact != exact:
        return f"nan<{exact.tobytes().hex()}>"
    wide = {"f": np.float64, "c": np.complex128}.get(dtypes.kind(exact.dtype))
    return repr((exact if wide is None else exact.astype(wide)).item() if exact.dtype.kind != "V" else exact[()])


def _parameter_text(value: Any) -> str:
    return dtypes.short_name(value) if isinstance(value, np.dtype | dtypes.ExtendedDtype) else repr(value)
