"""`linear_call`: a linear function with a user-defined transpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.api.custom_rules import mistake, path_in, rule_name
from weft.api.flat import OutTree, check_callable, check_values, flat_function, get_name, structure_differences
from weft.base import tree
from weft.base.tracebacks import boundary
from weft.ir.context import with_aval
from weft.ir.jaxpr import Jaxpr, Var, constants_to_arguments
from weft.ir.types import get_aval
from weft.primitives.control.linear_call import Later, linear_call as linear_call_primitive
from weft.trace.closed import stage_subjaxpr
from weft.trace.stage import stage


@boundary
def linear_call(
    fun: Callable[..., Any], fun_transpose: Callable[..., Any], residual_args: Any, linear_args: Any
) -> Any:
    """Call `fun(residual_args, linear_args)`, which is linear in its second argument and has the transpose
    `fun_transpose(residual_args, cotangent)`.

    >>> import weft
    >>> from weft.custom_derivatives import linear_call
    >>> def scaled(x, r):
    ...     return linear_call(lambda r, x: x / r, lambda r, ct: ct / r, r, x)
    >>> float(weft.grad(scaled)(3.0, 2.0))
    0.5
    """
    for function in (fun, fun_transpose):
        check_callable(function, "linear_call")
    residuals, residual_tree = tree.flatten(residual_args)
    linear, linear_tree = tree.flatten(linear_args)
    for value, leaves, word in ((residual_args, residuals, "residual_args"), (linear_args, linear, "linear_args")):
        check_values(
            value,
            leaves,
            lambda path, word=word: f"linear_call got a value that is not an array at {word}{path}.",  # type: ignore[misc]
            "pass arrays or numbers; close over other objects instead",
        )
    operands = [with_aval(x) for x in (*residuals, *linear)]
    types = [get_aval(x) for x in operands]
    out = OutTree()
    in_tree = tree.structure(((residual_args, linear_args), {}))
    jaxpr, constants = stage(flat_function(fun, in_tree, out), types, where=get_name(fun), name=get_name(fun))
    rule = rule_name("transpose", fun_transpose, fun)
    held = types[: len(residuals)]

    def make() -> Jaxpr:
        def function(*flat: Any) -> list[Any]:
            own = tree.unflatten(residual_tree, flat[: len(residuals)])
            found = fun_transpose(own, tree.unflatten(out.treedef, flat[len(residuals) :]))
            leaves, found_tree = tree.flatten(found)
            if found_tree != linear_tree:
                what = f"{rule} must return cotangents in the structure of linear_args."
                raise mistake(what, structure_differences(linear_tree, found_tree, ()))
            for i, (leaf, aval) in enumerate(zip(leaves, types[len(residuals) :], strict=True)):
                if not aval.cotangent().accepts(get_aval(leaf)):
                    what = f"{rule} must return cotangents of the types of linear_args."
                    raise mistake(what, f"{get_aval(leaf).short()} for {aval.short()} at {path_in(linear_tree, i, '')}")
            return leaves

        incoming = [t.cotangent() for t in jaxpr.out_avals]
        back = stage_subjaxpr(function, [*held, *incoming], name=get_name(fun_transpose))
        # It takes the constants of the function too.
        return back.replace(invars=[*(Var(get_aval(c)) for c in constants), *back.invars])

    results = linear_call_primitive(
        *constants,
        *operands,
        jaxpr=constants_to_arguments(jaxpr),
        transposed=Later(make),
        num_held=len(constants) + len(residuals),
    )
    return tree.unflatten(out.treedef, results)
