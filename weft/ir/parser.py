"""Parse the text of a jaxpr, full or short, that `printer.to_text` writes.

The full text and the table that it filled are read back as the same jaxpr. The short text omits information: constants
are taken from the table in order of appearance, types are strong, and required parameters that the text omits get the
value None.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Container, Sequence
from typing import Any, NoReturn

import numpy as np

from weft.base import dtypes
from weft.base.errors import JaxprSyntaxError
from weft.base.promotion import DTYPES
from weft.indexing.dimension import Dimension, parse_shape
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.primitive import Primitive, lookup
from weft.ir.printer import RESERVED
from weft.ir.types import ArrayType, TapeType, Type, array_type
from weft.sharding.device import MemorySpace
from weft.sharding.manual import ManualAxisType
from weft.sharding.mesh import AbstractMesh
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import PartitionSpec

SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
NAME = re.compile(r"[A-Za-z_]\w*")
PRIMITIVE = re.compile(r"[A-Za-z_][\w\-]*")
HANDLE = re.compile(r"@(\d+)")
ARRAY_TYPE = re.compile(r"([A-Za-z_]\w*(?:<[^<>\[\]]*>)*)\[([^\]]*)\](?:\{([VUR]:[^{}]*)\})?(\*?)")
MEMORY = re.compile(r"<(host|any)>$")
AXES = re.compile(r"@(?:\(([\w,]*)\)|(\w+))")
STATE = re.compile(r"([VUR]):(?:\(([\w,]*)\)|(\w+))")
REAL = r"[+-]?(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
COMPLEX = re.compile(rf"\(\s*{REAL}(?:{REAL}j|j)?\s*\)|{REAL}j")
NUMBER = re.compile(rf"{REAL}(?!\w)")
STRING = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
WORD = re.compile(r"[^\s,()\[\]{}=]+")
CONSTANTS = {"None": None, "True": True, "False": False, "nan": float("nan"), "inf": float("inf")}


def parse(text: str, table: Sequence[Any] = ()) -> Jaxpr:
    """Parse a jaxpr; `table` holds the objects of its handles."""
    reader = Reader(text, table)
    jaxpr = reader.jaxpr()
    reader.skip()
    if reader.position != len(text):
        reader.fail("the end of the text")
    return jaxpr


class Reader:
    """Recursive-descent parser: the position in the text and the declarations so far."""

    def __init__(self, text: str, table: Sequence[Any]):
        self.text, self.table, self.position = text, table, 0
        self.symbols: dict[str, Dimension] = {}
        self.mesh: AbstractMesh | None = None
        self.next_constant = 0

    # -- characters --------------------------------------------------------------------------------------------------

    def skip(self) -> None:
        match = SPACE.match(self.text, self.position)
        assert match is not None  # it matches nothing, too
        self.position = match.end()

    def fail(self, expected: str, position: int | None = None) -> NoReturn:
        """Raise with the line, the column and a caret below it."""
        self.skip()
        at = self.position if position is None else position
        row = self.text.count("\n", 0, at) + 1
        start = self.text.rfind("\n", 0, at) + 1
        line = self.text[start:].partition("\n")[0]
        found = "the end of the text" if at >= len(self.text) else repr(self.text[at:].split(maxsplit=1)[0])
        raise JaxprSyntaxError(
            f"line {row}, column {at - start + 1}: expected {expected}, found {found}.",
            received=f"{line}\n{' ' * (at - start)}^",
        )

    def peek(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.position)

    def accept(self, token: str) -> bool:
        found = self.peek(token)
        if found:
            self.position += len(token)
        return found

    def expect(self, token: str, what: str | None = None) -> None:
        if not self.accept(token):
            self.fail(what or f"`{token}`")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        found = pattern.match(self.text, self.position)
        if found is not None:
            self.position = found.end()
        return found

    def word(self, keyword: str) -> bool:
        """Consume the next word if it is the keyword; return whether it was."""
        self.skip()
        found = NAME.match(self.text, self.position)
        if found is None or found.group() != keyword:
            return False
        self.position = found.end()
        return True

    # -- jaxprs ------------------------------------------------------------------------------------------------------

    def jaxpr(self) -> Jaxpr:
        self.expect("{", "a program `{ lambda ; ... }`")
        if not self.word("lambda"):
            self.fail("`lambda`")
        if self.accept("["):
            self.declarations()
        scope: dict[str, Var] = {}
        constvars, consts = self.constants(scope)
        self.expect(";")
        invars = []
        while not self.accept("."):
            invars.append(self.binder(scope, "an argument `name:type` or `.`"))
        if not self.word("let"):
            self.fail("`let`")
        equations = []
        while not self.word("in"):
            self.accept(";")
            equations.append(self.equation(scope))
        outvars = self.results(scope)
        self.expect("}")
        return Jaxpr(constvars, invars, outvars, equations, consts)

    def declarations(self) -> None:
        """Read the mesh that types are split over, `mesh:@0`, and symbolic sizes, `n=@1`."""
        while not self.accept("]"):
            if self.accept("mesh:"):
                self.mesh = self.handle()
                continue
            name = self.match(NAME)
            if name is None:
                self.fail("`mesh:`, the name of a symbolic size or `]`")
            self.expect("=")
            self.symbols[name.group()] = self.handle()

    def constants(self, scope: dict[str, Var]) -> tuple[list[Var], list[Any]]:
        variables, values = [], []
        while not self.peek(";"):
            variables.append(self.binder(scope, "a constant `name:type` or `;`"))
            if self.accept("="):
                values.append(self.handle())
                continue
            if self.next_constant >= len(self.table):
                self.fail("the value of the constant `=@0`: print with full=True, or give the constants in the table")
            values.append(self.table[self.next_constant])
            self.next_constant += 1
        return variables, values

    def binder(self, scope: dict[str, Var], what: str, earlier: Container[str] = ()) -> Var:
        """Read a variable `name:type` into `scope`; its name must be new there and in `earlier`."""
        self.skip()
        start = self.position
        name = self.match(NAME)
        if name is None or name.group() in RESERVED:
            self.fail(what, start)
        self.expect(":")
        var = Var(self.type())
        if name.group() != "_":
            if name.group() in scope or name.group() in earlier:
                self.fail(f"a new name (`{name.group()}` is defined already)", start)
            scope[name.group()] = var
        return var

    def results(self, scope: dict[str, Var]) -> list[Atom]:
        self.expect("(", "the results `(a, b)`")
        results: list[Atom] = []
        while not self.accept(")"):
            found = self.atom(scope)
            if found is None:
                self.fail("a variable, a literal or `)`")
            results.append(found)
            if not self.accept(",") and not self.peek(")"):
                self.fail("`,` or `)`")
        return results

    # -- equations ---------------------------------------------------------------------------------------------------

    def equation(self, scope: dict[str, Var]) -> Equation:
        defined: dict[str, Var] = {}
        outvars = []
        while not self.accept("="):
            outvars.append(self.binder(defined, "a result `name:type`, `=` or `in`", scope))
        self.skip()
        start = self.position
        name = self.match(PRIMITIVE)
        if name is None:
            self.fail("the name of a primitive")
        try:
            primitive = lookup(name.group())
        except ValueError:
            self.fail("the name of a primitive", start)
        params = self.parameters() if self.text.startswith("[", self.position) else {}
        operands: list[Atom] = []
        while (operand := self.atom(scope)) is not None:
            operands.append(operand)
        scope.update(defined)
        params = {**params, **missing_parameters(primitive, params)}
        return Equation(operands, outvars, primitive, params, primitive.effects([o.aval for o in operands], params))

    def atom(self, scope: dict[str, Var]) -> Atom | None:
        """Read a variable or a literal; None if something else follows: the next equation, `;` or the end."""
        self.skip()
        start = self.position
        name = NAME.match(self.text, start)
        if name is not None and name.group() not in CONSTANTS:
            after = SPACE.match(self.text, name.end())
            assert after is not None
            if name.group() in RESERVED or self.text.startswith(":", after.end()):
                return None
            if name.group() not in scope:
                self.fail(f"a variable that is defined before (`{name.group()}` is not)")
            self.position = name.end()
            return scope[name.group()]
        value = self.scalar()
        if value is None:
            return None
        self.expect(":", "`:` and the type of the literal")
        aval = self.type()
        if not isinstance(aval, ArrayType) or aval.shape or not isinstance(aval.dtype, np.dtype):
            self.fail("the type of a scalar", start)
        return Literal(np.asarray(value, aval.dtype), aval)

    def scalar(self) -> Any:
        """Read the value of a literal; None if something else follows."""
        self.skip()
        name = NAME.match(self.text, self.position)
        if name is not None and name.group() in CONSTANTS:
            self.position = name.end()
            return CONSTANTS[name.group()]
        found = self.match(COMPLEX)
        if found is not None:
            return complex(found.group().strip("()").strip())
        found = self.match(NUMBER)
        if found is None:
            return None
        text = found.group()
        return int(text) if text.lstrip("+-").isdigit() else float(text)

    # -- parameters --------------------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        self.expect("[")
        params: dict[str, Any] = {}
        while not self.accept("]"):
            self.skip()
            start = self.position
            key = self.match(NAME)
            if key is None:
                self.fail("a parameter `name=value` or `]`")
            if key.group() in params:
                self.fail(f"another parameter (`{key.group()}` is given already)", start)
            self.expect("=")
            params[key.group()] = self.value()
        return params

    def value(self) -> Any:
        """Read the value of a parameter."""
        if self.peek("{"):
            return self.jaxpr()
        if self.peek("@"):
            return self.handle()
        if self.peek("tape<") or self.at(ARRAY_TYPE):
            return self.type()
        if (string := self.match(STRING)) is not None:
            return ast.literal_eval(string.group())
        if self.peek("(") and not self.at(COMPLEX):
            self.accept("(")
            return tuple(self.values(")"))
        if self.accept("["):
            return self.values("]")
        start = self.position
        if self.word("None"):
            return None
        literal = self.scalar()
        if literal is not None:
            return literal
        return self.plain_word(start)

    def plain_word(self, start: int) -> Any:
        """Read a dtype, or in the short text a string."""
        word = self.match(WORD)
        if word is None:
            self.fail("a value", start)
        text = word.group()
        if text in DTYPES:
            return DTYPES[text]
        if text == "float0":
            return dtypes.float0
        if ("." in text and not text.startswith("<")) or self.text.startswith("(", self.position):
            self.fail("a value that can be read (print with full=True to keep objects in a table)", start)
        return text

    def at(self, pattern: re.Pattern[str]) -> bool:
        self.skip()
        return pattern.match(self.text, self.position) is not None

    def values(self, end: str) -> list[Any]:
        items = []
        while not self.accept(end):
            items.append(self.value())
            self.accept(",")  # jaxprs are written below each other, without commas
        return items

    def handle(self) -> Any:
        self.skip()
        start = self.position
        found = self.match(HANDLE)
        if found is None:
            self.fail("a handle `@0`")
        i = int(found.group(1))
        if i >= len(self.table):
            self.fail(f"a handle into the table of {len(self.table)} objects", start)
        return self.table[i]

    def type(self) -> Type:
        if self.peek("@"):
            result: Type = self.handle()
            return result
        if self.accept("tape<"):
            element = self.type()
            self.expect(">")
            return TapeType(element)
        self.skip()
        start = self.position
        found = self.match(ARRAY_TYPE)
        if found is None:
            self.fail("a type such as `f32[3,4]`")
        name, shape, states, weak = found.groups()
        memory = MEMORY.search(name)
        try:
            plain = array_type(
                parse_shape(AXES.sub("", shape), known=self.symbols),
                dtypes.from_short_name(MEMORY.sub("", name)),
                bool(weak),
            )
        except ValueError:
            self.fail("a type such as `f32[3,4]`", start)
        if memory is None and states is None and "@" not in shape:
            return plain
        space = None if memory is None else MemorySpace[memory[1].capitalize()]
        return self.parse_placement(plain, shape, states or "", start).with_placement(memory_space=space)

    def parse_placement(self, plain: ArrayType, shape: str, states: str, start: int) -> ArrayType:
        """Return a type with the placement in its text: the axes that split dimensions, `8@x`, and its states, `V:y,
        U:(x,z)`."""
        sets = {letter: set(parse_axes(many, one)) for letter, many, one in STATE.findall(states)}
        explicit = set() if self.mesh is None else set(self.mesh.explicit_axes)
        own = {letter: names & explicit for letter, names in sets.items()}
        unreduced, reduced = (sets.get(letter, set()) - explicit for letter in "UR")
        state = ManualAxisType(varying=sets.get("V", set()), unreduced=unreduced, reduced=reduced)
        if "@" not in shape and not (own.get("U") or own.get("R")):
            return plain.with_placement(manual=state)
        if self.mesh is None:
            self.fail("a mesh `lambda[mesh:@0]` for the axes that dimensions are split over", start)
        found = [AXES.search(part) for part in split_dimensions(shape)]
        entries = [() if axes is None else parse_axes(axes[1], axes[2]) for axes in found]
        spec = PartitionSpec(*entries[: len(plain.shape)], unreduced=own.get("U", set()), reduced=own.get("R", set()))
        try:
            return plain.with_placement(sharding=NamedSharding(self.mesh, spec), manual=state)
        except ValueError as error:
            self.fail(f"axes of the mesh {self.mesh!r}: {str(error).partition(chr(10))[0]}", start)


def parse_axes(many: str, one: str) -> tuple[str, ...]:
    """Split the names in `x` or `(x,y)`; the pattern has matched one of the two."""
    return (one,) if one else tuple(many.split(","))


def split_dimensions(shape: str) -> list[str]:
    """Split the text of a shape at commas outside of brackets."""
    parts, depth = [""], 0
    for character in shape:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def missing_parameters(primitive: Primitive, params: dict[str, Any]) -> dict[str, None]:
    """Return None for each parameter that the type rule requires and the text omits."""
    wanted = inspect.signature(primitive.type).parameters.values()
    needed = [p.name for p in wanted if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    return {name: None for name in needed if name not in params}


# -- equality ----------------------------------------------------------------------------------------------------------


def equal(first: Jaxpr, second: Jaxpr) -> bool:
    """Return whether two jaxprs are equal up to names of variables, source lines and parameters that are None."""
    if first is second:
        return True
    renamed: dict[Var, Var] = {}

    def bind(left: Sequence[Var], right: Sequence[Var]) -> bool:
        if len(left) != len(right) or any(a.aval != b.aval for a, b in zip(left, right, strict=True)):
            return False
        renamed.update(zip(left, right, strict=True))
        return True

    def same_atoms(left: Sequence[Atom], right: Sequence[Atom]) -> bool:
        return len(left) == len(right) and all(same_atom(a, b) for a, b in zip(left, right, strict=True))

    def same_atom(left: Atom, right: Atom) -> bool:
        if type(left) is Literal and type(right) is Literal:
            return left.aval == right.aval and same_value(left.val, right.val)
        return renamed.get(left) is right  # type: ignore[arg-type]

    def same_equation(left: Equation, right: Equation) -> bool:
        return (
            left.primitive is right.primitive
            and same_atoms(left.invars, right.invars)
            and left.effects == right.effects
            and same_params(left.params, right.params)
            and bind(left.outvars, right.outvars)
        )

    return (
        bind(first.constvars, second.constvars)
        and same_value(first.consts, second.consts)
        and bind(first.invars, second.invars)
        and len(first.eqns) == len(second.eqns)
        and all(same_equation(a, b) for a, b in zip(first.eqns, second.eqns, strict=True))
        and same_atoms(first.outvars, second.outvars)
    )


def same_params(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(same_value(first.get(key), second.get(key)) for key in first.keys() | second.keys())


def same_value(first: Any, second: Any) -> bool:
    """Return whether parameters, literals or constants are equal: jaxprs up to names, arrays by type and bits, and nan
    equals nan."""
    if first is second:
        return True
    if isinstance(first, Jaxpr) and isinstance(second, Jaxpr):
        return equal(first, second)
    if type(first) is not type(second):
        return False
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(same_value, first, second))
    if isinstance(first, np.ndarray):
        result: bool = (
            first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
        )
        return result
    held = getattr(first, "_value", None)
    if isinstance(held, np.ndarray):
        return first.aval == second.aval and same_value(held, second._value)
    if isinstance(first, float):
        return first == second or (first != first and second != second)
    return bool(first == second)
