"""The stages of a jitted function that one can hold and look at: traced, lowered, compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base import tree
from weft.base.errors import InvalidInputTypeError
from weft.ir.context import context
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ArrayType, ShapeDtypeStruct, type_of
from weft.ops.call import jit as jit_primitive

Dynamic = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


class Traced:
    """A function staged for one signature."""

    def __init__(self, jaxpr: Jaxpr, constants: Sequence[Any], in_tree: Any, out_tree: Any, name: str, dynamic: Dynamic):
        self._program, self._constants = jaxpr, tuple(constants)
        self.in_tree, self.out_tree = in_tree, out_tree
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
        leaves = tree.leaves(traced._dynamic(args, kwargs))
        expected = traced.in_avals
        if len(leaves) != len(expected):
            raise InvalidInputTypeError(
                f"{traced.fun_name} was compiled for {len(expected)} array arguments.", received=f"{len(leaves)} arguments"
            )
        for number, (leaf, aval) in enumerate(zip(leaves, expected, strict=True)):
            if not type_of(leaf).matches(aval):
                raise InvalidInputTypeError(
                    f"{traced.fun_name} was compiled for {aval.short()} as array argument {number}.",
                    received=type_of(leaf).short(),
                    fix="call the jitted function, which compiles for new types, or convert the argument",
                )
        params = {"name": traced.fun_name, "jaxpr": traced._program}
        results = context.trace.process(jit_primitive, (*traced._constants, *leaves), params)
        return tree.unflatten(traced.out_tree, results)


def struct(aval: Any) -> ShapeDtypeStruct:
    assert isinstance(aval, ArrayType)
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
