"""Python source that is written for one signature of a call, and compiled."""

from __future__ import annotations

from types import CodeType
from typing import Any

from weft.base.memo import Memo

# Compiled texts: functions for signatures that differ in sizes only have the same.
_codes: Memo[str, CodeType] = Memo(256)


class Source:
    """The lines of a function and the objects that they refer to by name. `return MISS` in it leaves a call to the
    general way."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.names = names

    def line(self, text: str, indent: int = 1) -> None:
        """Add a line."""
        self.lines.append("    " * indent + text)

    def constant(self, value: Any) -> str:
        """A new name for an object."""
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def function(self, name: str, parameters: str) -> Any:
        """The function that the lines are the body of."""
        text = "\n".join([f"def {name}({parameters}):", *self.lines])
        code = _codes.get(text)
        if code is None:
            code = _codes.keep(text, compile(text, f"<weft {name}>", "exec"))
        exec(code, self.names)
        return self.names[name]
