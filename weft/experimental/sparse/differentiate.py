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


def get_data(values: Any) -> Any:
    """Return a tree with the data of sparse arrays in their positions."""
    return tree.map(lambda v: v.data if is_sparse(v) else v, values, is_leaf=is_sparse)


def replace_data(values: Any, data: Any) -> Any:
    """Replace the data of a tree of sparse arrays."""

    def replace_leaf(value: Any, new: Any) -> Any:
        if not is_sparse(value):
            return new
        leaves, structure = tree.flatten(value)
        return tree.unflatten(structure, [new, *leaves[1:]])

    return tree.map(replace_leaf, values, data, is_leaf=is_sparse)


def _transform_data(
    transformation: Callable[..., Any], name: str, fun: Callable[..., Any], argnums: Any, rebuild: Callable[..., Any]
) -> Callable[..., Any]:
    """Apply a transformation to a function of sparse arguments, as one of their data."""
    check_callable(fun, name)
    single = isinstance(argnums, int)

    @wraps(fun)
    def transform(*args: Any, **kwargs: Any) -> Any:
        indices = [i + len(args) if i < 0 else i for i in ([argnums] if single else argnums)]

        def function(*data: Any, **kwargs: Any) -> Any:
            full = [replace_data(a, d) if i in indices else d for i, (a, d) in enumerate(zip(args, data, strict=True))]
            return fun(*full, **kwargs)

        data = [get_data(a) if i in indices else a for i, a in enumerate(args)]
        chosen = args[indices[0]] if single else tuple(args[i] for i in indices)
        return rebuild(chosen, transformation(function)(*data, **kwargs))

    return transform


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """Differentiate as `weft.grad` does, also functions of sparse arrays: their gradients have the same indices.

    >>> import weft.numpy as wnp
    >>> from weft.experimental import sparse
    >>> x = sparse.BCOO.fromdense(wnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.grad(lambda x: (x @ wnp.array([1.0, 10.0])).sum())(x).data
    Array([10.,  1.], dtype=float32)
    """

    def rebuild(chosen: Any, result: Any) -> Any:
        return (replace_data(chosen, result[0]), result[1]) if has_aux else replace_data(chosen, result)

    return _transform_data(
        lambda f: differentiate.grad(f, argnums=argnums, has_aux=has_aux, **kwargs), "grad", fun, argnums, rebuild
    )


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """Differentiate as `weft.value_and_grad` does, also functions of sparse arrays: their gradients have the same
    indices."""

    def rebuild(chosen: Any, result: Any) -> Any:
        return result[0], replace_data(chosen, result[1])

    return _transform_data(
        lambda f: differentiate.value_and_grad(f, argnums=argnums, has_aux=has_aux, **kwargs),
        "value_and_grad",
        fun,
        argnums,
        rebuild,
    )


def _jacobian(
    transformation: Callable[..., Any], name: str, fun: Callable[..., Any], argnums: Any, has_aux: bool
) -> Callable[..., Any]:
    def require_dense(f: Callable[..., Any]) -> Callable[..., Any]:
        def dense(*args: Any, **kwargs: Any) -> Any:
            result = f(*args, **kwargs)
            values = result[0] if has_aux else result
            if any(map(is_sparse, tree.leaves(values, is_leaf=is_sparse))):
                raise NotSupportedError(
                    f"sparse.{name} needs a function with dense results.", fix="return sparse.todense(y)"
                )
            return result

        return dense

    def rebuild(chosen: Any, result: Any) -> Any:
        jacobian, auxiliary = result if has_aux else (result, None)
        inner = tree.structure(get_data(chosen))
        outer = tree.structure(jacobian, is_leaf=lambda v: tree.structure(v) == inner)
        parts = outer.flatten_up_to(jacobian)
        rebuilt = [tree.map(add_result_batches, chosen, part, is_leaf=is_sparse) for part in parts]
        found = tree.unflatten(outer, rebuilt)
        return (found, auxiliary) if has_aux else found

    return _transform_data(lambda f: transformation(require_dense(f)), name, fun, argnums, rebuild)


def add_result_batches(value: Any, data: Any) -> Any:
    """Make a BCOO of derivatives with respect to the data of a sparse array, with a batch for each result."""
    if not is_sparse(value):
        return data
    if not isinstance(value, BCOO):
        raise NotSupportedError(
            "Jacobians are only supported with respect to BCOOs.", received=repr(value), fix="x.to_bcoo()"
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
    """Compute a Jacobian as `weft.jacfwd` does, also of functions of sparse arrays: a BCOO whose leading dimensions,
    batches, are those of the result."""
    forward = lambda f: jacobians.jacfwd(f, argnums=argnums, has_aux=has_aux, **kwargs)
    return _jacobian(forward, "jacfwd", fun, argnums, has_aux)


def jacrev(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """Compute a Jacobian as `weft.jacrev` does, also of functions of sparse arrays: a BCOO whose leading dimensions,
    batches, are those of the result."""
    backward = lambda f: jacobians.jacrev(f, argnums=argnums, has_aux=has_aux, **kwargs)
    return _jacobian(backward, "jacrev", fun, argnums, has_aux)


jacobian = jacrev
