"""Instructions without control flow or memory: each checks its operands, appends a line and names its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from weft.base.errors import InternalError
from weft.compiler.target.llvm.types import Type, i1, i32, vector
from weft.compiler.target.llvm.values import Value, constant, constant_vector, poison

if TYPE_CHECKING:
    from weft.compiler.target.llvm.module import Module

INTEGER_PREDICATES = frozenset({"eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"})
FLOAT_PREDICATES = frozenset(
    {"oeq", "one", "olt", "ole", "ogt", "oge", "ord", "ueq", "une", "ult", "ule", "ugt", "uge", "uno"}
)


class Instructions:
    """Arithmetic, comparisons, conversions and calls. No fast-math flags: results are rounded as IEEE 754 says."""

    module: Module
    lines: list[str]

    def __init__(self) -> None:
        self.lines = []
        self._count = 0
        # Beginnings of calls of intrinsics that have been declared.
        self._known: dict[tuple[str, Type], str] = {}

    def _fail(self, instruction: str, *operands: object, why: str = "") -> NoReturn:
        shown = ", ".join(map(repr, operands))
        raise InternalError(f"LLVM instruction `{instruction}` cannot take {shown}{': ' + why if why else ''}.")

    def _emit(self, text: str, type: Type) -> Value:
        """Append a line that defines a register."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return Value(name, type)

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def _float_pair(self, name: str, a: Value, b: Value) -> Value:
        type = a.type
        if type is not b.type or type.kind != "float":
            self._fail(name, a, b, why="it needs two floats of one type")
        return self._emit(f"{name} {type.text} {a.text}, {b.text}", type)

    def fadd(self, a: Value, b: Value) -> Value:
        return self._float_pair("fadd", a, b)

    def fsub(self, a: Value, b: Value) -> Value:
        return self._float_pair("fsub", a, b)

    def fmul(self, a: Value, b: Value) -> Value:
        return self._float_pair("fmul", a, b)

    def fdiv(self, a: Value, b: Value) -> Value:
        return self._float_pair("fdiv", a, b)

    def fneg(self, a: Value) -> Value:
        if a.type.kind != "float":
            self._fail("fneg", a, why="it needs a float")
        return self._emit(f"fneg {a.type.text} {a.text}", a.type)

    def _integer_pair(self, name: str, a: Value, b: Value, flags: str = "") -> Value:
        type = a.type
        if type is not b.type or type.kind != "int":
            self._fail(name, a, b, why="it needs two integers of one type")
        return self._emit(f"{name} {flags + ' ' if flags else ''}{type.text} {a.text}, {b.text}", type)

    def add(self, a: Value, b: Value, flags: str = "") -> Value:
        return self._integer_pair("add", a, b, flags)

    def sub(self, a: Value, b: Value, flags: str = "") -> Value:
        return self._integer_pair("sub", a, b, flags)

    def mul(self, a: Value, b: Value, flags: str = "") -> Value:
        return self._integer_pair("mul", a, b, flags)

    def sdiv(self, a: Value, b: Value) -> Value:
        return self._integer_pair("sdiv", a, b)

    def udiv(self, a: Value, b: Value) -> Value:
        return self._integer_pair("udiv", a, b)

    def srem(self, a: Value, b: Value) -> Value:
        return self._integer_pair("srem", a, b)

    def urem(self, a: Value, b: Value) -> Value:
        return self._integer_pair("urem", a, b)

    def shl(self, a: Value, b: Value) -> Value:
        return self._integer_pair("shl", a, b)

    def lshr(self, a: Value, b: Value) -> Value:
        return self._integer_pair("lshr", a, b)

    def ashr(self, a: Value, b: Value) -> Value:
        return self._integer_pair("ashr", a, b)

    def and_(self, a: Value, b: Value) -> Value:
        return self._integer_pair("and", a, b)

    def or_(self, a: Value, b: Value) -> Value:
        return self._integer_pair("or", a, b)

    def xor(self, a: Value, b: Value) -> Value:
        return self._integer_pair("xor", a, b)

    def not_(self, a: Value) -> Value:
        if a.type.kind != "int":
            self._fail("xor", a, why="it needs an integer")
        return self._integer_pair("xor", a, constant(-1, a.type))

    # -- comparison and choice -------------------------------------------------------------------------------------

    def icmp(self, predicate: str, a: Value, b: Value) -> Value:
        type = a.type
        if type is not b.type or type.kind not in ("int", "ptr") or predicate not in INTEGER_PREDICATES:
            self._fail(f"icmp {predicate}", a, b, why="it needs two integers or pointers of one type")
        return self._emit(f"icmp {predicate} {type.text} {a.text}, {b.text}", vector(i1, type.count))

    def fcmp(self, predicate: str, a: Value, b: Value) -> Value:
        type = a.type
        if type is not b.type or type.kind != "float" or predicate not in FLOAT_PREDICATES:
            self._fail(f"fcmp {predicate}", a, b, why="it needs two floats of one type")
        return self._emit(f"fcmp {predicate} {type.text} {a.text}, {b.text}", vector(i1, type.count))

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Choose `a` where the condition holds, else `b`; a scalar condition chooses whole vectors."""
        chosen = condition.type
        if a.type is not b.type or chosen.element is not i1 or chosen.count not in (1, a.type.count):
            self._fail("select", condition, a, b, why="it needs i1 and two values of one type")
        return self._emit(
            f"select {chosen.text} {condition.text}, {a.type.text} {a.text}, {b.type.text} {b.text}", a.type
        )

    # -- conversion ------------------------------------------------------------------------------------------------

    def _cast(self, name: str, a: Value, type: Type, from_kind: str, to_kind: str, order: int = 0) -> Value:
        """Convert a value. `order` is -1 if the result must be narrower, 1 if it must be wider."""
        source = a.type
        if source is type:
            return a
        width = (type.bits > source.bits) - (type.bits < source.bits)
        if source.kind != from_kind or type.kind != to_kind or source.count != type.count or (order and order != width):
            self._fail(name, a, why=f"it cannot become {type}")
        return self._emit(f"{name} {source.text} {a.text} to {type.text}", type)

    def trunc(self, a: Value, type: Type) -> Value:
        return self._cast("trunc", a, type, "int", "int", -1)

    def zext(self, a: Value, type: Type) -> Value:
        return self._cast("zext", a, type, "int", "int", 1)

    def sext(self, a: Value, type: Type) -> Value:
        return self._cast("sext", a, type, "int", "int", 1)

    def fptrunc(self, a: Value, type: Type) -> Value:
        if type.bits == 16 and a.type.bits == 64:
            self._fail("fptrunc", a, why="double to half would call a function that is not there")
        return self._cast("fptrunc", a, type, "float", "float", -1)

    def fpext(self, a: Value, type: Type) -> Value:
        return self._cast("fpext", a, type, "float", "float", 1)

    def fptosi(self, a: Value, type: Type) -> Value:
        """Convert to a signed integer. Numbers out of range give poison."""
        return self._cast("fptosi", a, type, "float", "int")

    def fptoui(self, a: Value, type: Type) -> Value:
        """Convert to an unsigned integer. Numbers out of range give poison."""
        return self._cast("fptoui", a, type, "float", "int")

    def sitofp(self, a: Value, type: Type) -> Value:
        return self._cast("sitofp", a, type, "int", "float")

    def uitofp(self, a: Value, type: Type) -> Value:
        return self._cast("uitofp", a, type, "int", "float")

    def ptrtoint(self, a: Value, type: Type) -> Value:
        return self._cast("ptrtoint", a, type, "ptr", "int")

    def inttoptr(self, a: Value, type: Type) -> Value:
        return self._cast("inttoptr", a, type, "int", "ptr")

    def in_space(self, a: Value, type: Type) -> Value:
        """Cast a pointer to another address space, in which its memory must be."""
        if a.type.kind != "ptr" or type.kind != "ptr" or a.type.is_vector:
            self._fail("addrspacecast", a, why=f"it cannot become {type}")
        return a if a.type is type else self._emit(f"addrspacecast {a} to {type.text}", type)

    def bitcast(self, a: Value, type: Type) -> Value:
        """Reinterpret the bits as another type of the same total width."""
        source = a.type
        if source is type:
            return a
        if source.bits * source.count != type.bits * type.count or "ptr" in (source.kind, type.kind):
            self._fail("bitcast", a, why=f"it cannot become {type}")
        return self._emit(f"bitcast {source.text} {a.text} to {type.text}", type)

    # -- vectors ---------------------------------------------------------------------------------------------------

    def extract(self, a: Value, index: int | Value) -> Value:
        """Extract one element of a vector."""
        if not a.type.is_vector:
            self._fail("extractelement", a, why="it needs a vector")
        return self._emit(f"extractelement {a.type.text} {a.text}, {self._position(index)}", a.type.element)

    def insert(self, a: Value, element: Value, index: int | Value) -> Value:
        """Replace one element of a vector."""
        if not a.type.is_vector or element.type is not a.type.element:
            self._fail("insertelement", a, element, why="it needs a vector and an element of it")
        return self._emit(f"insertelement {a.type.text} {a.text}, {element}, {self._position(index)}", a.type)

    def _position(self, index: int | Value) -> str:
        if isinstance(index, int):
            return f"i32 {index}"
        if index.type.kind != "int" or index.type.is_vector:
            self._fail("element index", index, why="it needs an integer")
        return repr(index)

    def shuffle(self, a: Value, b: Value | None, indices: Sequence[int]) -> Value:
        """Select elements of two concatenated vectors by index."""
        b = poison(a.type) if b is None else b
        if not a.type.is_vector or a.type is not b.type:
            self._fail("shufflevector", a, b, why="it needs two vectors of one type")
        if any(not 0 <= i < 2 * a.type.count for i in indices):
            self._fail("shufflevector", a, b, why=f"an index of {list(indices)} is outside")
        mask = constant_vector(indices, i32)
        return self._emit(f"shufflevector {a}, {b}, {mask}", vector(a.type.element, len(indices)))

    def splat(self, a: Value, count: int) -> Value:
        """Broadcast a scalar to every element."""
        if a.type.is_vector:
            self._fail("splat", a, why="it needs a scalar")
        if count == 1:
            return a
        type = vector(a.type, count)
        if not a.text.startswith("%"):  # a constant
            return Value(f"splat ({a.type.text} {a.text})", type)
        first = self.insert(poison(type), a, 0)
        zeros = Value("zeroinitializer", vector(i32, count))
        return self._emit(f"shufflevector {first}, {poison(type)}, {zeros}", type)

    def fields(self, a: Value, element: Type) -> list[Value]:
        """Extract the values of a struct that a function returned."""
        if a.type.kind != "struct":
            self._fail("extractvalue", a, why="it needs several values")
        return [self._emit(f"extractvalue {a.type.text} {a.text}, {n}", element) for n in range(a.type.count)]

    # -- calls -----------------------------------------------------------------------------------------------------

    def call(self, name: str, returns: Type, *arguments: Value, attributes: str = "") -> Value | None:
        """Call a function of the module, or an external one, which is declared at its first call."""
        types = tuple(a.type for a in arguments)
        signature = self.module.signature(name)
        if signature is None:
            self.module.declare(name, returns, types, attributes)
        elif signature != (returns, types):
            self._fail(f"call @{name}", *arguments, why=f"the function takes {signature[1]} and returns {signature[0]}")
        return self._write_call(f"@{name}", returns, arguments)

    def assembly(self, text: str, constraints: str, returns: Type, *arguments: Value) -> Value:
        """Write inline assembly without side effects."""
        operands = ", ".join(str(a) for a in arguments)
        return self._emit(
            f'call {returns.text} asm "{text}", "{constraints}"({operands}) nounwind memory(none)', returns
        )

    def effect(self, text: str, constraints: str, *arguments: Value, returns: Type | None = None) -> Value | None:
        """Write inline assembly with side effects; it is not moved across memory accesses."""
        operands = ", ".join(str(a) for a in arguments)
        kind = "void" if returns is None else returns.text
        every = ",".join(filter(None, (constraints, "~{memory}")))
        written = f'call {kind} asm sideeffect "{text}", "{every}"({operands}) convergent nounwind'
        if returns is not None:
            return self._emit(written, returns)
        self.lines.append(f"  {written}")
        return None

    def call_pointer(self, function: Value, returns: Type, *arguments: Value) -> Value | None:
        """Call a function by its address."""
        if function.type.kind != "ptr" or function.type.is_vector:
            self._fail("call", function, why="it needs the address of a function")
        return self._write_call(function.text, returns, arguments)

    def _write_call(self, function: str, returns: Type, arguments: Sequence[Value]) -> Value | None:
        text = f"call {returns.text} {function}({', '.join(map(repr, arguments))})"
        if returns.kind == "void":
            self.lines.append(f"  {text}")
            return None
        return self._emit(text, returns)

    def intrinsic(self, name: str, returns: Type, *arguments: Value, overload: Sequence[Type] | None = None) -> Value:
        """Call `llvm.<name>`, with the suffix of its overloaded types (default: the first argument's type)."""
        suffix = arguments[0].type.suffix if overload is None else ".".join(t.suffix for t in overload)
        called = self.call(f"llvm.{name}.{suffix}", returns, *arguments)
        return called  # type: ignore[return-value]

    def _float_intrinsic(self, name: str, *arguments: Value) -> Value:
        type = arguments[0].type
        for argument in arguments:
            if argument.type is not type or type.kind != "float":
                self._fail(f"llvm.{name}", *arguments, why="it needs floats of one type")
        known = self._known.get((name, type))
        if known is None:  # later calls skip the checks
            self._known[name, type] = f"call {type.text} @llvm.{name}.{type.suffix}("
            return self.intrinsic(name, type, *arguments)
        text = type.text
        return self._emit(f"{known}{', '.join([f'{text} {a.text}' for a in arguments])})", type)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Compute a * b + c, rounded once."""
        return self._float_intrinsic("fma", a, b, c)

    def sqrt(self, a: Value) -> Value:
        return self._float_intrinsic("sqrt", a)

    def fabs(self, a: Value) -> Value:
        return self._float_intrinsic("fabs", a)

    def arithmetic_fence(self, a: Value) -> Value:
        """Return the same number through a fence that LLVM moves no operation across."""
        return self._float_intrinsic("arithmetic.fence", a)

    def copysign(self, a: Value, b: Value) -> Value:
        return self._float_intrinsic("copysign", a, b)

    def floor(self, a: Value) -> Value:
        return self._float_intrinsic("floor", a)

    def ceil(self, a: Value) -> Value:
        return self._float_intrinsic("ceil", a)

    def ftrunc(self, a: Value) -> Value:
        """Round towards zero."""
        return self._float_intrinsic("trunc", a)

    def roundeven(self, a: Value) -> Value:
        """Round to the nearest integer, ties to even."""
        return self._float_intrinsic("roundeven", a)

    def maximum(self, a: Value, b: Value) -> Value:
        """Return the greater number; NaN propagates, and -0 is less than 0."""
        return self._float_intrinsic("maximum", a, b)

    def minimum(self, a: Value, b: Value) -> Value:
        """Return the lesser number; NaN propagates, and -0 is less than 0."""
        return self._float_intrinsic("minimum", a, b)

    def _integer_intrinsic(self, name: str, *arguments: Value, flag: bool | None = None) -> Value:
        type = arguments[0].type
        for argument in arguments:
            if argument.type is not type or type.kind != "int":
                self._fail(f"llvm.{name}", *arguments, why="it needs integers of one type")
        extra = () if flag is None else (constant(flag, i1),)
        return self.intrinsic(name, type, *arguments, *extra)

    def smax(self, a: Value, b: Value) -> Value:
        return self._integer_intrinsic("smax", a, b)

    def smin(self, a: Value, b: Value) -> Value:
        return self._integer_intrinsic("smin", a, b)

    def umax(self, a: Value, b: Value) -> Value:
        return self._integer_intrinsic("umax", a, b)

    def umin(self, a: Value, b: Value) -> Value:
        return self._integer_intrinsic("umin", a, b)

    def iabs(self, a: Value) -> Value:
        """Return the magnitude; the most negative number stays."""
        return self._integer_intrinsic("abs", a, flag=False)

    def ctpop(self, a: Value) -> Value:
        return self._integer_intrinsic("ctpop", a)

    def ctlz(self, a: Value) -> Value:
        """Count leading zero bits; the width of the type for 0."""
        return self._integer_intrinsic("ctlz", a, flag=False)

    def fshl(self, high: Value, low: Value, amount: Value) -> Value:
        """Return the upper half of two concatenated integers shifted left."""
        return self._integer_intrinsic("fshl", high, low, amount)

    def saturating(self, a: Value, type: Type, signed: bool) -> Value:
        """Convert a float to an integer towards zero, clamped to its range; NaN gives 0."""
        if a.type.kind != "float" or type.kind != "int" or a.type.count != type.count:
            self._fail("llvm.fptosi.sat", a, why=f"it cannot become {type}")
        name = "fptosi.sat" if signed else "fptoui.sat"
        return self.intrinsic(name, type, a, overload=(type, a.type))

    def reduce(self, operation: str, a: Value) -> Value:
        """Reduce the elements of an integer vector by and, or, xor, add, smax, ...; return a scalar unchanged."""
        if a.type.kind != "int":
            self._fail(f"llvm.vector.reduce.{operation}", a, why="it needs integers")
        if not a.type.is_vector:
            return a
        return self.intrinsic(f"vector.reduce.{operation}", a.type.element, a)
