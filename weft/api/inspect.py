"""Looking at functions without running them: `make_jaxpr`, `eval_shape`, `typeof`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from weft.api.call import Call
from weft.api.flat import OutTree, as_tuple, check_callable, check_leaves, flat_function, get_name, wraps
from weft.api.jit_function import JitFunction
from weft.api.options import JitOptions
from weft.api.ref_arguments import with_ref_arguments
from weft.api.stages import struct, with_structs
from weft.api.staging import fix_static
from weft.base import tree
from weft.base.errors import ArgumentError
from weft.base.tracebacks import boundary
from weft.ir.context import bind_axis
from weft.ir.types import RefType, Type, get_aval
from weft.trace.refs import Ref
from weft.trace.stage import stage


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: Any = None,
) -> Callable[..., Any]:
    """Stage `fun` for its arguments (or `ShapeDtypeStruct`s) and return the jaxpr instead of running it.

    Mutable arrays are values in it: those that are closed over are arguments after all others, and what is written is
    returned after the results.

    Args:
        fun: a function of arrays.
        static_argnums: positions of arguments that are passed as they are.
        axis_env: pairs of names and sizes of axes that collectives inside may refer to.
        return_shape: whether to return the shapes of the results too.
        abstracted_axes: sizes that are symbols in the jaxpr, as for `jit(dynamic=...)`.

    Returns:
        A function of the arguments of `fun` that returns a `ClosedJaxpr`; with `return_shape` a pair.

    >>> import weft
    >>> print(weft.make_jaxpr(lambda x: 2.0 * x + 1.0)(3.0))
    { lambda ; a:f32[]. let
        b:f32[] = mul 2.0:f32[] a
        c:f32[] = add b 1.0:f32[]
      in (c,) }
    """
    check_callable(fun, "make_jaxpr")
    if abstracted_axes is not None:
        what = "make_jaxpr has no abstracted_axes."
        fix = "pass ShapeDtypeStructs whose shapes have symbolic dimensions"
        raise ArgumentError(what, received=f"abstracted_axes={abstracted_axes!r}", fix=fix)
    wrapper = JitFunction(fun, JitOptions(static_argnums=as_tuple(static_argnums)))

    @boundary
    @wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        dynamic, rest, static = wrapper._split(args, kwargs)
        dynamic, rest = with_structs((dynamic, rest))
        call = Call(fun, dynamic, rest, static)
        check_leaves(fun, "make_jaxpr", call.leaves, call.args, call.kwargs, call.names())
        out = OutTree()
        flat = flat_function(fix_static(fun, call), call.in_tree, out)
        of_values, types, _, _ = with_ref_arguments(flat, [get_aval(leaf) for leaf in call.leaves])
        with ExitStack() as scopes:
            for name, size in axis_env or ():
                scopes.enter_context(bind_axis(name, size))
            jaxpr, _ = stage(of_values, types, where=get_name(fun), names=call.paths(), name=get_name(fun), refs=[])
        if return_shape:
            # Values of mutable arrays that were written follow the results.
            shapes = [struct(v.aval) for v in jaxpr.outvars[: out.treedef.num_leaves]]
            return jaxpr, tree.unflatten(out.treedef, shapes)
        return jaxpr

    return function


@boundary
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the shapes and dtypes of `fun(*args, **kwargs)` without computing it.

    Args:
        fun: a function of arrays.
        *args, **kwargs: its arguments; `ShapeDtypeStruct`s will do.

    Returns:
        The result of `fun` with a `ShapeDtypeStruct` for each array.

    >>> import weft
    >>> weft.eval_shape(lambda x: x @ x.T, weft.ShapeDtypeStruct((2, 3), "float32"))
    ShapeDtypeStruct(shape=(2, 2), dtype=float32)
    """
    return make_jaxpr(fun, return_shape=True)(*args, **kwargs)[1]


def typeof(x: Any) -> Type:
    """Return the type of an array, a tracer, a number or a mutable array.

    Args:
        x: an array, a tracer, a number or a mutable array.

    Returns:
        A type with `shape`, `dtype`, `weak_type` and, on meshes with Explicit axes, the sharding.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.typeof(wnp.ones((2, 3)))
    ShapedArray(float32[2,3])
    >>> print(weft.typeof(wnp.ones((2, 3))))
    float32[2,3]
    """
    return RefType(x.inner_aval) if isinstance(x, Ref) else get_aval(x)
