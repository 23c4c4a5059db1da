"""LLVM text of what a library says about itself: signatures, messages of statuses, and the JSON that loaders read.

The structs are those of the C header (`weft/export/libraries/header.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dataclass import dataclass
from weft.compiler.target.cpu.standalone.failures import FIRST_CHECK
from weft.compiler.target.cpu.standalone.unit import bytes_global

TENSOR, SIZE = "{ ptr, ptr, ptr, ptr, i64, i32, i32, i32, i32 }", "{ ptr, i64, i64 }"
SIGNATURE = "{ ptr, ptr, ptr, ptr, ptr, i64, i32, i32, i32, i32 }"
VERSION = 1
DONATED, CONSTANT = 1, 2
# Function that returns the JSON of a library; every library has it, and one program may link several.
DESCRIPTION = "weft_library"


@dataclass(frozen=True)
class TensorText:
    """Argument or result: its shape has -1 for sizes that are known at run time."""

    name: str
    dtype: str
    shape: Sequence[int]
    shape_text: str
    bytes: int
    flags: int = 0
    alias: int = -1


@dataclass(frozen=True)
class FunctionText:
    """Signature of a function, and the messages of its statuses, which are 0 and up, and those of checks."""

    name: str
    arguments: Sequence[TensorText]
    results: Sequence[TensorText]
    sizes: Sequence[tuple[str, int, int]]
    workspace_bytes: int
    json: str
    messages: Sequence[str]
    checks: Sequence[str]


class InterfaceText:
    """Writer of globals and of functions without branches, as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._strings: dict[str, str] = {}

    def string(self, text: str) -> str:
        """Return the name of a global with a text that ends in a zero."""
        if text not in self._strings:
            name = self._strings[text] = f"text.{len(self._strings)}"
            self.lines.append(bytes_global(name, text.encode() + b"\0"))
        return f"@{self._strings[text]}"

    def array(self, name: str, element: str, items: Sequence[str]) -> str:
        """Return the name of an array of constants; null if it is empty."""
        if not items:
            return "null"
        listed = ", ".join(f"{element} {item}" for item in items)
        self.lines.append(f"@{name} = internal constant [{len(items)} x {element}] [{listed}]")
        return f"@{name}"

    def function(self, about: FunctionText) -> None:
        """Write the signature and the messages of a function."""
        name = about.name
        arguments, results = (
            self.array(f"{name}.{kind}", TENSOR, [self._tensor(f"{name}.{kind}{n}", t) for n, t in enumerate(tensors)])
            for kind, tensors in (("arguments", about.arguments), ("results", about.results))
        )
        sizes = [f"{{ ptr {self.string(size)}, i64 {low}, i64 {high} }}" for size, low, high in about.sizes]
        pointers = (self.string(name), arguments, results, self.array(f"{name}.sizes", SIZE, sizes))
        fields = [f"ptr {p}" for p in (*pointers, self.string(about.json))]
        fields.append(f"i64 {about.workspace_bytes}")
        fields += [f"i32 {n}" for n in (len(about.arguments), len(about.results), len(about.sizes), VERSION)]
        self.lines.append(f"@{name}_signature = constant {SIGNATURE} {{ {', '.join(fields)} }}")
        self._messages(about)

    def _tensor(self, name: str, tensor: TensorText) -> str:
        shape = self.array(f"{name}.shape", "i64", [str(size) for size in tensor.shape])
        pointers = (self.string(tensor.name), self.string(tensor.dtype), shape, self.string(tensor.shape_text))
        fields = [f"ptr {p}" for p in pointers]
        fields += [f"i64 {tensor.bytes}", f"i32 {len(tensor.shape)}", f"i32 {tensor.flags}", f"i32 {tensor.alias}"]
        return f"{{ {', '.join([*fields, 'i32 0'])} }}"

    def _messages(self, about: FunctionText) -> None:
        """Write `NAME_message(status)`, which looks a text up."""
        unknown = "Unknown status."
        general = [*about.messages, *[unknown] * (FIRST_CHECK - len(about.messages))]
        texts = [self.string(text) for text in (*general, *about.checks, unknown)]
        table = self.array(f"{about.name}.messages", "ptr", texts)
        self.lines += [
            f"define ptr @{about.name}_message(i32 %status) nounwind {{",
            f"  %known = icmp ult i32 %status, {len(texts) - 1}",
            f"  %index = select i1 %known, i32 %status, i32 {len(texts) - 1}",
            f"  %place = getelementptr ptr, ptr {table}, i32 %index",
            "  %text = load ptr, ptr %place",
            "  ret ptr %text",
            "}",
        ]

    def description(self, json: str) -> None:
        """Write the function that returns the JSON of the whole library."""
        self.lines += [f"define weak ptr @{DESCRIPTION}() nounwind {{", f"  ret ptr {self.string(json)}", "}"]

    def text(self) -> str:
        """Return everything as LLVM text."""
        return "\n".join(self.lines) + "\n"
