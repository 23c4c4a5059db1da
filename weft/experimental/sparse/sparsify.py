"""`sparsify`: functions of dense arrays applied to sparse ones. The function is staged with the types of dense arrays,
and its equations are interpreted: those with sparse operands by the rules below, others as they are."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax
from weft.api.flat import OutTree, check_callable, flat_function, get_name, wraps
from weft.base import tree
from weft.base.errors import NotSupportedError
from weft.base.tracebacks import boundary
from weft.experimental.sparse.base import JAXSparse
from weft.experimental.sparse.bcoo import BCOO, bcoo_sum_duplicates
from weft.experimental.sparse.layout import (
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_reshape,
    bcoo_rev,
    bcoo_slice,
    bcoo_squeeze,
    bcoo_transpose,
    reduce_in_dtype,
)
from weft.experimental.sparse.products import (
    as_dense,
    bcoo_conv_general_dilated,
    bcoo_dot_general,
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
)
from weft.ir.context import context, current_line
from weft.ir.interpreter import literal
from weft.ir.jaxpr import Equation, Jaxpr, Literal
from weft.ir.primitive import lookup
from weft.ir.types import array_type, get_aval
from weft.primitives.control.remat import checkpoint_name
from weft.trace.stage import stage
from weft.trace.tracer import Tracer

Rule = Callable[..., Any]
# Rules by the name of a primitive: functions of its operands, one or more of them BCOOs, and its parameters.
RULES: dict[str, Rule] = {}
DENSE = "sparse.todense"


def is_sparse(value: Any) -> bool:
    return isinstance(value, JAXSparse)


def todense(arr: Any) -> Any:
    """Convert a sparse array to a dense one; return a dense array unchanged. In functions that `sparsify` transforms it
    marks the value as meant to be dense.

        >>> from weft.experimental import sparse
        >>> sparse.todense(sparse.eye(2))
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    if is_sparse(arr):
        return arr.todense()
    return checkpoint_name(arr, name=DENSE) if isinstance(arr, Tracer) else wnp.asarray(arr)


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """Transform a function of dense arrays into one that also takes sparse arrays.

    Args:
        f: a function of trees of arrays, written with `weft.numpy` and `weft.lax`.
        use_tracer: changes nothing; there is one way of tracing.

    Returns:
        A function of the same arguments, which may be sparse. Results are sparse where that keeps them small:
        linear functions, products, and functions of elements that map 0 to 0. An operation whose result would be dense
        raises unless `todense` is applied first.

        >>> import weft.numpy as wnp
        >>> from weft.experimental import sparse
        >>> x = sparse.BCOO.fromdense(wnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.sparsify(lambda x, y: wnp.sqrt(x * 8) @ y)(x, wnp.array([0.5, 1.0]))
        Array([4.       , 2.4494898], dtype=float32)
    """
    check_callable(f, "sparsify")

    @boundary
    @wraps(f)
    def sparse(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = tree.flatten((args, kwargs), is_leaf=is_sparse)
        values = [as_bcoo(leaf) for leaf in leaves]
        out = OutTree()
        types = [array_type(v.shape, v.dtype) if is_sparse(v) else get_aval(v) for v in values]
        jaxpr, _ = stage(flat_function(f, in_tree, out), types, where=get_name(f), name=get_name(f))
        return tree.unflatten(out.treedef, interpret(jaxpr, values))

    return sparse


def as_bcoo(value: Any) -> Any:
    """Convert a sparse array of any format to a BCOO."""
    return value.to_bcoo() if is_sparse(value) and not isinstance(value, BCOO) else value


def interpret(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr on arguments that may be BCOOs."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, jaxpr.consts, strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))
    source = context.source
    try:
        for equation in jaxpr.eqns:
            context.source = equation.source or source
            operands = [literal(a) if type(a) is Literal else values[a] for a in equation.invars]
            if any(map(is_sparse, operands)):
                results = by_rule(equation, operands)
            else:
                results = context.trace.process(equation.primitive, operands, equation.params)
            values.update(zip(equation.outvars, results, strict=True))
    finally:
        context.source = source
    return [literal(a) if type(a) is Literal else values[a] for a in jaxpr.outvars]


def by_rule(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """Evaluate an equation with sparse operands."""
    primitive = equation.primitive
    if primitive.opens is not None:
        return interpret(equation.params[primitive.opens], operands)
    rule = RULES.get(primitive.name)
    if rule is None:
        raise NotSupportedError(
            f"sparse rule for {primitive.name} is not implemented: its result would be dense, or it is not known to "
            "keep zeros.",
            received=", ".join(repr(v) for v in operands if is_sparse(v)),
            fix="sparse.todense(x) of its arguments, if a dense array is meant",
            at=current_line(),
        )
    results = rule(*operands, **equation.params)
    return results if primitive.multiple_results else [results]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Make a decorator that registers a rule for primitives."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


# ------------------------------------------------------------------------------------------------------ by elements

# Functions that map 0 to 0. Those that are not linear need every index once.
LINEAR = ("neg", "real", "imag", "conj", "copy")
ODD = (
    "abs", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cbrt", "ceil", "convert_element_type", "erf", "erf_inv",
    "expm1", "floor", "integer_pow", "log1p", "reduce_precision", "round", "sign", "sin", "sinh", "sqrt", "square",
    "tan", "tanh",
)  # fmt: skip


def _elementwise(name: str, linear: bool, x: BCOO, **params: Any) -> BCOO:
    if name == "integer_pow" and params["y"] <= 0:
        raise NotSupportedError(
            "A power of a sparse array that is not positive would be dense.",
            received=f"{x!r} ** {params['y']}",
            fix="sparse.todense(x)",
            at=current_line(),
        )
    if not linear and not x.unique_indices:
        x = bcoo_sum_duplicates(x, nse=x.nse)
    return x.like(lookup(name)(x.data, **params))


for _name in LINEAR:
    RULES[_name] = functools.partial(_elementwise, _name, True)
for _name in ODD:
    RULES[_name] = functools.partial(_elementwise, _name, False)


@rule("name")
def _name_rule(x: BCOO, *, name: str) -> Any:
    return x.todense() if name == DENSE else x.like(checkpoint_name(x.data, name=name))


@rule("add", "add_any")
def _add(x: Any, y: Any) -> Any:
    return _sum(x, y, operator.pos)


@rule("sub")
def _sub(x: Any, y: Any) -> Any:
    return _sum(x, y, operator.neg)


def _sum(x: Any, y: Any, sign: Callable[[Any], Any]) -> Any:
    """Add or subtract: sparse for two sparse arrays, dense with a dense array of the whole shape."""
    if is_sparse(x) and is_sparse(y):
        if x.shape == y.shape and same_pattern(x, y):
            return x.like(x.data + sign(y.data))
        x, y = one_layout(x, y)
        data_x, indices_x = x.full
        data_y, indices_y = y.full
        dtype = wnp.result_type(data_x.dtype, data_y.dtype)
        data = wnp.concatenate([data_x.astype(dtype), sign(data_y.astype(dtype))], axis=x.n_batch)
        indices = wnp.concatenate([indices_x, indices_y.astype(indices_x.dtype)], axis=x.n_batch)
        return BCOO((data, indices), shape=x.shape)
    dense, sparse = (y, x) if is_sparse(x) else (x, y)
    if np.shape(dense) != sparse.shape:
        raise NotSupportedError(
            "A sparse array cannot be added to a dense one of another shape: the result would be dense.",
            received=f"{sparse!r} and an array of shape {np.shape(dense)}",
            fix="sparse.todense(x) + y   if it is meant",
            at=current_line(),
        )
    return as_dense(x) + sign(as_dense(y))


def same_pattern(x: BCOO, y: BCOO) -> bool:
    """Return whether two arrays share the same indices buffer."""
    return x.indices is y.indices and x.n_dense == y.n_dense


def one_layout(x: BCOO, y: BCOO) -> tuple[BCOO, BCOO]:
    """Convert two arrays to the layout with fewer batch and dense dimensions."""
    layout = {"n_batch": min(x.n_batch, y.n_batch), "n_dense": min(x.n_dense, y.n_dense)}
    return x.update_layout(**layout), y.update_layout(**layout)


@rule("mul")
def _mul(x: Any, y: Any) -> BCOO:
    if is_sparse(x) and is_sparse(y):
        if same_pattern(x, y) and x.unique_indices:
            return x.like(x.data * y.data)
        return bcoo_multiply_sparse(*one_layout(x, y))
    dense, sparse = (y, x) if is_sparse(x) else (x, y)
    return sparse.like(bcoo_multiply_dense(sparse, dense))


@rule("and")
def _and(x: Any, y: Any) -> BCOO:
    if any(get_aval(v.data if is_sparse(v) else v).dtype != np.bool_ for v in (x, y)):  # type: ignore[attr-defined]
        raise NotSupportedError(
            "A sparse array of integers has no bitwise and.", fix="sparse.todense(x) & y", at=current_line()
        )
    return _mul(x, y)  # the product of Booleans


@rule("div")
def _div(x: Any, y: Any) -> BCOO:
    if is_sparse(y):
        raise NotSupportedError(
            "Division by a sparse array would be dense: zeros are divided by too.",
            received=f"{y!r}",
            fix="x / sparse.todense(y)   if it is meant",
            at=current_line(),
        )
    one = wnp.ones((), get_aval(y).dtype)  # type: ignore[attr-defined]
    if not np.shape(y):
        return x.like(x.data / y)
    return x.like(bcoo_multiply_dense(x, one / y))


@rule("pow")
def _pow(x: Any, y: Any) -> BCOO:
    if is_sparse(y) or np.shape(y) or isinstance(y, Tracer) or float(y) <= 0:
        raise NotSupportedError(
            "A power of a sparse array needs a constant positive exponent to be sparse.",
            fix="sparse.todense(x) ** y   if it is meant",
            at=current_line(),
        )
    x = x if x.unique_indices else bcoo_sum_duplicates(x, nse=x.nse)
    return x.like(x.data**y)


# ----------------------------------------------------------------------------------------------------------- movement


@rule("dot_general")
def _dot(x: Any, y: Any, **params: Any) -> Any:
    known = {k: params.get(k) for k in ("dimension_numbers", "precision", "preferred_element_type")}
    return bcoo_dot_general(x, y, **known)


@rule("reduce_sum")
def _reduce_sum(x: BCOO, *, axes: Sequence[int], **params: Any) -> Any:
    found = reduce_in_dtype(x, axes)
    return found if found.ndim else found.todense()


@rule("transpose")
def _transpose(x: BCOO, *, permutation: Sequence[int]) -> BCOO:
    return bcoo_transpose(x, permutation=permutation)


@rule("broadcast_in_dim")
def _broadcast(x: BCOO, *, shape: Any, broadcast_dimensions: Any, **params: Any) -> BCOO:
    return bcoo_broadcast_in_dim(x, shape=shape, broadcast_dimensions=broadcast_dimensions)


@rule("reshape")
def _reshape(x: BCOO, *, new_sizes: Any, dimensions: Any = None, **params: Any) -> BCOO:
    return bcoo_reshape(x, new_sizes=new_sizes, dimensions=dimensions)


@rule("squeeze")
def _squeeze(x: BCOO, *, dimensions: Any) -> BCOO:
    return bcoo_squeeze(x, dimensions=dimensions)


@rule("expand_dims")
def _expand(x: BCOO, *, dimensions: Any) -> BCOO:
    shape = list(x.shape)
    for d in sorted(dimensions):
        shape.insert(d, 1)
    remaining = [d for d in range(len(shape)) if d not in dimensions]
    return bcoo_broadcast_in_dim(x, shape=shape, broadcast_dimensions=remaining)


@rule("slice")
def _slice(x: BCOO, *, start_indices: Any, limit_indices: Any, strides: Any = None) -> BCOO:
    return bcoo_slice(x, start_indices=start_indices, limit_indices=limit_indices, strides=strides)


@rule("dynamic_slice")
def _dynamic_slice(x: BCOO, *starts: Any, slice_sizes: Any) -> BCOO:
    return bcoo_dynamic_slice(x, starts, slice_sizes)


@rule("rev")
def _rev(x: BCOO, *, dimensions: Any) -> BCOO:
    return bcoo_rev(x, dimensions)


@rule("concatenate")
def _concatenate(*operands: Any, dimension: int) -> BCOO:
    if not all(map(is_sparse, operands)):
        raise NotSupportedError(
            "Sparse and dense arrays cannot be concatenated.", fix="BCOO.fromdense or sparse.todense before"
        )
    layout = {"n_batch": min(x.n_batch for x in operands), "n_dense": min(x.n_dense for x in operands)}
    return bcoo_concatenate([x.update_layout(**layout) for x in operands], dimension=dimension)


@rule("gather")
def _gather(x: BCOO, indices: Any, **params: Any) -> BCOO:
    return bcoo_gather(x, indices, params["dimension_numbers"], params["slice_sizes"], mode="clip")


@rule("conv_general_dilated")
def _convolve(x: Any, y: Any, **params: Any) -> BCOO:
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count", "batch_group_count")
    return bcoo_conv_general_dilated(x, y, **{n: params[n] for n in names if n in params})


@rule("select_n")
def _select(which: Any, *cases: Any) -> Any:
    if is_sparse(which) or np.shape(which) or not all(map(is_sparse, cases)):
        raise NotSupportedError(
            "A selection between sparse and dense arrays, or by elements, cannot be sparse.",
            fix="sparse.todense(x)   if it is meant",
            at=current_line(),
        )
    return lax.switch(wnp.asarray(which, np.int32), [lambda c=c: c for c in cases])


# ------------------------------------------------------------------------------------------------------- control flow


@rule("cond")
def _cond(index: Any, *operands: Any, branches: Sequence[Jaxpr]) -> Sequence[Any]:
    functions = [lambda *args, b=b: interpret(b, args) for b in branches]
    return lax.switch(index, functions, *operands)


@rule("scan")
def _scan(
    *operands: Any, jaxpr: Jaxpr, length: int, reverse: bool, unroll: int, num_consts: int, num_carry: int
) -> Sequence[Any]:
    consts, first = operands[:num_consts], num_consts + num_carry

    def step(carry: Any, xs: Any) -> Any:
        results = interpret(jaxpr, (*consts, *carry, *xs))
        return tuple(results[:num_carry]), tuple(results[num_carry:])

    carry, xs = tuple(operands[num_consts:first]), tuple(operands[first:])
    carry, ys = lax.scan(step, carry, xs, length=length, reverse=reverse, unroll=unroll)
    return [*carry, *ys]


@rule("while")
def _while(*operands: Any, cond_jaxpr: Jaxpr, cond_nconsts: int, body_jaxpr: Jaxpr, body_nconsts: int) -> Sequence[Any]:
    first, second = operands[:cond_nconsts], operands[cond_nconsts : cond_nconsts + body_nconsts]
    return lax.while_loop(
        lambda carry: interpret(cond_jaxpr, (*first, *carry))[0],
        lambda carry: tuple(interpret(body_jaxpr, (*second, *carry))),
        tuple(operands[cond_nconsts + body_nconsts :]),
    )


def _apply(function: Callable[..., Any], *args: Any) -> Any:
    """Apply a function of dense arrays to arguments that may be sparse. A product of matrices needs no staging."""
    if function is operator.matmul:
        x, y = map(as_bcoo, args)
        if all(1 <= np.ndim(v) <= 2 for v in (x, y)) and not (is_sparse(x) and is_sparse(y)):
            last, first = len(x.shape) - 1, max(len(y.shape) - 2, 0)
            numbering = (((last,), (first,)), ((), ()))
            if x.shape[last] != y.shape[first]:
                return sparsify(function)(*args)  # which raises the error of a product of matrices
            return bcoo_dot_general(x, y, dimension_numbers=numbering)
    return sparsify(function)(*args)


JAXSparse.apply = staticmethod(_apply)
