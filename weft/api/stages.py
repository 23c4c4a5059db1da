"""The stages of a jitted function that one can hold and look at: traced, lowered, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.api.flat import structure_differences
from weft.base import tree
from weft.base.errors import InvalidInputTypeError
from weft.base.source import user_line
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ArrayType, ShapeDtypeStruct, type_of
from weft.ops.call import jit as jit_primitive

Dynamic = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


class Traced:
    """A function staged for one signature."""

    def __init__(self, program: Any, in_tree: Any, name: str, dynamic: Dynamic):
        self._program, self._constants, self._params = program.jaxpr, program.constants, program.params
        self.in_tree, self.out_tree = in_tree, program.out_tree
        self.fun_name = name
        self._dynamic = dynamic

    @property
    def jaxpr(self) -> Jaxpr:
        """The staged program, its constants attached."""
        count = len(self._constants)
        program = self._program
        return program.replace(constvars=program.invars[:count], invars=program.invars[count:], consts=self._constants)

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the result, in its tree."""
        return tree.unflatten(self.out_tree, [struct(v.aval) for v in self._program.outvars])

    @property
    def in_avals(self) -> list[Any]:
        return self._program.in_avals[len(self._constants) :]

    def lower(self) -> Lowered:
        return Lowered(self)


class Lowered:
    """A staged program ready to compile."""

    def __init__(self, traced: Traced):
        self._traced = traced
        self.in_tree, self.out_tree = traced.in_tree, traced.out_tree

    @property
    def out_info(self) -> Any:
        return self._traced.out_info

    def as_text(self, dialect: str | None = None) -> str:
        """The program as text."""
        return str(self._traced.jaxpr)

    def compile(self) -> Compiled:
        return Compiled(self._traced)


class Compiled:
    """A program fixed to one signature: calling it with other types is an error, never a new compilation."""

    def __init__(self, traced: Traced):
        self._traced = traced
        self.in_tree, self.out_tree = traced.in_tree, traced.out_tree

    @property
    def out_info(self) -> Any:
        return self._traced.out_info

    def as_text(self) -> str:
        return str(self._traced.jaxpr)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        traced = self._traced
        dynamic = traced._dynamic(args, kwargs)
        leaves, in_tree = tree.flatten(dynamic)
        if in_tree != self.in_tree:
            raise InvalidInputTypeError(
                f"{traced.fun_name} was compiled for arguments of another structure.",
                received=structure_differences(self.in_tree, in_tree, ()),
                fix="call the jitted function, which compiles for new structures",
                at=user_line(),
            )
        for number, (leaf, aval) in enumerate(zip(leaves, traced.in_avals, strict=True)):
            if not type_of(leaf).matches(aval):
                path = [p for p, _ in tree.leaves_with_path(dynamic)][number]
                place = tree.keystr(path[1:]) if path[0].idx else f"[{path[1].idx}]{tree.keystr(path[2:])}"
                raise InvalidInputTypeError(
                    f"{traced.fun_name} was compiled for another type at {'kwargs' if path[0].idx else 'args'}{place}.",
                    received=f"{type_of(leaf).short()} for {aval.short()}",
                    fix="call the jitted function, which compiles for new types, or convert the argument",
                    at=user_line(),
                )
        results = jit_primitive(*traced._constants, *leaves, **traced._params)
        return tree.unflatten(traced.out_tree, results)


def struct(aval: Any) -> ShapeDtypeStruct:
    assert isinstance(aval, ArrayType)
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
