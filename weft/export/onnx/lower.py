"""Conversion of jaxprs: each equation by its rule, a definition of ours, or the definition of its primitive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.passes.decompose import lookup_definition
from weft.compiler.passes.inline import inline
from weft.export.onnx.emitter import Emitter
from weft.export.onnx.graph import Shape, Value
from weft.export.onnx.table import DEFINITIONS, MOVES, PARTS_RULES, RULES, Parts
from weft.ir.interpreter import storage_array
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.types import ArrayType
from weft.primitives.random.bits import KeyDtype
from weft.trace.closed import stage_subjaxpr


def part_types(aval: Any) -> list[tuple[np.dtype[Any], Shape]]:
    """Return the dtype and shape of each tensor of an array: two of a complex one, the words of a key."""
    if isinstance(aval.dtype, KeyDtype):
        return [(np.dtype(np.uint32), aval.shape)] * aval.dtype.key_shape[0]
    if dtypes.kind(aval.dtype) == "c":
        return [(dtypes.to_real_dtype(aval.dtype), aval.shape)] * 2
    return [(np.dtype(aval.dtype), aval.shape)]


def constant_parts(g: Emitter, value: Any, aval: ArrayType) -> Parts:
    """Return a constant as tensors."""
    if isinstance(aval.dtype, KeyDtype):
        words = aval.dtype.physical(np.asarray(storage_array(value)))
        return tuple(g.constant(np.array(words[..., i])) for i in range(words.shape[-1]))
    array = np.asarray(storage_array(value))
    if dtypes.kind(aval.dtype) == "c":
        array = array.astype(aval.dtype)
        return g.constant(np.array(array.real)), g.constant(np.array(array.imag))
    return (g.constant(array, aval.dtype) if array.dtype != aval.dtype else g.constant(array),)


def emit_jaxpr(g: Emitter, jaxpr: Jaxpr, arguments: Sequence[Parts]) -> list[Parts]:
    """Emit the equations of a jaxpr for some arguments; return its results."""
    values: dict[Var, Parts] = {}
    for var, constant in zip(jaxpr.constvars, jaxpr.consts, strict=True):
        values[var] = constant_parts(g, constant, var.aval)  # type: ignore[arg-type]
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Atom) -> Parts:
        return constant_parts(g, atom.val, atom.aval) if isinstance(atom, Literal) else values[atom]  # type: ignore[arg-type]

    before = g.equation
    for equation in jaxpr.eqns:
        if equation.source is None and before is not None:
            equation = equation.replace(source=before.source, stack=before.stack)
        g.equation = equation
        values.update(
            zip(equation.outvars, emit_equation(g, equation, [read(a) for a in equation.invars]), strict=True)
        )
    g.equation = before
    return [read(atom) for atom in jaxpr.outvars]


def emit_equation(g: Emitter, equation: Equation, operands: list[Parts]) -> Sequence[Parts]:
    """Emit an equation; raise an error that names its line if nothing says how."""
    name = equation.primitive.name
    whole = PARTS_RULES.get(name)
    if whole is not None:
        found = whole(g, equation, *operands)
        if found is not None:
            return found
    results = apply_rule(g, equation, operands)
    if results is not None:
        return results
    for applies, definition in DEFINITIONS.get(name, ()):
        if applies(equation):
            return emit_definition(g, equation, definition, operands)
    own = equation.primitive.define(equation)
    if own is not None:
        return emit_jaxpr(g, lookup_definition(own, equation), operands)
    if equation.primitive.opens is not None:
        return emit_jaxpr(g, inline(equation.params[equation.primitive.opens]), operands)
    kinds = ", ".join(a.aval.short() for a in equation.invars)
    raise g.refuse(f"there is no rule for operands {kinds}" if kinds else "there is no rule for it")


def apply_rule(g: Emitter, equation: Equation, operands: list[Parts]) -> list[Parts] | None:
    """Apply the rule of a primitive to operands of one tensor each, or to each part if the rule moves elements; return
    None without one."""
    name = equation.primitive.name
    rule = RULES.get(name)
    if rule is None:
        return None
    counts = [len(part_types(v.aval)) for v in equation.outvars]
    count = max([*map(len, operands), *counts], default=1)
    if count == 1:
        found = rule(g, equation, *(parts[0] for parts in operands))
        return None if found is None else [(v,) for v in ([found] if isinstance(found, Value) else found)]
    if name not in MOVES:
        return None
    pieces = []
    for i in range(count):
        found = rule(g, equation, *(parts[i] if len(parts) > 1 else parts[0] for parts in operands))
        if found is None:
            return None
        pieces.append([found] if isinstance(found, Value) else list(found))
    return [parts if n > 1 else parts[:1] for parts, n in zip(zip(*pieces, strict=True), counts, strict=True)]


def emit_definition(g: Emitter, equation: Equation, definition: Any, operands: list[Parts]) -> list[Parts]:
    """Trace a function that defines an equation by other primitives, and emit these."""

    def function(*args: Any) -> Sequence[Any]:
        results = definition(*args, **equation.params)
        return results if isinstance(results, (list, tuple)) else [results]

    body = inline(stage_subjaxpr(function, [a.aval for a in equation.invars], name=equation.primitive.name))
    body = body.replace(eqns=[e.replace(source=None) for e in body.eqns])
    return emit_jaxpr(g, body, operands)
