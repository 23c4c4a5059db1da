"""Control flow on functions of trees: cond, switch, while_loop, fori_loop, scan and map."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.api.flat import check_values, get_name
from weft.api.vectorize import vmap
from weft.base import dtypes, tree
from weft.base.arguments import called
from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    BranchMismatchError,
    CarryMismatchError,
    ShardingTypeError,
)
from weft.base.settings import config
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.indexing.expression import Expression, maximum
from weft.ir.jaxpr import Jaxpr, Var, subjaxprs
from weft.ir.kinds import ManualCast
from weft.ir.types import ArrayType, get_aval, is_value
from weft.ir.unplaced import varying_along, with_casts_outside
from weft.ir.varying import manual_state
from weft.lax.bodies import adapt_function, lift_arrays, trace_body
from weft.lax.body_types import fix_carry_types, merge_types, with_result_types
from weft.primitives.control.cond import cond as cond_primitive
from weft.primitives.control.scan import scan as scan_primitive
from weft.primitives.control.while_loop import while_ as while_primitive
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.elementwise.compare import lt, ne
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.select import clamp
from weft.primitives.movement.concatenate import concatenate, stack_values
from weft.primitives.movement.shape import reshape
from weft.primitives.movement.size import size_value
from weft.primitives.movement.slicing import slice as slice_primitive
from weft.trace.ref_bodies import LoopRefs, with_equal_refs
from weft.trace.refs import Ref, Touched, ref_values, write_back
from weft.trace.tracer import Tracer

_MISSING = object()


def flatten_argument(value: Any, caller: str, word: str) -> tuple[list[Any], Any]:
    """Flatten an argument of `caller` into leaves and structure; raise an error for leaves that are not arrays."""
    leaves, treedef = tree.flatten(value)
    check_values(
        value,
        leaves,
        lambda path: f"{caller} got a value that is not an array at {word}{path}.",
        "pass arrays or numbers; close over other objects instead",
    )
    return leaves, treedef


def type_error(what: str, received: str, fix: str | None = None) -> ArgumentTypeError:
    """Return the error for an argument of the wrong type, to be raised by the caller."""
    return ArgumentTypeError(what, received=received, fix=fix)


def in_short(value: Any) -> str:
    return get_aval(value).short() if is_value(value) else f"{value!r} of type {type(value).__name__}"


# -- branches ---------------------------------------------------------------------------------------------------------


@boundary
def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _MISSING,
    linear: Any = None,
) -> Any:
    """Run `true_fun(*operands)` if `pred` is true, else `false_fun(*operands)`; only one of them runs.

    Args:
        pred: a scalar boolean, which may be traced.
        true_fun, false_fun: functions of the operands whose results have the same structure, shapes and dtypes.
        *operands: trees of arrays.
        operand: one operand, the older way to pass it.
        linear: accepted for compatibility.

    Returns:
        The result of the branch. Under `vmap` with a mapped `pred` each lane runs its own branch.

    >>> from weft import lax
    >>> lax.cond(True, lambda x: x + 1, lambda x: x - 1, 10)
    Array(11, dtype=int32, weak_type=True)
    """
    if operand is not _MISSING:
        operands = (operand,)
    if len(operands) == 2 and callable(false_fun) and callable(operands[1]) and not callable(true_fun):
        # An operand before each function: cond(pred, true_operand, true_fun, false_operand, false_fun).
        first, second, true_branch, false_branch = true_fun, operands[0], false_fun, operands[1]
        return cond(pred, lambda pair: true_branch(pair[0]), lambda pair: false_branch(pair[1]), (first, second))
    if not (callable(true_fun) and callable(false_fun)):
        received = f"{type(true_fun).__name__} and {type(false_fun).__name__}"
        fix = "lax.cond(pred, lambda: a, lambda: b), or where(pred, a, b) for two values"
        raise type_error("lax.cond needs two functions after the predicate.", received, fix)
    if not is_value(pred):
        what = "Pred type must be either boolean or number" if callable(pred) else "Pred must be a scalar"
        if pred is None:
            what = "cond predicate is None; it must be a boolean or a number"
        raise type_error(f"lax.cond: {what}, got {pred} of type {type(pred)}.", in_short(pred))
    aval = get_aval(pred)
    if not isinstance(aval, ArrayType) or aval.shape:
        fix = "weft.numpy.where(c, a, b) chooses per element; c.any() or c.all() is one predicate"
        raise type_error("The predicate of lax.cond must be a scalar.", aval.short(), fix)
    if config.disable_jit and not isinstance(pred, Tracer):
        return lift_arrays((true_fun if bool(pred) else false_fun)(*lift_arrays(operands)))
    kind = dtypes.kind(aval.dtype)
    if kind not in "biuf":
        raise type_error("The predicate of lax.cond must be a boolean or a real number.", aval.short())
    if kind != "b":
        pred = ne(pred, np.zeros((), aval.dtype))
    index = convert_element_type(pred, new_dtype=np.dtype(np.int32), weak_type=False)
    return branch(index, (false_fun, true_fun), operands, "lax.cond", ("false_fun", "true_fun"))


@boundary
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = _MISSING) -> Any:
    """Run `branches[index](*operands)` with the index clamped into range; only that branch runs.

    Args:
        index: a scalar integer, which may be traced.
        branches: functions of the operands whose results agree in structure and types.
        *operands: trees of arrays.
        operand: one operand, the older way to pass it.

    Returns:
        The result of the branch.

    >>> from weft import lax
    >>> lax.switch(2, [lambda x: x, lambda x: 2 * x, lambda x: 3 * x], 5)
    Array(15, dtype=int32, weak_type=True)
    """
    if operand is not _MISSING:
        operands = (operand,)
    if not branches:
        raise ArgumentError("lax.switch got an Empty branch sequence; it needs one function at least.")
    if not all(callable(b) for b in branches):
        raise ArgumentError("lax.switch needs a non-empty sequence of functions.", received=in_short(branches))
    aval = get_aval(index) if is_value(index) else None
    if not isinstance(aval, ArrayType) or aval.shape or dtypes.kind(aval.dtype) not in "iu":
        fix = "index.astype(int), or an int"
        shape = np.shape(index) if isinstance(index, (tuple, list)) else getattr(aval, "shape", ())
        what = f"Branch index must be scalar, got {index} of shape {shape}."
        raise type_error(
            f"lax.switch: {what if shape else f'Index type must be an integer, got {index}.'}", in_short(index), fix
        )
    if len(branches) == 1:
        return branches[0](*operands)
    if config.disable_jit and not isinstance(index, Tracer):
        return lift_arrays(branches[min(max(int(index), 0), len(branches) - 1)](*lift_arrays(operands)))
    index = convert_element_type(index, new_dtype=np.dtype(np.int32), weak_type=False)
    index = clamp(np.array(0, np.int32), index, np.array(len(branches) - 1, np.int32))
    return branch(index, tuple(branches), operands, "lax.switch", tuple(f"branches[{i}]" for i in range(len(branches))))


def branch(
    index: Any, functions: Sequence[Callable[..., Any]], operands: Sequence[Any], caller: str, words: Sequence[str]
) -> Any:
    functions, operands = with_refs_closed_over(functions, operands)
    leaves, in_tree = flatten_argument(tuple(operands), caller, "operands")
    types = [get_aval(leaf) for leaf in leaves]
    order = range(len(functions)) if caller != "lax.cond" else (1, 0)  # in the order of the arguments
    bodies = {i: trace_body(functions[i], in_tree, types, f"a branch of {caller},", takes_refs=True) for i in order}
    jaxprs, constants, trees, touches = (
        [*parts] for parts in zip(*(bodies[i] for i in range(len(functions))), strict=True)
    )
    touched: list[Touched] = []
    if any(touches):
        jaxprs, touched = with_equal_refs(jaxprs, touches)
        leaves = [*leaves, *ref_values(touched)]
    jaxprs = with_equal_results(jaxprs, trees, caller, words)
    # Where each device chooses its own branch, all branches and the results vary along the axes of the choice.
    decides = manual_state(get_aval(index)).varying
    check_no_communication(caller, "index" if caller == "lax.switch" else "predicate", decides, jaxprs)
    joint = jaxprs[0].memoize(("branches", *jaxprs[1:]), lambda: with_all_constants(jaxprs, constants))
    flat_constants = [c for consts in constants for c in consts]
    branches = tuple(varying_along(p, decides) for p in joint)
    results = cond_primitive(index, *flat_constants, *leaves, branches=branches)
    count = trees[0].num_leaves
    write_back(touched, results[count:])
    return tree.unflatten(trees[0], results[:count])


def with_refs_closed_over(
    functions: Sequence[Callable[..., Any]], operands: Sequence[Any]
) -> tuple[Sequence[Callable[..., Any]], Sequence[Any]]:
    """Make functions of the array operands only: mutable arrays are closed over and passed on unchanged."""
    leaves, treedef = tree.flatten(tuple(operands))
    if not any(isinstance(leaf, Ref) for leaf in leaves):
        return functions, operands

    def closing(function: Callable[..., Any]) -> Callable[..., Any]:
        def closed(*arrays: Any) -> Any:
            rest = iter(arrays)
            own = [leaf if isinstance(leaf, Ref) else next(rest) for leaf in leaves]
            return function(*tree.unflatten(treedef, own))

        return closed

    return [closing(f) for f in functions], [leaf for leaf in leaves if not isinstance(leaf, Ref)]


def with_all_constants(jaxprs: Sequence[Jaxpr], constants: Sequence[Sequence[Any]]) -> tuple[Jaxpr, ...]:
    """Return the branches with one signature, which takes the constants of all of them."""
    out = []
    for i, jaxpr in enumerate(jaxprs):
        own = len(constants[i])
        arguments: list[Var] = []
        for other, consts in enumerate(constants):
            arguments.extend(jaxpr.invars[:own] if other == i else [Var(get_aval(c)) for c in consts])
        out.append(jaxpr.replace(invars=[*arguments, *jaxpr.invars[own:]]))
    return tuple(out)


def with_equal_results(jaxprs: Sequence[Jaxpr], trees: Sequence[Any], caller: str, words: Sequence[str]) -> list[Jaxpr]:
    """Convert branches to results of equal types; raise an error if structures or types differ.

    Results that differ in weakness only take the type of the first branch, which for `cond` is `false_fun`, as in JAX.
    """
    for index in range(1, len(jaxprs)):
        if trees[index] != trees[0]:
            found = tree.equality_errors_of_structures(trees[0], trees[index])
            raise BranchMismatchError(
                f"{caller} branch outputs must have the same pytree structure, but they "
                f"differ: {words[0]} and {words[index]}.",
                received="; ".join(f"result{tree.keystr(d.path)}: {d.first} and {d.second}" for d in found[:3])
                or f"{trees[0]} and {trees[index]}",
                fix="return the same containers with the same keys from every branch",
                at=user_line(),
            )
        for leaf, (a, b) in enumerate(zip(jaxprs[0].outvars, jaxprs[index].outvars, strict=True)):
            if not a.aval.matches(b.aval) and not merge_types(a.aval, b.aval).matches(merge_types(b.aval, a.aval)):
                path = [p for p, _ in tree.leaves_with_path(tree.unflatten(trees[0], range(trees[0].num_leaves)))][leaf]
                raise BranchMismatchError(
                    f"{caller} branches must have equal output types but they differ at result{tree.keystr(path)}.",
                    received=f"{a.aval.short()} from {words[0]} and {b.aval.short()} from {words[index]}",
                    fix="convert one of them, for example with .astype or .reshape",
                    at=user_line(),
                )
    result_types = [
        functools.reduce(merge_types, (v.aval for v in results))
        for results in zip(*(p.outvars for p in jaxprs), strict=True)
    ]
    return [with_result_types(p, result_types) for p in jaxprs]


def check_no_communication(caller: str, what: str, decides: frozenset[Any], jaxprs: Sequence[Jaxpr]) -> None:
    """Raise an error if a branch or body that devices choose individually communicates along the axes of the choice.

    Some devices would wait for the others forever.
    """
    for jaxpr in jaxprs if decides else ():
        found = communicates(jaxpr, decides)
        if found is not None:
            equation, axis = found
            at = f" at {equation.source.describe()}" if equation.source is not None else ""
            raise ShardingTypeError(
                f"{caller}: the {what} varies along {axis!r}, and `{equation.primitive.name}`{at} communicates along"
                " it: devices that choose another way would never take part.",
                fix=(
                    f"communicate before or after {caller}",
                    f"make the {what} the same on all devices, for example with lax.pmax(..., {axis!r})",
                ),
                at=user_line(),
            )


def communicates(jaxpr: Jaxpr, axes: frozenset[Any]) -> Any:
    """Return the first equation that communicates along one of the axes, and the axis; None if no equation does."""
    for equation in jaxpr.eqns:
        primitive: Any = equation.primitive
        if not primitive.higher_order and not isinstance(primitive, ManualCast) and primitive.name != "axis_index":
            for axis in primitive.named_axes(equation.params):
                if axis in axes:
                    return equation, axis
        bound = primitive.bound_axes(equation.params) if primitive.higher_order else frozenset()
        for inner in subjaxprs(equation.params):
            found = communicates(inner, axes - bound)
            if found is not None:
                return found
    return None


# -- loops ------------------------------------------------------------------------------------------------------------


class Loop(NamedTuple):
    """A loop as the user called it.

    Holds the called function, the name of the body, and the depth of the user's carry inside the primitive's carry,
    which may have counters beside it.
    """

    caller: str
    body: str
    depth: int = 0

    def name_at(self, path: Sequence[Any]) -> str:
        return f"carry{tree.keystr(path[self.depth :])}"


def carry_report(loop: Loop, in_tree: Any) -> Callable[..., Any]:
    def report(body: Any, types: Sequence[Any], outs: Sequence[Any]) -> None:
        paths = [p for p, _ in tree.leaves_with_path(tree.unflatten(in_tree, range(in_tree.num_leaves)))]
        wrong = [
            f"{loop.name_at(p)} goes in as {a.short()} and comes out as {b.short()}"
            for p, a, b in zip(paths, types, outs, strict=False)
            if not a.matches(b)
        ]
        raise CarryMismatchError(
            f"{loop.caller} body function carry input and carry output must have equal types, but they differ in "
            f"{loop.body}.",
            received="\n".join(wrong[:4]),
            fix="convert the initial value or the new one so that both have the same shape and dtype",
            at=user_line(),
        )

    return report


def check_carry_tree(loop: Loop, expected: Any, got: Any) -> None:
    if expected != got:
        found = tree.equality_errors_of_structures(expected, got)
        lines = [f"{loop.name_at(d.path)}: {d.first} goes in, {d.second} comes out" for d in found[:3]]
        raise CarryMismatchError(
            f"{loop.caller} body function carry input and carry output must have the same pytree structure, but they "
            f"differ in {loop.body}.",
            received="\n".join(lines) or f"{got} for {expected}",
            fix="return the same containers with the same keys that came in",
            at=user_line(),
        )


@boundary
def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """Apply `body_fun` to the carry while `cond_fun(carry)` is true.

    Reverse mode works, with memory in proportion to the number of iterations.

    Args:
        cond_fun: a function of the carry that returns a scalar boolean.
        body_fun: a function from a carry to one of the same structure and types.
        init_val: the first carry, a tree of arrays.

    Returns:
        The last carry.

    >>> import weft
    >>> from weft import lax
    >>> lax.while_loop(lambda x: x < 100, lambda x: 2 * x, 1)
    Array(128, dtype=int32, weak_type=True)
    >>> weft.grad(lambda x: lax.while_loop(lambda y: y < 100, lambda y: y * x, x))(3.0)
    Array(405., dtype=float32, weak_type=True)
    """
    if not (callable(cond_fun) and callable(body_fun)):
        received = f"{type(cond_fun).__name__} and {type(body_fun).__name__}"
        raise type_error(
            "lax.while_loop needs two functions, the condition and the body, and an initial carry.", received
        )
    return run_while(cond_fun, body_fun, init_val, Loop("lax.while_loop", get_name(body_fun)))


def run_while(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any, loop: Loop) -> Any:
    """Run `while_loop` on behalf of `loop.caller`."""
    init, in_tree = flatten_argument(init_val, "lax.while_loop", "init_val")
    if config.disable_jit and not any(isinstance(x, Tracer) for x in init):
        value = lift_arrays(init_val)
        while cond_fun(value):
            value = lift_arrays(body_fun(value))
        return value
    tupled = tree.treedef_tuple([in_tree])

    def stage_body(types: list[Any]) -> Any:
        body, consts, out_tree, touched = trace_body(body_fun, tupled, types, f"the body of {loop.caller},", True, True)
        check_carry_tree(loop, in_tree, out_tree)
        return body, consts, touched

    (body, body_consts, body_touched), init = fix_carry_types(
        stage_body, init, in_tree.num_leaves, carry_report(loop, in_tree)
    )
    types = [get_aval(x) for x in init]
    condition, cond_consts, cond_tree, cond_touched = trace_body(
        cond_fun, tupled, types, f"the condition of {loop.caller},", True, True
    )
    if any(t.written for t in cond_touched):
        what = f"The condition of {loop.caller} writes a mutable array reference."
        raise ArgumentError(what, fix="write it in the body", at=user_line())
    result = condition.outvars[0].aval if len(condition.outvars) == 1 else None
    if not isinstance(result, ArrayType) or result.shape or result.dtype != np.bool_:
        received = result.short() if result is not None else str(cond_tree)
        fix = "compare (x > 0), or reduce with .any() or .all()"
        found = f"output type {received}" if result is not None else f"pytree {cond_tree}"
        raise type_error(
            f"{loop.caller}: cond_fun must return a boolean scalar, but got {found}.",
            received,
            fix,
        )
    decides = manual_state(result).varying
    check_no_communication(loop.caller, "condition", decides, [condition, body])
    condition, body = varying_along(condition, decides), varying_along(body, decides)
    body = with_casts_outside(body, len(body_consts))
    count = len(init)
    refs = LoopRefs.of(cond_touched, body_touched)
    if cond_touched or body_touched:
        condition = refs.arrange(condition, cond_touched, len(cond_consts), count, False)
        body = refs.arrange(body, body_touched, len(body_consts), count, True)
        constants = ref_values(refs.constant)
        cond_consts, body_consts = [*cond_consts, *constants], [*body_consts, *constants]
        init = [*init, *ref_values(refs.carried)]
    results = while_primitive(
        *cond_consts, *body_consts, *init,
        cond_jaxpr=condition, cond_nconsts=len(cond_consts), body_jaxpr=body, body_nconsts=len(body_consts),
    )  # fmt: skip
    write_back(refs.carried, results[count:])
    return tree.unflatten(in_tree, results[:count])


def _check_bounds(lower: Any, upper: Any) -> None:
    """Raise an error unless both bounds are integers, or both floats, without dimensions."""
    for bound in (lower, upper):
        aval = get_aval(bound) if is_value(bound) else None
        if not isinstance(aval, ArrayType) or aval.shape or dtypes.kind(aval.dtype) not in "iuf":
            raise type_error(
                "The bounds of lax.fori_loop must be integers or floats without dimensions.", in_short(bound)
            )
    if len({dtypes.kind(get_aval(bound).dtype) == "f" for bound in (lower, upper)}) > 1:  # type: ignore[attr-defined]
        shown = lambda bound: in_short(bound) + (f" ({bound})" if isinstance(bound, (int, float)) else "")
        received = f"{shown(lower)} and {shown(upper)}"
        fix = "fori_loop(0, 3, body, carry), with an int for each bound"
        raise type_error("The bounds of lax.fori_loop must be both integers or both floats.", received, fix)


@boundary
def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: int | bool | None = None
) -> Any:
    """Apply `body_fun(i, carry)` for i from `lower` up to `upper`.

    Bounds may be traced, and then `i` has their type; known integers make it a scan, in which `i` is weakly typed as a
    Python number is.

    Args:
        lower, upper: integers; `upper` is not included.
        body_fun: a function of the index and the carry that returns the next carry.
        init_val: the first carry.
        unroll: how many iterations are written out; needs known bounds.

    Returns:
        The last carry.

    >>> from weft import lax
    >>> lax.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int32, weak_type=True)
    """
    if not callable(body_fun):
        raise type_error(
            "The third argument of lax.fori_loop must be a function body_fun(i, carry).", type(body_fun).__name__
        )
    known = not isinstance(lower, Tracer) and not isinstance(upper, Tracer)
    if known and (isinstance(lower, Expression) or isinstance(upper, Expression)):
        # A symbolic size counts as the integer that it is.
        _check_bounds(*(0 if isinstance(bound, Expression) else bound for bound in (lower, upper)))
        dtype = dtypes.default_int_dtype()
    else:
        lower, upper = (size_value(b) if isinstance(b, Expression) else b for b in (lower, upper))
        _check_bounds(lower, upper)
        dtype = dtypes.result_type(lower, upper)
    # The number of steps between two floats is not known.
    first, last = (None, None)
    if known and dtypes.kind(dtype) in "iu":
        first, last = (bound if isinstance(bound, Expression) else int(bound) for bound in (lower, upper))
    if last is not None and (isinstance(last, Expression) or last <= np.iinfo(dtypes.default_int_dtype()).max):
        dtype, weak = dtypes.default_int_dtype(), True
    else:
        weak = get_aval(lower).weak_type and get_aval(lower).dtype == dtype  # type: ignore[attr-defined]
    one = (1 if dtypes.kind(dtype) in "iu" else 1.0) if weak else np.ones((), dtype)
    loop = Loop("lax.fori_loop", get_name(body_fun), depth=1)
    in_fori_loop = (f"the body of lax.fori_loop, {loop.body},", "lambda i, carry: new_carry; more values make a tuple")

    def counting(body: Callable[..., Any]) -> Any:
        def step(carry: Any, _: Any) -> Any:
            i, value = carry
            return (add(i, one), called(body, (i, value), *in_fori_loop)), None

        return step

    if first is not None and last is not None:
        as_index = lambda i: size_value(i) if isinstance(i, Expression) else i if weak else np.asarray(i, dtype)
        if config.disable_jit:
            value = lift_arrays(init_val)
            for i in range(first, last):
                value = lift_arrays(body_fun(lift_arrays(as_index(i)), value))
            return value
        step = adapt_function(body_fun, (dtype, weak), counting)
        start = (as_index(first), init_val)
        (_, result), _ = run_scan(step, start, None, maximum(last - first, 0), False, unroll or 1, loop)
        return result
    if unroll not in (None, False, 1):
        what = "lax.fori_loop can unroll only when both bounds are known integers."
        raise ArgumentError(what, received=f"bounds {in_short(lower)} and {in_short(upper)}")
    lower, upper = (convert_element_type(b, new_dtype=dtype, weak_type=weak) for b in (lower, upper))
    _, _, result = run_while(
        lambda state: lt(state[0], state[1]),
        lambda state: (add(state[0], one), state[1], called(body_fun, (state[0], state[2]), *in_fori_loop)),
        (lower, upper, init_val),
        loop,
    )
    return result


@boundary
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Apply `f(carry, x) -> (carry, y)` along the leading axis of `xs`; return the last carry and the stacked ys.

    Args:
        f: a function of a carry and a slice of `xs` that returns the next carry and an output.
        init: the first carry, a tree of arrays.
        xs: a tree of arrays with one leading size, or None with `length`.
        length: the number of iterations.
        reverse: whether to go from the last slice to the first; outputs stay at the positions of their slices.
        unroll: how many iterations are written out; True for all.
        _split_transpose: accepted for compatibility.

    Returns:
        A pair of the last carry and the stacked outputs.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.scan(lambda total, x: (total + x, total), 0, wnp.array([1, 2, 3]))
    (Array(6, dtype=int32), Array([0, 1, 3], dtype=int32, weak_type=True))
    """
    if not callable(f):
        raise type_error("The first argument of lax.scan must be a function f(carry, x).", type(f).__name__)
    return run_scan(f, init, xs, length, reverse, unroll, Loop("lax.scan", get_name(f)))


def run_scan(
    f: Callable[..., Any], init: Any, xs: Any, length: Any, reverse: bool, unroll: int | bool, loop: Loop
) -> Any:
    """Run `scan` on behalf of `loop.caller`."""
    if any(isinstance(leaf, Ref) for leaf in tree.leaves(xs)):
        return scan_refs(f, init, xs, length, reverse, unroll, loop)
    carry, carry_tree = flatten_argument(init, "lax.scan", "init")
    xs_leaves, xs_tree = flatten_argument(xs, "lax.scan", "xs")
    count = scan_length(xs, xs_leaves, length)
    if config.disable_jit and not any(isinstance(x, Tracer) for x in (*carry, *xs_leaves)):
        return scan_in_python(f, init, xs_tree, xs_leaves, count, reverse)
    in_tree = tree.treedef_tuple([carry_tree, xs_tree])
    slices = [slice_type(loop.caller, get_aval(x)) for x in xs_leaves]

    def stage_body(types: list[Any]) -> Any:
        what = f"the body of {loop.caller},"
        body, consts, out_tree, touched = trace_body(f, in_tree, [*types, *slices], what, True, True)
        parts = tree.treedef_children(out_tree)
        if len(parts) != 2 or not isinstance(tree.unflatten(out_tree, range(out_tree.num_leaves)), (tuple, list)):
            what = (
                f"{loop.caller} body output must be a pair, got {out_tree}: {loop.body} must return a pair (carry, y)."
            )
            raise type_error(what, str(out_tree), "return carry, y   (y may be None)")
        check_carry_tree(loop, carry_tree, parts[0])
        return body, consts, parts, touched

    (body, consts, parts, touched), carry = fix_carry_types(
        stage_body, carry, carry_tree.num_leaves, carry_report(loop, carry_tree)
    )
    body = with_casts_outside(body, len(consts))
    refs = LoopRefs.of(touched)
    if touched:
        body = refs.arrange(body, touched, len(consts), len(carry), True)
        consts, carry = [*consts, *ref_values(refs.constant)], [*carry, *ref_values(refs.carried)]
    results = scan_primitive(
        *consts, *carry, *xs_leaves,
        jaxpr=body, length=count, reverse=bool(reverse), unroll=unroll_count(unroll, count),
        num_consts=len(consts), num_carry=len(carry),
    )  # fmt: skip
    split = carry_tree.num_leaves
    write_back(refs.carried, results[split : len(carry)])
    return tree.unflatten(carry_tree, results[:split]), tree.unflatten(parts[1], results[len(carry) :])


def scan_refs(
    f: Callable[..., Any], init: Any, xs: Any, length: Any, reverse: bool, unroll: int | bool, loop: Loop
) -> Any:
    """Run `scan` where some of `xs` are mutable arrays.

    Each iteration gets a reference to a slice; written slices are stacked and written back.
    """
    leaves, treedef = tree.flatten(xs)
    refs = [leaf for leaf in leaves if isinstance(leaf, Ref)]
    written: list[bool] = []

    def body(carry: Any, slices: list[Any]) -> Any:
        own = [Ref.of(x) if isinstance(leaf, Ref) else x for leaf, x in zip(leaves, slices, strict=True)]
        carry, y = f(carry, tree.unflatten(treedef, own))
        written[:] = [x.written for x in own if isinstance(x, Ref)]
        return carry, (y, [x.value for x in own if isinstance(x, Ref) and x.written])

    arrays = [leaf.value if isinstance(leaf, Ref) else leaf for leaf in leaves]
    carry, (ys, news) = run_scan(body, init, arrays, length, reverse, unroll, loop)
    write_back([Touched(ref, w) for ref, w in zip(refs, written, strict=True)], news)
    return carry, ys


def unroll_count(unroll: int | bool, length: int) -> int:
    if isinstance(unroll, bool):
        return max(length, 1) if unroll else 1
    if unroll < 0:
        what = "unroll of lax.scan must be a boolean or an integer that is not negative."
        raise ArgumentError(what, received=str(unroll))
    return max(unroll, 1)


def slice_type(caller: str, aval: Any) -> Any:
    """Return the type of the slice that an iteration gets of an array.

    Every iteration runs on all devices, so the leading dimension must not be split.
    """
    if not aval.is_plain and aval.spec[0] is not None:
        whole = aval.spec.update(partitions=(None, *aval.spec.partitions[1:]))
        raise ShardingTypeError(
            f"{caller} takes slices along dimension 0, which must not be split, but it is split over {aval.spec[0]!r}.",
            received=aval.short(),
            fix=(f"{whole} for the scanned array", "split another dimension"),
        )
    return aval.without_dimension(0)


def scan_length(xs: Any, leaves: Sequence[Any], length: Any) -> Any:
    """Return the common leading size of all xs, by default `length`; raise an error if they differ."""
    sizes: dict[Any, str] = {}
    for path, leaf in tree.leaves_with_path(xs):
        shape = get_aval(leaf).shape  # type: ignore[attr-defined]
        if not shape:
            where = f"xs{tree.keystr(path)}"
            what = f"lax.scan got value with no leading axis to scan over: it needs one, but {where} has none."
            fix = "pass an array of the values, or xs=None with length=n"
            raise ArgumentError(what, received=in_short(leaf), fix=fix)
        sizes.setdefault(shape[0], f"xs{tree.keystr(path)}")
    if length is not None:
        if not isinstance(length, Tracer) and not hasattr(length, "__index__"):
            raise type_error("length of lax.scan must be an integer.", f"{length!r} of type {type(length).__name__}")
        length = length if isinstance(length, Expression) else operator.index(length)
        sizes.setdefault(length, "length")
    if len(sizes) > 1:
        found = ", ".join(
            f"{word} has {size}" if word != "length" else f"length is {size}" for size, word in sizes.items()
        )
        fix = "arrays of one length along axis 0; x[:n] shortens one, moveaxis brings another axis to the front"
        ways = [str(size) for size, word in sizes.items() if word != "length"]
        what = f"lax.scan got values with different leading axis sizes: {', '.join(ways)}."
        if len(ways) == 1:
            what = f"lax.scan got `length` argument of {length} which disagrees with leading axis sizes {ways[0]}."
        raise ArgumentError(what, received=found, fix=fix)
    if not sizes:
        what = "lax.scan got no values to scan over and `length` not provided; it needs xs or length."
        raise ArgumentError(what, received="xs without arrays", fix="pass length=n")
    return next(iter(sizes))


def scan_in_python(
    f: Any, init: Any, xs_tree: Any, leaves: Sequence[Any], length: int, reverse: bool
) -> tuple[Any, Any]:
    """Run `scan` as a Python loop, for `disable_jit`."""
    if length == 0:
        raise ArgumentError("lax.scan of length 0 needs tracing to know the ys, but jit is disabled.")
    carry, leaves, ys = lift_arrays(init), lift_arrays(list(leaves)), []
    for i in reversed(range(length)) if reverse else range(length):
        carry, y = lift_arrays(f(carry, tree.unflatten(xs_tree, [x[i] for x in leaves])))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, tree.map(lambda *parts: stack_values(parts, get_aval(parts[0])), *ys)  # type: ignore[arg-type]


@boundary
def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """Apply `f` to each slice of `xs` along the leading axis, in sequence, or `batch_size` slices at a time with vmap.

    Args:
        f: a function of a slice.
        xs: a tree of arrays with one leading size.
        batch_size: how many slices at a time are mapped with `vmap`; None for one.

    Returns:
        The stacked results.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.map(lambda x: x**2, wnp.arange(3))
    Array([0, 1, 4], dtype=int32)
    """
    if not callable(f):
        raise type_error("The first argument of lax.map must be a function of one slice.", type(f).__name__)
    if batch_size is not None and batch_size < 0:
        raise ArgumentError("batch_size of lax.map must be positive.", received=str(batch_size))
    if not batch_size:
        return scan(adapt_function(f, "map", lambda g: lambda _, x: ((), g(x))), (), xs)[1]
    leaves, treedef = flatten_argument(xs, "lax.map", "xs")
    count = scan_length(xs, leaves, None)
    whole, rest = divmod(count, batch_size)
    mapped = vmap(f)
    parts = []
    if whole:
        blocks = [
            reshape(
                slice_leading(x, 0, whole * batch_size),
                new_sizes=(whole, batch_size, *get_aval(x).shape[1:]),  # type: ignore[attr-defined]
                dimensions=None,
            )
            for x in leaves
        ]
        done = scan(lambda _, x: ((), mapped(x)), (), tree.unflatten(treedef, blocks))[1]
        parts.append(
            tree.map(lambda y: reshape(y, new_sizes=(whole * batch_size, *y.shape[2:]), dimensions=None), done)
        )
    if rest or not whole:
        parts.append(mapped(tree.unflatten(treedef, [slice_leading(x, whole * batch_size, count) for x in leaves])))
    return parts[0] if len(parts) == 1 else tree.map(lambda a, b: concatenate(a, b, dimension=0), *parts)


def slice_leading(x: Any, start: int, stop: int) -> Any:
    shape = get_aval(x).shape  # type: ignore[attr-defined]
    if (start, stop) == (0, shape[0]):
        return x
    return slice_primitive(
        x, start_indices=(start, *[0] * (len(shape) - 1)), limit_indices=(stop, *shape[1:]), strides=None
    )
