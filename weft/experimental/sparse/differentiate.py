"""Derivatives with respect to the data of sparse arrays: they are sparse arrays of the same pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft.numpy as wnp
from weft.api import differentiate, jacobians
from weft.api.flat import check_callable, wraps
from weft.base import tree
from weft.base.errors import NotSupportedError
from weft.experimental.sparse.base import JAXSparse
from weft.experimental.sparse.bcoo import BCOO


def is_sparse(value: Any) -> bool:
    return isinstance(value, JAXSparse)


def data_of(values: Any) -> Any:
    """A tree with the data of sparse arrays in their positions."""
    return tree.map(lambda v: v.data if is_sparse(v) else v, values, is_leaf=is_sparse)


def with_data(values: Any, data: Any) -> Any:
    """A tree of sparse arrays with other data."""

    def replaced(value: Any, new: Any) -> Any:
        if not is_sparse(value):
            return new
        leaves, structure = tree.flatten(value)
        return tree.unflatten(structure, [new, *leaves[1:]])

    return tree.map(replaced, values, data, is_leaf=is_sparse)


def _of_data(
    transformation: Callable[..., Any], name: str, fun: Callable[..., Any], argnums: Any, rebuild: Callable[..., Any]
) -> Callable[..., Any]:
    """The transformation of a function of sparse arguments, as one of their data."""
    check_callable(fun, name)
    single = isinstance(argnums, int)

    @wraps(fun)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        indices = [i + len(args) if i < 0 else i for i in ([argnums] if single else argnums)]

        def function(*data: Any, **kwargs: Any) -> Any:
            full = [with_data(a, d) if i in indices else d for i, (a, d) in enumerate(zip(args, data, strict=True))]
            return fun(*full, **kwargs)

        data = [data_of(a) if i in indices else a for i, a in enumerate(args)]
        chosen = args[indices[0]] if single else tuple(args[i] for i in indices)
        return rebuild(chosen, transformation(function)(*data, **kwargs))

    return transformed


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `weft.grad`, for functions of sparse arrays too: their gradients have the same indices.

    >>> import weft.numpy as wnp
    >>> from weft.experimental import sparse
    >>> x = sparse.BCOO.fromdense(wnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.grad(lambda x: (x @ wnp.array([1.0, 10.0])).sum())(x).data
    Array([10.,  1.], dtype=float32)
    """

    def rebuild(chosen: Any, result: Any) -> Any:
        return (with_data(chosen, result[0]), result[1]) if has_aux else with_data(chosen, result)

    return _of_data(
        lambda f: differentiate.grad(f, argnums=argnums, has_aux=has_aux, **kwargs), "grad", fun, argnums, rebuild
    )


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `weft.value_and_grad`, for functions of sparse arrays too: their gradients have the same indices."""

    def rebuild(chosen: Any, result: Any) -> Any:
        return result[0], with_data(chosen, result[1])

    return _of_data(
        lambda f: differentiate.value_and_grad(f, argnums=argnums, has_aux=has_aux, **kwargs),
        "value_and_grad",
        fun,
        argnums,
        rebuild,
    )


def _jacobian(
    transformation: Callable[..., Any], name: str, fun: Callable[..., Any], argnums: Any, has_aux: bool
) -> Callable[..., Any]:
    def checked(f: Callable[..., Any]) -> Callable[..., Any]:
        def dense(*args: Any, **kwargs: Any) -> Any:
            result = f(*args, **kwargs)
            values = result[0] if has_aux else result
            if any(map(is_sparse, tree.leaves(values, is_leaf=is_sparse))):
                raise NotSupportedError(
                    f"sparse.{name} of a function whose results are sparse.", fix="return sparse.todense(y)"
                )
            return result

        return dense

    def rebuild(chosen: Any, result: Any) -> Any:
        jacobian, auxiliary = result if has_aux else (result, None)
        inner = tree.structure(data_of(chosen))
        outer = tree.structure(jacobian, is_leaf=lambda v: tree.structure(v) == inner)
        parts = outer.flatten_up_to(jacobian)
        rebuilt = [tree.map(batched_pattern, chosen, part, is_leaf=is_sparse) for part in parts]
        found = tree.unflatten(outer, rebuilt)
        return (found, auxiliary) if has_aux else found

    return _of_data(lambda f: transformation(checked(f)), name, fun, argnums, rebuild)


def batched_pattern(value: Any, data: Any) -> Any:
    """Derivatives of results with respect to the data of a sparse array: a BCOO with a batch for each result."""
    if not is_sparse(value):
        return data
    if not isinstance(value, BCOO):
        raise NotSupportedError(
            "Jacobians with respect to sparse arrays are BCOOs.", received=repr(value), fix="x.to_bcoo()"
        )
    results = data.shape[: data.ndim - value.data.ndim]
    indices = wnp.reshape(value.indices, (*[1] * len(results), *value.indices.shape))
    return BCOO(
        (data, indices),
        shape=(*results, *value.shape),
        indices_sorted=value.indices_sorted,
        unique_indices=value.unique_indices,
    )


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `weft.jacfwd`, for functions of sparse arrays too: a BCOO whose leading dimensions, batches, are those of the
    result."""
    forward = lambda f: jacobians.jacfwd(f, argnums=argnums, has_aux=has_aux, **kwargs)
    return _jacobian(forward, "jacfwd", fun, argnums, has_aux)


def jacrev(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `weft.jacrev`, for functions of sparse arrays too: a BCOO whose leading dimensions, batches, are those of the
    result."""
    backward = lambda f: jacobians.jacrev(f, argnums=argnums, has_aux=has_aux, **kwargs)
    return _jacobian(backward, "jacrev", fun, argnums, has_aux)


jacobian = jacrev
