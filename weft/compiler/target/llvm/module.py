"""Module: functions, the declarations and tables they use, and common attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.compiler.target.llvm.function import Function
from weft.compiler.target.llvm.types import Type, pointer, ptr, void
from weft.compiler.target.llvm.values import Value, constant


@dataclass(frozen=True)
class Parameter:
    """Parameter of a function, with LLVM's attributes such as `noalias`, `readonly`, `align 64`."""

    name: str
    type: Type
    attributes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the parameter in LLVM's syntax."""
        return " ".join([self.type.text, *self.attributes, f"%{self.name}"])


class Module:
    """Functions with their declarations, globals and metadata. Without `masks` masked loads and stores are written
    lane by lane. With `frames` functions have frame pointers, without which LLVM cannot align the stack for vectors
    that it spills. With `read_only` no table is in writable memory. Without `fused` the machine has no fused
    multiply-add, without `halves` it cannot convert float16; both are then computed by other operations."""

    def __init__(
        self,
        triple: str = "",
        layout: str = "",
        vector_bits: int = 512,
        masks: bool = True,
        frames: bool = False,
        read_only: bool = False,
        fused: bool = True,
        halves: bool = True,
    ) -> None:
        self.triple = triple
        self.frames, self.read_only, self.fused, self.halves = frames, read_only, fused, halves
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
            raise InternalError(f"A module cannot have two functions @{name}.")
        function = self.functions[name] = Function(self, name, returns, parameters, linkage)
        return function

    def helper(
        self, name: str, parameters: Sequence[Parameter], write: Callable[[Function], None], returns: Type = void
    ) -> str:
        """Return the name of an out-of-line helper function, which `write` writes on first use."""
        if name not in self.functions:
            helper = self.function(name, returns, parameters, linkage="internal")
            helper.attributes = "noinline "
            write(helper)
        return name

    def signature(self, name: str) -> tuple[Type, tuple[Type, ...]] | None:
        """Return the return type and the parameter types of a function, or None if it is unknown."""
        if name in self.functions:
            found = self.functions[name]
            return found.returns, tuple(p.type for p in found.parameters)
        declared = self._declared.get(name)
        return None if declared is None else (declared[0], declared[1])

    def declare(self, name: str, returns: Type, types: Sequence[Type], attributes: str = "") -> None:
        """Declare an external function."""
        self._declared[name] = (returns, tuple(types), attributes)

    def table(self, name: str, element: Type, values: Sequence[int | float], align: int = 64) -> Value:
        """Return the address of a constant array; the same name always returns the same array."""
        if name not in self._globals:
            items = ", ".join(f"{element.text} {constant(v, element).text}" for v in values)
            self._globals[name] = (
                f"@{name} = internal constant [{len(values)} x {element.text}] [{items}], align {align}"
            )
        return Value(f"@{name}", ptr)

    def opaque_table(self, name: str, element: Type, values: Sequence[int | float], align: int = 64) -> Value:
        """Return the address of a constant array whose contents LLVM does not know. Its values are loaded at each
        use instead of occupying registers across a loop."""
        known = name in self._globals
        address = self.table(name, element, values, align)
        if not known:
            # LLVM folds loads of constants, except from those that another program may initialize.
            hidden = "internal externally_initialized constant" if self.read_only else "internal global"
            self._globals[name] = self._globals[name].replace("internal constant", hidden, 1)
        return address

    def variable(self, name: str, element: Type, count: int = 1, align: int = 64) -> Value:
        """Return the address of a zero-initialised array that lives as long as the module; the same name always
        returns the same array."""
        if name not in self._globals:
            self._globals[name] = f"@{name} = internal global [{count} x {element.text}] zeroinitializer, align {align}"
        return Value(f"@{name}", ptr)

    def shared_memory(self, name: str, size: int, space: int) -> Value:
        """Return the address of `size` uninitialised bytes in a shared address space. The same name always returns
        the same memory, as large as its largest request."""
        size = self._shared[name] = max(size, self._shared.get(name, 0))
        self._globals[name] = f'@"{name}" = internal addrspace({space}) global [{size} x i8] undef, align 16'
        return Value(f'@"{name}"', pointer(space))

    def launch_memory(self, name: str, space: int) -> Value:
        """Return the address of shared memory whose size is set when the kernel is launched."""
        self._globals[name] = f'@"{name}" = external addrspace({space}) global [0 x i8], align 16'
        return Value(f'@"{name}"', pointer(space))

    def address(self, name: str) -> Value:
        """Return the address of a function of the module, for passing it as an argument."""
        if self.signature(name) is None:
            raise InternalError(f"The module has no function @{name}.")
        return Value(f"@{name}", ptr)

    def metadata(self, *items: str | int) -> str:
        """Return the metadata node of these items, as `!3`; equal nodes are shared."""
        text = ", ".join(f'!"{item}"' if isinstance(item, str) else f"i32 {item}" for item in items)
        return f"!{self._metadata.setdefault(text, len(self._metadata))}"

    def text(self) -> str:
        """Return the whole module in LLVM's syntax."""
        lines = []
        if self.layout:
            lines.append(f'target datalayout = "{self.layout}"')
        if self.triple:
            lines.append(f'target triple = "{self.triple}"')
        lines += self._globals.values()
        lines += [function.text() for function in self.functions.values()]
        for name, (returns, types, attributes) in self._declared.items():
            if name not in self.functions:
                parameters = ", ".join(t.text for t in types)
                lines.append(f"declare {returns.text} @{name}({parameters}){' ' + attributes if attributes else ''}")
        frames = '"frame-pointer"="all" ' if self.frames else ""
        lines.append(f'attributes #0 = {{ nounwind {frames}"prefer-vector-width"="{self.vector_bits}" }}')
        lines += [f"!{i} = !{{{text}}}" for text, i in self._metadata.items()]
        return "\n".join(lines) + "\n"
