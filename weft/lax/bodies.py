"""Trace the bodies of loops and branches to jaxprs.

Outside of all traces a function is traced once for its types, as by `jit`: a second call with the same function object
finds the jaxpr, and with it the compiled code. As with `jit`, Python values that a body reads from around it are read
when it is traced, and not again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from weft.api.flat import check_results, get_name
from weft.base import tree
from weft.base.arguments import called
from weft.base.memo import FunctionMemo
from weft.base.settings import config
from weft.base.source import user_line
from weft.ir.context import EVALUATION, context
from weft.ir.jaxpr import Jaxpr, constants_to_arguments
from weft.ir.types import is_value
from weft.trace.refs import Touched
from weft.trace.stage import stage
from weft.trace.tracer import Tracer

# A jaxpr with its constants as leading arguments, the constants, the structure of its result, and the mutable arrays
# from outside that it touches: their values are its last arguments, and their written values its last results.
Staged = tuple[Jaxpr, list[Any], Any, list[Touched]]

# Jaxprs that were traced outside of all traces, by function; then by the structure and types of arguments.
_staged: FunctionMemo[Any, Staged] = FunctionMemo(1024, 32)
_adapted: FunctionMemo[Any, Any] = FunctionMemo(1024, 32)

# The expected signature of a user's function, by the words that error messages use for the function.
_CALLS = {
    "a branch of lax.cond,": "lax.cond(pred, true_fun, false_fun, *operands): both take the operands",
    "a branch of lax.switch,": "lax.switch(index, branches, *operands): all take the operands",
    "the body of lax.while_loop,": "lambda carry: new_carry; more values make a tuple",
    "the condition of lax.while_loop,": "lambda carry: carry < limit; more values make a tuple",
    "the body of lax.scan,": "lambda carry, x: (new_carry, y); more values make a tuple",
    "the body of lax.map,": "lambda x: y; more values make a tuple",
}


def trace_body(
    function: Callable[..., Any],
    in_tree: Any,
    avals: Sequence[Any],
    what: str,
    repeats: bool = False,
    takes_refs: bool = False,
) -> Staged:
    """Trace a function to a jaxpr; mutable arrays from outside may be touched only if the caller `takes_refs`."""
    outside = context.trace is EVALUATION and not context.axes and not context.stack and not config.check_tracer_leaks
    table = _staged.of(function) if outside else None
    key = (in_tree, tuple(avals), config.key(), repeats, takes_refs)
    found = None if table is None else table.get(key)
    if found is None:
        found = _trace(function, in_tree, avals, what, repeats, takes_refs)
        if table is not None and not any(isinstance(c, Tracer) for c in found[1]):
            found = table.keep(key, found)
    return found


def _trace(
    function: Callable[..., Any], in_tree: Any, avals: Sequence[Any], what: str, repeats: bool, takes_refs: bool
) -> Staged:
    name = get_name(function)
    out_trees: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        result = called(function, tree.unflatten(in_tree, leaves), f"{what} {name},", _CALLS.get(what, ""))
        results, out_tree = tree.flatten(result)
        check_results(function, result, results, what)
        out_trees.append(out_tree)
        return results

    touched: list[tuple[Any, bool]] = []
    where = f"{what} {name}, at {user_line()}"
    jaxpr, constants = stage(flat, avals, where=where, name=name, repeats=repeats, refs=touched if takes_refs else None)
    return constants_to_arguments(jaxpr), constants, out_trees[0], [Touched(*t) for t in touched]


def adapt_function(function: Callable[..., Any], key: Any, adapt: Callable[[Callable[..., Any]], Any]) -> Any:
    """Return `adapt(function)`, a wrapper that calls `function` in the form that a loop needs.

    The same function and key give the same object. It holds `function` weakly, so it must not outlive the call that it
    is made for.
    """
    table = _adapted.of(function)
    if table is None:
        return adapt(function)
    found = table.get(key)
    if found is None:
        reference = weakref.ref(function)

        def call_referent(*args: Any) -> Any:
            return reference()(*args)  # type: ignore[misc]

        call_referent.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)  # for messages
        found = table.keep(key, adapt(call_referent))
    return found


def lift_arrays(value: Any) -> Any:
    """Lift the leaves of a tree to arrays of Weft, as the operands of a body that runs without tracing.

    No other reference can write to them, and their types are the ones that a traced body sees.
    """
    return tree.map(lambda leaf: leaf if hasattr(leaf, "aval") or not is_value(leaf) else EVALUATION.lift(leaf), value)
