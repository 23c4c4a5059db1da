"""Jaxprs with a flag, for lanes of a batch that run a branch or an iteration that is not theirs: without the flag
checks find nothing, callbacks are not called, and loops end at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var, subjaxprs
from weft.ir.primitive import NO_EFFECTS, lookup
from weft.ir.types import ArrayType, array_type
from weft.primitives.control.check import CHECK, check, split_operands, without_checks

FLAG = array_type((), np.dtype(np.bool_))
CALLBACKS = ("io_callback", "debug_callback", "pure_callback")


class MaskedCallback:
    """Callback with a flag as first operand: without the flag it is not called, and its results are zeros."""

    def __init__(self, callback: Callable[..., Sequence[Any]], types: Sequence[ArrayType]):
        self.callback, self.types = callback, tuple(types)
        self.__name__ = getattr(callback, "__name__", "the function")

    def __call__(self, flag: Any, *arrays: Any) -> Sequence[Any]:
        if flag:
            return self.callback(*arrays)
        return [np.zeros(t.shape, dtypes.storage(t.dtype)) for t in self.types]


def reads_flag(equation: Equation) -> bool:
    """Return whether an equation has an effect, in lanes that do not count, that a flag can prevent."""
    name = equation.primitive.name
    if name in ("pure_callback", "ffi_call"):  # called for all lanes at once, or for one after the other
        return equation.params["vmap_method"] in ("sequential", "sequential_unrolled")
    if equation.primitive is check or name in CALLBACKS or name == "while":
        return True
    return CHECK in equation.effects or any(can_mask(inner) for inner in subjaxprs(equation.params))


def can_mask(jaxpr: Jaxpr) -> bool:
    """Return whether a flag makes a difference to a jaxpr."""
    return jaxpr.memoize("reads a flag", lambda: (any(reads_flag(e) for e in jaxpr.eqns),))[0]


def mask_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """Return the jaxpr with the flag as an additional first argument."""
    return jaxpr.memoize("mask_jaxpr", lambda: _mask_jaxpr(jaxpr))


def _mask_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    flag = Var(FLAG)
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        if reads_flag(equation):
            _mask(equation, flag, equations)
        else:
            equations.append(equation)
    return jaxpr.replace(invars=(flag, *jaxpr.invars), eqns=equations)


def _both(a: Atom, b: Atom, near: Equation, equations: list[Equation]) -> Var:
    """Append the conjunction of two flags; the second is for all lanes of the first."""
    if a.aval.shape:  # type: ignore[attr-defined]
        wide = Var(a.aval)
        params = {"shape": a.aval.shape, "broadcast_dimensions": ()}  # type: ignore[attr-defined]
        broadcast = lookup("broadcast_in_dim")
        equations.append(Equation([b], [wide], broadcast, params, NO_EFFECTS, near.source, near.stack))
        b = wide
    result = Var(a.aval)
    equations.append(Equation([a, b], [result], lookup("and"), {}, NO_EFFECTS, near.source, near.stack))
    return result


def _mask(equation: Equation, flag: Var, equations: list[Equation]) -> None:
    """Append an equation that has no effect without the flag."""
    params, operands = dict(equation.params), list(equation.invars)
    match equation.primitive.name:
        case "check":
            value, shown, masks = split_operands(operands, params)
            mask = _both(masks[0], flag, equation, equations) if masks else flag
            operands = [value, *shown, mask]
        case "io_callback" | "debug_callback" | "pure_callback":
            params["callback"] = MaskedCallback(params["callback"], params["result_types"])
            operands.insert(0, flag)
        case "ffi_call":
            operands[0:0] = [_both(operands.pop(0), flag, equation, equations) if params["masked"] else flag]
            params["masked"] = True
        case "lanes":
            operands[0] = _both(operands[0], flag, equation, equations)
        case "jit" | "checkpoint":
            params["jaxpr"] = mask_jaxpr(params["jaxpr"])
            params.pop("donated", None)
            operands.insert(0, flag)
        case "scan":
            params["jaxpr"], params["num_consts"] = mask_jaxpr(params["jaxpr"]), params["num_consts"] + 1
            operands.insert(0, flag)
        case "while":
            params["cond_jaxpr"], params["body_jaxpr"] = _ending(params["cond_jaxpr"]), mask_jaxpr(params["body_jaxpr"])
            operands.insert(params["cond_nconsts"], flag)
            operands.insert(0, flag)
            params["cond_nconsts"], params["body_nconsts"] = params["cond_nconsts"] + 1, params["body_nconsts"] + 1
        case "repeat":
            inner = mask_jaxpr(params["jaxpr"])
            mask, step, *rest = inner.invars  # the step comes first
            params["jaxpr"], params["nconsts"] = inner.replace(invars=(step, mask, *rest)), params["nconsts"] + 1
            operands.insert(1, flag)
        case "cond":
            params["branches"] = tuple(mask_jaxpr(b) for b in params["branches"])
            operands.insert(1, flag)
        case _:  # a call with rules of its own, which do not know of a flag
            equations.append(without_checks(equation))
            return
    types = [a.aval for a in operands]
    effects = equation.primitive.effects(types, params)
    equations.append(equation.replace(invars=operands, params=params, effects=effects))


def _ending(condition: Jaxpr) -> Jaxpr:
    """Return the condition of a loop that ends without the flag."""
    inner = mask_jaxpr(condition)
    equations = list(inner.eqns)
    near = Equation([], [], lookup("and"), {}, NO_EFFECTS, None, ())
    result = _both(inner.outvars[0], inner.invars[0], near, equations)
    return inner.replace(outvars=(result,), eqns=equations)
