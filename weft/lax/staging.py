"""Operations that control how a program is built: composites, code for one platform, sinks and tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.api.flat import check_callable, check_values
from weft.api.jit import jit
from weft.base import tree
from weft.base.errors import ArgumentError
from weft.ir.types import get_aval
from weft.lax.bodies import trace_body
from weft.lax.control_flow import branch
from weft.primitives.control import calls, sinks
from weft.primitives.control.platform import platform_index
from weft.trace.array import Array
from weft.trace.tracer import Tracer


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """Make a function that is a single operation `name` of a jaxpr, with the meaning of `decomposition`.

    Positional arguments of the result are trees of arrays, keyword arguments are attributes that the jaxpr shows. The
    operation is compiled as its decomposition; derivatives and vmap see the decomposition too.

    >>> import weft, weft.lax as lax, weft.numpy as wnp
    >>> tangent = lax.composite(lambda x: wnp.sin(x) / wnp.cos(x), "my.tangent")
    >>> [str(e.primitive) for e in weft.make_jaxpr(tangent)(0.5).eqns]
    ['composite']
    """
    check_callable(decomposition, "lax.composite")

    @functools.wraps(decomposition)
    def call_staged(*args: Any, **attributes: Any) -> Any:
        leaves, in_tree = tree.flatten(args)
        check_values(
            args,
            leaves,
            lambda path: f"The composite {name} got a value that is not an array at argument{path}.",
            "pass it by keyword: those are attributes",
        )
        function = functools.partial(decomposition, **attributes)
        types = [get_aval(leaf) for leaf in leaves]
        jaxpr, constants, out_tree, _ = trace_body(function, in_tree, types, "the decomposition of a composite,")
        shown = tuple(sorted(attributes.items()))
        operands = (*constants, *leaves)
        results = calls.composite(*operands, jaxpr=jaxpr, name=name, version=version, attributes=shown)
        return tree.unflatten(out_tree, results)

    return call_staged


def platform_dependent(
    *args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]
) -> Any:
    """Run `per_platform[p](*args)` on the platform p of the program, or `default(*args)`.

    Platforms have the names of `Device.platform`, "cpu" or "cuda"; "gpu" matches every kind of GPU. All functions are
    traced, and must return the same types; the choice is made when the program is compiled.

    >>> import weft.lax as lax, weft.numpy as wnp
    >>> float(lax.platform_dependent(4.0, cpu=wnp.sqrt, default=wnp.square))
    2.0
    """
    functions = dict(per_platform)
    for word, function in functions.items():
        check_callable(function, f"lax.platform_dependent, for {word},")
    platforms: list[tuple[str, ...] | None] = [(name,) for name in functions]
    choices = list(functions.values())
    if default is not None:
        check_callable(default, "lax.platform_dependent, for other platforms,")
        platforms.append(None)
        choices.append(default)
    if not choices:
        raise ArgumentError(
            "lax.platform_dependent needs a function.", fix="lax.platform_dependent(x, cpu=f, default=g)"
        )
    words = [f"the function for {word}" for word in functions] + ["default"]

    @functools.partial(jit, inline=True)
    def platform_function(*args: Any) -> Any:
        index = platform_index(platforms=tuple(platforms))
        return branch(index, choices, args, "lax.platform_dependent", words)

    return platform_function(*args)


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Use the arrays in `val`, so that a jaxpr retains the equations that compute them.

    Compiled code does not compute them for that, unless `prevent_mlir_dce`.
    """
    sinks.dce_sink(*tree.leaves(val), prevent_mlir_dce=bool(prevent_mlir_dce))


def create_token(_: Any = None) -> Array:
    """Create a token: a value without elements and without predecessors. The argument is ignored."""
    return sinks.create_token()


def after_all(*operands: Any) -> Array:
    """Create a token that depends on all the given tokens."""
    return sinks.after_all(*operands)


def stage(x: Any, /) -> Any:
    """Turn an array or a number into a value of the function being traced; outside of all traces, into an array."""
    return x if isinstance(x, Tracer) else sinks.stage(x)
