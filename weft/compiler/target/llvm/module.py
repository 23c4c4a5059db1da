"""A module: functions, the declarations and tables they use, and attributes common to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.compiler.target.llvm.function import Function
from weft.compiler.target.llvm.types import Type, pointer, ptr, void
from weft.compiler.target.llvm.values import Value, constant


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function, with LLVM's attributes such as `noalias`, `readonly`, `align 64`."""

    name: str
    type: Type
    attributes: tuple[str, ...] = ()

    def text(self) -> str:
        """As it is in the definition."""
        return " ".join([self.type.text, *self.attributes, f"%{self.name}"])


class Module:
    """Collects functions and what they need; `text` puts it together. Without `masks` loads and stores of some lanes
    are written lane by lane. With `frames` vectors that LLVM puts on the stack are aligned: by the time that it knows
    of them it can align the stack of a function only if that has a frame pointer."""

    def __init__(
        self, triple: str = "", layout: str = "", vector_bits: int = 512, masks: bool = True, frames: bool = False
    ) -> None:
        self.triple = triple
        self.frames = frames
        self.masks = masks
        self.layout = layout
        self.vector_bits = vector_bits
        self.functions: dict[str, Function] = {}
        self._declared: dict[str, tuple[Type, tuple[Type, ...], str]] = {}
        self._globals: dict[str, str] = {}
        self._shared: dict[str, int] = {}
        self._metadata: dict[str, int] = {}

    def function(self, name: str, returns: Type, parameters: Sequence[Parameter], linkage: str = "") -> Function:
        """Begin a function."""
        if name in self.functions:
            raise InternalError(f"The module has two functions @{name}.")
        function = self.functions[name] = Function(self, name, returns, parameters, linkage)
        return function

    def helper(
        self, name: str, parameters: Sequence[Parameter], write: Callable[[Function], None], returns: Type = void
    ) -> str:
        """A function that several others call, written when it is first asked for; it is called seldom."""
        if name not in self.functions:
            helper = self.function(name, returns, parameters, linkage="internal")
            helper.attributes = "noinline "
            write(helper)
        return name

    def signature(self, name: str) -> tuple[Type, tuple[Type, ...]] | None:
        """What a function returns and takes, if it is known."""
        if name in self.functions:
            found = self.functions[name]
            return found.returns, tuple(p.type for p in found.parameters)
        declared = self._declared.get(name)
        return None if declared is None else (declared[0], declared[1])

    def declare(self, name: str, returns: Type, types: Sequence[Type], attributes: str = "") -> None:
        """Make a function from elsewhere callable."""
        self._declared[name] = (returns, tuple(types), attributes)

    def table(self, name: str, element: Type, values: Sequence[int | float], align: int = 64) -> Value:
        """An array of constants; asking again for a name returns the same one."""
        if name not in self._globals:
            items = ", ".join(f"{element.text} {constant(v, element).text}" for v in values)
            self._globals[name] = (
                f"@{name} = internal constant [{len(values)} x {element.text}] [{items}], align {align}"
            )
        return Value(f"@{name}", ptr)

    def opaque_table(self, name: str, element: Type, values: Sequence[int | float], align: int = 64) -> Value:
        """As `table`, but LLVM does not know that it never changes: its values are loaded where they are used, and do
        not occupy registers from before a loop on."""
        known = name in self._globals
        address = self.table(name, element, values, align)
        if not known:
            self._globals[name] = self._globals[name].replace("internal constant", "internal global", 1)
        return address

    def variable(self, name: str, element: Type, count: int = 1, align: int = 64) -> Value:
        """An array that begins as zeros and lives as long as the module; asking again for a name returns the same
        one."""
        if name not in self._globals:
            self._globals[name] = f"@{name} = internal global [{count} x {element.text}] zeroinitializer, align {align}"
        return Value(f"@{name}", ptr)

    def shared(self, name: str, size: int, space: int) -> Value:
        """So many bytes in an address space that threads share, without a value at the start; asking again for a name
        returns the same ones, of which there are as many as somebody asked for."""
        size = self._shared[name] = max(size, self._shared.get(name, 0))
        self._globals[name] = f'@"{name}" = internal addrspace({space}) global [{size} x i8] undef, align 16'
        return Value(f'@"{name}"', pointer(space))

    def shared_at_launch(self, name: str, space: int) -> Value:
        """As `shared`, of as many bytes as a kernel is launched with."""
        self._globals[name] = f'@"{name}" = external addrspace({space}) global [0 x i8], align 16'
        return Value(f'@"{name}"', pointer(space))

    def address(self, name: str) -> Value:
        """Where a function of the module is, for handing it to others."""
        if self.signature(name) is None:
            raise InternalError(f"The module has no function @{name}.")
        return Value(f"@{name}", ptr)

    def metadata(self, *items: str | int) -> str:
        """A node of metadata, as `!3`; equal ones are one."""
        text = ", ".join(f'!"{item}"' if isinstance(item, str) else f"i32 {item}" for item in items)
        return f"!{self._metadata.setdefault(text, len(self._metadata))}"

    def text(self) -> str:
        """The whole module as LLVM reads it."""
        lines = []
        if self.layout:
            lines.append(f'target datalayout = "{self.layout}"')
        if self.triple:
            lines.append(f'target triple = "{self.triple}"')
        lines += self._globals.values()
        lines += [function.text() for function in self.functions.values()]
        for name, (returns, types, attributes) in self._declared.items():
            if name not in self.functions:
                taken = ", ".join(t.text for t in types)
                lines.append(f"declare {returns.text} @{name}({taken}){' ' + attributes if attributes else ''}")
        frames = '"frame-pointer"="all" ' if self.frames else ""
        lines.append(f'attributes #0 = {{ nounwind {frames}"prefer-vector-width"="{self.vector_bits}" }}')
        lines += [f"!{i} = !{{{text}}}" for text, i in self._metadata.items()]
        return "\n".join(lines) + "\n"
