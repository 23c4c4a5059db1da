"""Differentiation: jvp, vjp, linearize, grad and the Jacobians, on functions of trees."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.api.flat import OutTree, check_callable, check_leaves, flat_function, name_of, parameter_names
from weft.base import dtypes, tree
from weft.base.errors import IntegerInputGradientError, NonScalarGradientError, TangentMismatchError, TreeMismatchError
from weft.base.source import user_line
from weft.ir.interpreter import replay
from weft.ir.primitive import instantiate
from weft.ir.types import type_of
from weft.ir.zeros import Zero
from weft.ops.convert import convert_element_type
from weft.trace.stage import stage
from weft.transforms.jvp import jvp_flat
from weft.transforms.linearize import linearize_flat
from weft.transforms.transpose import backward_instantiated


def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """Results of `fun(*primals)` and their tangents along `tangents`; with `has_aux`, also the second part of the result."""
    check_callable(fun, "jvp")
    for given, word in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(given, (tuple, list)):
            raise TypeError(f"jvp takes {word} as a tuple or list with one entry per argument, got {type(given).__name__}.")
    flat_primals, in_tree = tree.flatten((tuple(primals), {}))
    flat_tangents, tangent_tree = tree.flatten((tuple(tangents), {}))
    if in_tree != tangent_tree:
        raise TreeMismatchError(
            f"jvp of {name_of(fun)}: primals and tangents must have one structure.",
            received="; ".join(map(str, tree.equality_errors(tuple(primals), tuple(tangents))[:3])),
            at=user_line(),
        )
    check_leaves(fun, "jvp", flat_primals, primals, {})
    tangents_in = [check_tangent(fun, p, t) for p, t in zip(flat_primals, flat_tangents, strict=True)]
    out = OutTree()
    function = flat_with_aux(fun, in_tree, out, has_aux)
    results, out_tangents = jvp_flat(function, flat_primals, tangents_in, f"jvp({name_of(fun)})")
    value = tree.unflatten(out.treedef, results)
    pushed = tree.unflatten(out.treedef, [instantiate(t) for t in out_tangents])
    return (value, pushed, strip(out.auxiliary)) if has_aux else (value, pushed)


def check_tangent(fun: Callable[..., Any], primal: Any, tangent: Any) -> Any:
    """A tangent must have its primal's shape and tangent dtype."""
    expected, given = type_of(primal).tangent(), type_of(tangent)
    if expected.dtype == dtypes.float0:  # type: ignore[attr-defined]
        if given.dtype != dtypes.float0:  # type: ignore[attr-defined]
            raise TangentMismatchError(
                f"jvp of {name_of(fun)}: the tangent of a primal of type {type_of(primal).short()} must have dtype float0.",
                received=given.short(),
                fix="np.zeros(shape, weft.dtypes.float0), or convert the primal to a float",
                at=user_line(),
            )
        return Zero(expected)
    if not expected.matches(given):
        if given.shape == expected.shape and given.weak_type:  # type: ignore[attr-defined]
            return dtypes.coerce_value(tangent, expected.dtype) if isinstance(tangent, (int, float, complex)) else convert(tangent, expected)
        raise TangentMismatchError(
            f"jvp of {name_of(fun)}: a tangent must have the shape and dtype of its primal.",
            received=f"primal {type_of(primal).short()} with tangent {given.short()}",
            fix=f"give a tangent of type {expected.short()}",
            at=user_line(),
        )
    return tangent


def convert(value: Any, aval: Any) -> Any:
    return convert_element_type(value, new_dtype=aval.dtype, weak_type=aval.weak_type)


def flat_with_aux(fun: Callable[..., Any], in_tree: tree.PyTreeDef, out: OutTree, has_aux: bool) -> Callable[..., list[Any]]:
    """The flat function of `fun`; with `has_aux`, of the first part of its result, the second left in `out.auxiliary`."""
    if not has_aux:
        return flat_function(fun, in_tree, out)

    def first(*args: Any, **kwargs: Any) -> Any:
        result = fun(*args, **kwargs)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise TypeError(
                f"With has_aux=True, {name_of(fun)} must return a pair (value, auxiliary), got {type(result).__name__}"
                + (f" of length {len(result)}." if isinstance(result, (tuple, list)) else ".")
            )
        out.auxiliary = result[1]
        return result[0]

    return flat_function(functools.wraps(fun)(first), in_tree, out)


def strip(auxiliary: Any) -> Any:
    """Auxiliary results without the tracers of the differentiation that made them."""
    return tree.map(lambda x: getattr(x, "primal", x), auxiliary)


class Linearized:
    """What `linearize` and `vjp` share: results, the linear program, and which results depend on it."""

    def __init__(self, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], has_aux: bool, transformation: str):
        check_callable(fun, transformation)
        leaves, self.in_tree = tree.flatten((tuple(args), kwargs))
        check_leaves(fun, transformation, leaves, args, kwargs)
        self.fun = fun
        self.types = [type_of(leaf) for leaf in leaves]
        self.inexact = [t.tangent().dtype != dtypes.float0 for t in self.types]  # type: ignore[attr-defined]
        out = OutTree()
        function = flat_with_aux(fun, self.in_tree, out, has_aux)
        self.results, self.program, self.live = linearize_flat(function, leaves, self.inexact, f"jvp({name_of(fun)})")
        self.out_tree = out.treedef
        self.out_types = [type_of(r) for r in self.results]
        self.auxiliary = strip(out.auxiliary) if has_aux else None

    def value(self) -> Any:
        return tree.unflatten(self.out_tree, self.results)

    def push(self, *tangents: Any) -> Any:
        """Tangents of the results along tangents of the arguments."""
        leaves, in_tree = tree.flatten((tangents, {}))
        if in_tree != self.in_tree:
            raise TreeMismatchError(
                f"The linearized {name_of(self.fun)} takes tangents in the structure of its arguments.",
                received="; ".join(map(str, tree.equality_errors_of_structures(self.in_tree, in_tree)[:3])),
                at=user_line(),
            )
        given = [check_tangent_type(self.fun, t, x) for t, x, n in zip(self.types, leaves, self.inexact, strict=True) if n]
        made = iter(replay(self.program, *given))
        outs = [next(made) if n else instantiate(Zero.of(t)) for n, t in zip(self.live, self.out_types, strict=True)]
        return tree.unflatten(self.out_tree, outs)

    def pull(self, cotangent: Any) -> list[Any]:
        """Cotangents of the argument leaves, from a cotangent of the result."""
        leaves, out_tree = tree.flatten(cotangent)
        if out_tree != self.out_tree:
            raise TreeMismatchError(
                f"The pullback of {name_of(self.fun)} takes a cotangent in the structure of its result.",
                received="; ".join(map(str, tree.equality_errors_of_structures(self.out_tree, out_tree)[:3])),
                at=user_line(),
            )
        given = []
        for ct, aval, live in zip(leaves, self.out_types, self.live, strict=True):
            checked = check_cotangent(self.fun, aval, ct)
            if live:
                given.append(checked)
        found = iter(backward_instantiated(self.program, self.program.consts, given))
        return [next(found) if n else instantiate(Zero.of(t)) for n, t in zip(self.inexact, self.types, strict=True)]


def check_tangent_type(fun: Callable[..., Any], aval: Any, tangent: Any) -> Any:
    if not aval.tangent().matches(type_of(tangent)):
        if type_of(tangent).weak_type and not type_of(tangent).shape and not aval.shape:  # type: ignore[attr-defined]
            return convert(tangent, aval.tangent())
        raise TangentMismatchError(
            f"The linearized {name_of(fun)} got a tangent that does not fit its argument.",
            received=f"{type_of(tangent).short()} for {aval.tangent().short()}",
            at=user_line(),
        )
    return tangent


def check_cotangent(fun: Callable[..., Any], aval: Any, cotangent: Any) -> Any:
    if type(cotangent) is Zero:
        return cotangent
    expected, given = aval.tangent(), type_of(cotangent)
    if expected.dtype == dtypes.float0:
        return Zero(expected)
    if not expected.matches(given):
        if given.shape == expected.shape and given.weak_type:  # type: ignore[attr-defined]
            return convert(cotangent, expected)
        raise TangentMismatchError(
            f"The pullback of {name_of(fun)} got a cotangent that does not fit the result.",
            received=f"{given.short()} for a result of type {aval.short()}",
            fix=f"give a cotangent of type {expected.short()}",
            at=user_line(),
        )
    return cotangent


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`fun(*primals)` and a function of tangents that is its derivative there; `fun` runs once."""
    linear = Linearized(fun, primals, {}, has_aux, "linearize")
    return (linear.value(), linear.push, linear.auxiliary) if has_aux else (linear.value(), linear.push)


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: Sequence[Any] = ()) -> Any:
    """`fun(*primals)` and its pullback, from a cotangent of the result to cotangents of the arguments."""
    linear = Linearized(fun, primals, {}, has_aux, "vjp")

    def pullback(cotangent: Any) -> Any:
        return tree.unflatten(linear.in_tree, linear.pull(cotangent))[0]

    pull = tree.Partial(pullback)
    return (linear.value(), pull, linear.auxiliary) if has_aux else (linear.value(), pull)


def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Sequence[Any] = ()) -> Callable[[Any], Any]:
    """The transpose of a function that is linear: from cotangents of its result to cotangents of its arguments.

    `primals` give shapes and dtypes only.
    """
    check_callable(fun, "linear_transpose")
    leaves, in_tree = tree.flatten((primals, {}))
    types = [type_of(leaf) for leaf in leaves]
    out = OutTree()
    program, _ = stage(flat_function(fun, in_tree, out), types, where=f"linear_transpose of {name_of(fun)}")

    def transposed(cotangent: Any) -> Any:
        flat, out_tree = tree.flatten(cotangent)
        if out_tree != out.treedef:
            raise TreeMismatchError(
                f"The transpose of {name_of(fun)} takes a cotangent in the structure of its result.",
                received=f"{out_tree} for {out.treedef}",
                at=user_line(),
            )
        given = [check_cotangent(fun, v.aval, ct) for v, ct in zip(program.outvars, flat, strict=True)]
        return tree.unflatten(in_tree, backward_instantiated(program, program.consts, given))[0]

    return transposed


# -- gradients --------------------------------------------------------------------------------------------------------


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[..., Any]:
    """A function that returns the value of `fun` and its gradient with respect to the arguments `argnums`."""
    check_callable(fun, "value_and_grad")
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = hold_others(fun, numbers, args, kwargs, "grad")
        for leaf_path, leaf in chosen_leaves(fun, numbers, args):
            check_gradient_input(fun, leaf_path, leaf, holomorphic, allow_int)
        linear = Linearized(partial, chosen, {}, has_aux, "grad")
        value = linear.value()
        check_scalar(fun, value, linear.results, holomorphic)
        seed = np.ones((), linear.out_types[0].dtype)  # type: ignore[attr-defined]
        gradients = tree.unflatten(linear.in_tree, linear.pull(tree.unflatten(linear.out_tree, [seed])))[0]
        result = gradients[0] if isinstance(argnums, int) else gradients
        return ((value, linear.auxiliary), result) if has_aux else (value, result)

    return wrapped


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[..., Any]:
    """A function that returns the gradient of the scalar function `fun` with respect to the arguments `argnums`."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def hold_others(fun: Callable[..., Any], numbers: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any], transformation: str) -> tuple[Any, tuple[Any, ...]]:
    """`fun` as a function of the arguments `numbers` alone, and those arguments."""
    for n in numbers:
        if not isinstance(n, (int, np.integer)) or not -len(args) <= n < len(args):
            raise ValueError(
                f"{transformation} of {name_of(fun)}: argnums {n} needs at least {n + 1 if n >= 0 else -n} positional arguments, "
                f"got {len(args)}. Arguments to differentiate are passed by position."
            )
    places = [n % len(args) for n in numbers]

    @functools.wraps(fun)
    def partial(*chosen: Any) -> Any:
        full = list(args)
        for place, value in zip(places, chosen, strict=True):
            full[place] = value
        return fun(*full, **kwargs)

    return partial, tuple(args[p] for p in places)


def chosen_leaves(fun: Callable[..., Any], numbers: Sequence[int], args: Sequence[Any]) -> list[tuple[str, Any]]:
    names = parameter_names(fun, len(args))
    return [
        ((names[n % len(args)] if names else f"argument {n}") + tree.keystr(path), leaf)
        for n in numbers
        for path, leaf in tree.leaves_with_path(args[n])
    ]


def check_gradient_input(fun: Callable[..., Any], path: str, leaf: Any, holomorphic: bool, allow_int: bool) -> None:
    aval = type_of(leaf)
    kind = dtypes.kind(aval.dtype)  # type: ignore[attr-defined]
    if holomorphic:
        if kind != "c":
            raise TypeError(f"grad of {name_of(fun)} with holomorphic=True needs complex arguments, got {aval.short()} at {path}.")
    elif kind not in "fc" and not allow_int:
        raise IntegerInputGradientError(
            f"grad of {name_of(fun)} needs floating-point arguments; {path} is not.",
            received=aval.short(),
            fix=f"pass {path}.astype(float), or choose other argnums; allow_int=True gives float0 gradients",
            at=user_line(),
        )


def check_scalar(fun: Callable[..., Any], value: Any, results: Sequence[Any], holomorphic: bool) -> None:
    if len(results) != 1 or not tree.treedef_is_leaf(tree.structure(value)):
        raise NonScalarGradientError(
            f"grad needs {name_of(fun)} to return one scalar.",
            received=f"a {type(value).__name__} with {len(results)} arrays",
            fix="return the scalar alone, or (scalar, auxiliary) with has_aux=True",
            at=user_line(),
        )
    aval = type_of(results[0])
    if aval.shape:  # type: ignore[attr-defined]
        raise NonScalarGradientError(
            f"grad needs {name_of(fun)} to return a scalar.",
            received=aval.short(),
            fix="reduce the result, for example with .sum() or .mean(); for all derivatives use jacrev or jacfwd",
            at=user_line(),
        )
    kind = dtypes.kind(aval.dtype)  # type: ignore[attr-defined]
    if kind != ("c" if holomorphic else "f"):
        need = "complex with holomorphic=True" if holomorphic else "a real floating-point number"
        hint = " (for a holomorphic function pass holomorphic=True)" if kind == "c" else ""
        raise NonScalarGradientError(f"grad needs {name_of(fun)} to return {need}{hint}.", received=aval.short(), at=user_line())

