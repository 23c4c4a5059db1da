"""Differentiation: jvp, vjp, linearize, linear_transpose and grad, on functions of trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from weft.api.flat import (
    OutTree,
    argument_paths,
    check_callable,
    check_leaves,
    flat_function,
    get_name,
    not_a_jax_type,
    parameter_names,
    structure_differences,
    wraps,
)
from weft.api.stages import with_structs
from weft.base import dtypes, tree
from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    IntegerInputGradientError,
    InvalidInputTypeError,
    NonScalarGradientError,
    TangentMismatchError,
)
from weft.base.source import user_line, user_location
from weft.base.tracebacks import boundary
from weft.ir.context import context, with_aval
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, constants_to_arguments
from weft.ir.tangents import instantiate
from weft.ir.types import ArrayType, Type, get_aval, is_value
from weft.ir.zeros import Zero
from weft.primitives.elementwise.convert import convert_element_type
from weft.runtime.array import wrap
from weft.trace.stage import stage
from weft.trace.tracer import Tracer
from weft.transforms.jvp import JVPTrace, jvp_flat
from weft.transforms.linearize import linearize_flat
from weft.transforms.transpose import backward_to_arrays


@boundary
def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """Return the results of `fun(*primals)` and their tangents along `tangents`; with `has_aux`, also the second part
    of the result.

    Args:
        fun: a function of arrays.
        primals: its arguments, a tuple or list.
        tangents: as many directions, with the shapes and dtypes of the arguments.
        has_aux: whether `fun` returns a pair (value, auxiliary); auxiliary is returned and not differentiated.

    Returns:
        A pair of results and their tangents; with `has_aux` a third part.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.jvp(wnp.sin, (0.0,), (2.0,))
    (Array(0., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    check_callable(fun, "jvp")
    for values, word in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(values, (tuple, list)):
            what = f"jvp takes {word} as a tuple or list with one entry per argument."
            found = f"{type(primals).__name__} and {type(tangents).__name__}"
            jax = f"primal and tangent arguments to jax.jvp must be tuples or lists; found {found}."
            raise ArgumentTypeError(what, received=type(values).__name__, fix=f"({word},)", jax=jax)
    flat_primals, in_tree = tree.flatten((tuple(primals), {}))
    flat_tangents, tangent_tree = tree.flatten((tuple(tangents), {}))
    check_leaves(fun, "jvp", flat_primals, primals, {})
    if in_tree != tangent_tree or isinstance(primals, tuple) != isinstance(tangents, tuple):
        raise TangentMismatchError(
            f"jvp of {get_name(fun)}: the tangents must have the structure of the primals.",
            received=structure_differences(
                tree.structure(tuple(primals)), tree.structure(tuple(tangents)), argument_names(fun, primals)
            ),
            at=user_line(),
            jax="primal and tangent arguments to jax.jvp must have the same tree structure but primals have tree "
            f"structure {tree.structure(primals)} whereas tangents have tree structure {tree.structure(tangents)}.",
        )
    check_leaves(fun, "jvp", flat_tangents, tangents, {})
    what = f"jvp of {get_name(fun)}: a tangent must have the shape and dtype of its primal"
    types = [get_aval(p) for p in flat_primals]
    tangents_in = all_fitting(types, flat_tangents, what, lambda: argument_paths(fun, primals, {}), _jax_text_of_jvp)
    out = OutTree()
    function = flat_with_aux(fun, in_tree, out, has_aux)
    results, out_tangents = jvp_flat(function, flat_primals, tangents_in, f"jvp({get_name(fun)})", user_location())
    value = tree.unflatten(out.treedef, results)
    pushed = [convert_type(instantiate(t), get_aval(r).tangent()) for r, t in zip(results, out_tangents, strict=True)]
    return (
        (value, tree.unflatten(out.treedef, pushed), out.auxiliary)
        if has_aux
        else (value, tree.unflatten(out.treedef, pushed))
    )


def argument_names(fun: Callable[..., Any], args: Sequence[Any]) -> list[str]:
    return parameter_names(fun, len(args)) or [f"argument {i}" for i in range(len(args))]


def all_fitting(
    types: Sequence[Type],
    tangents: Sequence[Any],
    what: str,
    paths: Callable[[], Sequence[str]],
    jax: Callable[[Any, Any], str],
) -> list[Any]:
    """Tangents of values of the given types, each checked; `paths` names the values, should one be wrong."""
    pairs = enumerate(zip(types, tangents, strict=True))
    return [fitting(t, x, what, lambda i=i: paths()[i], jax) for i, (t, x) in pairs]  # type: ignore[misc]


def _jax_text_of_jvp(primal: Any, tangent: Any) -> str:
    """Return the sentence of JAX for a tangent that does not fit its primal."""
    if primal.shape != tangent.shape:
        return (
            "jvp called with different primal and tangent shapes;"
            f"Got primal shape {primal.shape} and tangent shape as {tangent.shape}"
        )
    return (
        "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in case of int/bool primal "
        f"dtype the tangent dtype must be float0. Got primal dtype {primal.dtype} and so expected tangent dtype "
        f"{primal.tangent().dtype}, but got tangent dtype {tangent.dtype} instead."
    )


def _jax_text_of_linearize(primal: Any, tangent: Any) -> str:
    """Return the sentence of JAX for a tangent that does not fit a linearized function."""
    return (
        "linearized function called on tangent values inconsistent with the original primal values: got tangent aval "
        f"{tangent} for primal aval {primal} but expected {primal.tangent()}"
    )


def _jax_text_of_vjp(result: Any, cotangent: Any) -> str:
    """Return the sentence of JAX for a cotangent that does not fit its result."""
    return (
        f"unexpected JAX type (e.g. shape/dtype) for argument to vjp function: got {cotangent.str_short()}, but "
        f"expected {result.cotangent().str_short()} because the corresponding output had type {result.str_short()}"
    )


def fitting(primal: Type, tangent: Any, what: str, path: Callable[[], str], jax: Callable[[Any, Any], str]) -> Any:
    """Return a tangent (or cotangent) of a value of type `primal`; raise unless it has the right shape and dtype. A
    Python number becomes an array of the dtype."""
    if type(tangent) is Zero:
        return tangent
    expected, aval = primal.tangent(), get_aval(tangent)
    if not isinstance(expected, ArrayType) or not isinstance(aval, ArrayType):
        return tangent
    if expected.dtype == dtypes.float0 and aval.dtype == dtypes.float0 and aval.shape == expected.shape:
        return Zero(expected)
    if expected.accepts(aval):
        return tangent
    if aval.weak_type and aval.shape == expected.shape and _converts_exactly(aval, expected):
        return convert_type(tangent, expected)
    integer = expected.dtype == dtypes.float0
    raise TangentMismatchError(
        f"{what}, which for integers is float0." if integer else f"{what}.",
        received=f"{aval.short()} at {path()}, for a value of type {primal.short()}",
        fix="np.zeros(shape, weft.float0), or convert the value to a float"
        if integer
        else f"give one of type {expected.short()}",
        at=user_line(),
        jax=jax(primal, aval),
    )


def _converts_exactly(found: ArrayType, expected: ArrayType) -> bool:
    """Return whether a Python number of one type converts to another without loss; complex to real does not."""
    if expected.dtype == dtypes.float0:
        return False
    return dtypes.kind(found.dtype) != "c" or dtypes.kind(expected.dtype) == "c"


def convert_type(value: Any, aval: Type) -> Any:
    """Convert a value to the dtype and weakness of `aval`, which has its shape."""
    own = get_aval(value)
    if own.plain == aval.plain or not isinstance(aval, ArrayType) or aval.dtype == dtypes.float0:
        return with_aval(value) if isinstance(value, (int, float, complex)) else value
    return convert_element_type(value, new_dtype=aval.dtype, weak_type=aval.weak_type)


def flat_with_aux(
    fun: Callable[..., Any], in_tree: tree.PyTreeDef, out: OutTree, has_aux: bool
) -> Callable[..., list[Any]]:
    """Return the flat function of `fun`; with `has_aux`, that of the first part of its result, with the second part
    stored in `out.auxiliary`."""
    if not has_aux:
        return flat_function(fun, in_tree, out)

    def first(*args: Any, **kwargs: Any) -> Any:
        result = fun(*args, **kwargs)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            what = f"With has_aux=True, {get_name(fun)} must return a pair (value, auxiliary)."
            received = (
                f"a {type(result).__name__} of length {len(result)}"
                if isinstance(result, (tuple, list))
                else kind_of_result(result)
            )
            jax = f"expected function with aux output to return a two-element tuple, but got {received}"
            raise ArgumentTypeError(what, received=received, fix="return value, auxiliary", jax=jax)
        out.auxiliary = without_tangents(result[1])
        return result[0]

    return flat_function(wraps(fun)(first), in_tree, out)


def kind_of_result(result: Any) -> str:
    """Describe the kind of a result."""
    return f"an array of type {result.aval.short()}" if isinstance(result, Tracer) else f"a {type(result).__name__}"


def without_tangents(auxiliary: Any) -> Any:
    """Replace the tracers of the running differentiation in auxiliary results by their primals."""
    trace = context.trace
    assert isinstance(trace, JVPTrace)
    return tree.map(lambda x: trace.split(x)[0] if isinstance(x, Tracer) else x, auxiliary)


class Linearization:
    """Derivative of a function at a point: a linear jaxpr, without the residuals that it takes first."""

    __slots__ = ("fun_name", "in_tree", "names", "inexact", "jaxpr", "live", "out_tree", "out_types", "types")

    jaxpr: Jaxpr
    fun_name: str
    names: Callable[[], Sequence[str]]  # of the arguments
    in_tree: tree.PyTreeDef
    out_tree: tree.PyTreeDef
    types: list[Type]
    out_types: list[Type]
    inexact: list[bool]  # of each argument: whether it has a tangent
    live: list[bool]  # of each result: whether the jaxpr computes its tangent

    def __repr__(self) -> str:
        return f"<linear part of {self.fun_name}>"

    @boundary
    def push(self, residuals: Sequence[Any], *tangents: Any) -> Any:
        """Return the tangents of the results along tangents of the arguments."""
        leaves, in_tree = tree.flatten((tangents, {}))
        if in_tree != self.in_tree:
            self.reject_structure(
                "The tangents for the linearized {} must have the structure of its arguments.",
                self.args_tree(),
                tree.structure(tangents),
            )
        what = f"A tangent given to the linearized {self.fun_name} must have the shape and dtype of its argument"
        checked = all_fitting(self.types, leaves, what, self.in_paths, _jax_text_of_linearize)
        nonzero = [x for x, n in zip(checked, self.inexact, strict=True) if n]
        found = iter(replay(self.jaxpr, *residuals, *nonzero))
        outs = [next(found) if n else instantiate(Zero.of(t)) for n, t in zip(self.live, self.out_types, strict=True)]
        return tree.unflatten(
            self.out_tree, [convert_type(x, t.tangent()) for x, t in zip(outs, self.out_types, strict=True)]
        )

    @boundary
    def pull(self, residuals: Sequence[Any], *cotangents: Any, wanted: Sequence[bool] | None = None) -> Any:
        """Return cotangents of the arguments, from a cotangent of the result; zeros for leaves that are not `wanted`,
        whose cotangents are not computed."""
        if len(cotangents) != 1:
            what = f"The pullback of {self.fun_name} takes one argument, which must have the structure of the result."
            raise ArgumentTypeError(
                what,
                received=f"{len(cotangents)} arguments",
                fix="pass a tuple for a function that returns one",
                jax=f"The function returned by `jax.vjp` applied to {self.fun_name} was called with {len(cotangents)} "
                "arguments, but functions returned by `jax.vjp` must be called with a single argument corresponding "
                f"to the single value returned by {self.fun_name} (even if that returned value is a tuple or other "
                "container).",
            )
        leaves, out_tree = tree.flatten(cotangents[0])
        if out_tree != self.out_tree:
            self.reject_structure(
                "The cotangent for the pullback of {} must have the structure of the result.", self.out_tree, out_tree
            )
        what = f"A cotangent given to the pullback of {self.fun_name} must have the shape and dtype of the result"
        # The cotangent of an integer carries no information, so any value is accepted.
        leaves = [ct if t.tangent() == t else Zero(t.cotangent()) for ct, t in zip(leaves, self.out_types, strict=True)]
        checked = all_fitting(self.out_types, leaves, what, self.out_paths, _jax_text_of_vjp)
        nonzero = [ct for ct, live in zip(checked, self.live, strict=True) if live]
        jaxpr = with_constants(self.jaxpr, residuals)
        flags = None if wanted is None else [w for w, n in zip(wanted, self.inexact, strict=True) if n]
        found = iter(backward_to_arrays(jaxpr, jaxpr.consts, nonzero, flags))
        outs = [next(found) if n else instantiate(Zero.of(t)) for n, t in zip(self.inexact, self.types, strict=True)]
        outs = [convert_type(x, t.cotangent()) for x, t in zip(outs, self.types, strict=True)]
        return tree.unflatten(self.in_tree, outs)[0]

    def reject_structure(self, what: str, expected: tree.PyTreeDef, found: tree.PyTreeDef) -> NoReturn:
        is_pullback = expected is self.out_tree
        received = structure_differences(expected, found, () if is_pullback else self.names())
        jax = f"unexpected tree structure of argument to vjp function: got {found}, but expected {expected}"
        what = what.format(self.fun_name)
        raise TangentMismatchError(what, received=received, at=user_line(), jax=jax if is_pullback else None)

    def args_tree(self) -> tree.PyTreeDef:
        return tree.treedef_children(self.in_tree)[0]

    def in_paths(self) -> list[str]:
        return leaf_paths(self.args_tree(), self.names())

    def out_paths(self) -> list[str]:
        return leaf_paths(self.out_tree, ())


def leaf_paths(treedef: tree.PyTreeDef, names: Sequence[str]) -> list[str]:
    """Return a name for every leaf: the name of its argument and its path there, or its path in the result."""
    paths = [p for p, _ in tree.leaves_with_path(tree.unflatten(treedef, range(treedef.num_leaves)))]
    return [names[p[0].idx] + tree.keystr(p[1:]) if names else f"result{tree.keystr(p)}" for p in paths]


def linearize_at(
    fun: Callable[..., Any],
    args: Sequence[Any],
    has_aux: bool,
    transformation: str,
    names: Callable[[], Sequence[str]] | None = None,
) -> tuple[list[Any], Linearization, list[Any], Any]:
    """Run `fun(*args)`; return the leaves of its result, its linearization there, the residuals of the linearization
    and the auxiliary result."""
    check_callable(fun, transformation)
    leaves, in_tree = tree.flatten((tuple(args), {}))
    check_leaves(fun, transformation, leaves, args, {})
    linear = Linearization()
    linear.fun_name, linear.in_tree = get_name(fun), in_tree
    linear.names = names or (lambda: argument_names(fun, args))
    linear.types = [get_aval(leaf) for leaf in leaves]
    linear.inexact = [t.tangent().dtype != dtypes.float0 for t in linear.types]  # type: ignore[attr-defined]
    out = OutTree()
    function = flat_with_aux(fun, in_tree, out, has_aux)
    results, jaxpr, linear.live = linearize_flat(
        function, leaves, linear.inexact, f"jvp({get_name(fun)})", user_location()
    )
    linear.out_tree = out.treedef
    linear.out_types = [get_aval(r) for r in results]
    linear.jaxpr = constants_to_arguments(jaxpr)
    return results, linear, list(jaxpr.consts), out.auxiliary if has_aux else None


@boundary
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`fun(*primals)` and a function of tangents that is its derivative there; `fun` runs once.

    Args:
        fun: a function of arrays.
        *primals: its arguments.
        has_aux: whether `fun` returns a pair (value, auxiliary); auxiliary is returned and not differentiated.

    Returns:
        A pair of the results and a linear function of tangents; with `has_aux` a third part.

    >>> import weft
    >>> y, derivative = weft.linearize(lambda x: x**2, 3.0)
    >>> y, derivative(1.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    results, linear, residuals, auxiliary = linearize_at(fun, primals, has_aux, "linearize")
    value = tree.unflatten(linear.out_tree, results)
    push = tree.Partial(linear.push, residuals)
    return (value, push, auxiliary) if has_aux else (value, push)


def refuse_reduce_axes(transformation: str, reduce_axes: Sequence[Any]) -> None:
    """Raise if `reduce_axes` is passed, which JAX's signatures have and JAX ignores."""
    if tuple(reduce_axes):
        what = f"{transformation}: reduce_axes must be empty, since gradients are not summed over named axes."
        fix = "lax.psum(gradient, axis_name) where the sum is wanted"
        raise ArgumentError(what, received=f"reduce_axes={reduce_axes!r}", fix=fix)


@boundary
def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Sequence[Any] = ()) -> Callable[[Any], Any]:
    """Transpose a linear function: return the function from cotangents of its result to cotangents of its arguments.

    `primals` give shapes and dtypes only.

    Args:
        fun: a linear function of arrays.
        *primals: arrays or `ShapeDtypeStruct`s like its arguments.
        reduce_axes: accepted for compatibility; must be empty.

    Returns:
        A function from cotangents of the result to a tuple of cotangents of the arguments.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> transposed = weft.linear_transpose(lambda x: wnp.array([1.0, 2.0]) * x, wnp.float32(0.0))
    >>> transposed(wnp.ones(2))
    (Array(3., dtype=float32),)
    """
    check_callable(fun, "linear_transpose")
    refuse_reduce_axes("linear_transpose", reduce_axes)
    primals = with_structs(primals)
    leaves, in_tree = tree.flatten((primals, {}))
    check_leaves(fun, "linear_transpose", leaves, primals, {})
    types = [get_aval(leaf) for leaf in leaves]
    out = OutTree()
    jaxpr, constants = stage(flat_function(fun, in_tree, out), types, where=f"linear_transpose of {get_name(fun)}")
    kinds = [{dtypes.kind(t.dtype) in "fc" for t in side} for side in (types, jaxpr.out_avals)]  # type: ignore[attr-defined]
    if len(kinds[0] | kinds[1]) > 1:
        words = [", ".join(t.short() for t in side) for side in (types, jaxpr.out_avals)]
        what = f"linear_transpose of {get_name(fun)}: arguments and results must all be floats, or all be integers."
        fix = "give primals of the dtype that the function returns, for example 1.0 instead of 1"
        jax = (
            "linear_transpose only supports [float or complex] -> [float or complex], and integer -> integer "
            f"functions, but got {words[0]} -> {words[1]}."
        )
        raise ArgumentTypeError(what, received=f"{words[0]} -> {words[1]}", fix=fix, jax=jax)
    transposition = Transposition(constants_to_arguments(jaxpr), get_name(fun), in_tree, out.treedef, types)
    return tree.Partial(transposition.pull, constants)


class Transposition(NamedTuple):
    """Linear jaxpr with its constants as leading arguments, and the structures of arguments and results."""

    jaxpr: Jaxpr
    fun_name: str
    in_tree: tree.PyTreeDef
    out_tree: tree.PyTreeDef
    types: list[Type]

    def pull(self, constants: Sequence[Any], cotangent: Any) -> Any:
        """Return the cotangents of the arguments, from a cotangent of the result."""
        flat, out_tree = tree.flatten(cotangent)
        if out_tree != self.out_tree:
            raise TangentMismatchError(
                f"The cotangent for the transpose of {self.fun_name} must have the structure of its result.",
                received=structure_differences(self.out_tree, out_tree, ()),
                at=user_line(),
                jax=f"cotangent tree does not match function output, expected {self.out_tree} but got {out_tree}",
            )
        checked = [fitting_linear(self.fun_name, v.aval, ct) for v, ct in zip(self.jaxpr.outvars, flat, strict=True)]
        jaxpr = with_constants(self.jaxpr, constants)
        found = backward_to_arrays(jaxpr, jaxpr.consts, checked)
        outs = [convert_type(ct, t.cotangent()) for ct, t in zip(found, self.types, strict=True)]
        return tree.unflatten(self.in_tree, outs)[0]


def with_constants(jaxpr: Jaxpr, constants: Sequence[Any]) -> Jaxpr:
    """Bind the first arguments of a jaxpr to constants."""
    count = len(constants)
    return jaxpr.replace(constvars=jaxpr.invars[:count], invars=jaxpr.invars[count:], consts=tuple(constants))


def fitting_linear(name: str, aval: Type, cotangent: Any) -> Any:
    """Return a cotangent for a result of type `aval`; raise unless it fits. Unlike in differentiation, integers are
    transposed as integers."""
    own = get_aval(cotangent)
    if aval.accepts(own):
        return cotangent
    if isinstance(own, ArrayType) and isinstance(aval, ArrayType) and own.weak_type and own.shape == aval.shape:
        if dtypes.kind(own.dtype) == dtypes.kind(aval.dtype):
            return convert_type(cotangent, aval)
    raise TangentMismatchError(
        f"A cotangent given to the transpose of {name} must have the shape and dtype of the result.",
        received=f"{own.short()} for a result of type {aval.short()}",
        at=user_line(),
        jax=f"cotangent type does not match function output, expected {aval} but got {own}",
    )


# -- gradients --------------------------------------------------------------------------------------------------------


def argument_indices(argnums: Any, transformation: str) -> tuple[int, ...]:
    """Return `argnums` as a tuple; raise unless they are integers."""
    indices = (argnums,) if not isinstance(argnums, (tuple, list)) else tuple(argnums)
    for n in indices:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
            what = f"argnums of {transformation} must be an int or a tuple of ints."
            raise ArgumentTypeError(what, received=f"{argnums!r} of type {type(argnums).__name__}")
    return indices


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[..., Any]:
    """Differentiate a scalar function: return a function that returns its value and its gradient with respect to the
    arguments `argnums`.

    Args:
        fun: a function that returns a real scalar (any other result raises `NonScalarGradientError`).
        argnums: the position of the argument, or a tuple of positions.
        has_aux: whether `fun` returns a pair (value, auxiliary); auxiliary is returned and not differentiated.
        holomorphic: whether `fun` is holomorphic, so that complex arguments have complex derivatives.
        allow_int: whether integer arguments are accepted; their derivatives have the dtype `float0`.
        reduce_axes: accepted for compatibility; must be empty.

    Returns:
        A function of the arguments of `fun` that returns `(value, gradient)`; the gradient has the structure of the
        argument, or is a tuple for several. With `has_aux` it is `((value, aux), gradient)`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> weft.value_and_grad(lambda w: (w**2).sum())(wnp.array([1.0, 2.0]))
    (Array(5., dtype=float32), Array([2., 4.], dtype=float32))
    """
    check_callable(fun, "value_and_grad")
    refuse_reduce_axes("grad", reduce_axes)
    indices = argument_indices(argnums, "value_and_grad")

    @boundary
    @wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = hold_others(fun, indices, args, kwargs, "grad")
        check_gradient_inputs(fun, indices, args, holomorphic, allow_int, "grad")
        names = lambda: argument_names_at(fun, indices, args)
        results, linear, residuals, auxiliary = linearize_at(partial, chosen, has_aux, "grad", names)
        value = tree.unflatten(linear.out_tree, results)
        check_scalar(fun, value, results, holomorphic)
        aval = linear.out_types[0]
        assert isinstance(aval, ArrayType)
        seed = wrap(np.ones((), dtypes.storage(aval.dtype)), aval)
        gradients = linear.pull(residuals, tree.unflatten(linear.out_tree, [seed]))
        result = gradients if isinstance(argnums, (tuple, list)) else gradients[0]
        return ((value, auxiliary), result) if has_aux else (value, result)

    return function


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[..., Any]:
    """Differentiate a scalar function: return a function that returns its gradient with respect to the arguments
    `argnums`.

    It works through loops and branches, `while_loop` included. At corners: `abs` has derivative 1 at 0, `maximum` of
    equal numbers half for each, `relu` 0 at 0.

    Args:
        fun: a function that returns a real scalar (any other result raises `NonScalarGradientError`).
        argnums: the position of the argument, or a tuple of positions.
        has_aux: whether `fun` returns a pair (value, auxiliary); auxiliary is returned and not differentiated.
        holomorphic: whether `fun` is holomorphic, so that complex arguments have complex derivatives.
        allow_int: whether integer arguments are accepted; their derivatives have the dtype `float0`.
        reduce_axes: accepted for compatibility; must be empty.

    Returns:
        A function of the arguments of `fun` that returns the gradient, with the structure of the argument, or a tuple
        for several. With `has_aux` it is `(gradient, aux)`.

    >>> import weft
    >>> weft.grad(lambda x: x**3)(2.0)
    Array(12., dtype=float32, weak_type=True)
    >>> weft.grad(lambda p: p["w"] * p["b"])({"w": 2.0, "b": 5.0})
    {'b': Array(2., dtype=float32, weak_type=True), 'w': Array(5., dtype=float32, weak_type=True)}
    """
    check_callable(fun, "grad")
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @boundary
    @wraps(fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return function


def hold_others(
    fun: Callable[..., Any], indices: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any], transformation: str
) -> tuple[Any, tuple[Any, ...]]:
    """Return `fun` as a function of the arguments `indices` only, and those arguments."""
    for n in indices:
        if not -len(args) <= n < len(args):
            least = n + 1 if n >= 0 else -n
            what = (
                f"{transformation} of {get_name(fun)}: differentiating with respect to argnums={n} requires at least "
                f"{least} positional arguments to be passed by the caller, but got only {len(args)} positional "
                "arguments."
            )
            by_name = f" and by name {', '.join(kwargs)}" if kwargs else ""
            raise ArgumentTypeError(
                what,
                received=f"{len(args)} by position{by_name}",
                fix="pass the arguments to differentiate by position",
            )
    positions = [n % len(args) for n in indices]
    if len(set(positions)) != len(positions):
        raise ArgumentError(
            f"{transformation} of {get_name(fun)}: argnums must name each argument once.",
            received=f"argnums={tuple(indices)}",
        )

    @wraps(fun)
    def partial(*chosen: Any) -> Any:
        full = list(args)
        for position, value in zip(positions, chosen, strict=True):
            full[position] = value
        return fun(*full, **kwargs)

    return partial, tuple(args[p] for p in positions)


def argument_names_at(fun: Callable[..., Any], indices: Sequence[int], args: Sequence[Any]) -> list[str]:
    """Return the names of the arguments `indices`."""
    names = argument_names(fun, args)
    return [names[n] for n in indices]


def check_gradient_inputs(
    fun: Callable[..., Any],
    indices: Sequence[int],
    args: Sequence[Any],
    holomorphic: bool,
    allow_int: bool,
    transformation: str,
) -> None:
    """Raise unless every leaf of the arguments `indices` is an array with a dtype that has a derivative."""
    for n in indices:
        for leaf in tree.leaves(args[n]):
            kind = dtypes.kind(get_aval(leaf).dtype) if is_value(leaf) else None  # type: ignore[attr-defined]
            if kind == "c" or (kind == "f" and not holomorphic) or (kind is not None and allow_int and not holomorphic):
                continue
            path = next(p for p, v in tree.leaves_with_path(args[n]) if v is leaf)
            reject_gradient_input(
                fun, argument_names_at(fun, [n], args)[0] + tree.keystr(path), leaf, holomorphic, transformation
            )


def reject_gradient_input(
    fun: Callable[..., Any], path: str, leaf: Any, holomorphic: bool, transformation: str
) -> NoReturn:
    if not is_value(leaf):
        raise InvalidInputTypeError(
            f"{transformation} of {get_name(fun)} cannot differentiate with respect to what is no array, at {path}.",
            received=f"{leaf!r} of type {type(leaf).__name__}",
            fix="choose other argnums, or pass an array",
            at=user_line(),
            jax=not_a_jax_type(leaf),
        )
    received = get_aval(leaf).short()
    if holomorphic:
        what = (
            f"{transformation} with holomorphic=True requires inputs with complex dtype, but got "
            f"{dtypes.name(get_aval(leaf).dtype)}: {path} of {get_name(fun)}."  # type: ignore[attr-defined]
        )
        raise ArgumentTypeError(
            what, received=f"{received} at {path}", fix=f"convert {path}, or leave holomorphic=True out"
        )
    other = "; allow_int=True returns float0 gradients" if transformation in ("grad", "jacrev") else ""
    raise IntegerInputGradientError(
        f"{transformation} requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), "
        f"but got {dtypes.name(get_aval(leaf).dtype)}: {path} of {get_name(fun)}.",  # type: ignore[attr-defined]
        received=received,
        fix=f"pass {path} as a float (1.0 instead of 1, x.astype(float)), or choose other argnums{other}",
        at=user_line(),
    )


def check_scalar(fun: Callable[..., Any], value: Any, results: Sequence[Any], holomorphic: bool) -> None:
    """Raise unless a result is one scalar of a float dtype (complex if `holomorphic`)."""
    if len(results) != 1 or not tree.treedef_is_leaf(tree.structure(value)):
        raise NonScalarGradientError(
            f"Gradient only defined for scalar-output functions. Output was a {type(value).__name__}.",
            received=f"a {type(value).__name__} with {len(results)} arrays from {get_name(fun)}",
            fix="return the scalar alone, or (scalar, auxiliary) with has_aux=True",
            at=user_line(),
        )
    aval = get_aval(results[0])
    if aval.shape:  # type: ignore[attr-defined]
        raise NonScalarGradientError(
            f"Gradient only defined for scalar-output functions. Output had shape: {aval.shape}.",  # type: ignore[attr-defined]
            received=f"{aval.short()} from {get_name(fun)}",
            fix="reduce the result, for example with .sum() or .mean(); for all derivatives use jacrev or jacfwd",
            at=user_line(),
        )
    kind = dtypes.kind(aval.dtype)  # type: ignore[attr-defined]
    if kind != ("c" if holomorphic else "f"):
        found = dtypes.name(aval.dtype)  # type: ignore[attr-defined]
        what = f"grad requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got {found}."
        if holomorphic:
            what = f"grad with holomorphic=True requires outputs with complex dtype, but got {found}."
        fix = "holomorphic=True for a holomorphic function; vjp for others" if kind == "c" else None
        raise NonScalarGradientError(what, received=f"{aval.short()} from {get_name(fun)}", fix=fix, at=user_line())
