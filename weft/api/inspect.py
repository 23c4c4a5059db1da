"""Looking at functions without running them: `make_jaxpr`, `eval_shape`, `typeof`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from weft.api.flat import OutTree, argument_paths, check_callable, check_leaves, flat_function, name_of, wraps
from weft.api.jit import JitFunction, as_tuple
from weft.api.ref_arguments import with_ref_arguments
from weft.api.stages import struct, with_structs
from weft.base import tree
from weft.base.errors import ArgumentError
from weft.base.tracebacks import boundary
from weft.ir.context import named_axis
from weft.ir.types import RefType, Type, type_of
from weft.trace.refs import Ref
from weft.trace.stage import stage


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: Any = None,
) -> Callable[..., Any]:
    """A function that returns the jaxpr of `fun` for its arguments (or `ShapeDtypeStruct`s) instead of running it.

    Mutable arrays are values in it: those that are closed over are arguments after all others, and what is written is
    returned after the results.
    """
    check_callable(fun, "make_jaxpr")
    if abstracted_axes is not None:
        what = "make_jaxpr has no abstracted_axes."
        fix = "pass ShapeDtypeStructs whose shapes have symbolic dimensions"
        raise ArgumentError(what, received=f"abstracted_axes={abstracted_axes!r}", fix=fix)
    wrapper = JitFunction(fun, as_tuple(static_argnums), (), (), (), False)

    @boundary
    @wraps(fun)
    def staged(*args: Any, **kwargs: Any) -> Any:
        dynamic, rest, static = wrapper._split(args, kwargs)
        dynamic, rest = with_structs((dynamic, rest))
        leaves, in_tree = tree.flatten((dynamic, rest))
        check_leaves(fun, "make_jaxpr", leaves, dynamic, rest)
        out = OutTree()
        flat = flat_function(wrapper._with_static(static), in_tree, out)
        function, types, _, _ = with_ref_arguments(flat, [type_of(leaf) for leaf in leaves])
        with ExitStack() as scopes:
            for name, size in axis_env or ():
                scopes.enter_context(named_axis(name, size))
            names = argument_paths(fun, dynamic, rest)
            jaxpr, _ = stage(function, types, where=name_of(fun), names=names, name=name_of(fun), refs=[])
        if return_shape:
            # After the results comes what is written to mutable arrays.
            shapes = [struct(v.aval) for v in jaxpr.outvars[: out.treedef.num_leaves]]
            return jaxpr, tree.unflatten(out.treedef, shapes)
        return jaxpr

    return staged


@boundary
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Shapes and dtypes of `fun(*args, **kwargs)`, without computing it."""
    return make_jaxpr(fun, return_shape=True)(*args, **kwargs)[1]


def typeof(x: Any) -> Type:
    """The type of an array, a tracer or a number, or of a mutable array."""
    return RefType(x.inner_aval) if isinstance(x, Ref) else type_of(x)
