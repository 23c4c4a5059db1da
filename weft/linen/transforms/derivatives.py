"""Lifted differentiation: vjp, grad, jvp and custom_vjp of functions of modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import weft
import weft.numpy as wnp
from weft.errors import NotSupportedError
from weft.linen.transforms.calls import plain
from weft.linen.transforms.core import Target
from weft.modules.filters import Filter
from weft.modules.lift import Lift


def _outer(lift: Lift, group: Any) -> Any:
    """Convert a group to the form of users: {collection: tree}, or a list of these for several modules."""
    trees = [{name: parts[i] for name, parts in group.items()} for i in range(len(lift.roots))]
    return trees[0] if len(trees) == 1 else trees


def _inner(lift: Lift, trees: Any) -> Any:
    """Convert {collection: tree}, or a list of these for several modules, to a group."""
    parts = [trees] if len(lift.roots) == 1 else list(trees)
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: tuple(part.get(name, {}) for part in parts) for name in names}


def vjp(
    fn: Callable[..., Any],
    mdl: Any,
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Sequence[Any] = (),
    vjp_variables: Filter = "params",
    variables: Filter = True,
    rngs: Filter = True,
    multi_scope: bool = False,
) -> Any:
    """Return `fn(mdl, *primals)` and the function from its cotangent to (cotangents of variables, *of primals)."""
    if reduce_axes:
        raise NotSupportedError("nn.vjp has no reduce_axes; sum the cotangents with lax.psum.")
    target = Target("vjp", fn, mdl, primals, {})
    lift = target.lift([vjp_variables, variables], [rngs])
    differentiated, others = lift.variables
    run = plain(target, lift, variables if variables is not False else True)

    def inner(trees: Any, *args: Any) -> Any:
        result, written = run((_inner(lift, trees), others), lift.rngs, *args)
        if has_aux:
            return result[0], (result[1], written)
        return result, (None, written)

    with lift.running():
        result, backward, (aux, written) = weft.vjp(inner, _outer(lift, differentiated), *target.args, has_aux=True)
    lift.put_back(written)
    target.finish()
    return (result, backward, aux) if has_aux else (result, backward)


def value_and_grad(
    fn: Callable[..., Any],
    mdl: Any,
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Sequence[Any] = (),
    variables: Filter = True,
    rngs: Filter = True,
) -> Any:
    """Return the value of a scalar function of a module and arrays, and the tuple of its gradients in the arrays."""
    found = vjp(
        fn, mdl, *primals, has_aux=has_aux, reduce_axes=reduce_axes, vjp_variables=False, variables=variables, rngs=rngs
    )
    value, backward = found[0], found[1]
    _, *gradients = backward(wnp.ones_like(value))
    return ((value, found[2]) if has_aux else value), tuple(gradients)


def grad(
    fn: Callable[..., Any],
    mdl: Any,
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Sequence[Any] = (),
    variables: Filter = True,
    rngs: Filter = True,
) -> Any:
    """Return the tuple of gradients in the arrays of a scalar function of a module and arrays."""
    value, gradient = value_and_grad(
        fn, mdl, *primals, has_aux=has_aux, reduce_axes=reduce_axes, variables=variables, rngs=rngs
    )
    return (gradient, value[1]) if has_aux else gradient


def jvp(
    fn: Callable[..., Any],
    mdl: Any,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    variable_tangents: Mapping[str, Any],
    variables: Filter = True,
    rngs: Filter = True,
) -> tuple[Any, Any]:
    """Return `fn(mdl, *primals)` and its derivative along tangents of the primals and of the given variables."""
    target = Target("jvp", fn, mdl, tuple(primals), {})
    lift = target.lift([tuple(variable_tangents), variables], [rngs])
    differentiated, others = lift.variables
    run = plain(target, lift, variables)

    def inner(trees: Any, *args: Any) -> Any:
        return run((_inner(lift, trees), others), lift.rngs, *args)

    # During initialization a collection may be missing; its tangents have no leaves either.
    along = {name: tree for name, tree in variable_tangents.items() if name in differentiated or weft.tree.leaves(tree)}
    with lift.running():
        (result, written), (tangent, _) = weft.jvp(
            inner, (_outer(lift, differentiated), *target.args), (along, *tangents)
        )
    lift.put_back(written)
    target.finish()
    return result, tangent


def custom_vjp(
    fn: Callable[..., Any],
    forward_fn: Callable[..., Any],
    backward_fn: Callable[..., Any],
    grad_vars: Filter = "params",
    nondiff_argnums: Sequence[int] = (),
) -> Callable[..., Any]:
    """Return `fn(mdl, *args)` with a derivative of your own.

    `forward_fn(mdl, *args)` returns the result and residuals; `backward_fn(*nondiff, residuals, cotangent)` returns
    (cotangents of `grad_vars`, *of the other arguments). `nondiff_argnums` count the module as 0.
    """
    skipped = {i - 1 for i in nondiff_argnums}

    def lifted(mdl: Any, *args: Any) -> Any:
        target = Target("custom_vjp", fn, mdl, args, {})
        lift = target.lift([grad_vars, True], [True])
        differentiated, others = lift.variables
        fixed = [arg for i, arg in enumerate(target.args) if i in skipped]
        free = [arg for i, arg in enumerate(target.args) if i not in skipped]

        def through(function: Callable[..., Any], trees: Any, others: Any, keys: Any, free: Any) -> Any:
            supply, still = iter(free), iter(fixed)
            arguments = [next(still if i in skipped else supply) for i in range(len(target.args))]
            call = lift.inside((_inner(lift, trees), others), keys)
            result = target.call(call, arguments, {}, function)
            return result, lift.collect(call, (True,))

        @weft.custom_vjp
        def run(trees: Any, others: Any, keys: Any, *free: Any) -> Any:
            return through(fn, trees, others, keys, free)

        def forward(trees: Any, others: Any, keys: Any, *free: Any) -> Any:
            (result, residuals), written = through(forward_fn, trees, others, keys, free)
            return (result, written), residuals

        def backward(residuals: Any, cotangents: Any) -> Any:
            of_variables, *of_arguments = backward_fn(*fixed, residuals, cotangents[0])
            return (of_variables, None, None, *of_arguments)

        run.defvjp(forward, backward)
        with lift.running():
            result, written = run(_outer(lift, differentiated), others, lift.rngs, *free)
        lift.put_back(written)
        target.finish()
        return result

    return lifted
