"""Faults in local jaxprs that the verifier finds: each is a small change of what the partitioner has made, with the
same shapes, so that nothing but its meaning is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from tests.compiler.host import partition
from weft.base.errors import InternalError
from weft.compiler.partition import reshard
from weft.compiler.partition.driver import prepare
from weft.compiler.partition.partition import PartitionedJaxpr
from weft.compiler.partition.rules import Dims
from weft.compiler.partition.verify import verify_local
from weft.ir.interpreter import literal
from weft.ir.jaxpr import Equation, Jaxpr, Literal, subjaxprs
from weft.ir.primitive import lookup
from weft.trace.closed import stage_subjaxpr

SIZES = {"x": 2, "y": 2}
WHOLE: Dims = ((), ())
ROWS, COLUMNS, BOTH = (("x",), ()), ((), ("x",)), (("x",), ("y",))
SQUARE = onp.zeros((8, 8), onp.float32)

# From an equation and its operands to other results, or None where it stays as it is.
Fault = Callable[[Equation, Sequence[Any]], Any]


class Case(NamedTuple):
    """A program of square matrices, how its arguments and results are split."""

    function: Callable[..., Any]
    arguments: Sequence[Dims]
    results: Sequence[Dims]


def in_scan(a: Any, w: Any) -> Any:
    return lax.scan(lambda h, _: (np.tanh(h @ w), h.sum()), a, None, length=3)


def in_while(a: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < 10, lambda c: c + np.tanh(c.sum(0)), a)


def in_branch(a: Any, w: Any) -> Any:
    return lax.cond(a.sum() > 0, lambda a: a @ w, lambda a: a - w, a)


CASES = {
    "matmul": Case(lambda a, w: np.sin(a @ w), [COLUMNS, ROWS], [WHOLE]),
    "scattered": Case(lambda a, w: np.sin(a @ w), [COLUMNS, ROWS], [ROWS]),
    "maximum": Case(lambda a: np.sin(a.max(0, keepdims=True) + a), [ROWS], [ROWS]),
    "gathered": Case(lambda a: np.sort(a, 0), [ROWS], [WHOLE]),
    "exchanged": Case(lambda a: np.cos(a) * 2, [ROWS], [COLUMNS]),
    "sliced": Case(lambda a, w: np.sin(a) * w, [ROWS, WHOLE], [ROWS]),
    "two axes": Case(lambda a: np.sort(np.sin(a), 0), [(("x", "y"), ())], [WHOLE]),
    "outer": Case(lambda a, w: a @ w, [(("x",), ()), ((), ("y",))], [BOTH]),
    "scan": Case(in_scan, [COLUMNS, ROWS], [WHOLE, ((),)]),
    "while": Case(in_while, [ROWS], [ROWS]),
    "branch": Case(in_branch, [COLUMNS, ROWS], [WHOLE]),
}


def at(name: str, change: Callable[..., Any], skip: int = 0) -> Fault:
    """Change the first operation of a name, or one after it: `change` has its operands and its parameters."""
    left = [skip]

    def fault(equation: Equation, args: Sequence[Any]) -> Any:
        if equation.primitive.name != name:
            return None
        left[0] -= 1
        return [change(*args, **equation.params)] if left[0] < 0 else None

    return fault


def other(params: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**params, **changes}


def collective(name: str, x: Any, **params: Any) -> Any:
    return lookup(name)(x, **params)


def copies(x: Any, axis_size: int, all_gather_dimension: int, **_: Any) -> Any:
    """What a gather returns if nobody sends anything."""
    return np.concatenate([x] * axis_size, all_gather_dimension)


def gathered_elsewhere(x: Any, **params: Any) -> Any:
    dim = params["all_gather_dimension"]
    x = collective("all_gather", np.swapaxes(x, 0, 1), **params)
    assert x.shape[dim] != 8 or x.shape == (8, 8)
    return np.swapaxes(x, 0, 1).reshape(8, -1)[:, : 8 if dim == 0 else None].reshape(8, 8)


def first_part(x: Any, scatter_dimension: int, axis_size: int, **_: Any) -> Any:
    return lax.slice_in_dim(x, 0, x.shape[scatter_dimension] // axis_size, axis=scatter_dimension)


def slice_own_shard(x: Any, axis: str, dim: int) -> Any:
    return reshard.slice_own_shard(x, axis, SIZES[axis], dim)


def scattered_elsewhere(x: Any, scatter_dimension: int, **params: Any) -> Any:
    part = collective("reduce_scatter", x, scatter_dimension=1 - scatter_dimension, **params)
    return part.reshape(part.shape[::-1])


def not_sent(x: Any, split_axis: int, concat_axis: int, **_: Any) -> Any:
    return np.moveaxis(x, split_axis, concat_axis)


def exchanged_back(x: Any, split_axis: int, concat_axis: int, **params: Any) -> Any:
    moved = np.moveaxis(x, split_axis, concat_axis)
    out = collective("all_to_all", moved, split_axis=concat_axis, concat_axis=split_axis, **params)
    return np.moveaxis(out, split_axis, concat_axis)


def sliced_from_the_start(x: Any, *starts: Any, slice_sizes: Any, **_: Any) -> Any:
    return lax.slice(x, (0, 0), slice_sizes)


def sliced_elsewhere(x: Any, *starts: Any, slice_sizes: Any, **_: Any) -> Any:
    return slice_own_shard(x, "x", 1).reshape(slice_sizes)


def sliced_over_another_axis(x: Any, *starts: Any, slice_sizes: Any, **_: Any) -> Any:
    return slice_own_shard(x, "y", 0)


def contracted_elsewhere(a: Any, b: Any, **params: Any) -> Any:
    out = lax.dot_general(a, b, (((0,), (1,)), ((), ())))
    return out if out.shape == (8, 8) else np.zeros((8, 8), a.dtype) + out.sum()


def without_sum(x: Any, **_: Any) -> Any:
    return x


def with_a_predicate(x: Any, **params: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda v: collective("psum", v, **params), lambda v: v, x)


FAULTS: list[tuple[str, str, Fault]] = [
    ("matmul", "the sum is missing", at("psum", without_sum)),
    ("matmul", "the sum is over the other axis", at("psum", lambda x, **p: collective("psum", x, axes=("y",)))),
    ("matmul", "the sum is done twice", at("psum", lambda x, **p: collective("psum", collective("psum", x, **p), **p))),
    ("matmul", "the sum is over the other axis too", at("psum", lambda x, **p: collective("psum", x, axes=("x", "y")))),
    ("matmul", "the largest term is taken", at("psum", lambda x, **p: collective("pmax", x, **p))),
    ("matmul", "groups of one", at("psum", lambda x, axes: collective(
        "psum", x, axes=axes, axis_index_groups=((0,), (1,))))),
    ("matmul", "sums are sent to the neighbour", at("psum", lambda x, axes: collective(
        "ppermute", x, axis_name="x", perm=((0, 1), (1, 0))))),
    ("matmul", "only some devices come to the sum", at("psum", with_a_predicate)),
    ("matmul", "a function of the terms is summed", at("psum", lambda x, **p: collective("psum", np.sin(x), **p))),
    ("matmul", "something is added to each term", at("psum", lambda x, **p: collective("psum", x + 1.0, **p))),
    ("matmul", "terms are multiplied", at("psum", lambda x, **p: collective("psum", x * x, **p))),
    ("matmul", "other dimensions are contracted", at("dot_general", contracted_elsewhere)),
    ("matmul", "the position is added", at("psum", lambda x, **p: np.add(
        collective("psum", x, **p), lookup("axis_index")(axis_name="x")))),
    ("scattered", "nothing is summed", at("reduce_scatter", lambda x, **p: slice_own_shard(x, "x", 0))),
    ("scattered", "all have the first part", at("reduce_scatter", lambda x, **p: first_part(
        collective("psum", x, axes=("x",)), **p))),
    ("scattered", "the other dimension is scattered", at("reduce_scatter", scattered_elsewhere)),
    ("scattered", "it is scattered over the other axis", at("reduce_scatter", lambda x, **p: collective(
        "reduce_scatter", x, **other(p, axis_name="y")))),
    ("scattered", "a slice is summed", at("reduce_scatter", lambda x, **p: collective(
        "psum", slice_own_shard(x, "x", 0), axes=("x",)))),
    ("maximum", "the largest is missing", at("pmax", without_sum)),
    ("maximum", "the largest are added", at("pmax", lambda x, **p: collective("psum", x, **p))),
    ("maximum", "the largest along the other axis", at("pmax", lambda x, **p: collective("pmax", x, axes=("y",)))),
    ("gathered", "each has its own part several times", at("all_gather", copies)),
    ("gathered", "it is gathered over the other axis", at("all_gather", lambda x, **p: collective(
        "all_gather", x, **other(p, axis_name="y")))),
    ("gathered", "the other dimension is gathered", at("all_gather", gathered_elsewhere)),
    ("gathered", "parts are sorted and then gathered", at("all_gather", lambda x, **p: collective(
        "all_gather", np.sort(x, 0), **p))),
    ("two axes", "the major axis is gathered first", at("all_gather", lambda x, **p: collective(
        "all_gather", x, **other(p, axis_name="x" if p["axis_name"] == "y" else "y")))),
    ("two axes", "the major axis is gathered twice", at("all_gather", lambda x, **p: collective(
        "all_gather", x, **other(p, axis_name="x")))),
    ("exchanged", "nothing is sent", at("all_to_all", not_sent)),
    ("exchanged", "it is sent in the other direction", at("all_to_all", exchanged_back)),
    ("exchanged", "it is sent along the other axis", at("all_to_all", lambda x, **p: collective(
        "all_to_all", x, **other(p, axis_name="y")))),
    ("sliced", "all take the first part", at("dynamic_slice", sliced_from_the_start)),
    ("sliced", "the other dimension is sliced", at("dynamic_slice", sliced_elsewhere)),
    ("sliced", "the position is that along the other axis", at("dynamic_slice", sliced_over_another_axis)),
    ("outer", "the result is transposed", at("dot_general", lambda a, b, **p: lax.dot_general(a, b, **p).T)),
    ("outer", "operands are swapped", at("dot_general", lambda a, b, **p: b.T @ a.T)),
    ("scan", "the sum is missing in the body", at("psum", without_sum)),
    ("scan", "the sum is over the other axis in the body", at("psum", lambda x, **p: collective(
        "psum", x, axes=("y",)))),
    ("while", "devices decide each for itself", at("psum", without_sum)),
    ("while", "the sum is missing in the body", at("psum", without_sum, skip=1)),
    ("branch", "devices take other branches", at("psum", without_sum)),
    ("branch", "a branch returns terms", at("psum", without_sum, skip=1)),
]  # fmt: skip


def partitioned(case: Case) -> tuple[Jaxpr, PartitionedJaxpr]:
    jaxpr = prepare(weft.make_jaxpr(case.function)(*[SQUARE] * len(case.arguments)))
    return jaxpr, partition(jaxpr, SIZES, case.arguments, case.results)


def mutated(jaxpr: Jaxpr, fault: Fault) -> Jaxpr:
    """The same jaxpr with one operation changed, in a body too."""
    done: list[Equation] = []

    def staged(jaxpr: Jaxpr) -> Jaxpr:
        def run(*args: Any) -> list[Any]:
            known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*jaxpr.consts, *args), strict=True))
            of = lambda a: literal(a) if type(a) is Literal else known[a]
            for equation in jaxpr.eqns:
                operands, primitive = [of(a) for a in equation.invars], equation.primitive
                out = None if done else fault(equation, operands)
                if out is not None:
                    done.append(equation)
                else:
                    bodies = [staged(body) for body in subjaxprs(equation.params)]
                    params = primitive.with_bodies(bodies, equation.params) if bodies else equation.params  # type: ignore[attr-defined]
                    out = primitive(*operands, **params)
                    out = out if primitive.multiple_results else [out]
                known.update(zip(equation.outvars, out, strict=True))
            return [of(a) for a in jaxpr.outvars]

        return stage_subjaxpr(run, [v.aval for v in jaxpr.invars], name=jaxpr.name)

    found = staged(jaxpr)
    assert done, "the fault is nowhere"
    return prepare(found)


@pytest.mark.parametrize("name", CASES)
def test_what_is_right_passes(name: str) -> None:
    case = CASES[name]
    jaxpr, result = partitioned(case)
    same: Fault = lambda e, args: None if e.primitive.multiple_results else [e.primitive(*args, **e.params)]
    for local in (result.jaxpr, mutated(result.jaxpr, same)):
        verify_local(local, result.in_dims, result.out_dims, jaxpr.out_avals, SIZES)


@pytest.mark.parametrize(
    ("name", "fault"), [(n, f) for n, _, f in FAULTS], ids=[f"{n}: {text}" for n, text, _ in FAULTS]
)
def test_a_fault_is_found(name: str, fault: Fault) -> None:
    jaxpr, result = partitioned(CASES[name])
    wrong = mutated(result.jaxpr, fault)
    with pytest.raises(InternalError, match="The partitioned program is wrong"):
        verify_local(wrong, result.in_dims, result.out_dims, jaxpr.out_avals, SIZES)
