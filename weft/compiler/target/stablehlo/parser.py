"""Parser of modules in StableHLO, as a check of what `emit` writes.

It reads the generic form of operations and checks what every compiler relies on: each value is defined once, before it
is read, and within the regions around; types at a use are those of the definition; operations of one type have one;
bodies of loops return their arguments' types; calls fit the functions that they name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError

# Operations whose operands and result have one type.
SAME = re.compile(
    r"stablehlo\.(add|subtract|multiply|divide|remainder|maximum|minimum|power|atan2|and|or|xor|not|negate|sign|floor"
    r"|ceil|exponential|exponential_minus_one|log|log_plus_one|logistic|sine|cosine|tan|tanh|sqrt|rsqrt|cbrt|popcnt"
    r"|count_leading_zeros|shift_left|shift_right_logical|shift_right_arithmetic|round_nearest_afz"
    r"|round_nearest_even|reduce_precision|reverse)"
)
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|(?P<token>%[\w.]+|@[\w.$-]+|\^\w+|"(?:[^"\\]|\\.)*"|->|\#[\w.]+|[A-Za-z_][\w.$]*|[-+]?[0-9][\w.+-]*|.)""",
    re.VERBOSE,
)
_CLOSING = {"(": ")", "{": "}", "[": "]", "<": ">"}


@dataclass(frozen=True)
class Operation:
    """Operation: its name, the names of operands and results, their types, regions, and the text of attributes."""

    name: str
    operands: tuple[str, ...]
    operand_types: tuple[str, ...]
    results: tuple[str, ...]
    result_types: tuple[str, ...]
    regions: tuple[Region, ...]
    attributes: str


@dataclass(frozen=True)
class Region:
    """Arguments with their types, and operations."""

    arguments: tuple[tuple[str, str], ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Function:
    """Function: its name, body and types of results. The last operation of the body returns."""

    name: str
    is_public: bool
    body: Region
    result_types: tuple[str, ...]


class Token(NamedTuple):
    """Piece of the text, with its position."""

    text: str
    start: int


def parse(text: str) -> dict[str, Function]:
    """Return the functions of a module by name; raise `InternalError` if the text is not well formed."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self.source = text
        self.tokens = [Token(m["token"], m.start("token")) for m in _TOKEN.finditer(text) if m["token"] is not None]
        self.tokens.append(Token("", len(text)))
        self.position = 0

    # -- tokens ----------------------------------------------------------------------------------------------------

    @property
    def token(self) -> str:
        return self.tokens[self.position].text

    def next(self) -> str:
        self.position += 1
        return self.tokens[self.position - 1].text

    def skip(self, wanted: str) -> bool:
        """Read a token if it is the wanted one."""
        if self.token != wanted:
            return False
        self.position += 1
        return True

    def expect(self, wanted: str) -> None:
        if not self.skip(wanted):
            self.fail(f"{wanted!r} must follow; got {self.token!r}")

    def fail(self, what: str) -> None:
        start = self.tokens[self.position].start
        line = self.source.count("\n", 0, start) + 1
        text = [*self.source.splitlines(), ""][line - 1]
        message = f"StableHLO, line {line}: {what}."
        raise InternalError(message, stage="stablehlo", text=text[:400])

    def read_brackets(self) -> str:
        """Read text in brackets, with the brackets."""
        start = self.tokens[self.position].start
        closing = [_CLOSING[self.next()]]
        while closing:
            token = self.next()
            if token == "":
                self.fail(f"{closing[-1]!r} must close a bracket")
            if token in _CLOSING:
                closing.append(_CLOSING[token])
            elif token == closing[-1]:
                closing.pop()
        return self.source[start : self.tokens[self.position - 1].start + 1]

    def members(self, closing: str) -> Iterator[None]:
        """Iterate over the members of a list up to a bracket, which is read."""
        if self.skip(closing):
            return
        yield
        while self.skip(","):
            yield
        self.expect(closing)

    # -- the module -------------------------------------------------------------------------------------------------

    def module(self) -> dict[str, Function]:
        self.expect("module")
        self.next()
        if self.skip("attributes"):
            self.read_brackets()
        self.expect("{")
        functions: dict[str, Function] = {}
        while not self.skip("}"):
            function = self.function()
            if function.name in functions:
                self.fail(f"one function must have the name {function.name}")
            functions[function.name] = function
        if self.token:
            self.fail("the module must be all of the text")
        for function in functions.values():
            _Checker(functions).function(function)
        return functions

    def function(self) -> Function:
        self.expect("func.func")
        visibility, name = self.next(), self.next()
        self.expect("(")
        arguments = []
        for _ in self.members(")"):
            arguments.append(self.argument())
            if self.token == "{":
                self.read_brackets()
        self.expect("->")
        results = self.types()
        self.expect("{")
        return Function(name, visibility == "public", Region(tuple(arguments), self.operations()), results)

    def argument(self) -> tuple[str, str]:
        name = self.next()
        self.expect(":")
        return name, self.type()

    def type(self) -> str:
        start = self.tokens[self.position].start
        self.next()
        if self.token == "<":
            self.read_brackets()
        return self.source[start : self.tokens[self.position - 1].start + len(self.tokens[self.position - 1].text)]

    def types(self) -> tuple[str, ...]:
        """Read one type, or several in brackets."""
        if not self.skip("("):
            return (self.type(),)
        return tuple(self.type() for _ in self.members(")"))

    def operations(self) -> tuple[Operation, ...]:
        """Read operations up to the end of their block."""
        found: list[Operation] = []
        while not self.skip("}"):
            found.append(self.operation())
        return tuple(found)

    def operation(self) -> Operation:
        if self.skip("return"):
            operands: list[str] = []
            types: list[str] = []
            if self.token.startswith("%"):
                operands.append(self.next())
                while self.skip(","):
                    operands.append(self.next())
                self.expect(":")
                types.append(self.type())
                while self.skip(","):
                    types.append(self.type())
            return Operation("return", tuple(operands), tuple(types), (), (), (), "")
        results: list[str] = []
        if self.token.startswith("%"):
            results.append(self.next())
            while self.skip(","):
                results.append(self.next())
            self.expect("=")
        name = self.next().strip('"')
        self.expect("(")
        operands = [self.next() for _ in self.members(")")]
        regions = [self.region() for _ in self.members(")")] if self.skip("(") else []
        attributes = self.read_brackets() if self.token == "{" else ""
        self.expect(":")
        self.expect("(")
        operand_types = tuple(self.type() for _ in self.members(")"))
        self.expect("->")
        return Operation(name, tuple(operands), operand_types, tuple(results), self.types(), tuple(regions), attributes)

    def region(self) -> Region:
        self.expect("{")
        arguments: list[tuple[str, str]] = []
        if self.token.startswith("^"):
            self.next()
            self.expect("(")
            arguments = [self.argument() for _ in self.members(")")]
            self.expect(":")
        return Region(tuple(arguments), self.operations())


class _Checker:
    """Checks of the definitions, uses and types in a function."""

    def __init__(self, functions: dict[str, Function]) -> None:
        self.functions = functions
        self.names: set[str] = set()

    def function(self, function: Function) -> None:
        returned = self.region(function.body, {})
        self.require(returned == function.result_types, function.name, f"return {function.result_types}", returned)

    def require(self, holds: bool, what: str, rule: str, received: object) -> None:
        if not holds:
            raise InternalError(f"StableHLO: {what} must {rule}; got {received}.", stage="stablehlo")

    def region(self, region: Region, outer: dict[str, str]) -> tuple[str, ...]:
        """Check a region, and return the types of what it returns."""
        types = dict(outer)
        self.define(types, region.arguments)
        for operation in region.operations:
            self.operation(operation, types)
        last = region.operations[-1]
        self.require(last.name in ("return", "stablehlo.return"), "the last operation", "return", last.name)
        return last.operand_types

    def define(self, types: dict[str, str], values: Sequence[tuple[str, str]]) -> None:
        for name, kind in values:
            self.require(name not in self.names, name, "be defined once", "a second definition")
            self.names.add(name)
            types[name] = kind

    def operation(self, operation: Operation, types: dict[str, str]) -> None:
        name = operation.name
        known = tuple(types.get(operand, "no definition") for operand in operation.operands)
        self.require(known == operation.operand_types, name, f"take {operation.operand_types}", known)
        count = len(operation.results)
        self.require(count == len(operation.result_types), name, f"have {count} results", operation.result_types)
        found = [self.region(region, types) for region in operation.regions]
        self.types(operation, found)
        self.define(types, list(zip(operation.results, operation.result_types, strict=True)))

    def types(self, operation: Operation, returned: Sequence[tuple[str, ...]]) -> None:
        """Check the types of an operation, and those that its regions return."""
        name, ins, outs = operation.name, operation.operand_types, operation.result_types
        if SAME.fullmatch(name):
            self.require(len({*ins}) == 1 and {*ins} == {*outs}, name, "have one type", (*ins, *outs))
        elif name == "stablehlo.while":
            self.require(ins == outs, name, "return what it takes", outs)
            arguments = [tuple(kind for _, kind in region.arguments) for region in operation.regions]
            self.require(arguments == [ins, ins], name, f"pass {ins} to its regions", arguments)
            self.require(list(returned) == [("tensor<i1>",), ins], name, f"carry {ins}", returned)
        elif name in ("stablehlo.if", "stablehlo.case"):
            self.require(set(returned) == {outs}, name, f"return {outs} from each branch", returned)
        elif name == "stablehlo.constant":
            self.require(operation.attributes.endswith(f": {outs[0]}}}"), name, f"have a value of {outs[0]}", "another")
        elif name == "func.call":
            symbol = operation.attributes.strip("{}").rpartition(" ")[2]
            self.require(symbol in self.functions, name, "name a function of the module", symbol)
            called = self.functions[symbol]
            signature = tuple(kind for _, kind in called.body.arguments), called.result_types
            self.require((ins, outs) == signature, f"a call of {symbol}", f"fit {signature}", (ins, outs))
