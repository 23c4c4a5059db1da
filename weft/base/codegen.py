"""Python source code that is generated for one signature of a call, and compiled."""

from __future__ import annotations

from types import CodeType
from typing import Any

from weft.base.memo import Memo

# Code objects by source text: signatures that differ in sizes only share their text.
_codes: Memo[str, CodeType] = Memo(256)


class Source:
    """The lines of a generated function and the objects that they refer to by name. The statement `return MISS` makes
    the caller use the generic implementation."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.names = names

    def line(self, text: str, indent: int = 1) -> None:
        """Append a line."""
        self.lines.append("    " * indent + text)

    def constant(self, value: Any) -> str:
        """Return a new name for an object."""
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def function(self, name: str, parameters: str) -> Any:
        """Compile the lines as the body of a function and return it."""
        text = "\n".join([f"def {name}({parameters}):", *self.lines])
        code = _codes.get(text)
        if code is None:
            code = _codes.keep(text, compile(text, f"<weft {name}>", "exec"))
        exec(code, self.names)
        return self.names[name]
