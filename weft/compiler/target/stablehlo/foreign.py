"""Rules of calls of functions in C, and of operations that only tell of a program."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from weft.compiler.target.stablehlo.emitter import Emitter, Parts, Site, flatten, part_rule
from weft.compiler.target.stablehlo.types import boolean, dense
from weft.compiler.target.stablehlo.writer import Value
from weft.ir.jaxpr import Equation


@part_rule("inspect_sharding")
def inspect_sharding(e: Emitter, site: Site, equation: Equation, *operands: Parts) -> list[Parts]:
    """Write nothing: shardings are known, and shown, when a program is partitioned."""
    return []


@part_rule("ffi_call")
def ffi_call(e: Emitter, site: Site, equation: Equation, *operands: Parts) -> list[Parts]:
    """Write a custom call with the fourth version of its interface, whose attributes have types."""
    values = flatten(operands)
    if not equation.params["masked"]:
        return [(v,) for v in _call(e, site, equation, values)]
    # Without the flag, the function is not called.
    flag, *rest = values
    regions = [
        e.region((), lambda _: _call(e, site, equation, rest)),
        e.region((), lambda _: [e.full(0, *result) for result in site.results]),
    ]
    return [(v,) for v in e.write("stablehlo.if", [flag], site.results, "", regions)]


def _call(e: Emitter, site: Site, equation: Equation, operands: list[Value]) -> list[Value]:
    p = equation.params
    ranks = [len(x.shape) for x in operands], [len(shape) for shape, _ in site.results]
    layouts = [
        [_layout(order, rank) for order, rank in zip(orders, each, strict=True)]
        for orders, each in zip(p["layouts"], ranks, strict=True)
    ]
    several = len(site.results) > 1
    aliases = [
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{result if several else ''}], "
        f"operand_index = {operand}, operand_tuple_indices = []>"
        for operand, result in p["aliases"]
    ]
    config = ", ".join(f"{name} = {_attribute(value)}" for name, value in p["attributes"])
    attributes = (
        f"call_target_name = {json.dumps(p['target'])}, api_version = 4 : i32, "
        f"has_side_effect = {boolean(p['has_side_effect'])}, backend_config = {{{config}}}, "
        f"operand_layouts = [{', '.join(layouts[0])}], result_layouts = [{', '.join(layouts[1])}], "
        f"output_operand_aliases = [{', '.join(aliases)}]"
    )
    return e.write("stablehlo.custom_call", operands, site.results, attributes)


def _layout(order: Any, rank: int) -> str:
    """Return a layout: dimensions from the one that is contiguous in memory to the slowest."""
    minor = [*reversed(range(rank) if order is None else order)]
    return f"dense<[{', '.join(map(str, minor))}]> : tensor<{rank}xindex>" if rank else "dense<> : tensor<0xindex>"


def _attribute(value: Any) -> str:
    """Return an attribute of a call: an array is its dtype, shape and bytes."""
    if isinstance(value, bool):
        return boolean(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return dense(np.array(value, np.float64)).replace("dense<", "", 1).replace("> : tensor<f64>", " : f64")
    name, shape, content = value
    array = np.frombuffer(content, name).reshape(shape)
    kinds = {"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float32": "f32", "float64": "f64"}
    if array.ndim == 1 and name in kinds:
        numbers = ", ".join(repr(v) for v in array.tolist())
        return f"array<{kinds[name]}{': ' if numbers else ''}{numbers}>"
    return dense(array)
