"""Format jaxprs as text: a short text for people, and a full text that `parser.parse` reads back unchanged.

    { lambda ; a:f32[8] b:f32[8]. let
        c:f32[8] = sin b
        d:f32[8] = mul c 3.0:f32[]
      in (d,) }

A jaxpr that fits on one line is written on one. The full text also marks weak types (`f32[]*`), quotes strings, lists
parameters that are None, and writes constants and objects without a text form as handles (`@0`) into a table.
"""

from __future__ import annotations

import enum
import functools
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.promotion import DTYPES
from weft.indexing.expression import Expression, Symbol
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var, set_printer
from weft.ir.types import ArrayType, TapeType, Type
from weft.sharding.mesh import AbstractMesh

WIDTH = 80
# Keywords of the text, which variables must not be named.
RESERVED = frozenset({"in", "inf", "lambda", "let", "nan"})
# The dtypes that have a text form as parameters.
NAMED_DTYPES = frozenset({*DTYPES.values(), dtypes.float0})


def to_text(
    jaxpr: Jaxpr, *, full: bool = False, table: list[Any] | None = None, source: bool = False, width: int = WIDTH
) -> str:
    """Format a jaxpr. With `full`, objects without a text form are appended to `table`, which `parse` takes.

    `source` adds each equation's source line as a comment.
    """
    printer = Printer(full, [] if table is None else table, source, width)
    body = printer.jaxpr(jaxpr, 0)
    if not (printer.symbols or printer.mesh):
        return body
    return body.replace("{ lambda", "{ lambda" + printer.declarations(), 1)


def equation_text(equation: Equation) -> str:
    """Format one equation for error messages; variables are named in order of appearance."""
    printer = Printer(False, [], False, WIDTH)
    for atom in (*equation.invars, *equation.outvars):
        if type(atom) is Var:
            printer.name(atom)
    return printer.equation(equation, frozenset(v for v in equation.outvars), 0)


# Variable names of at most this length are computed once and shared by all printers.
SHORT = 2


def variable_names() -> Iterator[str]:
    """Yield a, b, ..., z, aa, ab, ..., without reserved words."""
    yield from _short_names()
    yield from _names_from(SHORT + 1)


@functools.cache
def _short_names() -> tuple[str, ...]:
    """Return the names of at most `SHORT` letters."""
    return tuple(itertools.takewhile(lambda name: len(name) <= SHORT, _names_from(1)))


def _names_from(length: int) -> Iterator[str]:
    """Yield the names of at least `length` letters, in order."""
    while True:
        for rest in range(26**length):
            letters = []
            for _ in range(length):
                rest, letter = divmod(rest, 26)
                letters.append(chr(ord("a") + letter))
            word = "".join(reversed(letters))
            if word not in RESERVED:
                yield word
        length += 1


class Printer:
    """Formats one jaxpr and its sub-jaxprs; variables are named in the order in which they are written."""

    def __init__(self, full: bool, table: list[Any], source: bool, width: int):
        self.full, self.table, self.source, self.width = full, table, source, width
        self.names: dict[Var, str] = {}
        self.fresh = variable_names()
        self.symbols: dict[str, Symbol] = {}
        self.mesh: AbstractMesh | None = None
        self.handles: dict[int, int] = {id(item): i for i, item in enumerate(table)}

    # -- values ------------------------------------------------------------------------------------------------------

    def name(self, var: Var) -> str:
        known = self.names.get(var)
        if known is None:
            known = self.names[var] = next(self.fresh)
        return known

    def handle(self, item: Any) -> str:
        """Return a reference to an object without a text form, storing it in the table."""
        i = self.handles.get(id(item))
        if i is None:
            i = self.handles[id(item)] = len(self.table)
            self.table.append(item)
        return f"@{i}"

    def type(self, aval: Type) -> str:
        if not self.full:
            return aval.short()
        if isinstance(aval, TapeType):
            return f"tape<{self.type(aval.element)}>"
        if not isinstance(aval, ArrayType) or not (aval.is_plain or self.can_read_placement(aval)):
            return self.handle(aval)
        for dimension in aval.shape:
            if isinstance(dimension, Expression):
                for symbol in dimension.symbols:
                    self.symbols[symbol.name] = symbol
        return aval.short() + ("*" if aval.weak_type else "")

    def can_read_placement(self, aval: ArrayType) -> bool:
        """Return whether the text of a type with a placement describes it completely.

        The names of axes must be identifiers, and the axes that split dimensions must belong to the mesh that the text
        declares, which is that of the first such type.
        """
        sharding, manual = aval.explicit_sharding, aval.manual
        if sharding is not None:
            self.mesh = self.mesh or sharding.mesh.abstract_mesh
            if sharding.mesh is not self.mesh:
                return False
        summed = manual.unreduced | manual.reduced  # written like the spec's
        if summed and (self.mesh is None or summed & set(self.mesh.explicit_axes)):
            return False
        names = (*manual.vur, *(() if sharding is None else sharding.mesh.axis_names))
        return all(isinstance(name, str) and name.isidentifier() for name in names)

    def declarations(self) -> str:
        """Format the declarations of the mesh and of symbolic sizes, whose values are in the table."""
        mesh = [] if self.mesh is None else [f"mesh:{self.handle(self.mesh)}"]
        return f"[{' '.join([*mesh, *(f'{name}={self.handle(symbol)}' for name, symbol in self.symbols.items())])}]"

    def binder(self, var: Var) -> str:
        return f"{self.name(var)}:{self.type(var.aval)}"

    def atom(self, atom: Atom) -> str:
        if type(atom) is Literal:
            return f"{literal_text(atom.val)}:{self.type(atom.aval)}"
        return self.name(atom)  # type: ignore[arg-type]

    def parameter(self, value: Any) -> str:
        """Format a parameter on one line."""
        if value is None or isinstance(value, bool) or type(value) in (int, float, complex):
            return repr(value)
        if isinstance(value, Jaxpr):
            return self.flat(value, sys.maxsize) or ""
        if type(value) in (tuple, list):
            return self.sequence(value)
        if type(value) is str:
            return repr(value) if self.full else value
        if isinstance(value, (np.dtype, dtypes.ExtendedDtype)) and (value in NAMED_DTYPES or not self.full):
            return dtypes.name(value)
        if isinstance(value, Type):
            return self.type(value)
        return self.handle(value) if self.full else opaque_text(value)

    def sequence(self, value: Any) -> str:
        items = ", ".join(self.parameter(item) for item in value)
        if type(value) is list:
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"

    def parameters(self, equation: Equation) -> list[tuple[str, Any]]:
        """Return the parameters to write, `name` first, then in alphabetical order. The short text omits None."""
        shown = [(k, v) for k, v in equation.params.items() if self.full or v is not None]
        return sorted(shown, key=lambda item: (item[0] != "name", item[0]))

    # -- on one line -------------------------------------------------------------------------------------------------

    def flat(self, jaxpr: Jaxpr, room: int) -> str | None:
        """Format a jaxpr on one line, or return None if it needs more than `room` columns."""
        if len(jaxpr.eqns) * 8 > room:  # every equation has at least 8 characters: skip long jaxprs early
            return None
        opening, used = self.opening(jaxpr), uses(jaxpr)
        left = room - len(opening)
        equations = []
        for equation in jaxpr.eqns:
            line = self.flat_equation(equation, used, left)
            if line is None:
                return None
            equations.append(line)
            left -= len(line)
        text = f"{opening} {'; '.join(equations)} in {self.results(jaxpr)} }}"
        return text if len(text) <= room else None

    def flat_equation(self, equation: Equation, used: frozenset[Var], room: int) -> str | None:
        text = self.left(equation, used) + f" = {equation.primitive.name}"
        parameters = []
        for key, value in self.parameters(equation):
            pieces = []
            for item in value if is_jaxprs(value) else (value,):
                piece = self.flat(item, room - len(text)) if isinstance(item, Jaxpr) else self.parameter(item)
                if piece is None:  # stop here, so that variables are named in the order in which they are written
                    return None
                pieces.append(piece)
            parameters.append(f"{key}=({' '.join(pieces)})" if is_jaxprs(value) else f"{key}={pieces[0]}")
        if parameters:
            text += f"[{' '.join(parameters)}]"
        text = " ".join([text, *map(self.atom, equation.invars)])
        return text if len(text) <= room else None

    # -- on several lines --------------------------------------------------------------------------------------------

    def jaxpr(self, jaxpr: Jaxpr, indent: int, column: int | None = None) -> str:
        """Format a jaxpr that starts at `column` of a line indented by `indent`."""
        flat = self.flat(jaxpr, self.width - (indent if column is None else column))
        if flat is not None and not self.source:
            return flat
        used = uses(jaxpr)
        margin = " " * indent
        lines = [self.opening(jaxpr)]
        lines += [f"{margin}    {self.equation(equation, used, indent + 4)}" for equation in jaxpr.eqns]
        lines.append(f"{margin}  in {self.results(jaxpr)} }}")
        return "\n".join(lines)

    def equation(self, equation: Equation, used: frozenset[Var], indent: int) -> str:
        flat = self.flat_equation(equation, used, self.width - indent)
        comment = f"  # {equation.source.describe()}" if self.source and equation.source is not None else ""
        if flat is not None:
            return flat + comment
        parameters = self.parameters(equation)
        head = self.left(equation, used) + f" = {equation.primitive.name}"
        operands = "".join(f" {self.atom(a)}" for a in equation.invars)
        if not parameters:
            return head + operands + comment
        margin = " " * (indent + 2)
        lines = [f"{head}[{comment}"]
        lines += [f"{margin}{key}={self.broken(value, indent + 2, len(key) + 1)}" for key, value in parameters]
        lines.append(f"{' ' * indent}]{operands}")
        return "\n".join(lines)

    def broken(self, value: Any, indent: int, used: int) -> str:
        """Format a parameter that may take several lines."""
        if isinstance(value, Jaxpr):
            return self.jaxpr(value, indent, indent + used)
        if is_jaxprs(value):
            margin = " " * (indent + 2)
            return "\n".join(["(", *(margin + self.jaxpr(item, indent + 2) for item in value), f"{' ' * indent})"])
        return self.parameter(value)

    def opening(self, jaxpr: Jaxpr) -> str:
        constants = [self.binder(v) for v in jaxpr.constvars]
        if self.full:
            constants = [f"{b}={self.handle(c)}" for b, c in zip(constants, jaxpr.consts, strict=True)]
        arguments = [self.binder(v) for v in jaxpr.invars]
        return f"{{ lambda {' '.join(constants)}; {' '.join(arguments)}. let"

    def left(self, equation: Equation, used: frozenset[Var]) -> str:
        return " ".join(self.binder(v) if v in used else f"_:{self.type(v.aval)}" for v in equation.outvars)

    def results(self, jaxpr: Jaxpr) -> str:
        written = [self.atom(a) for a in jaxpr.outvars]
        return f"({written[0]},)" if len(written) == 1 else f"({', '.join(written)})"


def uses(jaxpr: Jaxpr) -> frozenset[Var]:
    """Return the variables that an equation or a result of the jaxpr reads."""
    atoms = [a for equation in jaxpr.eqns for a in equation.invars]
    return frozenset(a for a in (*atoms, *jaxpr.outvars) if type(a) is Var)


def is_jaxprs(value: Any) -> bool:
    return type(value) is tuple and bool(value) and all(isinstance(item, Jaxpr) for item in value)


def literal_text(value: Any) -> str:
    """Format a scalar with all its digits, as Python does."""
    array = np.asarray(value)
    kind = dtypes.kind(array.dtype)
    if kind == "b":
        return str(bool(array))
    if kind in "iu":
        return str(int(array))
    if array.dtype.kind == "f":
        return float_text(array[()], "0")
    if array.dtype.kind == "c":
        real, imaginary = float_text(array.real[()], "-"), float_text(array.imag[()], "-")
        if real == "0":
            return f"{imaginary}j"
        return f"({real}{'' if imaginary[0] == '-' else '+'}{imaginary}j)"
    return repr(float(array))


def float_text(value: Any, trim: Any) -> str:
    """Format a number with the fewest digits that read back as the same value, in every version of NumPy; `trim`
    controls the fraction of an integer, as in NumPy."""
    if not np.isfinite(value):
        return str(float(value))
    if value == 0 or 1e-4 <= abs(float(value)) < 1e7:
        return np.format_float_positional(value, trim=trim)
    return np.format_float_scientific(value, trim="-", exp_digits=2)


def opaque_text(value: Any) -> str:
    """Format an object without a text form, for people only."""
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, np.ndarray):
        return f"<{dtypes.short_name(value.dtype)}[{','.join(map(str, value.shape))}]>"
    if isinstance(value, (np.generic, Expression)):
        return str(value)
    name = getattr(value, "__name__", None)
    return name if callable(value) and isinstance(name, str) else " ".join(repr(value).split())


set_printer(to_text)
