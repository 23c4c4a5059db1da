"""Modules of StableHLO: the passes before emission, the main function, its arguments and results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from weft.base.dataclass import dataclass
from weft.base.settings import config
from weft.compiler.passes.choose_platform import choose_platform
from weft.compiler.passes.decompose import with_definitions
from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.passes.inline import inline
from weft.compiler.rewrite import everywhere
from weft.compiler.target.stablehlo import (
    bits,
    collectives,
    contraction,
    control,
    elementwise,
    foreign,
    indexing,
    linalg,
    movement,
    reduction,
    sorting,
    special,
    windows,
)
from weft.compiler.target.stablehlo.emitter import Emitter, Parts, count_key_data, has_rule, part_types, static_shape
from weft.compiler.target.stablehlo.movement import join_key_data, split_key_data
from weft.compiler.target.stablehlo.parser import parse
from weft.compiler.target.stablehlo.types import UINT32
from weft.compiler.target.stablehlo.writer import Value
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.registry import is_builtin

# The version of StableHLO whose operations are the newest ones used (`tan`, batching dimensions of gather).
VERSION = "1.7.0"
FAMILIES = (
    bits,
    collectives,
    contraction,
    control,
    elementwise,
    foreign,
    indexing,
    linalg,
    movement,
    reduction,
    sorting,
    special,
    windows,
)


@dataclass(frozen=True)
class Module:
    """Module of StableHLO; `str` returns its text."""

    text: str

    def __str__(self) -> str:
        return self.text


class Platform(NamedTuple):
    """Kind of the device that runs a module, as much of a `Target` as the passes here read."""

    kind: str

    def inside(self, equation: Equation) -> Platform:
        """Return the platform of sub-jaxprs."""
        return self


def emit(
    jaxpr: Jaxpr,
    *,
    name: str = "main",
    donated: Sequence[int | None] = (),
    num_partitions: int = 1,
    axes: Mapping[Any, int] | None = None,
    platform: str = "cpu",
) -> str:
    """Return the text of a module with one public function, which computes a jaxpr with concrete constants.

    Args:
        jaxpr: the program, as it was traced; calls are inlined.
        name: the name of the function.
        donated: for each argument the index of the result that may take its memory, or None.
        num_partitions: the number of devices, if it is the local program of a mesh; they are replicas of one program.
        axes: sizes of the axes of the mesh that collectives name, in the order of the mesh; not needed for one axis.
        platform: the platform that operations which depend on it are for, such as "cpu" or "tpu".
    """
    jaxpr = prepare(jaxpr, platform)
    e = Emitter(num_partitions, axes)
    arguments = [e.argument(i, *argument_type(v.aval)) for i, v in enumerate(jaxpr.invars)]
    values = [to_parts(e, x, v) for x, v in zip(arguments, jaxpr.invars, strict=True)]
    results = [from_parts(e, parts, a) for parts, a in zip(e.body(jaxpr, values), jaxpr.outvars, strict=True)]
    aliases = [*donated, *(None,) * (len(arguments) - len(donated))]
    head = ", ".join(
        repr(x) + ("" if alias is None else f" {{tf.aliasing_output = {alias} : i32}}")
        for x, alias in zip(arguments, aliases, strict=True)
    )
    types = ", ".join(x.type for x in results)
    names = ", ".join(x.name for x in results)
    module = "jit_" + re.sub(r"\W", "_", jaxpr.name or "program")
    attributes = f"mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {num_partitions} : i32"
    text = "\n".join(
        [
            f"// StableHLO {VERSION}",
            f"module @{module} attributes {{{attributes}}} {{",
            f"  func.func public @{name}({head}) -> ({types}) {{",
            *([e.text] if e.text else []),
            f"    return {names} : {types}" if results else "    return",
            "  }",
            *e.functions,
            "}",
            "",
        ]
    )
    if config.enable_checks:
        parse(text)
    return text


def donation_aliases(jaxpr: Jaxpr, donated: Sequence[bool]) -> list[int | None]:
    """Return for each argument the result that takes its memory: the first free one of its type, if it is donated."""
    free: dict[tuple[tuple[int, ...], Any], list[int]] = {}
    for i, atom in enumerate(jaxpr.outvars):
        free.setdefault(argument_type(atom.aval), []).append(i)
    found: list[int | None] = []
    for var, flag in zip(jaxpr.invars, donated, strict=True):
        same = free.get(argument_type(var.aval)) if flag else None
        found.append(same.pop(0) if same else None)
    return found


def argument_type(aval: Any) -> tuple[tuple[int, ...], Any]:
    """Return the shape and dtype of an argument or a result: those of keys are their words."""
    count = count_key_data(aval.dtype) if hasattr(aval, "dtype") else None
    shape = static_shape(aval)
    return (shape, aval.dtype) if count is None else ((*shape, count), UINT32)


def to_parts(e: Emitter, x: Value, var: Any) -> Parts:
    """Split the words of keys; other arguments are one part."""
    return (x,) if len(part_types(var.aval)) == 1 else split_key_data(e, x)


def from_parts(e: Emitter, parts: Parts, atom: Any) -> Value:
    """Join the words of keys."""
    return parts[0] if len(parts) == 1 else join_key_data(e, parts)


def prepare(jaxpr: Jaxpr, platform: str) -> Jaxpr:
    """Inline calls, drop dead code, and replace operations without a rule by their definitions."""
    return define(drop_dead(choose_platform(inline(jaxpr), Platform(platform))))


@everywhere
def define(jaxpr: Jaxpr) -> Jaxpr:
    """Replace operations without a rule by their definitions, and identities by their operands."""
    return with_definitions(jaxpr, definition, identities=True)


def definition(equation: Equation) -> Any:
    """Return the definition of an equation that has no rule."""
    if has_rule(equation):
        return None
    own = linalg.DEFINITIONS.get(equation.primitive.name) if is_builtin(equation.primitive) else None
    return own or equation.primitive.define(equation)
