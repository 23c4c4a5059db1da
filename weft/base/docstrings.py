"""Docstrings of functions that share arguments: a function states its own sentence, a table has what many repeat.

    document = Documenter({"x": "an array or a number."}, {"wnp.": "import weft.numpy as wnp"})

    @document("An array of booleans.", "wnp.isnan(wnp.array([1.0])) -> Array([False], dtype=bool)")
    def isnan(x: ArrayLike, /) -> Array:
        \"\"\"Test element-wise for NaN.\"\"\"

The function itself is returned, with `Args:`, `Returns:` and the example in its docstring. Its signature stays in the
source, where editors and type checkers read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Documenter:
    """A decorator that completes docstrings.

    Args:
        arguments: what each parameter means, by its name.
        imports: the import that an example needs, by a text that the example contains.
        heading: the line before examples, if any.
    """

    def __init__(self, arguments: Mapping[str, str], imports: Mapping[str, str], heading: str = "") -> None:
        self.arguments = arguments
        self.imports = imports
        self.heading = heading

    def __call__(self, returns: str = "", /, *examples: str, **arguments: str) -> Callable[[Function], Function]:
        """Return a decorator that adds sections to the docstring of a function, before the examples that it has.

        Args:
            returns: the section `Returns:`.
            *examples: expressions, each with `->` and what it prints.
            **arguments: what parameters mean where the table does not say it, or where this function differs.
        """

        def complete(function: Function) -> Function:
            text = function.__doc__
            if text is None:  # python -OO
                return function
            code = function.__code__
            named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            stars = ("*", "**")[not code.co_flags & 0x04 : 1 + bool(code.co_flags & 0x08)]
            variadic = code.co_varnames[len(named) : len(named) + len(stars)]
            lines = [(name, name) for name in named if name != "self"]
            lines += [(name, star + name) for name, star in zip(variadic, stars, strict=True)]
            entries = [f"        {shown}: {arguments.get(name) or self.arguments[name]}" for name, shown in lines]
            summary, start, own = text.partition("\n    >>> ")
            sections = ["\n    Args:", *entries] if entries else []
            sections += ["\n    Returns:", f"        {returns}"] if returns else []
            function.__doc__ = "\n".join([summary.rstrip(), *sections, *self._examples(examples), f"{start}{own}"])
            return function

        return complete

    def _examples(self, examples: tuple[str, ...]) -> list[str]:
        if not examples:
            return []
        margin = "        " if self.heading else "    "
        together = " ".join(examples)
        lines = ["", f"    {self.heading}"] if self.heading else [""]
        lines += [f"{margin}>>> {line}" for text, line in self.imports.items() if text in together]
        for example in examples:
            call, _, printed = example.rpartition(" -> ")
            lines += [f"{margin}>>> {call}", *(f"{margin}{line}" for line in printed.split("\n"))]
        return lines
